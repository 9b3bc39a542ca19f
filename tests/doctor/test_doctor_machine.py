"""What the doctor says of machines: this real one, and others whose /etc, /proc and programs are laid out in a folder."""

import getpass
import os
import resource
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from stoker.doctor import LEVELS, Finding, examine, gpu, machine, worst


def _levels(findings):
    return [(f.level, f.topic) for f in findings]


def _lay(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "state"))
    found = examine(None, tmp_path, dict(os.environ))
    topics = {f.topic for f in found}
    assert {"python", "disk", "shared memory", "open files", "cpus", "memory"} <= topics
    assert all(f.level in LEVELS and f.message.endswith(".") for f in found)
    assert not (tmp_path / "state").exists()


def test_findings_are_json_and_the_worst_counts():
    finding = Finding("warn", "disk", "Full.", "gc", "a.py", 3)
    assert finding.to_json() == {"level": "warn", "topic": "disk", "message": "Full.", "hint": "gc", "file": "a.py", "line": 3}
    assert worst([]) == "ok" and worst([finding, Finding("note", "x", "y")]) == "warn"


def test_a_command_that_cannot_start_is_a_finding(tmp_path):
    (tmp_path / "train.py").write_text("")
    found = examine(["trian.py"], tmp_path, {"PATH": "/usr/bin:/bin"}, deep=False)
    assert found[0].level == "fail" and "train.py" in found[0].hint
    assert "disk" in {f.topic for f in found}


def test_an_examination_of_a_script(tmp_path):
    venv.create(tmp_path / "v", with_pip=False, symlinks=True)
    (tmp_path / "train.py").write_text("import torch\nimport json\ninput()\n")
    env = {"PATH": f"{tmp_path}/v/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    found = examine(["train.py"], tmp_path, env)
    told = {(f.level, f.topic, f.file, f.line) for f in found}
    assert {("fail", "import", "train.py", 1), ("warn", "question", "train.py", 3)} <= told
    assert any(f.topic == "python" and f.level == "ok" and f"{tmp_path}/v/bin/python" in f.message for f in found)
    quick = examine(["train.py"], tmp_path, env, deep=False)
    assert ("warn", "question", "train.py", 3) in {(f.level, f.topic, f.file, f.line) for f in quick}
    assert "import" not in {f.topic for f in quick}


def test_an_environment_that_lies_unused(tmp_path):
    venv.create(tmp_path / ".venv", with_pip=False, symlinks=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    found = examine(None, tmp_path, {"PATH": str(tmp_path / "bin")})
    assert any("source .venv/bin/activate" in f.hint for f in found)


def test_torch_version_is_read_without_importing_it(tmp_path):
    venv.create(tmp_path / "v", with_pip=False, symlinks=True)
    library = next((tmp_path / "v/lib").glob("python*/site-packages"))
    _lay(library, **{"torch/__init__.py": "raise SystemExit(3)", "torch/version.py": "__version__ = '2.9.0+cu128'\ncuda = '12.8'\nhip = None\n"})
    found = examine(None, tmp_path, {"PATH": f"{tmp_path}/v/bin"})
    assert [f.message for f in found if f.topic == "torch"] == ["torch 2.9.0+cu128, CUDA 12.8."]


@pytest.mark.parametrize("torch, cuda, level", [
    ({"version": "2.9", "cuda": "12.8", "hip": None}, (12, 4), "ok"),  # one major version is compatible in itself
    ({"version": "2.9", "cuda": "12.8", "hip": None}, (13, 0), "ok"),
    ({"version": "2.9", "cuda": "13.0", "hip": None}, (12, 4), "fail"),
    ({"version": "2.9", "cuda": None, "hip": None}, (12, 4), "warn"),
])
def test_torch_against_the_driver(torch, cuda, level):
    seen = gpu.Gpus(("H200",), (10**11,), "550.1", cuda)
    assert [f.level for f in gpu.torch_findings(torch, seen)] == [level]


def test_gpus_that_are_hidden_missing_or_broken():
    real = gpu.Gpus(("A", "A"), (10**10, 10**10), "550", (12, 4))
    assert _levels(gpu.gpu_findings(real)) == [("ok", "gpu")] and not real.none
    hidden = gpu.Gpus(("A",), (10**10,), "550", (12, 4), hidden=True)
    assert _levels(gpu.gpu_findings(hidden)) == [("warn", "gpu")] and hidden.none
    assert _levels(gpu.gpu_findings(gpu.Gpus(error="x"))) == [("fail", "gpu")]
    assert _levels(gpu.gpu_findings(gpu.Gpus())) == [("note", "gpu")]


def _program(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_nvidia_smi_where_the_library_is_missing(tmp_path):
    env = _program(tmp_path / "bin", "nvidia-smi", "echo 'NVIDIA A100, 81920, 535.104'; echo 'NVIDIA A100, 81920, 535.104'")
    seen = gpu._by_program(env, False, False)
    assert (seen.names, seen.driver, seen.memory_bytes[0]) == (("NVIDIA A100",) * 2, "535.104", 81920 * 2**20)
    env = _program(tmp_path / "bin", "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    assert "version mismatch" in gpu._by_program(env, False, False).error


@pytest.mark.parametrize("visible, hidden", [(None, False), ("", True), ("-1", True), ("0,1", False), ("GPU-abc", False), ("NoDevFiles", True)])
def test_cuda_visible_devices(visible, hidden):
    assert gpu.gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}).hidden is hidden


@pytest.mark.parametrize("files, level", [
    ({}, None),  # no systemd
    ({"run/systemd/system/x": ""}, "ok"),
    ({"run/systemd/system/x": "", "etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, "ok"),
    ({"run/systemd/system/x": "", "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}, "warn"),
    ({"run/systemd/system/x": "", "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=root ann\n"}, "ok"),
    ({"run/systemd/system/x": "", "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=bob\n"}, "ok"),
    ({"run/systemd/system/x": "", "etc/systemd/logind.conf": "KillUserProcesses=no\n",
      "etc/systemd/logind.conf.d/20-site.conf": "KillUserProcesses=yes\n"}, "warn"),
    ({"run/systemd/system/x": "", "usr/lib/systemd/logind.conf.d/10-a.conf": "KillUserProcesses=yes\n",
      "etc/systemd/logind.conf.d/10-a.conf": "KillUserProcesses=no\n"}, "ok"),
    ({"run/systemd/system/x": "", "etc/systemd/logind.conf": "KillUserProcesses=yes\n", "var/lib/systemd/linger/ann": ""}, "ok"),
])
def test_logout(tmp_path, files, level):
    found = list(machine.login_manager({"USER": "ann", "PATH": "/nowhere"}, _lay(tmp_path, **files)))
    assert [f.level for f in found] == ([level] if level else [])
    if level == "warn":
        assert "loginctl enable-linger" in found[0].hint and "systemd-run --user --scope" in found[0].hint


def test_linger_is_asked_of_loginctl(tmp_path):
    root = _lay(tmp_path, **{"run/systemd/system/x": "", "etc/systemd/logind.conf": "KillUserProcesses=yes\n"})
    env = _program(tmp_path / "bin", "loginctl", "echo Linger=yes") | {"USER": "ann"}
    assert [f.level for f in machine.login_manager(env, root)] == ["ok"]
    assert getpass.getuser()


@pytest.mark.parametrize("files, cpus, memory", [
    ({}, None, None),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/memory.max": "4000000000\n"}, 1.5, 4_000_000_000),
    ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "400000 100000\n"}, 4.0, None),
    ({"proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000000\n"}, 0.5, 1_000_000_000),
    ({"proc/self/cgroup": "4:memory:/\n3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
      "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None, None),
])
def test_cgroup_limits(tmp_path, files, cpus, memory):
    root = _lay(tmp_path, **files)
    assert (machine.cpu_quota(root), machine.memory_limit(root)) == (cpus, memory)


def test_a_small_quota_is_a_warning_with_what_to_set(tmp_path):
    root = _lay(tmp_path, **{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n", "proc/meminfo": "MemTotal: 64000000 kB\n",
                             "sys/fs/cgroup/memory.max": "1000000000\n"})
    found = list(machine.cgroup(root))
    assert _levels(found) == [("warn", "cpus"), ("warn", "memory")] and "OMP_NUM_THREADS=1" in found[0].hint


def test_shared_memory_and_full_disks(tmp_path):
    assert _levels(machine.shared_memory(str(tmp_path / "gone"))) == [("warn", "shared memory")]
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=50", "none", tmp_path], capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        assert _levels(machine.shared_memory(str(tmp_path))) == [("warn", "shared memory")]
        assert {("fail", "disk"), ("fail", "inodes")} <= set(_levels(machine._disk("your folder", tmp_path)))
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_low_limit_of_open_files():
    program = "from stoker.doctor import machine; print([(f.level, f.hint) for f in machine.open_files()])"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    out = subprocess.run(["sh", "-c", 'ulimit -S -n 512; exec "$0" -c "$1"', sys.executable, program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str([("note", f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else hard}")])


def test_files_from_the_future(tmp_path):
    (tmp_path / "a").write_text("")
    assert list(machine.clock(tmp_path)) == []
    assert _levels(machine.clock(tmp_path, time.time() - 3600)) == [("warn", "clock")]
    assert list(machine.clock(Path("/nonexistent"))) == []


NVML = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
static int device;
int nvmlInit_v2(void) { return CODE; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strncpy(t, "550.54.15", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = &device; return i > 1; }
int nvmlDeviceGetName(void *h, char *t, unsigned n) { strncpy(t, "NVIDIA H200", n); return h != &device; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->total = 143771ull << 20; m->free = 1; m->used = 2; return h != &device; }
"""


@pytest.mark.parametrize("code, said", [(0, "2 x NVIDIA H200 (151 GB); driver 550.54.15, CUDA up to 12.4."), (18, "different versions"), (999, "error 999")])
def test_the_drivers_library(tmp_path, code, said):
    """A library with NVML's calls, as this machine's loader finds it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(NVML.replace("CODE", str(code)))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", tmp_path / "nvml.c"], check=True)
    program = "from stoker.doctor import gpu; print([f.message for f in gpu.gpu_findings(gpu.gpus({}))])"
    env = dict(os.environ, LD_LIBRARY_PATH=str(tmp_path))
    out = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert said in out.stdout

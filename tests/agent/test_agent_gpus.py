"""GPU figures by NVML, and by nvidia-smi where its library is missing: both played by small programs at the edge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid

import pytest
from agentkit import wait_for

NVML = r"""
#include <string.h>
#include <stdio.h>
static long gpus[2] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = &gpus[i]; return 0; }
int nvmlDeviceGetUUID(void *h, char *b, unsigned n) { snprintf(b, n, "GPU-%ld-aaaa", *(long *)h); return 0; }
int nvmlDeviceGetName(void *h, char *b, unsigned n) { snprintf(b, n, "Played %ld", *(long *)h); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = 80000000000ull; m[1] = 79999999000ull; m[2] = 1000 + *(long *)h; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, unsigned *r) { if (*(long *)h) return 3; r[0] = 42; r[1] = 7; return 0; }
"""
MARK = uuid.uuid4().hex[:12]  # leases of GPUs lie where all on this machine see them
SMI = """#!/bin/sh
case "$1" in
*utilization*) echo "0, GPU-x, 17, 300"; echo "1, GPU-y, [N/A], 5";;
*) echo "0, GPU-x, Played X, 1000, 300";;
esac
"""


@pytest.fixture
def nvml(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to make a library with")
    (tmp_path / "lib").mkdir()
    (tmp_path / "nvml.c").write_text(NVML.replace("aaaa", MARK))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "lib" / "libnvidia-ml.so.1"), str(tmp_path / "nvml.c")], check=True)
    return {"LD_LIBRARY_PATH": str(tmp_path / "lib")}


def telemetry(run) -> list:
    wait_for(lambda: (run.poll()["telemetry"] or {}).get("gpus"), "GPU figures")
    return run.poll()["telemetry"]["gpus"]


def test_nvml_in_telemetry_and_probe(new_run, nvml):
    run = new_run(["sleep", "100"])
    run.start(**nvml)
    assert telemetry(run) == [{"uuid": f"GPU-0-{MARK}", "index": 0, "busy_percent": 42, "memory_bytes": 1000},
                              {"uuid": f"GPU-1-{MARK}", "index": 1, "busy_percent": None, "memory_bytes": 1001}]
    facts = run.call("probe", env=nvml)[0]["gpus"]
    assert facts[1] == {"index": 1, "uuid": f"GPU-1-{MARK}", "name": "Played 1", "memory_bytes": 80000000000, "used_bytes": 1001,
                        "pids": [], "leased": None}


def test_only_the_runs_own_gpus_are_looked_at(new_run, nvml):
    handed = new_run(["sleep", "100"])
    handed.call("start", handed.dir, 1, "--gpus", f"GPU-1-{MARK}", env=nvml)
    chosen = new_run(["sleep", "100"], env={"CUDA_VISIBLE_DEVICES": "0"})
    chosen.start(**nvml)
    assert [g["index"] for g in telemetry(handed)] == [1] and [g["index"] for g in telemetry(chosen)] == [0]


def test_nvidia_smi_is_the_fallback(new_run, tmp_path):
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    run = new_run(["sleep", "100"])
    run.start(**path)
    assert telemetry(run) == [{"uuid": "GPU-x", "index": 0, "busy_percent": 17, "memory_bytes": 300 << 20},
                              {"uuid": "GPU-y", "index": 1, "busy_percent": None, "memory_bytes": 5 << 20}]
    assert run.call("probe", env=path)[0]["gpus"][0]["memory_bytes"] == 1000 << 20


def test_an_nvidia_smi_that_hangs_holds_nothing_up(new_run, tmp_path):
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 30\n")
    smi.chmod(0o755)
    run = new_run(["sleep", "100"], time_s=4.0)
    run.start(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    wait_for((tmp_path / "asked").exists, "it is asked")
    end = run.end()
    assert end["reason"] == "limit_time" and end["used_s"] < 20
    assert json.loads((run.attempt() / "heartbeat").read_text())["used_s"] > 1

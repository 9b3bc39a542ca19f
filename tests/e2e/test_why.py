"""Why did it die: every end has a reason, with evidence, and one sentence that a beginner understands."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from benchmarks.ground import BIN, Ground, kill, until
from parts import memory_cgroup, missing, refused, root_only, tmpfs


def ended(ground: Ground, *args: str, timeout_s: float = 60) -> dict:
    run = ground.detach(*args)
    return ground.wait_state(run["id"], timeout_s=timeout_s)


def said(ground: Ground, run: dict) -> str:
    """The first line of `stoker show`, which must also say what to type next."""
    out = ground.stoker("show", run["id"]).ok().out
    assert "stoker " in out, out
    return out


def test_exit_code(ground: Ground):
    run = ended(ground, "--", "sh", "-c", "echo working; exit 42")
    assert (run["state"], run["reason"], run["exit_code"], run["evidence"]["code"]) == ("failed", "nonzero_exit", 42, 42)
    assert "42" in said(ground, run)


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGKILL, "killed"), (signal.SIGTERM, "killed"), (signal.SIGSEGV, "crashed"), (signal.SIGABRT, "crashed"),
                                                (signal.SIGHUP, "hangup"), (signal.SIGUSR1, "killed")])
def test_signal(common: Ground, number: int, reason: str):
    run = common.detach("--", "sleep", "600")
    common.wait_state(run["id"], "running")
    kill(common.run_pid(run["id"]), number)
    run = common.wait_state(run["id"])
    name = signal.Signals(number).name
    assert (run["state"], run["reason"], run["evidence"]["signal_name"]) == ("failed", reason, name)
    assert run["exit_code"] in (None, 128 + number)
    if reason != "hangup":
        assert name in said(common, run)
    assert common.stoker("wait", run["id"]).code == 128 + number


def test_exception_with_file_and_line(ground: Ground):
    ground.script("model.py", "def forward(x):\n    y = x + 1\n    raise ValueError('shapes (3, 4) and (5, 6) not aligned')\n")
    ground.script("train.py", "import model\nprint('epoch 1')\nmodel.forward(1)\n")
    run = ended(ground, "train.py")
    found = run["evidence"]["exception"]
    assert (found["type"], found["line"], Path(found["file"]).name) == ("ValueError", 3, "model.py")
    assert "not aligned" in found["message"]
    out = said(ground, run)
    assert "ValueError" in out and "model.py" in out and "3" in out


def test_a_chained_exception_names_the_last(ground: Ground):
    ground.script("train.py", "try:\n    {}['lr']\nexcept KeyError:\n    raise RuntimeError('no learning rate')\n")
    found = ended(ground, "train.py")["evidence"]["exception"]
    assert (found["type"], found["line"]) == ("RuntimeError", 4)


@pytest.mark.parametrize("detached", [False, True], ids=["foreground", "detached"])
@pytest.mark.parametrize(("then", "named"), [
    ("print('the gate: too low', file=sys.stderr)\nsys.exit(3)", None),
    ("class Exit(SystemExit):\n    def __str__(self): return 'no'\nraise Exit({'not': 'an int'})", None),
    ("print('goes on', file=sys.stderr)\nraise ValueError('second\\n\\tline')", ("ValueError", 8, "second\nline")),
    ("sys.excepthook = lambda kind, error, trace: print('own:', error, file=sys.stderr)\nraise ValueError('second')", ("ValueError", 8, "second")),
    ("def f():\n    raise KeyError('second')\ntry: f()\nfinally: threading.Thread(target=lambda: threading.main_thread().join() or 1 / 0).start()", ("KeyError", 8, "'second'")),
])
def test_what_the_script_handled_is_not_the_reason(common: Ground, then: str, named: tuple | None, detached: bool):
    """The process itself says which exception nobody caught."""
    begin = "import sys, threading, traceback\n\ndef first():\n    int('first')\ntry: first()\nexcept ValueError: traceback.print_exc()\n"
    common.script("train.py", f"{begin}{then}\n")
    if detached:
        run = ended(common, "train.py")
    else:
        common.stoker("run", "--new", "train.py")
        run = common.show(common.runs()[0]["id"])
    found = run["evidence"].get("exception")
    assert (found and (found["type"], found["line"], found["message"])) == named


def test_the_stderr_of_a_foreground_run_counts(ground: Ground):
    ground.script("train.py", "raise ZeroDivisionError('by hand')\n")
    done = ground.stoker("run", "train.py")
    assert done.code == 1 and b"ZeroDivisionError" in done.stderr
    run = ground.show(ground.runs()[0]["id"])
    assert run["evidence"]["exception"]["type"] == "ZeroDivisionError"


@root_only
def test_the_kernel_killed_it_for_memory(ground: Ground):
    with memory_cgroup(700_000_000) as group:
        inside = subprocess.run(["sh", "-c", f"echo $$ > {group}/cgroup.procs; exec stoker server start"], env=ground.env, cwd=ground.work, capture_output=True, check=False)
        assert inside.returncode == 0, inside.stderr
        ground.script("train.py", "print('loading', flush=True)\nblocks = []\nwhile True: blocks.append(bytearray(b'x' * 20_000_000))\n")
        run = ended(ground, "train.py")
        assert (run["state"], run["reason"]) == ("failed", "host_oom")
        assert run["evidence"]["oom_kill_after"] > run["evidence"]["oom_kill_before"]
        assert "memory" in said(ground, run)
        other = ground.detach("--", "sleep", "600")
        ground.wait_state(other["id"], "running")
        kill(ground.run_pid(other["id"]))
        assert ground.wait_state(other["id"])["reason"] == "killed", "an older OOM must not explain this kill"
        ground.stoker("server", "stop").ok()
        until(lambda: not ground.processes(), 20, "the end of all processes")


@pytest.mark.parametrize("text", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.78 GiB of which 14.56 GiB is free.",
                                  "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 23.69 GiB total capacity; 22.90 GiB already allocated)",
                                  "RuntimeError: CUDA error: out of memory",
                                  "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."])
def test_gpu_out_of_memory_by_its_text(common: Ground, text: str):
    name, _, message = text.partition(": ")
    common.script("train.py", f"import sys\nprint('Traceback (most recent call last):\\n  File \"train.py\", line 9, in <module>\\n    y = model(x)', file=sys.stderr)\n"
                              f"print({name!r} + ': ' + {message!r}, file=sys.stderr)\nsys.exit(1)\n")
    run = ended(common, "train.py")
    assert run["reason"] == "gpu_oom"
    assert "GPU" in said(common, run)


def test_gpu_out_of_memory_from_torch_itself(ground: Ground):
    pytest.importorskip("torch")
    ground.script("train.py", "import torch\nraise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB.')\n")
    assert ended(ground, "train.py")["reason"] == "gpu_oom"


def test_the_words_alone_do_not_make_a_reason(ground: Ground):
    """A run that recovered from what it printed ended well; one that failed later failed for the later reason."""
    ground.script("train.py", "print('RuntimeError: CUDA out of memory, halving the batch')\nprint('No space left on device, trying another disk')\n")
    assert ended(ground, "train.py")["reason"] == "exited"


@root_only
def test_disk_full(ground: Ground):
    data = ground.work / "data"
    with tmpfs(data, "size=1m"):
        ground.script("train.py", "with open('data/model.pt', 'wb') as f:\n    while True: f.write(b'x' * 100000); f.flush()\n")
        run = ended(ground, "train.py")
        assert (run["state"], run["reason"]) == ("failed", "disk_full")
        evidence = run["evidence"]
        assert evidence["exception"]["type"] == "OSError"
        assert "disk_free_bytes" in evidence and "inodes_free" in evidence
        assert "full" in said(ground, run)


@root_only
def test_inodes_used_up_is_a_full_disk(ground: Ground):
    data = ground.work / "data"
    with tmpfs(data, "size=8m,nr_inodes=20"):
        ground.script("train.py", "for i in range(100): open(f'data/{i}', 'w').close()\n")
        run = ended(ground, "train.py")
        assert run["reason"] == "disk_full"


@pytest.mark.slow
def test_torchrun_names_the_first_failing_ranks_own_traceback(ground: Ground):
    pytest.importorskip("torch")
    if not shutil.which("torchrun", path=str(BIN)):
        missing("torchrun")
    ground.script("train.py", "import os, time\nrank = int(os.environ['RANK'])\nprint('rank', rank, flush=True)\nif rank == 1:\n    time.sleep(0.5)\n    raise ValueError('bad batch on rank one')\ntime.sleep(600)\n")
    run = ended(ground, "--", "torchrun", "--standalone", "--nproc_per_node=2", "train.py", timeout_s=100)
    found = run["evidence"]["exception"]
    assert (found["type"], found["line"], found["rank"], Path(found["file"]).name) == ("ValueError", 6, 1, "train.py")
    assert "bad batch on rank one" in found["message"]
    assert "bad batch on rank one" in said(ground, run)


def test_a_command_that_cannot_be_started_when_its_turn_comes(ground: Ground):
    ground.home.mkdir(mode=0o700)
    (ground.home / "config.toml").write_text("slots = 1\n")
    program = ground.script("program", "#!/bin/sh\necho hello\n", 0o755, folder=ground.root / "elsewhere")
    first = ground.detach("--slots", "1", "--", "sleep", "600")
    ground.wait_state(first["id"], "running")
    second = ground.detach("--slots", "1", "--", str(program))
    program.unlink()
    ground.stoker("stop", first["id"]).ok()
    run = ground.wait_state(second["id"])
    assert (run["state"], run["reason"]) == ("failed", "start_failed")
    assert run["evidence"]["detail"]
    assert ground.show(second["id"])["hooks"] is None, "nothing is said of hooks where no process began"


def test_stop_and_limits_have_their_own_reasons(ground: Ground):
    stopped = ground.detach("--", "sleep", "600")
    ground.wait_state(stopped["id"], "running")
    ground.stoker("stop", stopped["id"]).ok()
    assert ground.wait_state(stopped["id"])["reason"] == "stopped_by_user"
    limited = ended(ground, "--time", "1s", "--", "sleep", "600")
    assert limited["reason"] == "limit_time"
    assert "stoker keep" in said(ground, limited)


def test_a_stop_at_a_terminal_shows_where_the_ladder_is(ground: Ground):
    (ground.work / "deaf.py").write_text("import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(100)\n")
    run = ground.detach("--grace", "3s", "deaf.py")
    until(lambda: b"up" in ground.log(run["id"]), 20, "the script")
    term = ground.terminal("stop", run["id"])
    term.expect(b"SIGINT sent; waiting at most")
    term.expect(b"SIGTERM sent; waiting at most")
    assert term.wait() == 0


def test_units_of_signals_and_warnings_are_checked(ground: Ground):
    refused(ground.stoker("run", "--stop-signal", "KILL", "x.py"), 125, "KILL", "USR1")
    refused(ground.stoker("run", "--warn", "5m", "x.py"), 125, "--warn needs a time limit")


def test_a_run_that_stands_still_is_said_to_be_stalled(ground: Ground):
    (ground.work / "hang.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    run = ground.detach("--stall", "2s", "hang.py")
    until(lambda: "stalled" in ground.stoker("ps").ok().out, 40, "ps to say so")
    assert "Stalled for " in ground.stoker("show", run["id"]).ok().out and ground.show(run["id"])["stalled"]["stalled"]
    ground.stoker("stop", "--force", run["id"]).ok()
    assert ground.show(run["id"])["stalled"] is None


def test_more_runs_than_cores_are_warned_of_and_start_all_the_same(ground: Ground):
    core = str(min(os.sched_getaffinity(0)))
    subprocess.run(["taskset", "-c", core, str(BIN / "stoker"), "server", "start"], env=ground.env, cwd=ground.work, check=True, capture_output=True)
    first = ground.detach("--", "sleep", "600")
    assert not any("slow each other down" in line for line in first["warnings"])
    second = ground.detach("--", "sleep", "600")
    assert any("With this run, 2 runs share 1 core" in line and "--slots 1" in line for line in second["warnings"]), second["warnings"]
    assert ground.wait_state(second["id"], "running")["state"] == "running"
    assert "slow each other down" in ground.stoker("show", second["id"]).ok().out
    for run in (first, second):
        ground.stoker("stop", "--force", run["id"]).ok()
    assert not any("slow each other down" in line for line in ground.show(second["id"])["warnings"]), "it shares the cores no longer"


def test_a_time_without_a_unit_is_refused(ground: Ground):
    refused(ground.stoker("run", "--time", "90", "x.py"), 125, "'90' has no unit", "90m means minutes")

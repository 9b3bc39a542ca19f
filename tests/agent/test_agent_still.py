"""A run that makes no step: when it is quiet, when it is stalled, the lines in which its processes wait, and what `--stall` does then."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from agentkit import Running, kill, wait_for

from stoker.agent.attempts import Attempt
from stoker.agent.standstill import StandStill, place_words, stacks_of
from stoker.agent.tree import Tree
from stoker.base.vendor import lay_out

PY = sys.executable

HUNG_LOADER = """\
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Stuck(Dataset):
        def __len__(self):
            return 4000
        def __getitem__(self, index):
            if index == 84:
                time.sleep(3600)
            return torch.randn(16)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, batch in enumerate(DataLoader(Stuck(), batch_size=4, num_workers=2)):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, flush=True)
    """
SKIPPED = """\
    import os
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    weight = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for step in range(200):
        optimizer.zero_grad()
        (weight * (step + rank)).sum().backward()
        if not (rank == 1 and step == 10):
            dist.all_reduce(weight.grad)
        optimizer.step()
        print("step", step, "rank", rank, flush=True)
        if step % 5 == 0:
            dist.barrier()
    """


def hooked(new_run, argv: list[str], **spec: object) -> Running:
    run = new_run(argv, hooks=True, env={"OMP_NUM_THREADS": "1"}, **spec)
    (run.dir / "hooks").symlink_to(lay_out(run.dir).name)
    return run


def script(folder: Path, text: str) -> str:
    (folder / "train.py").write_text(textwrap.dedent(text))
    return str(folder / "train.py")


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(textwrap.dedent(text).splitlines(), 1) if part in line)


def look_later(run: Running, seconds: float, *, of: object = None) -> object:
    """What the agent would see of this run if nothing came for so long."""
    att = Attempt(str(run.dir), 1)
    members = Tree(att, run.record()["holder"], run.agent(), run.record()["run"]).look()
    still = of or StandStill(att, {}, time.monotonic(), time.time())
    still.look(time.monotonic(), time.time(), members, run.record()["run"])
    still.look(time.monotonic() + seconds, time.time() + seconds, members, run.record()["run"])
    return still


@pytest.mark.slow
def test_a_loader_that_hangs_is_named_with_its_workers_line(new_run, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    run = hooked(new_run, [PY, script(tmp_path, HUNG_LOADER)])
    run.start()
    run.wait_out(b"step 20\n", timeout=90)
    before = run.out()
    still = look_later(run, 40)
    where = f"waits for data at train.py, line {line_of(HUNG_LOADER, 'for step')}, worker 1 is in __getitem__ (train.py, line {line_of(HUNG_LOADER, 'sleep')})"
    assert (still.quiet, still.stalled, still.text) == (True, False, where)
    told = json.loads((run.attempt() / "still.json").read_text())
    assert told["quiet"] and [p["file"] for p in told["places"]] == [str(tmp_path / "train.py")] * 2
    still = look_later(run, 400)
    assert (still.quiet, still.stalled, still.text) == (True, True, where)
    assert run.out() == before, "the stacks do not come to the user"
    run.stop("--grace", 0, 0)
    run.end()


@pytest.mark.slow
def test_a_collective_that_one_rank_skipped_is_named_with_both_lines(new_run, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    run = hooked(new_run, [PY, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script(tmp_path, SKIPPED)])
    run.start()
    run.wait_out(b"step 10 rank 1\n", timeout=90)
    wanted = [f"rank 0 waits in all_reduce (train.py, line {line_of(SKIPPED, 'all_reduce')})", f"rank 1 waits in barrier (train.py, line {line_of(SKIPPED, 'barrier')})"]
    wait_for(lambda: sorted(re.split(", (?=rank)", look_later(run, 40).text)) == wanted, "both lines", timeout=20)
    run.stop("--grace", 0, 0)
    run.end()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["evaluation", "save"])
def test_an_evaluation_or_a_save_that_is_long_is_not_quiet(new_run, tmp_path, what):
    pytest.importorskip("torch", reason="torch is not installed")
    long = {"evaluation": "m.eval()\nwith torch.no_grad():\n    m(x)\n    print('there', flush=True)\n    time.sleep(100)\n",
            "save": "class Slow:\n    def __reduce__(self):\n        print('there', flush=True)\n        time.sleep(100)\ntorch.save(Slow(), 'x.pt')\n"}[what]
    text = f"import time, torch\nm = torch.nn.Linear(2, 1)\nx = torch.ones(4, 2)\no = torch.optim.SGD(m.parameters(), 0.1)\nfor i in range(200):\n    m(x).sum().backward()\n    o.step()\n    time.sleep(0.01)\n{long}"
    run = hooked(new_run, [PY, script(tmp_path, text)])
    run.start()
    run.wait_out(b"there", timeout=60)
    assert not look_later(run, 100).quiet
    for busy in (run.attempt() / "hooks").glob("busy-*"):
        busy.unlink()
    assert look_later(run, 100).quiet
    run.stop("--grace", 0, 0)
    run.end()


def test_the_slowest_steps_give_the_measure(tmp_path):
    """Lines of a clock, and time, are given."""
    att = Attempt(str(tmp_path / "runs" / "r"), 1)
    os.makedirs(att.folder)
    still = StandStill(att, {}, 0.0, 0.0)
    Path(att.path("steps.jsonl")).write_text(json.dumps({"step": 9, "s": 1.0, "p99_ms": 9000}) + "\n")
    assert [still.look(now, now, [], None) for now in (0.0, 60.0, 89.0)] == [False] * 3 and not still.quiet
    assert still.look(91.0, 91.0, [], None) and still.quiet and not still.stalled and still.told()["since"] == 0.0
    with open(att.path("steps.jsonl"), "a") as f:
        f.write(json.dumps({"step": 10, "s": 95.0, "p99_ms": 100}) + "\n")
    assert still.look(95.0, 95.0, [], None) and not still.quiet and not os.path.exists(att.path("still.json"))
    assert not still.look(250.0, 250.0, [], None), "a line of a long run comes each minute"
    assert still.look(290.0, 290.0, [], None) and still.quiet


def test_a_first_step_is_not_quiet(tmp_path):
    att = Attempt(str(tmp_path / "runs" / "r"), 1)
    os.makedirs(att.folder)
    still = StandStill(att, {}, 0.0, 0.0)
    Path(att.path("steps.jsonl")).write_text(json.dumps({"step": 0, "s": 1.0}) + "\n")
    assert not any(still.look(now, now, [], None) for now in (0.0, 100.0, 10_000.0))


HANGS = "import os, time\nprint('try', os.environ['STOKER_ATTEMPT'], flush=True)\ntime.sleep(1000)"


@pytest.mark.parametrize("act", ["stop", "restart", "warn"])
def test_what_is_done_to_a_run_that_stands_still(new_run, act):
    run = new_run([PY, "-c", HANGS], stall_s=2.0, stall_do=act, backoff_s=0.1)
    run.start()
    if act == "warn":
        wait_for(lambda: run.poll()["stalled"], "it is said")
        assert run.phase() == "running"
        run.stop("--grace", 0, 0)
        run.end()
        return
    end = run.end()
    assert end["reason"] == "stalled" and end["evidence"]["limit"] == "2s"
    assert (end["restart"] is not None) == (act == "restart")
    if act == "restart":
        run.wait_out(b"try 2", n=2)
        run.stop("--grace", 0, 0)
        run.end(2)


@pytest.mark.parametrize("busy", ["print('.', flush=True)", "open('/dev/zero', 'rb', buffering=0).read(1)"])
def test_who_prints_or_reads_does_not_stand_still(new_run, busy):
    run = new_run([PY, "-c", f"import time\nfor i in range(40):\n    {busy}\n    time.sleep(0.2)"], stall_s=4.0, stall_do="stop")
    run.start()
    assert run.end()["reason"] == "exited"


def test_only_a_process_that_listens_now_is_asked_for_its_stacks(tmp_path):
    """One that has another program in it, or another file under the number, would die of the signal, or write into a file of the user's."""
    sleeper = subprocess.Popen([PY, "-c", "import time; print(1, flush=True); time.sleep(100)"], stdout=subprocess.PIPE)
    try:
        sleeper.stdout.readline()
        assert stacks_of(sleeper.pid, {"signal": 57, "fd": 1, "path": str(tmp_path / "stacks")}) == ""
        time.sleep(0.05)
        assert sleeper.poll() is None
    finally:
        kill(sleeper.pid)
        sleeper.wait()
        sleeper.stdout.close()


def test_the_launcher_is_not_among_the_places_of_its_ranks():
    launcher = {"pid": 1, "file": "/venv/bin/torchrun", "line": 8, "function": "<module>", "call": "main"}
    ranks = [{"pid": 2 + n, "rank": n, "file": "/x/train.py", "line": 14 + n, "function": "<module>", "call": "barrier"} for n in range(2)]
    assert place_words([launcher, *ranks]) == "rank 0 waits in barrier (train.py, line 14), rank 1 waits in barrier (train.py, line 15)"
    assert place_words([launcher]) == "waits in main (torchrun, line 8)"

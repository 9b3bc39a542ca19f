"""Runs a training script for so many optimizer steps in a forked child, and tells when each step ended.

The parent has imported torch, so that a run costs what the script costs. With names as arguments: two steps of each, a JSON line a script.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy  # noqa: F401  imported here once for all children
import torch
import torch.utils.data
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

sys.path.insert(0, str(Path(__file__).resolve().parent))
import accelerator
import suite

torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()  # what torch imports at its first optimizer
_SCHEDSTAT: list[int] = []  # this process's, once it is a child


class _Enough(BaseException):
    """Passes through `except Exception` of the script, and lets its `finally` run."""


@dataclass
class Outcome:
    """What became of one run."""

    ended: str  # "steps" (as many as asked for), "end", "error", "killed"
    times: list[float] = field(default_factory=list)  # when each optimizer step ended
    waited: list[float] = field(default_factory=list)  # seconds that the main thread had stood ready without a core by then
    device: list[float] = field(default_factory=list)  # seconds that the pretend accelerator had been given to do by then
    resident: list[int] = field(default_factory=list)  # bytes resident before the first step and after each; only where asked for
    error: str = ""
    out: str = ""  # the end of what it printed

    def seconds(self, warm: int, *, others: bool = False) -> float:
        """From the end of step `warm` to the end of the last one, less the time for which others had the core (unless wanted).

        What the device was busy for is the least: behind it a wait for a core costs nothing.
        """
        whole, waited, device = (series[-1] - series[warm - 1] for series in (self.times, self.waited, self.device))
        return whole if others else max(whole - waited, device)


def run(path: Path, *, args: list[str], steps: int, timeout: float = 120, memory: bool = False) -> Outcome:
    """Run the script until it has taken `steps` optimizer steps (0: to its end), in a folder of its own that is then removed."""
    folder = Path(tempfile.mkdtemp(prefix="fault-"))
    (folder / "cwd").mkdir()
    pid = os.fork()
    if pid == 0:
        _child(path, args, steps, folder, memory)
    try:
        killed = _wait(pid, timeout)
        out = (folder / "out").read_text("utf-8", "replace")[-4000:]
        report = folder / "report.json"
        if killed or not report.exists():
            return Outcome("killed", error=out[-2000:], out=out)
        return Outcome(**json.loads(report.read_text()), out=out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _child(path: Path, args: list[str], steps: int, folder: Path, memory: bool) -> None:
    os.setsid()
    os.chdir(folder / "cwd")
    out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = [str(path), *args]
    sys.path[0] = str(path.parent)
    sys.path.append(str(suite.HERE))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    outcome, me = Outcome("end"), os.getpid()
    _SCHEDSTAT.append(os.open("/proc/self/schedstat", os.O_RDONLY))

    def stepped(*_):
        if os.getpid() != me:
            return
        outcome.times.append(time.perf_counter())
        outcome.waited.append(_stood_ready())
        outcome.device.append(accelerator.charged())
        if memory:
            outcome.resident.append(_resident())
        if len(outcome.times) == steps:
            raise _Enough

    def about_to_step(*_):
        if memory and not outcome.resident:
            outcome.resident.append(_resident())

    register_optimizer_step_pre_hook(about_to_step)
    register_optimizer_step_post_hook(stepped)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except _Enough:
        outcome.ended = "steps"
    except SystemExit as error:
        outcome.ended = "end" if error.code in (None, 0) else "error"
        outcome.error = "" if error.code in (None, 0) else str(error.code)
    except BaseException:
        outcome.ended, outcome.error = "error", traceback.format_exc(limit=-3)
    if os.getpid() != me:
        os._exit(1)
    sys.stdout.flush()
    report = {k: v for k, v in asdict(outcome).items() if k != "out"}
    (folder / "report.tmp").write_text(json.dumps(report))
    (folder / "report.tmp").rename(folder / "report.json")
    os._exit(0)


def _stood_ready() -> float:
    return int(os.pread(_SCHEDSTAT[0], 100, 0).split()[1]) / 1e9


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _wait(pid: int, timeout: float) -> bool:
    """True when it had to be killed. Workers that are left end with it: it has a process group of its own."""
    deadline, killed = time.monotonic() + timeout, False
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline and not killed:
            os.killpg(pid, signal.SIGKILL)
            killed = True
        time.sleep(0.01)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return killed


def _two_steps(names: list[str]) -> None:
    for case in suite.cases():
        if names and case.name not in names:
            continue
        started = time.process_time(), time.perf_counter()
        outcome = run(case.path, args=case.args, steps=2, timeout=30)
        print(json.dumps({"name": case.name, "ended": outcome.ended, "steps": len(outcome.times), "error": outcome.error,
                          "wall_s": round(time.perf_counter() - started[1], 2)}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _two_steps(sys.argv[1:])

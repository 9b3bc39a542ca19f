"""What the engine and recording cost on a device. Parts of benchmarks/gpu.py."""

from __future__ import annotations

import json
import os
import re
import time

from benchmarks.gpu import SCRIPTS, Report, end_group, python
from benchmarks.gpu_resume import TIMES
from benchmarks.ground import until
from benchmarks.resume_cost import Lives, lives

# name, script, seconds of its loop, words for a GPU, words for a try on the CPU
RECORDED = (
    (
        "gpt, 6 layers of 384",
        "gpt.py",
        12.0,
        ("--layers", "6", "--width", "384", "--block", "256", "--batch", "64"),
        ("--layers", "1", "--width", "16", "--block", "16", "--batch", "2"),
    ),
    ("cnn, 2 workers", "cnn.py", 6.0, (), ("--samples", "320")),
)


def engine(report: Report) -> None:
    """A step, a save, reading ahead: benchmarks/on_gpu/engine_cost.py."""
    out = report.work / "cost"
    process = python(
        "engine_cost.py", report.device, "small" if report.small else "whole", cwd=report.work, out=out
    )
    told = 0
    try:
        while True:
            ended = process.poll() is not None
            text = out.read_text(errors="replace")
            lines = [
                line
                for line in text.splitlines(keepends=True)
                if line.startswith('{"name"') and line.endswith("\n")
            ]
            for line in lines[told:]:
                found = json.loads(line)
                report.add("engine-cost", found.pop("name"), **found)
            told = len(lines)
            if ended:
                break
            time.sleep(0.2)
    finally:
        end_group(process)
    if process.returncode:
        report.add("engine-cost", "error", text=out.read_text(errors="replace")[-1500:])


def recording(report: Report) -> None:
    """CPU and wall time of a recorded script over plain python, whole processes in the order A B B A."""
    with lives() as made:
        for name, script, loop_s, words, small in RECORDED:
            with report.guarded("recording", name):
                argv = [str(SCRIPTS / script), *(small if report.small else words), "--device", report.device]
                _recorded(report, made, name, argv, 3.0 if report.small else loop_s)


def _recorded(report: Report, made: Lives, name: str, argv: list[str], wanted_s: float) -> None:
    epoch_s = _whole(made, [*argv, "--epochs", "3"], "")["last_epoch_s"]
    epochs = max(3, min(400, round(wanted_s / epoch_s)))
    sides: dict[str, list[dict]] = {"plain": [], "recorded": []}
    for side in ("plain", "recorded", "recorded", "plain"):
        sides[side].append(
            _whole(made, [*argv, "--epochs", str(epochs)], "auto" if side == "recorded" else "")
        )
        report.add("recording", f"{name}, {side}", **sides[side][-1])
    mean = {
        side: {key: sum(each[key] for each in found) / 2 for key in ("cpu_s", "loop_s", "wall_s")}
        for side, found in sides.items()
    }
    ratios = {key: round(mean["recorded"][key] / mean["plain"][key], 4) for key in mean["plain"]}
    report.add(
        "recording", name, epochs=epochs, words=" ".join(argv[1:]), recorded_over_plain=ratios, mean=mean
    )


def _whole(made: Lives, argv: list[str], every: str) -> dict:
    """Seconds of one run: CPU with its workers, wall, and of its epochs as it prints them (the first is left
    out: it warms up)."""
    folder = made.base / f"out{len(list(made.base.glob('out*')))}"
    folder.mkdir()
    began = time.monotonic()
    with open(folder / "text", "wb") as out:
        process, home = made.start(argv, every=every, stdout=out)
    try:
        until(
            lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None,
            100,
            f"the end of {argv[0]}",
        )
        wall = time.monotonic() - began
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, (home / "err").read_text()[-1500:]
    epochs = [float(each[1:-3]) for each in re.findall(TIMES, (folder / "text").read_text())]
    state = {}
    if every:
        state = json.loads((home / "resume" / "state.json").read_text())
        state = {key: state.get(key) for key in ("state", "reason", "image", "events", "points_passed")}
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": wall,
        "loop_s": sum(epochs[1:]),
        "last_epoch_s": epochs[-1],
        "said": state,
    }

"""What the commands say on a machine with a GPU: doctor, top, `--gpus`, a GPU out of memory, tune.
Parts of benchmarks/gpu.py."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from benchmarks.gpu import SCRIPTS, Report
from benchmarks.gpu_resume import TIMES
from benchmarks.ground import FINAL, Done, Ground, until

TOLD = (
    "verdict",
    "outcome",
    "sentence",
    "hint",
    "error",
    "step_ms",
    "floor_ms",
    "stall",
    "copy",
    "noise",
    "residual",
    "kept",
    "forecast",
    "total",
    "stages",
    "actions",
    "tips",
    "refusals",
    "trials",
    "notes",
    "card",
    "guard",
    "seconds",
)
LEASES = ("/run/lock", "/tmp")


def _said(report: Report, name: str, done: Done, **more: object) -> None:
    report.add(
        "tools",
        name,
        command=shlex.join(
            ["stoker", *(Path(word).name if word.startswith("/") else word for word in done.args)]
        ),
        code=done.code,
        out=done.out[-2500:],
        err=done.err[-800:],
        **more,
    )


def tools(report: Report) -> None:
    """Commands and what they print, to be read by a person."""
    ground, other = report.ground(), report.ground()
    try:
        for name, words in {
            "doctor": ("doctor",),
            "doctor of a script": ("doctor", str(SCRIPTS / "starved.py")),
            "top": ("top", "--once"),
            "top as JSON": ("top", "--json"),
        }.items():
            with report.guarded("tools", name):
                _said(report, name, ground.stoker(*words))
        with report.guarded("tools", "out of memory"):
            done = ground.stoker("run", str(SCRIPTS / "too_large.py"), report.device)
            run = ground.runs()[0]
            _said(
                report,
                "out of memory",
                done,
                reason=run.get("reason"),
                sentence=ground.show(run["id"]).get("sentence"),
            )
        if not report.small:
            with report.guarded("tools", "a GPU reserved"):
                _reserved(report, ground, other)
        with report.guarded("tools", "rehearsal"):
            _said(
                report,
                "rehearsal",
                ground.stoker(
                    "run", "--rehearse", "1", str(SCRIPTS / "amp.py"), "--samples", "320", "--width", "4"
                ),
            )
    finally:
        ground.close()
        other.close()


def _reserved(report: Report, ground: Ground, other: Ground) -> None:
    """`--gpus 1`, what a second run and a second state folder then see, and the lease."""
    words = ("--gpus", "1", str(SCRIPTS / "hold.py"), report.device, "15")
    first = ground.detach(*words)["id"]
    ground.until_log(first, b"sees", timeout_s=40)
    held = [str(path) for folder in LEASES for path in Path(folder).glob("stoker-gpu-*")]
    second = ground.stoker("run", "-d", *words)
    elsewhere = other.stoker("run", "-d", *words)
    _said(report, "top while a GPU is reserved", ground.stoker("top", "--once"), leases=held)
    _said(report, "ps while a GPU is reserved", ground.stoker("ps"), second=second.out + second.err,
          second_state_folder=elsewhere.out + elsewhere.err)
    _said(report, "ps of the second state folder", other.stoker("ps"))
    done = ground.wait_state(first, *FINAL)
    _said(
        report,
        "show of the run that held the GPU",
        ground.stoker("show", first),
        log=ground.log(first).decode(errors="replace"),
        state=done["state"],
    )


def tune(report: Report) -> None:
    """`stoker tune` of a script that waits for its data;
    then the same script with the settings and without them."""
    ground = report.ground()
    try:
        words = (
            str(SCRIPTS / "starved.py"),
            "--device",
            report.device,
            "--epochs",
            "4" if report.small else "1000",
        )
        done = ground.stoker(
            "tune", "--force", "--for", "15s" if report.small else "40s", "--json", *words, timeout_s=100
        )
        found = json.loads(done.out) if done.out.startswith("{") else {"out": done.out[-2000:]}
        found = {key: value for key, value in found.items() if key in (*TOLD, "out")}
        report.add("tune", "tune", code=done.code, err=done.err[-1500:], found=found)
        for name, more in {"with settings": (), "without": ("--no-settings",)}.items():
            with report.guarded("tune", name):
                _epochs(report, ground, name, (*more, *words))
    finally:
        ground.close()


def _epochs(report: Report, ground: Ground, name: str, words: tuple[str, ...]) -> None:
    """Seconds of the second and third epoch under `stoker run`."""
    run = ground.detach("--new", "--resume", "off", *words)["id"]

    def times() -> list[str]:
        return re.findall(TIMES, ground.log(run).decode(errors="replace"))

    until(lambda: len(times()) >= 3 or ground.json_file(run, 1, "exit.json") is not None, 60, "three epochs")
    ground.stoker("stop", "--force", run)
    report.add(
        "tune",
        name,
        epochs_s=[float(each[1:-3]) for each in times()][:8],
        shown=ground.stoker("show", run).out[-1800:],
    )

"""Kills on a device: trainings of the engine, and unmodified scripts. Parts of benchmarks/gpu.py."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu import SCRIPTS, Report, end_group, python
from benchmarks.ground import FINAL, Ground, kill, until

LIFE_S = 90.0
TIMES = r"\([\d.]+ s\)"  # the scripts print how long an epoch took
KILLS = 3
AT_ONCE = 6  # cells side by side

ENGINE_CELLS = {
    "fp32 deterministic": {"deterministic": True},
    "bf16 deterministic": {"precision": "bf16", "deterministic": True},
    "fp16 deterministic": {"precision": "fp16", "deterministic": True},
    "fp32 as it is": {},
    "fp32 benchmark and resize": {"benchmark": True, "resize": True},
    "bf16 compiled": {"precision": "bf16", "compile": True},
}


@dataclass
class Life:
    """One start of the engine's training."""

    killed: bool
    seconds: float  # since its first batch


class EngineRun:
    """A training in a folder of its own."""

    def __init__(self, folder: Path, options: dict) -> None:
        folder.mkdir(parents=True)
        self.folder, self.options = folder, options

    def text(self) -> str:
        path = self.folder / "out"
        return path.read_text(errors="replace") if path.exists() else ""

    def live(self, kill_after_s: float | None = None) -> Life:
        """To its end, or killed this long after its first batch."""
        before = self.text().count("BEGUN")
        process = python("engine_training.py", json.dumps(self.options), cwd=self.folder)
        try:
            until(
                lambda: self.text().count("BEGUN") > before or process.poll() is not None,
                LIFE_S,
                "the first batch",
            )
            began = time.monotonic()
            if kill_after_s is None:
                until(lambda: process.poll() is not None, LIFE_S, "the end of a training")
            else:
                time.sleep(kill_after_s)  # the moment of the kill, not a guess
            return Life(process.poll() is None, time.monotonic() - began)
        finally:
            end_group(process)

    def result(self) -> dict:
        lines = [line for line in self.text().splitlines() if line.startswith("RESULT")]
        assert lines, f"no result: {self.text()[-1500:]}"
        return json.loads(lines[-1].removeprefix("RESULT "))

    def said(self) -> list[str]:
        """What the engine said about resuming."""
        return [line for line in self.text().splitlines() if line.startswith("stoker:") and "resume" in line]


def engine_kills(report: Report) -> None:
    """Each cell: two undisturbed trainings, and one that is killed three times."""
    cells = list(ENGINE_CELLS.items())
    if report.small:
        cells = cells[2:3]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda cell: _engine_cell(report, *cell), cells))


def _engine_cell(report: Report, name: str, options: dict) -> None:
    size = {"epochs": 2, "samples": 256, "save": "1step"} if report.small else {"epochs": 12, "samples": 2048}
    options = {"device": report.device, **size, **options}
    base = report.work / name.replace(" ", "-")
    with report.guarded("engine-kills", name):
        first = EngineRun(base / "first", options)
        whole = first.live()
        wanted = first.result()
        with ThreadPoolExecutor(3) as pool:
            again = pool.submit(_straight, base / "again", options)
            apart = (
                pool.submit(_straight, base / "apart", {**options, "ahead": False})
                if "compile" not in options
                else None
            )
            killed = EngineRun(base / "killed", options)
            dice = random.Random(name)
            lives = [killed.live(dice.uniform(0.1, 0.6) * whole.seconds) for _ in range(KILLS)]
            if not killed.text().count("RESULT"):
                lives.append(killed.live())
            same = _unequal(wanted, again.result())
            without = _unequal(wanted, apart.result()) if apart else None
        report.add(
            "engine-kills",
            name,
            kills=sum(life.killed for life in lives),
            seconds=round(whole.seconds, 2),
            steps=wanted["steps"],
            two_undisturbed_differ_in=same,
            without_reading_ahead_differs_in=without,
            killed_differs_in=_unequal(wanted, killed.result()),
            said=killed.said(),
            score=wanted["score"],
        )


def _straight(folder: Path, options: dict) -> dict:
    run = EngineRun(folder, options)
    run.live()
    return run.result()


def _unequal(one: dict, other: dict) -> list[str]:
    return sorted(key for key in one if one[key] != other[key])


# ---- unmodified scripts

@dataclass(frozen=True)
class Unmodified:
    """A script, and its words for a GPU and for a try on the CPU."""

    name: str
    script: str
    words: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    every: str = "1.5s"
    more: dict[str, str] = field(default_factory=dict)


UNMODIFIED = (
    Unmodified("cnn deterministic", "cnn.py", ("--deterministic",), ("--samples", "320")),
    Unmodified("amp deterministic", "amp.py", ("--deterministic",), ("--samples", "320", "--width", "4")),
    Unmodified(
        "gpt deterministic",
        "gpt.py",
        ("--deterministic",),
        ("--layers", "1", "--width", "16", "--block", "16", "--batch", "2"),
    ),
    Unmodified(
        "amp without workers, as it is", "amp.py", ("--workers", "0"), ("--samples", "320", "--width", "4")
    ),
    Unmodified("cnn as it is", "cnn.py", (), ("--samples", "320")),
    Unmodified(
        "gpt as it is", "gpt.py", (), ("--layers", "1", "--width", "16", "--block", "16", "--batch", "2")
    ),
)


def unmodified(report: Report) -> None:
    """Each script: equal to itself? Killed and resumed through the harness of the tests, and through `stoker
    run` and `stoker start`."""
    cells = UNMODIFIED[1:2] if report.small else UNMODIFIED
    ground = report.ground()
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda cell: _unmodified_cell(report, ground, cell), cells))
    finally:
        ground.close()


def epochs_for(report: Report, cell: Unmodified, wanted_s: float, base: Path) -> tuple[str, ...]:
    """The words of the script, with as many epochs as take about this long here."""
    words = (*cell.words, *(cell.small if report.small else ()), "--device", report.device)
    folder = base / "tried"
    folder.mkdir(parents=True)
    process = python(cell.script, *words, "--epochs", "3", cwd=folder)
    try:
        until(lambda: process.poll() is not None, LIFE_S, f"three epochs of {cell.script}")
    finally:
        end_group(process)
    text = (folder / "out").read_text(errors="replace")
    assert process.returncode == 0, f"the script fails without Stoker: {text[-1500:]}"
    epoch_s = float(re.findall(r"\(([\d.]+) s\)", text)[-1])
    return *words, "--epochs", str(max(4, min(400, round(wanted_s / epoch_s))))


def _unmodified_cell(report: Report, ground: Ground, cell: Unmodified) -> None:
    base = report.work / cell.name.replace(" ", "-").replace(",", "")
    with report.guarded("unmodified", cell.name):
        words = epochs_for(report, cell, 5.0 if report.small else 6.0, base)
        with ThreadPoolExecutor(3) as pool:
            whole = pool.submit(_with_stoker, report, ground, cell, words, base)
            killed = pool.submit(_with_harness, report, cell, words, base)
            again = pool.submit(_plain, cell, words, base / "again")
            wanted = _plain(cell, words, base / "plain")
            equal = wanted == again.result()
            ended = whole.result()
            report.add(
                "unmodified",
                cell.name,
                words=" ".join(words),
                two_plain_runs_equal=equal,
                run_and_start_equal={
                    "text": ended.pop("text") == wanted[0],
                    "files": ended.pop("files") == wanted[1],
                },
                **ended,
            )
            killed.result()


def _plain(cell: Unmodified, words: tuple[str, ...], folder: Path) -> tuple[str, dict]:
    """(text without times, file -> hash) of a run without Stoker."""
    folder.mkdir(parents=True)
    process = python(
        cell.script, *words, cwd=folder, out=folder.parent / f"{folder.name}.out", PYTHONHASHSEED="1"
    )
    try:
        until(lambda: process.poll() is not None, LIFE_S, f"the end of {cell.script}")
    finally:
        end_group(process)
    text = (folder.parent / f"{folder.name}.out").read_text(errors="replace")
    assert process.returncode == 0, text[-1500:]
    return re.sub(TIMES, "~", text), _hashes(folder)


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(folder.glob("*.pt"))
    }


def _with_stoker(
    report: Report, ground: Ground, cell: Unmodified, words: tuple[str, ...], base: Path
) -> dict:
    """What `stoker run`, SIGKILL and `stoker start` came to."""
    folder = base / "run"
    folder.mkdir(parents=True)
    env = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1", "STOKER_IMAGE_EVERY": cell.every}
    given = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    run = ground.detach(*given, str(SCRIPTS / cell.script), *words, cwd=folder)["id"]
    state = ground.folder(run) / "resume" / "state.json"

    def asked() -> bool:
        said = _read(state)
        return (
            bool(said.get("image"))
            or said.get("state") in ("not resumable", "off")
            or ground.json_file(run, 1, "exit.json") is not None
        )

    until(asked, LIFE_S, "an image or a refusal")
    time.sleep(1.5)  # some steps are lost
    before = ground.show(run).get("resume") or {}
    kill(ground.run_pid(run), signal.SIGKILL)
    ended = ground.wait_state(run, *FINAL, timeout_s=LIFE_S)
    started = ground.stoker("start", run, timeout_s=LIFE_S)
    done = ground.wait_state(run, *FINAL, timeout_s=LIFE_S)
    after = done.get("resume") or {}
    text = ground.stoker("logs", run, timeout_s=LIFE_S).out
    return {
        "before_the_kill": before.get("sentence"),
        "state": before.get("state"),
        "why_ended": ended.get("sentence"),
        "start": started.err.strip()[-500:],
        "resumed": after.get("resumed"),
        "after": after.get("sentence"),
        "not_taken": after.get("not_taken"),
        "end": done.get("sentence"),
        "tried": _read(state).get("tried"),
        "files": _hashes(folder),
        "text": re.sub(TIMES, "~", text.replace("\r\n", "\n")),
    }


def _with_harness(report: Report, cell: Unmodified, words: tuple[str, ...], base: Path) -> None:
    """Kills by the harness of tests/resume: text, variables, objects and files are compared."""
    import harness

    script = harness.Script(
        SCRIPTS / cell.script, args=words, mask=(TIMES,), clocks=("began",), every=cell.every
    )
    kills = [[harness.Kill("image", 0.4)]]
    if "deterministic" in cell.name and not report.small:
        kills.append([harness.Kill("image", 0.2, 2), harness.Kill("image", 0.3)])
    with report.guarded("unmodified", f"{cell.name}, harness"):
        lines: list[str] = []
        stage = base / "harness"
        stage.mkdir(parents=True)
        trials = harness.campaign(
            script, stage, kills=0, plans=kills, say=lines.append, hooks=harness.vendored(base / "hooks")
        )
        for trial in trials:
            last = trial.lives[-1] if trial.lives else None
            more = (
                {"err": last.err.decode(errors="replace")[-600:], "passed": last.said.get("points_passed")}
                if last
                else {}
            )
            report.add("unmodified", f"{cell.name}, harness", **trial.to_json(), **more)


def verify(report: Report) -> None:
    """`stoker verify-resume` of two scripts."""
    ground = report.ground()
    try:
        with ThreadPoolExecutor(1 if report.small else 2) as pool:
            chosen = UNMODIFIED[1:2] if report.small else UNMODIFIED[2:4]
            list(pool.map(lambda cell: _verified(report, ground, cell), chosen))
    finally:
        ground.close()


def _verified(report: Report, ground: Ground, cell: Unmodified) -> None:
    base = report.work / f"verify-{cell.script}"
    with report.guarded("verify-resume", cell.name):
        words = epochs_for(report, cell, 8.0, base)
        folder = base / "here"
        folder.mkdir()
        done = ground.stoker(
            "verify-resume",
            "--kills",
            "2",
            "--for",
            "15s",
            "--json",
            str(SCRIPTS / cell.script),
            *words,
            cwd=folder,
            timeout_s=LIFE_S * 2,
            env={"OMP_NUM_THREADS": "1"},
        )
        found = json.loads(done.out) if done.out.startswith("{") else {"out": done.out[-1500:]}
        report.add(
            "verify-resume",
            cell.name,
            code=done.code,
            command=shlex.join([cell.script, *words]),
            python=sys.version.split()[0],
            err=done.err[-800:],
            **found,
        )


def _read(path: Path) -> dict:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}

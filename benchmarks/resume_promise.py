"""Is "resumable (checked)" kept? Scripts run with `--audit` under real runs of Stoker.
When an audit has said it, or none will, comes a
SIGKILL and `stoker start`: did the script come back from an image, or begin from its start?

`python benchmarks/run.py --only resume-promise`, or `python benchmarks/resume_promise.py [--kinds
ordinary,adversaries,fuzz,subjects]
[--most N] [--jobs 2] [--json FILE]` for a sample.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "resume")]

import fuzz  # noqa: E402
import test_resume_subjects as subjects  # noqa: E402
from harness import Script, read  # noqa: E402

from benchmarks.ground import FINAL, Ground, kill, until  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

KINDS = ("ordinary", "adversaries", "fuzz", "subjects")
EVERY = {"ordinary": "60steps", "adversaries": "150steps", "fuzz": "80steps", "subjects": "12steps"}
FUZZ = 200  # random scripts in the full form
WAIT_S = 120.0  # for a word, and for the way back


def scripts(kind: str, base: Path, most: int | None, seed: int) -> list[Script]:
    """All of a kind, or so many of them, drawn at random."""
    if kind == "fuzz":
        return [
            fuzz.write({**fuzz.spec_of(n), "number": n}, base / "fuzz")
            for n in range(seed, seed + (most or FUZZ))
        ]
    if kind == "subjects":
        return [
            subjects.nanogpt(base / "nanogpt"),
            *(subjects.mnist(base / f"mnist{n}", n, 6000, batch=64) for n in (0, 2)),
        ][:most]
    found = [read(path) for path in sorted((REPO / "tests" / "resume" / kind).glob("*.py"))]
    found = [each for each in found if not each.missing()]
    return random.Random(seed).sample(found, most) if most and most < len(found) else found


def trial(ground: Ground, kind: str, script: Script, number: int) -> dict:
    """{"script", "said": what `show` said before the kill, "came": "back" | "anew" | "", "why"};
    "" where the script was over before."""
    folder = ground.work / f"{kind}{number}"
    folder.mkdir()
    if script.cwd == ".":
        shutil.copyfile(script.path, folder / "script.py")
    for path in script.beside:
        if path.is_dir():
            shutil.copytree(path, folder, dirs_exist_ok=True, symlinks=True)
        else:
            shutil.copyfile(path, folder / path.name)
    words, cwd = ["script.py" if script.cwd == "." else script.path.name, *script.args], folder / script.cwd
    told = {"script": f"{kind} {script.name}", "said": "", "came": "", "why": ""}
    env = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": script.hashseed}
    run = ground.detach(
        "--audit", "--env", f"STOKER_IMAGE_EVERY={script.every or EVERY[kind]}", *words, cwd=cwd, env=env
    )["id"]

    resume = ground.folder(run) / "resume"

    def ended(attempt: int) -> bool:
        return ground.json_file(run, attempt, "exit.json") is not None

    def asked() -> bool:
        state = _read(resume / "state.json")
        return (
            ended(1)
            or any(resume.glob("audit/*/order.json"))
            or bool(state.get("not_audited"))
            or state.get("state") == "not resumable"
        )

    _wait(asked, "an audit")
    pid = ground.run_pid(run)
    time.sleep(0.5)  # something has to be recorded behind the image
    if any(resume.glob("audit/*/order.json")):  # a short script would be over before the answer comes
        kill(pid, signal.SIGSTOP)
        _wait(lambda: bool(_read(resume / "audits.json").get("audits")), "the verdict")
        kill(pid, signal.SIGCONT)
        time.sleep(0.3)
    state = ground.show(run).get("resume") or {}
    kill(pid)
    ground.wait_state(run, *FINAL, timeout_s=WAIT_S)
    if (ground.json_file(run, 1, "exit.json") or {}).get("signal_name") != "SIGKILL":
        return told  # it was over
    told["said"], told["why"] = state.get("state") or "", state.get("sentence") or ""
    ground.stoker("start", run, timeout_s=WAIT_S)

    def arrived() -> str:
        state = _read(resume / "state.json")
        if (state.get("resumed") or {}).get("attempt") == 2:
            return "back"
        begun = any(life.get("attempt") == 2 for life in state.get("lives") or ())
        return "anew" if begun or ended(2) or state.get("state") == "not resumable" else ""

    _wait(lambda: bool(arrived()), "the way back")
    told["came"] = arrived() or "unknown"
    if told["came"] != "back":
        told["why"] += f" | {_read(resume / 'state.json').get('tried')}"
    ground.stoker("stop", "--force", run, timeout_s=60)
    shutil.rmtree(folder, ignore_errors=True)
    return told


def _wait(condition: Callable[[], bool], what: str) -> None:
    """Patience has an end that is no error."""
    try:
        until(condition, WAIT_S, what)
    except AssertionError:
        pass


def _read(path: Path) -> dict:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}


def measure(ground: Ground, kinds: tuple[str, ...], most: int | None, jobs: int, seed: int = 0) -> list[dict]:
    """One trial a script."""
    base = Path(tempfile.mkdtemp(prefix="st-promise-", dir="/tmp"))
    plans = [(kind, script, n) for kind in kinds for n, script in enumerate(scripts(kind, base, most, seed))]

    def one(plan: tuple[str, Script, int]) -> dict:
        try:
            found = trial(ground, *plan)
        except (AssertionError, OSError, ValueError) as e:
            found = {
                "script": f"{plan[0]} {plan[1].name}",
                "said": "",
                "came": "",
                "why": f"no trial: {str(e)[:200]}",
            }
        print(
            (
                f"{found['script']}: said {found['said'] or '-'}, came {found['came'] or '-'}: "
                f"{found['why'][:160]}"
            ),
            flush=True,
        )
        return found

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, plans))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def rows_of(trials: list[dict]) -> list[Row]:
    """The two sides of the promise."""
    promised = [each for each in trials if each["said"] == "resumable" and each["came"] in ("back", "anew")]
    broken = [each["script"] for each in promised if each["came"] == "anew"]
    back = [each for each in trials if each["came"] == "back"]
    unsaid = [each["script"] for each in back if each["said"] != "resumable"]
    found = []
    if promised:
        found.append(
            Row(
                name="said resumable (checked), and began from the start",
                value=100 * len(broken) / len(promised),
                target=0.5,
                unit="%",
                n=len(promised),
                detail=", ".join(broken) or "none",
            )
        )
    if back:
        said = 100 * (len(back) - len(unsaid)) / len(back)
        found.append(
            Row(
                name="came back, and had been said resumable (checked)",
                value=said,
                target=95,
                best="high",
                unit="%",
                n=len(back),
                detail=f"not said: {', '.join(unsaid) or 'none'}",
            )
        )
    return found


def rows(ground: Ground, short: bool) -> list[Row]:
    """For the page of all benchmarks."""
    return rows_of(measure(ground, ("ordinary",) if short else KINDS, 1 if short else None, 2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--most", type=int, help="scripts of a kind, drawn at random")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ground = Ground()
    try:
        trials = measure(ground, tuple(args.kinds.split(",")), args.most, args.jobs, args.seed)
    finally:
        ground.close()
    for row in rows_of(trials):
        print(row.line())
    if args.json:
        args.json.write_text(json.dumps(trials, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

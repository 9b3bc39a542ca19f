"""`stoker verify-resume`: kill a script again and again, bring it back, and compare what it made with runs
that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from stoker.base import rundir
from stoker.base.errors import EXIT_OWN_FAILURE, InvalidSpec, StokerError
from stoker.base.state import State
from stoker.base.units import format_duration
from stoker.cli import compare, output
from stoker.cli.options import Duration, json_option, plane
from stoker.cli.run.command import choose_python, make_spec, run_env
from stoker.cli.run.keys import leave_on_signals
from stoker.cli.whole_log import whole_log

EPILOG = """Stoker runs the script in frozen copies of this folder, and deletes these copies afterwards. Your files do not change.
The first run is not recorded. The second run is recorded. After that, Stoker makes the trials. In each trial, Stoker kills a run
with SIGKILL at a random moment and resumes the run with `stoker start`. Stoker then compares the trial with the first run: weights,
buffers, optimizer state, printed text and written files. If the first run is not finished after the time of --for, Stoker compares
all runs at the step that the first run has reached by then.

\b
  stoker verify-resume train.py
  stoker verify-resume --kills 20 --for 5m -- python train.py --epochs 1
  stoker verify-resume --resume-args "--resume last.pt" train.py    test the script's own resume

Exit codes: 0: all trials were equal. 1: a trial was not equal. 125: nothing could be compared.
"""  # noqa: E501
SETTLE_S = 0.2
SOONER = 3  # tries to meet a run alive
# what a trial takes beside a run: killed and brought back it starts twice, and goes a part of its way twice
LIVES = 1.5
TAIL_BYTES = 200  # of the log behind an image: enough lost values to check the way back by


@click.command(
    "verify-resume",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("--kills", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N",
              help="Number of trials. Each trial kills the script once.")
@click.option(
    "--for",
    "for_s",
    type=Duration(),
    default="2m",
    show_default=True,
    metavar="2m",
    help=(
        "Training time of the baseline run. Stoker ends each trial after the same number of steps, and "
        "compares the results."
    ),
)
@click.option(
    "--image-every",
    default="",
    metavar="20s",
    help="Interval between images, such as 20s or 50steps. [default: 8 images per run]",
)
@click.option(
    "--resume-args",
    metavar="ARGS",
    help=(
        "Test the script's own resume code, not exact resume. After a kill, restart the script in the "
        "same folder with these arguments."
    ),
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed for the moments of the kills.",
)
@click.option("--keep", is_flag=True, help="Do not delete the runs of this verification at the end.")
@json_option("Print the verdict and all trials as one JSON object.")
def verify_resume(command: tuple[str, ...], **o: Any) -> int:
    """Test on this machine whether a killed run of the script resumes bit for bit; if not, show why."""
    if not command:
        raise InvalidSpec("There is no command to verify.", hint="stoker verify-resume train.py")
    with tempfile.TemporaryDirectory(prefix="stoker-verify-") as temp:
        bench = _Bench(command, o, Path(temp))
        leave_on_signals()
        try:
            report = bench.verify()
        finally:
            bench.clean_up()
    if o["as_json"]:
        output.print_json(report)
    else:
        print(report["verdict"])
        for line in report["notes"]:
            print(f"  {line}")
    return report["exit_code"]


class NothingToCompare(StokerError):
    """No optimizer made a step, so there is nothing to compare."""

    exit_code = EXIT_OWN_FAILURE


class _Bench:
    """The runs of one verification."""

    def __init__(self, command: tuple[str, ...], o: Mapping[str, Any], temp: Path) -> None:
        self._o = o
        self._temp = temp
        self._client = plane()
        self._env = run_env(os.environ, (), {})
        command = choose_python(command, _RUN_DEFAULTS, self._env)
        self._spec = make_spec(command, {**_RUN_DEFAULTS, "name": "", "no_hooks": False, "resume": "auto"})
        self._made: list[str] = []
        # length of a run's log when an image of its was first seen
        self._behind: dict[tuple[str, int], int] = {}
        self._own = shlex.split(o["resume_args"]) if o["resume_args"] is not None else None
        self._random = random.Random(o["seed"])

    def verify(self) -> dict:
        made = self._begin("plain", resume="off", at=f"{self._o['for_s']:g}s")
        output.say("baseline run")
        plain = self._finish(made)
        if plain["digest"] is None:
            raise NothingToCompare(
                _why_nothing(plain),
                hint=_leads_out(self._spec["command"])
                or (
                    f"See the output of this run: stoker logs {plain['id']}"
                    if self._o["keep"]
                    else (
                        "The script must train with torch and finish by itself. "
                        "To keep the run and look at it: --keep"
                    )
                ),
            )
        ended = plain["digest"]["ended"]
        at = "end" if ended else str(plain["digest"]["steps"])
        steps = f"{plain['digest']['steps']:,} steps"
        output.say(
            f"{steps} in {format_duration(plain['seconds'])}"
            f"{'' if ended else f'; Stoker ends each run after {steps}, and compares the results'}"
        )
        every = self._o["image_every"] or f"{max(0.5, plain['seconds'] / 8):.2f}s"
        output.say("second run, " + ("as a control" if self._own is not None else "recorded"))
        second = self._finish(
            self._begin("second", resume="off" if self._own is not None else "auto", at=at, every=every)
        )
        noise = compare.noise(plain, second)
        if second["digest"] is None or plain["digest"]["digest"] != second["digest"]["digest"]:
            return self._report(
                "the script is not deterministic: two runs without a kill end with different weights",
                ["The runs cannot be compared bit for bit. Does the script set its seeds?", *_said(second)],
                1,
                [],
            )
        if self._own is None and not (second["resume"] or {}).get("image"):
            return self._report(
                f"the run is not resumable: {(second['resume'] or {}).get('reason') or 'no image was made'}",
                _said(second),
                1,
                [],
            )
        trials, kills = [], self._o["kills"]
        output.say(
            f"{kills} kill{'s' * (kills > 1)} planned: about "
            f"{format_duration(kills * LIVES * second['seconds'])} in total"
        )
        for n in range(1, kills + 1):
            moment = second["seconds"] * self._random.uniform(0.2, 0.9)
            output.say(f"kill {n} of {kills}, after {moment:.1f} s")
            ended, killed = self._trial(n, at, every, moment, patient=self._own is None)
            for again in range(SOONER):
                if killed:
                    break
                moment *= 0.6  # this machine was faster than before
                output.say(
                    f"kill {n} of {kills}: the run finished before the kill; "
                    f"retrying with a kill after {moment:.1f} s"
                )
                ended, killed = self._trial(
                    n, at, every, moment, patient=self._own is None and again + 1 < SOONER
                )
            trials.append(
                {
                    "killed_after_s": moment,
                    "run": ended["id"],
                    "grade": _back(ended).get("grade"),
                    "how": self._how(ended, killed),
                    "different": compare.differences(plain, ended, noise, tail_only=self._own is not None),
                    "only_bars": compare.only_bars(plain, ended, noise, tail_only=self._own is not None),
                }
            )
        return self._judge(trials, steps, noise, second)

    def _judge(self, trials: list[dict], steps: str, noise: compare.Noise, recorded: dict) -> dict:
        same = [t for t in trials if not t["different"]]
        came_back = [t for t in same if t["grade"]]
        way = "the script's own resume" if self._own is not None else "exact resume"
        notes = [
            f"kill at {t['killed_after_s']:.1f} s: "
            + ("different: " + ", ".join(t["different"]) if t["different"] else "equal")
            + (f" ({t['how']})" if t["how"] else "")
            for t in trials
        ]
        notes += [
            f"not compared: {name}, because two runs without a kill also differ there"
            for name in noise.names()
        ]
        notes += [
            "not compared: overwritten frames of progress bars, because their number depends on the time"
        ] * any(t["only_bars"] for t in trials)
        notes += [] if self._own is not None else _said(recorded)
        wrong = [t for t in trials if t["different"] and (t["grade"] or self._own is not None)]
        if wrong:
            return self._report(f"{way}: the result was NOT equal in {len(wrong)} of {len(trials)} trials",
                                notes, 1, trials)
        if len(same) < len(trials):
            return self._report(
                f"exact resume did not work in {len(trials) - len(same)} of {len(trials)} trials: the "
                "script restarted from scratch with the files from before the kill, and its results differ",
                notes,
                1,
                trials,
            )
        if self._own is None and not came_back:
            return self._report(
                f"exact resume did not work: in each of {len(trials)} trials, the script restarted from "
                "scratch after the kill (the results are equal)",
                notes,
                1,
                trials,
            )
        from_image = (
            f"; in {len(came_back)} of these trials the run resumed from an image, in the others the run "
            "restarted from scratch"
        )
        from_image = from_image if len(came_back) < len(trials) else ""
        return self._report(f"{way}: bit-exact (verified in {len(same)} of {len(trials)} trials, over "
                            f"{steps}{from_image if self._own is None else ''})", notes, 0, trials)

    def _report(self, verdict: str, notes: list[str], code: int, trials: list[dict]) -> dict:
        return {"verdict": verdict, "notes": notes, "exit_code": code, "trials": trials, "kills": len(trials)}

    def _trial(
        self, number: int, at: str, every: str, moment: float, patient: bool = False
    ) -> tuple[dict, bool]:
        """One run that is killed so many seconds after its start and brought back;
        and whether it had to be. `patient`: not before it has an image with some training behind it, for a
        run that begins anew proves little."""
        made = self._begin(
            f"trial-{number}", resume="off" if self._own is not None else "auto", at=at, every=every
        )
        began = self._running(made)
        while (
            time.monotonic() < began + moment or (patient and not self._may_come_back(made))
        ) and not self._over(made):
            time.sleep(min(SETTLE_S, max(0.01, began + moment - time.monotonic())))
        killed = self._kill(made)
        if killed and self._own is not None:
            made = self._go_on_by_itself(made, at, number)
        elif killed:
            self._client.start(made["id"])
        return self._finish(made), killed

    def _may_come_back(self, made: dict) -> bool:
        resume = Path(self._client.run(made["id"])["folder"]) / rundir.RESUME
        try:
            image = json.loads((resume / "state.json").read_bytes()).get("image") or {}
            size = (resume / "log").stat().st_size
        except (OSError, ValueError):
            return False
        if not image:
            return False
        return size >= self._behind.setdefault((made["id"], image["n"]), size) + TAIL_BYTES

    def _how(self, ended: dict, killed: bool) -> str:
        if not killed:
            return "the run finished before the kill"
        if self._own is not None:
            return "restarted with the arguments of --resume-args"
        if _back(ended):
            return f"resumed at step {_back(ended)['step']:,}, {_back(ended).get('grade')}"
        return "; ".join((ended["resume"] or {}).get("not_taken") or ()) or "restarted from scratch"

    def _begin(
        self,
        what: str,
        *,
        resume: str,
        at: str,
        every: str = "auto",
        folder: str = "",
        more: tuple[str, ...] = (),
    ) -> dict:
        digest = self._temp / f"{what}.json"
        env = dict(self._env)
        env |= {"STOKER_DIGEST": str(digest), "STOKER_DIGEST_AT": at, "STOKER_IMAGE_EVERY": every}
        env.setdefault("PYTHONHASHSEED", str(self._o["seed"] & 0xFFFFFFFF))
        spec = {
            **self._spec,
            "resume": resume,
            "copy": not folder,
            "command": [*self._spec["command"], *more],
        }
        if folder:
            spec["folder"] = folder
        # not one of the user's runs: lists leave it out
        spec["env_names"] = [*spec["env_names"], "STOKER_VERIFY"]
        made = self._client.submit(spec, {}, env, None)
        self._made.append(made["id"])
        return {**made, "digest_path": str(digest)}

    def _go_on_by_itself(self, made: dict, at: str, number: int) -> dict:
        self._wait(made)
        folder = self._client.show(made["id"])["workdir"]
        return self._begin(f"trial-{number}", resume="off", at=at, folder=folder, more=tuple(self._own or ()))

    def _running(self, made: dict) -> float:
        while not self._over(made):
            if self._client.run(made["id"])["state"] == State.RUNNING.value:
                return time.monotonic()
            time.sleep(0.02)
        return time.monotonic()

    def _over(self, made: dict) -> bool:
        return State(self._client.run(made["id"])["state"]).final

    def _wait(self, made: dict) -> dict:
        while True:
            run = self._client.wait(made["id"], 30)
            if State(run["state"]).final:
                return run

    def _kill(self, made: dict) -> bool:
        """SIGKILL what trains, as a power cut would; False when it had ended."""
        run = self._client.show(made["id"])
        if State(run["state"]).final:
            return False
        records = (
            Path(run["folder"]) / rundir.ATTEMPTS / str(run["attempts"]) / rundir.HOOKS / "processes.jsonl"
        )
        pids = {run["run_pid"]} | {json.loads(line).get("pid") for line in _lines(records)}
        for pid in pids - {None}:
            if _is_of(pid, made["id"]):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return self._wait(made)["reason"] != "exited"

    def _finish(self, made: dict) -> dict:
        """What came of it, once it has ended: digest, text, files, seconds."""
        self._wait(made)
        run = self._client.show(made["id"])
        try:
            digest = json.loads(Path(made["digest_path"]).read_bytes())
        except (OSError, ValueError):
            digest = None
        # each run has one of its own
        text = b"".join(whole_log(self._client, run)).replace(run["workdir"].encode(), b"(folder)")
        folder, names = Path(run["workdir"]), [f["path"] for f in run.get("files") or ()]
        return {
            "id": made["id"],
            "digest": digest,
            "seconds": run["used_s"],
            "text": text,
            "resume": run.get("resume"),
            "run": run,
            "files": compare.file_hashes(folder, names),
            "texts": compare.file_texts(folder, names),
            "members": compare.archive_members(folder, names),
        }

    def clean_up(self) -> None:
        """Remove the runs that were made; one that is still alive is ended first."""
        for run_id in () if self._o["keep"] else self._made:
            try:
                self._client.rm(run_id, force=True)
            except StokerError as e:
                output.say(f"{run_id} could not be removed: {e.message}")
        shutil.rmtree(self._temp, ignore_errors=True)


_RUN_DEFAULTS = {
    "detach": True,
    "tty": False,
    "target": "local",
    "copy": True,
    "home": None,
    "mount": (),
    "gpus": None,
    "slots": 0,
    "priority": 0,
    "restarts": 0,
    "env": (),
    "env_file": {},
    "python": None,
    "stdin_file": None,
    "cwd": None,
    "backoff": None,
    "grace": None,
    "stop_signal": None,
    "warn": None,
    "stall": None,
    "memory": None,
}


def _back(done: dict) -> dict:
    return (done["resume"] or {}).get("resumed") or {}


def _said(done: dict) -> list[str]:
    resume = done["resume"] or {}
    ended_well = done["run"]["state"] == State.DONE.value and (
        resume.get("image") or resume.get("state") != "not resumable"
    )
    stands = None if ended_well else resume.get("sentence")
    return [line for line in (stands, *(resume.get("not_taken") or ())) if line]


def _why_nothing(done: dict) -> str:
    run = done["run"]
    return f"No optimizer made a step, so there is nothing to compare: {run['sentence']}"


def _leads_out(command: list[str]) -> str:
    """A hint for a script that looks beside its folder, of which there is only a copy."""
    scripts = [word for word in command if word.endswith(".py") and Path(word).is_file()]
    texts = [*command, *(Path(word).read_text("utf-8", "replace") for word in scripts)]
    found = next((match[0] for text in texts if (match := re.search(r"(?<![\w./])\.\./[\w./-]*", text))), "")
    higher = f"cd .. && stoker verify-resume -- sh -c 'cd {shlex.quote(Path.cwd().name)} && exec python ...'"
    return found and (
        f"The command or script uses {found}, which is outside of this folder. Stoker runs the script in "
        f"a copy of this folder, and {found} is missing there. "
        f"Use an absolute path, or start in the parent folder: {higher}"
    )


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError:
        return []


def _is_of(pid: int, run_id: str) -> bool:
    """Does this process belong to the run? A pid may have gone to somebody else meanwhile."""
    try:
        return f"STOKER_RUN={run_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False

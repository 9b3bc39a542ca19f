"""Kills unmodified scripts and compares what comes out with a run that nobody killed: the honest test of exact resume.

`python tests/resume/harness.py SCRIPT... [--kills N] [--seed S] [--every 5steps] [--drop rng,...] [--double] [--plain] [--json FILE]`

A script says in comment lines at its top what it expects of us:
  # expected: exact | refused | either      # seeded: no        two plain runs differ; only the last line printed must agree
  # mask: REGEX   (timings in its output)   # ignore: GLOB      files that hold times
  # needs: MODULE ...                       # args: ...         its command line
  # leftovers: yes  reads or appends to files of an earlier life, so a start from scratch may end differently
  # hashseed: random  the user's own PYTHONHASHSEED=random     # every: 20steps    its own image interval
  # short: yes  part of the short form                          # wait: 3   seconds more than usual   # exit: 3
  # clocks: NAME ...  variables that hold times or addresses; alive: all objects that no variable leads to
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
PROBE = HERE / "probe"
FULL = bool(os.environ.get("RESUME_FULL"))  # the tests take all scripts and more kills: minutes become an hour
LIFE_S = 150.0  # no script of ours needs that long, on the busiest machine
POLL_S = 0.004
TAIL_S = 3.0  # what is not flushed is printed late: by then there is a tail
MASKED = re.compile(rb"\x1b\[[0-9;]*m")

GOOD = ("exact", "refused", "restart", "unhurt")
FAULT = "an internal error of Stoker's hooks"  # of ours, whatever it did to the script
BAD = ("WRONG", "BROKEN", "HANGS", "RECORDING CHANGED IT")


@dataclass(frozen=True)
class Script:
    """A script and what its first lines say about it."""

    path: Path
    expected: str = "either"
    seeded: bool = True
    mask: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    leftovers: bool = False
    hashseed: str = "1"
    every: str = ""
    wait: float = 0.0
    short: bool = False
    exit: int = 0
    clocks: tuple[str, ...] = ()
    cwd: str = "."  # from the folder of the trial
    beside: tuple[Path, ...] = ()  # files and folders that are copied into the folder of the trial

    @property
    def name(self) -> str:
        return self.path.stem

    def missing(self) -> str:
        """The first module it needs that this Python has not, or ""."""
        import importlib.util

        return next((m for m in self.needs if importlib.util.find_spec(m) is None), "")


def read(path: Path, **more: object) -> Script:
    """The Script of a file; `more` overrides what its comments say."""
    said: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if found := re.match(r"# ?(\w+): (.+)", line):
            said.setdefault(found[1], []).append(found[2].strip())
        elif line and not line.startswith("#"):
            break
    one = {k: v[-1] for k, v in said.items()}

    def words(key: str) -> tuple[str, ...]:
        return tuple(one.get(key, "").split())

    return Script(**{"path": path, "expected": one.get("expected", "either").split()[0], "seeded": one.get("seeded") != "no", "mask": tuple(said.get("mask", ())),
                     "ignore": words("ignore"), "needs": words("needs"), "args": tuple(shlex.split(one.get("args", ""))), "leftovers": one.get("leftovers") == "yes",
                     "hashseed": one.get("hashseed", "1"), "every": one.get("every", ""), "wait": float(one.get("wait", "0")),
                     "short": one.get("short") == "yes", "exit": int(one.get("exit", "0")), "clocks": words("clocks"), **more})


@dataclass(frozen=True)
class Final:
    """How a run ended: exit status, everything printed, state of all objects, content of all files."""

    rc: int | None
    text: bytes
    state: dict
    files: dict[str, str]
    seconds: float = 0.0
    err: bytes = b""

    def differs(self, other: Final, script: Script) -> list[str]:
        """What is not the same, in words; empty when equal."""
        found = []
        if self.rc != other.rc:
            found.append(f"exit status {other.rc} instead of {self.rc}")
        mine, theirs = clean(self.text, script), clean(other.text, script)
        if not script.seeded:
            mine, theirs = (t.strip().rsplit(b"\n", 1)[-1] for t in (mine, theirs))
        if mine != theirs:
            found.append(f"text: {first_difference(mine, theirs)}")
        if not script.seeded:
            return found
        a, b = self.state.get("names", {}), other.state.get("names", {})
        changed = sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k) and k not in script.clocks)
        if changed:
            found.append(f"state of {', '.join(changed[:6])}" + (f" ({json.dumps(a.get(changed[0]))[:80]} -> {json.dumps(b.get(changed[0]))[:80]})"))
        elif self.state.get("alive") != other.state.get("alive") and "alive" not in script.clocks:
            found.append(f"state of living objects ({self.state.get('count')} and {other.state.get('count')})")
        files = sorted(k for k in self.files.keys() | other.files.keys() if self.files.get(k) != other.files.get(k))
        if files:
            found.append(f"files {', '.join(files[:6])}")
        return found


@dataclass
class Life:
    """One process of a run."""

    attempt: int
    rc: int | None  # None: killed by us
    seconds: float
    out: bytes
    err: bytes
    said: dict  # state.json after it
    killed: str = ""  # when, in words

    @property
    def resumed(self) -> dict | None:
        got = self.said.get("resumed") or None
        return got if got and got.get("attempt") == self.attempt else None


@dataclass
class Trial:
    """One run that was killed, and what became of it."""

    script: str
    outcome: str
    reason: str = ""
    lives: list[Life] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    @property
    def resumes(self) -> int:
        return sum(life.resumed is not None for life in self.lives)

    def line(self) -> str:
        """The trial as it is printed."""
        lives = " | ".join(f"{x.killed or 'rc ' + str(x.rc)} {x.seconds:.1f}s" + (f" resumed@{x.resumed.get('step')}" if x.resumed else "") for x in self.lives)
        return f"{self.script:28s} {self.outcome:8s} {self.reason[:150]} [{lives}]" + "".join(f"\n      {d[:400]}" for d in self.differs)

    def to_json(self) -> dict:
        return {"script": self.script, "outcome": self.outcome, "reason": self.reason, "resumes": self.resumes, "differs": self.differs,
                "lives": [{"killed": x.killed, "rc": x.rc, "s": round(x.seconds, 2), "resumed": x.resumed} for x in self.lives]}


@dataclass(frozen=True)
class Kill:
    """When a life is killed. kind: time (s after its start) · image (after the n-th image of this life is whole and a little more was
    printed, so that there is a tail) · bare image (at once) · writing (while one is written) · resumed (after the restore was said)."""

    kind: str
    after: float = 0.0  # seconds after that
    n: int = 1

    def words(self) -> str:
        return f"{self.kind}{self.n if 'image' in self.kind else ''}+{self.after:.2f}"


class Moves:
    """The agent's number beside its logs, odd while bytes are between a pipe and a log."""

    def __init__(self, path: Path):
        self.path, self.lock, self.count = path, threading.Lock(), 0
        path.write_bytes(bytes(8))

    def __enter__(self) -> None:
        self.lock.acquire()
        self._next()

    def __exit__(self, *_: object) -> None:
        self._next()
        self.lock.release()

    def _next(self) -> None:
        self.count += 1
        with self.path.open("r+b", buffering=0) as f:
            f.write(self.count.to_bytes(8, "little"))


class Pipe:
    """A pipe whose other end is written into a file at once, as the agent does it with the output of a run."""

    def __init__(self, path: Path, moves: Moves | None = None, slow_s: float = 0.0):
        self.path, self.moves, self.slow_s = path, moves or Moves(path.with_name("moves")), slow_s
        self.read_end, self.end = os.pipe()
        self.thread = threading.Thread(target=self._copy, daemon=True)

    def begin(self) -> None:
        """The child has its end: from here on only its processes hold it."""
        os.close(self.end)
        self.end = -1
        self.thread.start()

    def _copy(self) -> None:
        with self.path.open("wb", buffering=0) as f:
            data = b"begin"
            while data:
                select.select([self.read_end], [], [])
                with self.moves:
                    data = os.read(self.read_end, 1 << 16)
                    time.sleep(self.slow_s)
                    f.write(data)

    def __enter__(self) -> Pipe:
        self.path.touch()
        return self

    def __exit__(self, *_: object) -> None:
        if self.end >= 0:
            os.close(self.end)
        elif self.thread.is_alive():
            self.thread.join(10)
        os.close(self.read_end)


class Stage:
    """A folder in which one script is run again and again, each time in a fresh copy of its files."""

    def __init__(self, script: Script, base: Path, *, hooks: Path | None = None, every: str = "5steps", drop: str = "", python: str = sys.executable, env: dict | None = None):
        self.script, self.base, self.every, self.drop, self.python, self.more = script, base, script.every or every, drop, python, env or {}
        self.hooks = hooks or vendored(base / "hooks")
        self.home = base / "work"

    def fresh(self) -> None:
        for name in ("work", "resume", "records", "tmp", "run"):
            shutil.rmtree(self.base / name, ignore_errors=True)
        self.home.mkdir(parents=True)
        for name in ("tmp", "records"):
            (self.base / name).mkdir(mode=0o700)
        shutil.copyfile(self.script.path, self.home / "script.py") if self.script.cwd == "." else None
        for path in self.script.beside:
            if path.is_dir():
                shutil.copytree(path, self.home, dirs_exist_ok=True, symlinks=True)
            else:
                shutil.copyfile(path, self.home / path.name)

    def environment(self, attempt: int) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PROBE_", "COV_", "PYTEST_")) and k != "PYTHONUNBUFFERED"}
        env |= {"OMP_NUM_THREADS": "1", "PROBE_OUT": str(self.base / "probe.json"), "PROBE_PARENT": str(os.getpid()),
                "TMPDIR": str(self.base / "tmp"), "PYTHONPATH": str(PROBE), "PYTHONHASHSEED": self.script.hashseed, **self.more}
        if attempt:
            env |= {"PYTHONPATH": f"{self.hooks}:{PROBE}", "STOKER_RESUME": "auto", "STOKER_RESUME_DIR": str(self.base / "resume"), "STOKER_HOOKS": str(self.base / "records"), "STOKER_RUN_DIR": str(self.base / "run"),
                    "STOKER_ATTEMPT": str(attempt), "STOKER_IMAGE_EVERY": self.every}
            if self.drop and attempt > 1:
                env["STOKER_RESUME_DROP"] = self.drop
        return env

    def live(self, attempt: int, kill: Kill | None = None) -> Life:
        """One process from start to end or kill; attempt 0 runs without hooks."""
        (self.base / "probe.json").unlink(missing_ok=True)
        folder = self.base / "run" / "attempts" / str(attempt)
        folder.mkdir(parents=True, exist_ok=True)
        name = "script.py" if self.script.cwd == "." else self.script.path.name
        began = time.monotonic()
        moves = Moves(folder / "moves")
        with Pipe(folder / "out.log", moves) as out, Pipe(folder / "err.log", moves) as err:
            child = subprocess.Popen([self.python, name, *self.script.args], cwd=self.home / self.script.cwd, env=self.environment(attempt), stdin=subprocess.DEVNULL,
                                     stdout=out.end, stderr=err.end, start_new_session=True)
            out.begin()
            err.begin()
            killed = ""
            try:
                killed = self._attend(child, attempt, kill, began)
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)  # workers of the script too, as a power cut would
                except ProcessLookupError:
                    pass
                child.wait()
        return Life(attempt, None if killed else child.returncode, time.monotonic() - began, out.path.read_bytes(), err.path.read_bytes(), self.said(), killed)

    def _attend(self, child: subprocess.Popen, attempt: int, kill: Kill | None, began: float) -> str:
        due = None if kill is None or kill.kind != "time" else began + kill.after
        before, images = self.said().get("image"), []
        printed, grown, until = 0, 0, 0.0  # since the image that the kill waits for
        while child.poll() is None:
            now = time.monotonic()
            if now - began > LIFE_S + self.script.wait:
                return "hangs"
            if due is None and kill is not None:
                said = self.said()
                if said.get("image") not in (None, before, *images):
                    images.append(said["image"])
                if until or self._happened(kill, attempt, said, len(images)):
                    size, until = (self.base / "run" / "attempts" / str(attempt) / "out.log").stat().st_size, until or now + TAIL_S
                    grown, printed = grown + (size != printed), size
                    if kill.kind != "image" or grown > 3 or now > until:
                        due = now + kill.after
            if due is not None and now >= due:
                return kill.words()
            time.sleep(POLL_S)
        return ""

    def _happened(self, kill: Kill, attempt: int, said: dict, images: int) -> bool:
        if kill.kind == "writing":
            folder = self.base / "resume" / "images"
            return folder.is_dir() and any(not p.name.isdigit() for p in folder.iterdir())
        if kill.kind == "resumed":
            return (said.get("resumed") or {}).get("attempt") == attempt
        return images >= kill.n or said.get("state") in ("not resumable", "off")

    def said(self) -> dict:
        try:
            return json.loads((self.base / "resume" / "state.json").read_text())
        except (OSError, ValueError):
            return {}

    def final(self, life: Life, text: bytes) -> Final:
        try:
            state = json.loads((self.base / "probe.json").read_text())
        except (OSError, ValueError):
            state = {}
        files = {}
        for path in sorted(self.home.rglob("*")):
            name = path.relative_to(self.home).as_posix()
            if path.is_file() and not path.is_symlink() and "__pycache__" not in name and not any(fnmatch.fnmatch(name, g) for g in self.script.ignore):
                files[name] = hashlib.sha256(clean(path.read_bytes(), self.script)).hexdigest()[:16]
        return Final(life.rc, text, state, files, life.seconds, life.err)

    def plain(self) -> Final:
        self.fresh()
        life = self.live(0)
        return self.final(life, life.out)

    def recorded(self) -> Final:
        self.fresh()
        life = self.live(1)
        return self.final(life, life.out)

    def trial(self, kills: list[Kill], reference: Final) -> Trial:
        """Killed as planned, started again until it ends, compared."""
        self.fresh()
        lives: list[Life] = []
        for attempt, kill in enumerate([*kills, None], 1):
            if lives:
                self._keep_home()
            lives.append(self.live(attempt, kill))
            if lives[-1].rc is not None or lives[-1].killed == "hangs":
                break
        text, last = one_text(lives)
        final = self.final(lives[-1], text)
        trial = self._judge(reference, final, lives, last)
        if trial.outcome in ("WRONG", "BROKEN") and last is None and not trial.resumes and not self._again_alone().differs(final, self.script):
            trial.outcome = "refused" if trial.reason else "restart"
            trial.reason = f"{trial.reason} (began anew beside files of its own, and ended as it does there without Stoker)"
            trial.differs = []
        return trial

    def _keep_home(self) -> None:
        """What the next life finds."""
        shutil.rmtree(self.base / "found", ignore_errors=True)
        shutil.copytree(self.home, self.base / "found", symlinks=True)

    def _again_alone(self) -> Final:
        """The script without Stoker in the folder as the last life found it."""
        shutil.rmtree(self.home)
        shutil.copytree(self.base / "found", self.home, symlinks=True)
        life = self.live(0)
        return self.final(life, life.out)

    def _judge(self, reference: Final, final: Final, lives: list[Life], last: int | None) -> Trial:
        trial = Trial(self.script.name, "exact", lives=lives, differs=reference.differs(final, self.script))
        said = lives[-1].said
        tried = said.get("tried") or []
        why = said.get("reason") or (tried[-1].get("why") if tried else "") or ""
        trial.reason = str(why)
        if lives[-1].killed == "hangs":
            trial.outcome = "HANGS"
        elif trial.differs:
            only_files = all(d.startswith("files") for d in trial.differs)
            from_scratch = last is None and trial.resumes == 0
            trial.outcome = "BROKEN" if final.rc != reference.rc else "WRONG"
            if len(lives) == 1:
                trial.outcome = "RECORDING CHANGED IT"
            elif from_scratch and self.script.leftovers and (only_files or trial.outcome == "WRONG"):
                trial.outcome, trial.reason = "refused", f"{why} (from scratch; met its own old files)"
            if trial.outcome in BAD:
                trial.differs.append("last words: " + " / ".join(final.err.decode("utf-8", "replace").strip().splitlines()[-4:]))
        elif len(lives) == 1:
            passed = [f"{why} ({n})" for why, n in sorted((said.get("points_passed") or {}).items(), key=lambda p: -p[1])]
            trial.outcome = "unhurt" if said.get("image") or not passed else "refused"
            trial.reason = f"never an image: {'; '.join(passed[:2])}" if passed and not said.get("image") else f"{said.get('state')}: {why} passed: {passed[:2]}"
        elif last is None or tried:
            had = any((x.said.get("image") or tried or x.said.get("state") == "not resumable") for x in lives[:-1])
            trial.outcome = ("exact" if last is not None else "refused" if had else "restart")
        if str(why).startswith(FAULT):
            trial.outcome = "BROKEN"
        if last is not None and trial.outcome == "exact" and not trial.reason:
            got = lives[last - 1].resumed or {}
            trial.reason = f"{got.get('grade')}: {got.get('lost_steps')} lost steps, {got.get('values_equal')} values equal"
        return trial


def one_text(lives: list[Life]) -> tuple[bytes, int | None]:
    """What all lives printed, as one text: each tells in `lives` of state.json which one it came back from, and where that one's output
    stood. And the attempt that came back last, None if the last life began anew."""
    said = {x["attempt"]: x for x in lives[-1].said.get("lives") or ()}
    parts: dict[int, bytes] = {}
    for life in lives:
        told = said.get(life.attempt) or {}
        source = told.get("from") or 0
        before = parts.get(source, b"")
        if source:
            own = lives[source - 1].out
            before = before[: len(before) - len(own) + (told.get("out_bytes") or 0)]
        parts[life.attempt] = before + life.out
    last = lives[-1].attempt
    return parts[last], (last if (said.get(last) or {}).get("from") or lives[-1].resumed else None)


def clean(text: bytes, script: Script) -> bytes:
    """Without colours, and with the declared timings masked."""
    if not script.mask:
        return text
    text = MASKED.sub(b"", text)
    for pattern in script.mask:
        text = re.sub(pattern.encode(), b"~", text)
    return text


def first_difference(a: bytes, b: bytes) -> str:
    """The first line in which two texts differ, both sides."""
    left, right = a.splitlines(), b.splitlines()
    for n, (x, y) in enumerate(zip(left, right, strict=False), 1):
        if x != y:
            return f"line {n}: {x[:80]!r} became {y[:80]!r}"
    longer = left if len(left) > len(right) else right
    at = min(len(left), len(right))
    return f"{len(left)} lines became {len(right)}, next {longer[at][:80]!r}" if len(left) != len(right) else "line ends"


def vendored(folder: Path) -> Path:
    """The hooks as they travel to a machine: the folder for PYTHONPATH."""
    from stoker.base.vendor import lay_out

    return Path(lay_out(folder))


def plan(rng: random.Random, wall: float, number: int, double: bool = True) -> list[Kill]:
    """The kills of one trial: all phases take their turn, the moment within a phase is random."""
    early, late = min(2.0, wall * 0.5), wall * 0.97
    first = [Kill("image", rng.uniform(0.0, 0.3), rng.choice((1, 1, 1, 2))), Kill("time", rng.uniform(early, late)), Kill("writing", rng.uniform(0, 0.03)),
             Kill("time", rng.uniform(0.1, early)), Kill("bare image", rng.uniform(0, 1.0), 2), Kill("time", rng.uniform(wall * 0.4, late))][number % 6]
    again = [[], [Kill("time", rng.uniform(0.8, early + 1.0))], [Kill("resumed", rng.uniform(0, 0.05))], [], [Kill("image", rng.uniform(0, 0.4))],
             [Kill("time", rng.uniform(0.5, early + 1.0)), Kill("image", rng.uniform(0, 0.5))], []][rng.randrange(7)] if double else []
    return [first, *again]


def campaign(script: Script, base: Path, *, kills: int, seed: int = 0, every: str = "5steps", drop: str = "", double: bool = True, control: bool = True,
             hooks: Path | None = None, say=print, env: dict | None = None, plans: list[list[Kill]] | None = None) -> list[Trial]:
    """A plain run, then killed runs that must equal it; gives every trial. Where one does not, a second plain run and a recorded one (the
    control) tell whose fault that is: a script that differs from itself is no trial. Runs that are equal have answered both."""
    stage = Stage(script, base, every=every, drop=drop, hooks=hooks, env=env)
    straight = stage.plain()
    if straight.rc != script.exit:
        raise AssertionError(f"{script.name} fails without Stoker: {straight.err.decode('utf-8', 'replace')[-600:]}")
    rng = random.Random(f"{script.name} {seed}")
    trials = []
    for number, kill in enumerate(plans or [plan(rng, straight.seconds, i, double) for i in range(kills)]):
        trial = stage.trial(kill, straight)
        trials.append(trial)
        say(trial.line())
        if not trial.good:
            keep = base / f"bad{number}"
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(base / "resume", keep / "resume", dirs_exist_ok=True) if (base / "resume").is_dir() else None
            for life in trial.lives:
                (keep / f"err{life.attempt}").parent.mkdir(parents=True, exist_ok=True)
                (keep / f"err{life.attempt}").write_bytes(life.err)
                (keep / f"out{life.attempt}").write_bytes(life.out)
            if control:
                control = False
                if differs := straight.differs(stage.plain(), script):
                    raise AssertionError(f"{script.name} differs from itself without Stoker: {differs}")
                recorded = stage.recorded()
                if differs := straight.differs(recorded, script):
                    said = recorded.err.decode("utf-8", "replace")[-600:]
                    trials[-1] = Trial(script.name, "RECORDING CHANGED IT", "; ".join(differs), [], [said])
    return trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("scripts", nargs="+", type=Path)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", default="40steps")
    parser.add_argument("--drop", default="")
    parser.add_argument("--double", action="store_true", help="kill some lives of a run again")
    parser.add_argument("--plain", action="store_true", help="only: does the script equal itself without Stoker?")
    parser.add_argument("--no-control", action="store_true")
    parser.add_argument("--base", type=Path, help="keep everything there")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    base = args.base or Path(tempfile.mkdtemp(prefix="st-resume-", dir="/tmp"))
    done, faults = [], 0
    hooks = None if args.plain else vendored(base / "hooks")
    for path in args.scripts:
        script = read(path)
        if script.missing():
            print(f"{script.name:28s} needs {script.missing()}: skipped", flush=True)
            continue
        try:
            if args.plain:
                stage = Stage(script, base / script.name, hooks=base)
                one, two = stage.plain(), stage.plain()
                differs = one.differs(two, script) + ([f"exit status {one.rc}: {one.err.decode()[-500:]}"] if one.rc != script.exit else [])
                faults += bool(differs)
                lines = len(one.text.splitlines())
                print(f"{script.name:28s} {one.seconds:5.1f} s {lines:4d} lines {len(one.files) - 1} files {one.state.get('count', '-')} objects  {'; '.join(differs) or 'ok'}", flush=True)
                continue
            done += campaign(script, base / script.name, kills=args.kills, seed=args.seed, every=args.every, drop=args.drop, double=args.double,
                             control=not args.no_control, hooks=hooks, say=lambda line: print(line, flush=True))
            if done and done[-1].outcome == "RECORDING CHANGED IT":
                print(done[-1].line(), flush=True)
        except AssertionError as error:
            faults += 1
            print(f"{script.name:28s} {error}", flush=True)
    counts: dict[str, int] = {}
    for trial in done:
        counts[trial.outcome] = counts.get(trial.outcome, 0) + 1
    if done:
        print(f"{len(done)} trials: {', '.join(f'{v} {k}' for k, v in sorted(counts.items()))}; {sum(t.resumes for t in done)} real resumes from an image")
    if args.json:
        args.json.write_text(json.dumps([t.to_json() for t in done], indent=1) + "\n")
    if args.base is None:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if faults or any(not t.good for t in done) else 0


if __name__ == "__main__":
    sys.exit(main())

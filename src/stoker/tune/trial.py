"""One start of the user's command, as it is, with an order for the hooks inside it:
begun, watched, ended, and what came of it.

A trial that fails, hangs or dies is a fact about it, never an error of ours.
Nothing here knows what is measured.

The command runs unchanged in the user's folder, without the server, with the hooks first in PYTHONPATH. It
has its own session, its own *room* (a folder of mode 0700 with order.json), stdin of /dev/null, output into
the room, STOKER_HOOKS=<room>/hooks, STOKER_TUNE=<room>, STOKER_RESUME=off. Files that the script writes go
to <room>/outside, and are read from there (inside/scratch.py). It is ended by killing its process group.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from stoker.base.config import Home, private_folder
from stoker.base.vendor import hooks_name, lay_out
from stoker.doctor import command as commands
from stoker.tune import procs

ENOUGH = "enough"  # a wish: tell what is known by now, and end
ORDER, FACTS, PROGRESS, STEPS, PAUSES, OUT, ERR = (
    "order.json", "facts.json", "progress.jsonl", "steps.bin", "pauses.bin", "out.log", "err.log")
HOOKS, PROCESSES, OUTSIDE = "hooks", "processes.jsonl", "outside"
LOOK_S = 0.05
IDLE_S = 20.0  # nothing told and no processor used for so long: it hangs
TAIL_BYTES = 16384
OLD_ROOM_S = 86400.0  # a room that nobody cleared away, after a power cut
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_NETWORK_ERRORS = (
    "ConnectionError",
    "URLError",
    "gaierror",
    "HTTPError",
    "MaxRetryError",
    "NewConnectionError",
    "ConnectionRefusedError",
)
_STDIN_ERRORS = (
    "EOFError: EOF when reading a line",
    "EOFError",
    "termios.error",
    "Inappropriate ioctl for device",
)


@dataclass(frozen=True)
class Command:
    """What to start, where, and with which environment. words: as typed."""

    words: tuple[str, ...]
    argv: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]
    script: Path | None = None
    interpreter: str | None = None
    import_path: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read(words: Sequence[str], folder: Path, env: dict[str, str]) -> Command:
    """The command as `stoker run` reads it. Raises InvalidSpec or Denied."""
    reading, _ = commands.settle(commands.read(words, folder, env), folder, env)
    return Command(
        tuple(words),
        reading.argv,
        folder,
        env,
        reading.script,
        reading.interpreter,
        reading.import_path,
        reading.warnings,
    )


@dataclass
class Ended:
    """How a trial ended. how: "facts" (it told them), "ended" (the script came to its end), or what stood in
    the way: "stdin", "network", "error" (of the script's own), "killed" (by a signal that we did not send),
    "full" (the disk or the memory), "hang", "slow_start" (no step in the time there was), "stopped" (by us),
    "unhooked", "no_torch", "no_step"."""

    how: str
    facts: dict | None = None
    why: str = ""  # one sentence
    lines: list[str] = field(default_factory=list)  # the end of the script's own error
    code: int | None = None
    signal: int = 0
    seconds: float = 0.0
    processes: list[dict] = field(default_factory=list)

    @property
    def settings(self) -> dict:
        """{"applied": [...], "left": {knob: why}} of the process that took the order;
        empty when none said so."""
        return next(
            (line["settings"] for line in reversed(self.processes) if isinstance(line.get("settings"), dict)),
            {},
        )


def rooms(where: Home) -> Path:
    """The folder of all trials' rooms, ours alone, made if need be and freed of very old ones.
    Raises Denied."""
    where.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    private_folder(where.tune)
    found = private_folder(where.tune / "rooms")
    for old in (
        *found.iterdir(),
        *(each for each in where.tune.glob("hooks-*") if each.name != hooks_name()),
    ):
        try:
            if time.time() - old.stat().st_mtime > OLD_ROOM_S:
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            continue
    return found


class Trial:
    """One started command. `start`, then `wait` or look; `end` always, also when it ended by itself."""

    def __init__(self, command: Command, order: Mapping, parent: Path, *, name: str = "") -> None:
        self.command, self.order = command, dict(order)
        self.room = parent / f"{name or self.order.get('mode', 'trial')}-{secrets.token_hex(4)}"
        self._hooks_at = parent.parent
        self._child: subprocess.Popen | None = None
        self._began = 0.0
        self._told = 0  # bytes of progress.jsonl that were heard
        self._ended_by_us = False
        self.last: dict = {}  # what it told last

    @property
    def pid(self) -> int:
        """Of its first process, which leads a session and a group."""
        return self._child.pid if self._child else 0

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> Trial:
        """Begin. Raises OSError when the program cannot be started."""
        self.room.mkdir(mode=0o700)
        for inside in (HOOKS, OUTSIDE):
            (self.room / inside).mkdir(mode=0o700)
        (self.room / ORDER).write_text(json.dumps(self.order), "utf-8")
        hooks = lay_out(self._hooks_at)
        self._began = time.monotonic()
        with open(self.room / OUT, "wb") as out, open(self.room / ERR, "wb") as err:
            self._child = subprocess.Popen(
                list(self.command.argv),
                cwd=self.command.folder,
                env=self._env(hooks),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_dies_with_us,  # noqa: PLW1509
            )  # one system call, of a library that is loaded
        return self

    def _env(self, hooks: Path) -> dict[str, str]:
        env = {
            k: v
            for k, v in self.command.env.items()
            if k not in ("STOKER_RUN", "STOKER_RUN_DIR", "STOKER_SETTINGS")
        }
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(hooks), env.get("PYTHONPATH", ""))))
        return env | {
            "STOKER_HOOKS": str(self.room / HOOKS),
            procs.MARK: str(self.room),
            "STOKER_RESUME": "off",
            "STOKER_CLOCK": "steps",
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(self.room / OUTSIDE),
            "PYTHONUNBUFFERED": "1",
            "MLFLOW_TRACKING_URI": (self.room / OUTSIDE / "mlruns").as_uri(),
        }

    def members(self) -> list[int]:
        return procs.members(self.pid, str(self.room)) if self._child else []

    def steps(self) -> list[int]:
        """When each optimizer step of a trial ended, CLOCK_MONOTONIC in ns."""
        try:
            raw = (self.room / STEPS).read_bytes()
        except OSError:
            return []
        return list(memoryview(raw[:len(raw) // 8 * 8]).cast("Q"))

    def pauses(self) -> dict[int, int]:
        """End of a step -> ns of evaluation before it, on the clock on the wall."""
        raw = _read(self.room / PAUSES)
        both = memoryview(raw[:len(raw) // 16 * 16]).cast("Q")
        return dict(zip(both[::2], both[1::2], strict=True))

    def count(self) -> int:
        """Optimizer steps so far."""
        try:
            return (self.room / STEPS).stat().st_size // 8
        except OSError:
            return 0

    def hear(self) -> list[dict]:
        """What it has told since the last call."""
        try:
            with open(self.room / PROGRESS, "rb") as f:
                f.seek(self._told)
                data = f.read()
        except OSError:
            return []
        whole = data[:data.rfind(b"\n") + 1]
        self._told += len(whole)
        told = _json_lines(whole)
        self.last = told[-1] if told else self.last
        return told

    def wait(self, limit_s: float, *, start_s: float = 0.0, hear: Callable[[dict], None] | None = None,
             until: Callable[[], bool] | None = None) -> Ended | None:
        """Wait until it ends, hangs, or has used its time (start_s: for its first step);
        then it is over and its group ended.

        With `until`: None as soon as that holds, and the trial goes on.
        """
        idle = _Idle(self)
        while True:
            for told in self.hear():
                idle.heard()
                if hear:
                    hear(told)
            if not self.alive or ((self.room / FACTS).exists() and self._settled()):
                return self.end()
            if until and until():
                return None
            spent = time.monotonic() - self._began
            if idle.too_long():
                return self._give_up("hang", f"no activity for {IDLE_S:g} s")
            if idle.tight:
                return self._give_up("full", idle.tight)
            if start_s and spent > start_s and not self._trains():
                return self._give_up("slow_start", f"no optimizer step in the first {start_s:.0f} s")
            if spent > limit_s:
                return self._give_up("hang", f"the script did not end within {limit_s:.0f} s")
            time.sleep(LOOK_S)

    def enough(self, within_s: float) -> Ended:
        """Ask it for what it knows by now, and end it."""
        deadline = time.monotonic() + within_s
        (self.room / ENOUGH).touch()
        while self.alive and not (self.room / FACTS).exists() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self.end()

    def _settled(self) -> bool:
        """Facts are there: it may end by itself for a moment, then it is ended."""
        deadline = time.monotonic() + 1.0
        while self.alive and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return True

    def _trains(self) -> bool:
        return self.count() > 0 or bool(self.last.get("steps"))

    def _give_up(self, how: str, why: str) -> Ended:
        self._ended_by_us = True
        ended = self.end()
        if ended.how in ("stopped", "killed", "no_step", "no_torch"):
            ended.how, ended.why = how, why
        return ended

    def end(self) -> Ended:
        """End all that is left of it, and say what came of it. May be called again."""
        code = self._child.poll() if self._child else None
        self._ended_by_us |= code is None
        if self._child:
            procs.end(self.pid, str(self.room))
            self._child.wait()
        ended = self._judge(self._child.returncode if code is None and self._child else code)
        ended.seconds = time.monotonic() - self._began
        return ended

    def _judge(self, code: int | None) -> Ended:
        facts = _json(self.room / FACTS)
        ended = Ended(
            "facts",
            facts,
            code=code,
            signal=-code if code and code < 0 else 0,
            processes=_json_lines(_read(self.room / HOOKS / PROCESSES)),
            lines=error_lines(tail_of(self.room / ERR)),
        )
        end = _End(
            ended, facts or {}, bool(self.order.get("network")), self._ended_by_us, self._trains()
        )
        named = next((named for verdict in _VERDICTS if (named := verdict(end))), None)
        return _with(ended, *named) if named else ended

    def clear(self) -> None:
        """Its room, with what the script wrote there, is removed."""
        shutil.rmtree(self.room, ignore_errors=True)


class _End(NamedTuple):
    """A trial that has ended: what each of _VERDICTS is asked about."""

    ended: Ended
    facts: dict
    network: bool  # it may write to the network
    by_us: bool  # it was ended from here
    trains: bool

    @property
    def failed(self) -> bool:
        return bool(self.ended.code and self.ended.code > 0)

    @property
    def effects(self) -> dict:
        return self.facts.get("side_effects") or {}


def _network(end: _End) -> tuple[str, str] | None:
    writes = end.effects.get("network") and not end.network
    return ("network", "the script writes to the network") if writes else None


def _stdin(end: _End) -> tuple[str, str] | None:
    last = (end.ended.lines or [""])[-1]
    asked = bool(end.ended.code) and any(last.startswith(error) for error in _STDIN_ERRORS)
    return ("stdin", "the script waits for input") if end.effects.get("stdin") or asked else None


def _stepped(end: _End) -> tuple[str, str] | None:
    enough = end.facts.get("ended") == "enough" or bool(end.facts.get("steps_seen"))
    return ("facts", "") if enough and end.facts.get("ended") != "error" else None


def _error(end: _End) -> tuple[str, str] | None:
    if not (end.failed and not end.by_us) and end.facts.get("ended") != "error":
        return None
    last = _last_word(end.ended.lines, end.ended.facts)
    why = f"the script fails: {last}" if last else f"the script fails with exit code {end.ended.code}"
    return "error", why


def _killed(end: _End) -> tuple[str, str] | None:
    number = end.ended.signal
    if not number or end.by_us or end.ended.facts is not None:
        return None
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    return "killed", f"killed by {name}"


def _trained(end: _End) -> tuple[str, str] | None:
    return ("stopped" if end.by_us else "ended", "") if end.trains else None


def _unhooked(end: _End) -> tuple[str, str] | None:
    if end.ended.processes:
        return None
    why = (
        "no Python process loaded Stoker's hooks (Does the command use python -I, -E or -S, or no Python "
        "at all?)"
    )
    return "unhooked", why


def _no_torch(end: _End) -> tuple[str, str] | None:
    if any(line.get("torch") for line in end.ended.processes):
        return None
    other = next((str(line["other"])[:40] for line in end.ended.processes if line.get("other")), "")
    return "no_torch", f"the script uses {other}, not torch" if other else "the script never imported torch"


def _no_step(end: _End) -> tuple[str, str] | None:
    return "stopped" if end.by_us else "no_step", "no optimizer made a step"


# Each gives (how, why) where it applies, else None; the first that applies names the end.
_VERDICTS = (
    _network,
    _stdin,
    _stepped,
    _error,
    _killed,
    _trained,
    _unhooked,
    _no_torch,
    _no_step,
)


class _Idle:
    """Does anything happen in a trial? Looked at now and then, since a look costs."""

    EVERY_S = 1.0

    def __init__(self, trial: Trial) -> None:
        self._trial, self._cpu = trial, 0.0
        self.tight = ""  # why it cannot be let go on
        self._since = self._looked = time.monotonic()

    def heard(self) -> None:
        self._since = time.monotonic()

    def too_long(self) -> bool:
        now = time.monotonic()
        if now - self._looked < self.EVERY_S:
            return False
        self._looked = now
        self.tight = procs.tight(str(self._trial.room))
        cpu = procs.cpu_s(self._trial.members())
        if abs(cpu - self._cpu) > 0.02:
            self._since = now
        self._cpu = cpu
        return now - self._since > IDLE_S


def tail_of(path: Path) -> str:
    """The end of a text file."""
    try:
        with open(path, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - TAIL_BYTES))
            return f.read().decode("utf-8", "replace")
    except OSError:
        return ""


def error_lines(text: str, most: int = 6) -> list[str]:
    """The last lines of the last traceback, or of what was said last; without those of ours."""
    lines = [line for line in text.splitlines() if line.strip() and "stoker_hooks" not in line]
    starts = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        lines = lines[starts[-1]:]
        last = next(
            (n for n, line in enumerate(lines) if n and re.match(r"[A-Za-z_][\w.]*(:|$)", line)),
            len(lines) - 1,
        )
        lines = lines[:last + 1]
    return lines[-most:]


def _last_word(lines: list[str], facts: dict | None) -> str:
    error = (facts or {}).get("error") or {}
    if error.get("type"):
        at = f" ({os.path.basename(error['file'])}:{error['line']})" if error.get("file") else ""
        return f"{error['type']}: {error.get('message', '')}{at}"
    return lines[-1].strip() if lines else ""


def _with(ended: Ended, how: str, why: str) -> Ended:
    ended.how, ended.why = how, why
    return ended


def _dies_with_us() -> None:
    """Runs in the child before the command: should we be killed, a stopped trial would stay for ever."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _json(path: Path) -> dict | None:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _json_lines(data: bytes) -> list[dict]:
    found = []
    for line in data.splitlines():
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if isinstance(body, dict):
            found.append(body)
    return found

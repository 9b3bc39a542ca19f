"""Names, numbers and small words that every part of the agent uses.
base/rundir.py and base/state.py hold the same names; tests/house compares them."""

from __future__ import annotations

import errno
import os
import signal

VERSION = 1

SPEC, LIMITS, ENV, STDIN, WORK, ATTEMPTS, KEEP_WISH = (
    "spec.json",
    "limits.json",
    "env",
    "stdin",
    "work",
    "attempts",
    "keep.json",
)
OWNED, HOME_MARK = "owner.json", "home.json"
AGENT, HEARTBEAT, OUT, ERR, MOVES, TURNS = "agent.json", "heartbeat", "out.log", "err.log", "moves", "turns"
STEPS, STILL, WRITTEN = "steps.jsonl", "still.json", "written.jsonl"
TELEMETRY, EVENTS, EXIT, STOP, STATUS, SOCKET = (
    "telemetry.jsonl",
    "events.jsonl",
    "exit.json",
    "stop.json",
    "status.json",
    "sock",
)
HOOKS, RESUME, SETTINGS = "hooks", "resume", "settings.json"
# manifest.json is in CODE, and in each folder of IMAGES
CODE, MANIFEST, IMAGES = "code", "manifest.json", "images"
PROCESSES, IMAGE_ASK, IMAGE_DONE = "processes.jsonl", "image.ask", "image.done"  # in HOOKS
RESUME_STATE, OWNER, PUT_BACK = "state.json", "owner", "put_back"  # in RESUME
# in the folder of RESUME; the last two in a room
AUDIT, AUDITS, ORDER, VERDICT = "audit", "audits.json", "order.json", "verdict.json"
# what the holder and the agent proper have to say about themselves; empty when all is well
CARETAKER_LOG = "caretaker.log"
# blocks kept back so that last words, and the wish for them, fit on a full disk
STATUS_SPARE, EXIT_SPARE, STOP_SPARE = ".status.spare", ".exit.spare", ".stop.spare"

RUN_MARK, RUN_DIR_MARK, DAEMON_MARK = "STOKER_RUN", "STOKER_RUN_DIR", "STOKER_DAEMON"

TICK_S = 2.0  # heartbeat and telemetry
# at least; and so many times the slowest hundredth of the steps
QUIET_S, STALLED_S, SLOW_STEPS = 30.0, 300.0, 10.0
STILL_LOOK_S = 10.0  # between two looks at the bytes that the processes move
STACKS_MAX, STACK_WAIT_S = 32, 0.25
STALL_RESTARTS = 3  # by `--stall 10m:restart`, where --restarts does not allow more
WRITTEN_MAX = 4096  # paths of an attempt that are written down
THIN_AFTER_S, THIN_TICK_S = 3600.0, 10.0  # telemetry of long runs
CLAIM_S = 5.0  # a claimed folder without agent.json is young for that long, then abandoned
NATURAL_S = 0.3  # what a run leaves behind may end by itself for that long before it is told to
LEFTOVER_GRACE_S = 5.0  # at most, for what is left after the run's own end
LOOKS = 20  # at the process table, at most, before "nobody is left" is believed while processes come and go
FROZEN_LOOKS = 3  # ticks at which the other caretaker stood still, before something is done about it
FORCE_S = 5.0  # what a stop without grace gives the caretakers before it does their work
KILL_S = 10.0  # how long SIGKILL is repeated before survivors are reported
BACKOFF_MAX_S, BACKOFF_RESET_S = 300.0, 600.0
# the next attempt would end so too
NEVER_PASSES = ("SyntaxError", "IndentationError", "TabError", "ModuleNotFoundError")
INTERRUPT_S = 30.0  # an error this soon after a passed-on Ctrl-C counts as its effect
AUDITS_KEPT = 100
AUDIT_SPARE = 64 << 20  # bytes of memory that must stay free beside an audit
# ask the first process for something; they are no end, and others would die of them
ASKING = (signal.SIGUSR1, signal.SIGUSR2)
FRESH_S = 10.0  # an older heartbeat says nothing of who is alive
STILL_BEAT_S = 3.0  # a heartbeat that does not change for so long stands still; it is due each TICK_S
GONE_S = 30.0  # how long the last words wait for a run folder that is gone
TAIL_BYTES = 256 * 1024
JSON_MAX, ENV_MAX = 4 << 20, 64 << 20  # bytes of a file in a run folder that are read at most
MANIFEST_MAX = 128 << 20  # bytes of a list of files
SCRIPT_MAX = 64 << 20  # bytes of a file of code
WRITTEN_READ = 4 << 20  # bytes of one attempt's record of written files
CHANGED_S, CHANGED_MAX, COST_S = 1.0, 100_000, 5.0
MADE_S, MADE_MAX = 45.0, 1_000_000
LATE_S = 2.0  # clocks of file systems are coarse, and an end is noticed a little late
# beside a file that hooks put back; one that a kill left there goes when the files are given back
UNDO = ".stoker-undo"
DEEP = 20  # lists and objects within each other that are read
# the largest whole number and the largest number that are read
WHOLE_MAX, NUMBER_MAX = (1 << 63) - 1, float(1 << 64)
TIME_MAX = 253402300800.0  # the year 10000
SYNC_MAX = 64 << 20
FRAME_MAX = 1 << 20
FEED_MAX = 64 * 1024  # input held for a run that does not read it
FULL = (errno.ENOSPC, errno.EDQUOT)
PIPE = 64 * 1024  # what a pipe holds; a larger one would make a flood slower (decision 005)
LINE_MAX = 1 << 20  # of one of two logs, until it is shown in parts
PIECE = 128 * 1024  # copied at a time where the kernel does not move pages itself
# small pieces so close together, so many: more is gathered, for so long at most
OFTEN_S, OFTEN, PAUSE_MAX_S = 0.05, 8, 0.04
GAPS_MAX = 100
GIVE_BACK_S = 60.0

MULTIPLEXERS = ("tmux", "screen", "SCREEN", "zellij", "dtach", "abduco", "byobu", "shpool")
# names that are no work of a run
JUNK = frozenset(
    (
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".ipynb_checkpoints",
        ".eggs",
        ".cache",
        ".direnv",
        ".DS_Store",
    )
)
# where programs are installed
SYSTEM_FOLDERS = ("/bin/", "/usr/", "/opt/", "/snap/", "/nix/store/", "/gnu/store/", "/home/linuxbrew/")
ONE_KERNEL = (
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "zfs",
    "bcachefs",
    "f2fs",
    "jfs",
    "reiserfs",
    "tmpfs",
    "ramfs",
    "overlay",
)
LOGIN_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR")
KEPT_ENV = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "STOKER_CRASH_AT",
    "STOKER_IDENTITY",
)


class Problem(Exception):
    """An answer that is an error: a word for programs and a sentence for people."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(detail)
        self.error, self.detail = error, detail


_crash_name, _, _crash_count = os.environ.get("STOKER_CRASH_AT", "").partition(":")
_crash_left = int(_crash_count) if _crash_count.isdigit() else 1


def crash_point(name: str) -> None:
    """SIGKILL this process if STOKER_CRASH_AT=name[:n] says so and this is the n-th time; else nothing."""
    global _crash_left
    if name != _crash_name:
        return
    _crash_left -= 1
    if _crash_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def crash_is_ahead() -> bool:
    """May this process still be killed at a crash point?"""
    return bool(_crash_name)


def forget_crash_points() -> None:
    """A process that replaces a crashed one does not crash at the same place."""
    global _crash_name
    _crash_name = ""


def is_attempt(name: str) -> bool:
    """Is this the name of an attempt's folder: 1, 2, ... 999999?"""
    return name.isascii() and name.isdigit() and len(name) <= 6 and name[0] != "0"


def number(value: object, default: float = 0.0) -> float:
    """A number out of a file that anybody may have written."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def encode(text: str) -> bytes:
    """argv, environment and paths as bytes: always UTF-8 with surrogate escapes, whatever the locale here."""
    return text.encode("utf-8", "surrogateescape")


def signal_number(name: object) -> int:
    """The number of "USR1" or "SIGUSR1"; 0 for anything else."""
    text = str(name or "").upper()
    found = getattr(signal, text if text.startswith("SIG") else "SIG" + text, 0)
    return int(found) if isinstance(found, signal.Signals) else 0


def signal_name(sig: object) -> str | None:
    try:
        return signal.Signals(int(number(sig))).name
    except ValueError:
        return "signal %d" % int(number(sig)) if number(sig) else None


def format_duration(seconds: float) -> str:
    """The two largest units that matter, as in base/units.py: "2h", "1h 30m"."""
    left = round(max(0.0, seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        n, left = divmod(left, size)
        if n or (unit == "s" and not parts):
            parts.append("%d%s" % (n, unit))
    return " ".join(parts[:2])


def valid_id(run_id: str) -> bool:
    return bool(run_id) and "/" not in run_id and "\0" not in run_id and not run_id.startswith(".")


def arguments(args: list[str], count: int, options: dict[str, int]) -> tuple[list[str], dict[str, list[str]]]:
    """Positional arguments and options, each with a fixed number of values."""
    plain, given = [], {}
    todo = list(args)
    while todo:
        word = todo.pop(0)
        if word in options:
            given[word], todo = todo[:options[word]], todo[options[word]:]
            if len(given[word]) != options[word]:
                raise Problem("usage", "%s needs %d values" % (word, options[word]))
        elif word.startswith("--"):
            raise Problem("usage", "unknown option %s" % word)
        else:
            plain.append(word)
    if len(plain) != count:
        raise Problem("usage", "%d arguments are needed, %d were given" % (count, len(plain)))
    return plain, given


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Problem("usage", "'%s' is not a whole number" % text) from None


def seconds(text: str) -> float:
    """An argument as seconds. Raises Problem."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise Problem("usage", "'%s' is not a number of seconds" % text)
    return value

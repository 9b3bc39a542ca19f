"""The agent: the one file that starts a run on a machine, keeps it, ends it and says why it ended.

Standard library only, Python 3.8 to 3.13, Linux; it imports nothing of ours and needs no server, no network and no
rights. Run it as `python -I -S agent.py VERB ...`; docs/reference/contracts.md, section 1, is what it promises.

In order: words - files - processes - claim and start - holder - output - spawn - agent proper - ladder - telemetry - last
words - observing - looking - following - verbs.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# ---------------------------------------------------------------------------------------------------------------------
# Words. base/rundir.py and base/state.py hold the same names; tests/house compares them.

VERSION = 1

SPEC, LIMITS, ENV, STDIN, WORK, ATTEMPTS, KEEP_WISH = "spec.json", "limits.json", "env", "stdin", "work", "attempts", "keep.json"
AGENT, HEARTBEAT, OUT, ERR, MOVES, TURNS = "agent.json", "heartbeat", "out.log", "err.log", "moves", "turns"
STEPS, STILL, WRITTEN = "steps.jsonl", "still.json", "written.jsonl"
TELEMETRY, EVENTS, EXIT, STOP, STATUS, SOCKET = "telemetry.jsonl", "events.jsonl", "exit.json", "stop.json", "status.json", "sock"
HOOKS, RESUME, SETTINGS = "hooks", "resume", "settings.json"
CODE, MANIFEST, IMAGES = "code", "manifest.json", "images"  # manifest.json is in CODE, and in each folder of IMAGES
PROCESSES, IMAGE_ASK, IMAGE_DONE = "processes.jsonl", "image.ask", "image.done"  # in HOOKS
RESUME_STATE, OWNER, PUT_BACK = "state.json", "owner", "put_back"  # in RESUME
AUDIT, AUDITS, ORDER, VERDICT = "audit", "audits.json", "order.json", "verdict.json"  # in the folder of RESUME; the last two in a room
CARETAKER_LOG = "caretaker.log"  # what the holder and the agent proper have to say about themselves; empty when all is well
# blocks kept back so that last words, and the wish for them, fit on a full disk
STATUS_SPARE, EXIT_SPARE, STOP_SPARE = ".status.spare", ".exit.spare", ".stop.spare"

RUN_MARK, RUN_DIR_MARK, DAEMON_MARK = "STOKER_RUN", "STOKER_RUN_DIR", "STOKER_DAEMON"

TICK_S = 2.0  # heartbeat and telemetry
QUIET_S, STALLED_S, SLOW_STEPS = 30.0, 300.0, 10.0  # at least; and so many times the slowest hundredth of the steps
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
NEVER_PASSES = ("SyntaxError", "IndentationError", "TabError", "ModuleNotFoundError")  # the next attempt would end so too
INTERRUPT_S = 30.0  # an error this soon after a passed-on Ctrl-C counts as its effect
AUDITS_KEPT = 100
AUDIT_SPARE = 64 << 20  # bytes of memory that must stay free beside an audit
ASKING = (signal.SIGUSR1, signal.SIGUSR2)  # ask the first process for something; they are no end, and others would die of them
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
UNDO = ".stoker-undo"  # beside a file that hooks put back; one that a kill left there goes when the files are given back
DEEP = 20  # lists and objects within each other that are read
WHOLE_MAX, NUMBER_MAX = (1 << 63) - 1, float(1 << 64)  # the largest whole number and the largest number that are read
TIME_MAX = 253402300800.0  # the year 10000
SYNC_MAX = 64 << 20
FRAME_MAX = 1 << 20
FEED_MAX = 64 * 1024  # input held for a run that does not read it
FULL = (errno.ENOSPC, errno.EDQUOT)
PIPE = 64 * 1024  # what a pipe holds; a larger one would make a flood slower (decision 005)
LINE_MAX = 1 << 20  # of one of two logs, until it is shown in parts
PIECE = 128 * 1024  # copied at a time where the kernel does not move pages itself
OFTEN_S, OFTEN, PAUSE_MAX_S = 0.05, 8, 0.04  # small pieces so close together, so many: more is gathered, for so long at most
GAPS_MAX = 100
GIVE_BACK_S = 60.0

MULTIPLEXERS = ("tmux", "screen", "SCREEN", "zellij", "dtach", "abduco", "byobu", "shpool")
# names that are no work of a run
JUNK = frozenset((".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache",
                  ".tox", ".nox", ".ipynb_checkpoints", ".eggs", ".cache", ".direnv", ".DS_Store"))
SYSTEM_FOLDERS = ("/bin/", "/usr/", "/opt/", "/snap/", "/nix/store/", "/gnu/store/", "/home/linuxbrew/")  # where programs are installed
ONE_KERNEL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "reiserfs", "tmpfs", "ramfs", "overlay")
LOGIN_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR")
KEPT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "STOKER_CRASH_AT",
            "STOKER_IDENTITY")


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


def forget_crash_points() -> None:
    """A process that replaces a crashed one does not crash at the same place."""
    global _crash_name
    _crash_name = ""


# ---------------------------------------------------------------------------------------------------------------------
# Files

class Attempt:
    """The paths of attempt n of the run in run_dir."""

    def __init__(self, run_dir: str, n: int) -> None:
        self.run_dir = os.path.abspath(run_dir)
        self.n = n
        self.id = os.path.basename(self.run_dir)
        self.root = os.path.dirname(os.path.dirname(self.run_dir))
        self.folder = os.path.join(self.run_dir, ATTEMPTS, str(n))
        self.fd = -1

    def hold(self) -> None:
        """For its caretakers: from here on `path` leads into the folder that is here now, whatever comes to stand in its place. Raises
        OSError."""
        self.fd = self.open_folder(ATTEMPTS, str(self.n))

    def path(self, name: str) -> str:
        """Of a file in the attempt's folder; only for this process."""
        if self.fd < 0:
            return os.path.join(self.folder, name)
        if not self._is_there():
            try:
                fd = self.open_folder(ATTEMPTS, str(self.n))  # deleted; a copy may have been put back
                os.dup2(fd, self.fd, inheritable=False)
                os.close(fd)
            except OSError:
                pass
        return "/proc/self/fd/%d/%s" % (self.fd, name)

    def _is_there(self) -> bool:
        try:
            return os.fstat(self.fd).st_nlink > 0
        except OSError:
            return False

    def json(self, name: str) -> dict | None:
        return read_json(self.path(name))

    def sibling(self, n: int) -> Attempt:
        return Attempt(self.run_dir, n)

    def below(self, *names: str) -> tuple[str, ...]:
        """A path in the run folder as `open_folder` and `remove` take it: the state folder, then names that may not be links."""
        return (self.root, os.path.basename(os.path.dirname(self.run_dir)), self.id, *names)

    def open_folder(self, *names: str) -> int:
        """A descriptor of a folder in the run folder, which no link leads to. Raises OSError."""
        return open_folder(*self.below(*names))

    def made_folder(self, *names: str) -> int:
        """As `open_folder`; it is made where it is not, and what stands in its place and is no folder goes. Raises OSError."""
        parent = self.open_folder(*names[:-1])
        try:
            try:
                return os.open(names[-1], FOLDER, dir_fd=parent)
            except (FileNotFoundError, NotADirectoryError):
                remove_at(parent, names[-1])
            os.mkdir(names[-1], 0o700, dir_fd=parent)
            return os.open(names[-1], FOLDER, dir_fd=parent)
        finally:
            os.close(parent)


def attempt_numbers(run_dir: str) -> list[int]:
    """The attempts that were claimed, in order."""
    try:
        return sorted(int(name) for name in os.listdir(os.path.join(run_dir, ATTEMPTS)) if is_attempt(name))
    except OSError:
        return []


def is_attempt(name: str) -> bool:
    """Is this the name of an attempt's folder: 1, 2, ... 999999?"""
    return name.isascii() and name.isdigit() and len(name) <= 6 and name[0] != "0"


def newest_attempt(run_dir: str) -> Attempt | None:
    """The newest attempt that was claimed, or None."""
    numbers = attempt_numbers(run_dir)
    return Attempt(run_dir, numbers[-1]) if numbers else None


def read_bytes(path: str, limit: int = -1) -> bytes:
    with open(path, "rb") as f:
        return f.read(limit)


class Broken(ValueError):
    """A file of a run folder is not what it should be: says why."""


def open_regular(path: str) -> int:
    """A descriptor to read a regular file. Never waits. Raises OSError, and Broken for a pipe, a device, a socket or a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Broken("not a regular file")
    os.set_blocking(fd, True)
    return fd


def read_regular(path: str, limit: int) -> bytes:
    """What a regular file holds. Raises OSError, and Broken where it is none or holds more than `limit` bytes."""
    with open(open_regular(path), "rb") as f:
        data = f.read(limit + 1)
    if len(data) > limit:
        raise Broken("larger than %d bytes" % limit)
    return data


def load_json(path: str, kinds: object = None, limit: int = JSON_MAX) -> dict:
    """The JSON object in a file of a run folder, whose fields are of these kinds (see `misfit`; without them those that FILES has for its
    name). Raises OSError, and Broken for anything else."""
    return parse_json(read_regular(path, limit), FILES.get(os.path.basename(path), dict) if kinds is None else kinds)


def parse_json(data: bytes, kinds: object) -> dict:
    """The JSON object in these bytes, if its fields are of these kinds. Raises Broken."""
    if depth(data) > DEEP:
        raise Broken("nested too deeply")
    try:
        body = json.loads(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        raise Broken("not JSON") from None
    if not isinstance(body, dict):
        raise Broken("not a JSON object")
    wrong = misfit(body, kinds)
    if wrong is not None:
        raise Broken("%s has the wrong type" % wrong)
    return body


def depth(data: bytes) -> int:
    """How many lists and objects of a JSON text are within each other."""
    now = most = 0
    for c in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data).translate(None, NO_BRACKETS):
        now += 1 if c in b"[{" else -1
        most = max(most, now)
    return most


NO_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")


def misfit(value: object, kind: object) -> str | None:
    """Where in `value` something is not of its kind, as "run.pid"; None where all is well. Null is of each kind.

    Kinds: a type (float stands for all numbers); TIME; {name: kind} of the known fields of an object, "*" for all others; [kind] of the
    members of a list.
    """
    if value is None:
        return None
    if kind == TIME:
        return None if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < TIME_MAX else ""
    if isinstance(kind, (dict, list)) and not isinstance(value, type(kind)):
        return ""
    if isinstance(kind, dict):
        members = [(name, each, kind.get(name, kind.get("*"))) for name, each in value.items()]
    elif isinstance(kind, list):
        members = [(str(i), each, kind[0]) for i, each in enumerate(value)]
    elif kind in (int, float):
        whole = isinstance(value, int) and abs(value) <= WHOLE_MAX
        fits = whole or (kind is float and isinstance(value, (int, float)) and abs(value) <= NUMBER_MAX)
        return None if fits and not isinstance(value, bool) else ""
    else:
        return None if isinstance(value, kind) else ""
    for name, each, its in members:
        wrong = misfit(each, its) if its is not None else None
        if wrong is not None:
            return name + ("." + wrong if wrong else "")
    return None


TIME = "time"
PROCESS = {"pid": int, "start": int, "sid": int}
SAMPLE = {"at": TIME, "t": float, "cpu_percent": float, "rss_bytes": float, "processes": int, "disk_free_bytes": float,
          "inodes_free": float, "out_bytes": int, "err_bytes": int,
          "gpus": [{"uuid": str, "index": int, "busy_percent": float, "memory_bytes": float}]}
MANIFEST_KINDS = {"complete": bool, "bulk": [str], "files": [{"path": str, "size": int, "mtime_ns": int, "sha256": str}]}
FILES = {  # what the files that others than their writer read must hold: name -> kinds of the fields that are looked at
    SPEC: {"id": str, "name": str, "command": [str], "argv": [str], "folder": str, "copy": bool, "stdin": str, "tty": bool, "home": str,
           "resume": str, "audit": bool, "hooks": bool, "settings": dict, "inherit": dict, "grace_s": [float], "restarts": int,
           "retry_reasons": [str], "backoff_s": float, "unbuffered": bool, "split_stderr": bool, "machine_env": bool},
    LIMITS: {"seq": int, "time_s": float},
    KEEP_WISH: {"at": TIME, "seq": int, "time_s": float},
    AGENT: {"attempt": int, "machine": dict, "holder": PROCESS, "agent": PROCESS, "run": PROCESS, "started_at": TIME,
            "started_mono": float, "tty": bool, "argv": [str], "cwd": str, "log_before": {"cgroup_oom_kill": int, "vmstat_oom_kill": int}},
    HEARTBEAT: {"at": TIME, "mono": float, "phase": str, "used_s": float, "limits_seq": int, "waits_for_input": bool, "out_bytes": int,
                "err_bytes": int, "ladder": str},
    STATUS: {"status": int, "ended_mono": float, "ended_at": TIME, "used_s": float, "start_failed": str},
    STOP: {"reason": str, "grace_s": [float], "at": TIME},
    EXIT: {"attempt": int, "code": int, "signal": int, "signal_name": str, "reason": str, "started_at": TIME, "ended_at": TIME,
           "used_s": float, "out_bytes": int, "err_bytes": int, "gaps": [dict], "restart": {"attempt": int, "at": TIME, "mono": float},
           "leftovers": {"found": [{"pid": int, "name": str}], "survivors": [{"pid": int, "name": str, "state": str}],
                         "spared": [{"pid": int, "name": str}]},
           "evidence": {"exception": {"type": str, "message": str, "file": str, "line": int, "rank": int}, "hint_text": str,
                        "code": int, "signal_name": str}},
    ORDER: {"pid": int, "attempt": int, "image": int, "step": int, "from_step": int, "limit_s": float, "cwd": str},
    VERDICT: {"verdict": str, "why": str},
    AUDITS: {"audits": [{"verdict": str, "why": str, "attempt": int, "image": int, "step": int, "from_step": int, "at": TIME,
                         "spare_core": bool}]},
}


def read_json(path: str) -> dict | None:
    """The JSON object in a file of a run folder; None when it is missing, torn or not what FILES says."""
    try:
        return load_json(path)
    except (OSError, ValueError):
        return None


def flaw(path: str) -> str:
    """Why a file of a run folder cannot be used: "" when it can, or is not there."""
    try:
        load_json(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as e:
        return getattr(e, "strerror", None) or str(e)
    return ""


WRITE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # no link is written through, no pipe waited for


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however often the kernel takes only a part. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def write_whole(path: str, data: bytes, sync: bool = False, spare: str | None = None) -> None:
    """Write beside, rename: readers see the old content or the new. On a full disk the blocks of `spare`, or of the
    old file, are used instead. Raises OSError when even that fails."""
    temp = "%s.tmp-%d" % (path, os.getpid())
    try:
        fd = os.open(temp, WRITE | os.O_TRUNC, 0o644)
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        put_in_place(temp, path)
        return
    except OSError as e:
        unlink(temp)
        if e.errno not in FULL:
            raise
        full = e
    if spare and os.path.exists(spare):
        fill(spare, data, len(data))
        put_in_place(spare, path)
        return
    try:
        size = os.stat(path).st_size
    except OSError:
        size = -1
    if len(data) > size:
        raise full
    fill(path, data + b" " * (size - len(data)), size)  # padded with spaces, so that a reader never sees an old end


def put_in_place(temp: str, path: str) -> None:
    """Rename, also where somebody made a folder of that name."""
    try:
        os.replace(temp, path)
    except IsADirectoryError:
        remove(os.path.dirname(path), os.path.basename(path))
        os.replace(temp, path)


def fill(path: str, data: bytes, size: int) -> None:
    """Overwrite in place: needs no new block."""
    fd = os.open(path, WRITE & ~os.O_CREAT)
    try:
        write_all(fd, data)
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: str, body: dict, sync: bool = False, spare: str | None = None, pad: int = 0) -> None:
    """Write a JSON file whole or not at all. Raises OSError."""
    data = (json.dumps(body, ensure_ascii=True) + "\n").encode()
    write_whole(path, data.ljust(pad), sync, spare)


def write_once(path: str, body: dict, sync: bool = True) -> bool:
    """Write the file unless it exists; False when somebody was faster. Several may try at once."""
    temp = "%s.once-%d" % (path, os.getpid())
    if os.path.lexists(path):
        return False
    write_json(temp, body, sync, spare=os.path.join(os.path.dirname(path), EXIT_SPARE))
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: the last one wins, with the same content but for the times
        os.replace(temp, path)
    finally:
        unlink(temp)
    return True


def append_line(path: str, body: dict) -> None:
    """One JSON line. What cannot be written (full disk) is left out: nothing may depend on it."""
    try:
        fd = os.open(path, WRITE | os.O_APPEND, 0o644)
        try:
            os.write(fd, (json.dumps(body, ensure_ascii=True) + "\n").encode())
        finally:
            os.close(fd)
    except OSError:
        pass


def reserve(path: str, size: int) -> None:
    """Keep blocks back in a file of their own, so that the last words fit on a full disk."""
    fd = os.open(path, WRITE, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as e:
        if e.errno in FULL:
            raise
        write_all(fd, b" " * size)
    finally:
        os.close(fd)


def unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(top: str, *names: str) -> int:
    """A descriptor of the folder top/NAME/NAME/...; only `top` may be a link. Raises OSError."""
    fd = os.open(top, FOLDER & ~os.O_NOFOLLOW)
    for name in names:
        try:
            inner = os.open(name, FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def remove(top: str, *names: str) -> None:
    """Delete top/NAME/.../NAME: a file, a link, or a folder with all that is in it, also with folders that cannot be read.

    No link is followed, only `top` may be one. Harmless when nothing is there, or somebody else removes it too. Raises OSError.
    """
    try:
        parent = open_folder(top, *names[:-1])
    except FileNotFoundError:
        return
    try:
        remove_at(parent, names[-1])
    finally:
        os.close(parent)


def remove_at(parent: int, name: str) -> None:
    """`remove` of a name in an open folder."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            empty_folder(parent, name)
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def empty_folder(parent: int, name: str) -> None:
    """Delete what is in a folder. What its folders hold is moved up before they go, so depth costs neither memory nor descriptors."""
    fd = open_own(parent, name)
    try:
        number = 0
        for folder in iter_folders(fd):
            try:
                number = dissolve(fd, folder, number)
            except FileNotFoundError:  # somebody else removes it too
                pass
    finally:
        os.close(fd)


def dissolve(parent: int, name: str, number: int) -> int:
    """Delete a folder, but move the folders in it up to its parent, under the numbers after `number`. Gives the last number."""
    fd = open_own(parent, name)
    try:
        for each in delete_files(fd):
            number = move_up(fd, each, parent, number)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)
    return number


def iter_folders(fd: int) -> object:
    """The folders in an open one, until there are none; everything else in it is deleted."""
    while True:
        names = delete_files(fd)
        if not names:
            return
        yield from names


def delete_files(fd: int) -> list[str]:
    """Delete everything in an open folder but folders, whose names are given."""
    folders = []
    with os.scandir(fd) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        if is_folder:
            folders.append(name)
            continue
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass
    return folders


def move_up(source: int, name: str, target: int, number: int) -> int:
    """Move a folder into another under a free name, the first from .NUMBER on; the number after it."""
    os.close(open_own(source, name))
    while True:
        number += 1
        try:
            os.rename(name, ".%d" % number, src_dir_fd=source, dst_dir_fd=target)
            return number
        except OSError as e:
            if e.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise


def open_own(parent: int, name: str) -> int:
    """A folder in an open one, made readable and writable for us. Never a link. Raises OSError."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod("/proc/self/fd/%d" % handle, 0o700)  # of the folder that is open, whatever its name means by now
        return os.open(".", FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def stamp_of(path: str) -> tuple | None:
    """Changes whenever the file is replaced or rewritten; None when there is none."""
    try:
        s = os.stat(path)
    except OSError:
        return None
    return (s.st_ino, s.st_mtime_ns, s.st_size)


def read_tail(path: str, limit: int) -> bytes:
    try:
        with open(open_regular(path), "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - limit))
            return f.read(limit)
    except (OSError, ValueError):
        return b""


def last_sample(path: str) -> dict | None:
    """The last whole record in the last 8 KiB of telemetry, or None."""
    for line in reversed(read_tail(path, 8192).split(b"\n")):
        try:
            return parse_json(line, SAMPLE)
        except Broken:
            continue
    return None


def number(value: object, default: float = 0.0) -> float:
    """A number out of a file that anybody may have written."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def encode(text: str) -> bytes:
    """argv, environment and paths as bytes: always UTF-8 with surrogate escapes, whatever the locale here."""
    return text.encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------------------------------------------------
# Processes and the machine

class Proc:
    """One line of the process table."""

    __slots__ = ("pid", "name", "state", "ppid", "pgrp", "sid", "ticks", "threads", "start", "rss_pages")

    def __init__(self, pid: int, raw: bytes) -> None:
        end = raw.rindex(b")")
        f = raw[end + 2:].split()
        self.pid = pid
        self.name = raw[raw.index(b"(") + 1:end].decode("utf-8", "replace")
        self.state = f[0].decode()
        self.ppid, self.pgrp, self.sid = int(f[1]), int(f[2]), int(f[3])
        self.ticks = int(f[11]) + int(f[12])
        self.threads = int(f[17])
        self.start = int(f[19])
        self.rss_pages = int(f[21])

    @property
    def dead(self) -> bool:
        return self.state == "X" or (self.state == "Z" and self.threads <= 1)

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start)


def proc(pid: int) -> Proc | None:
    try:
        return Proc(pid, read_bytes("/proc/%d/stat" % pid))
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    """Is there a process of that number, and not one that has ended and is only not waited for?"""
    p = proc(pid)
    return p is not None and not p.dead


def all_procs() -> dict[int, Proc]:
    """The process table."""
    found = {}
    for pid in listed_pids():
        p = proc(pid)
        if p:
            found[pid] = p
    return found


def listed_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def who(pid: int) -> dict | None:
    """What tells this process from a later one with its number: pid and start; None when there is none."""
    p = proc(pid)
    return {"pid": pid, "start": p.start} if p else None


def lives(known: dict | None) -> bool:
    """Is this very process still there, and not a later one with its number?"""
    if not isinstance(known, dict) or not isinstance(known.get("pid"), int) or known["pid"] <= 0:
        return False
    p = proc(known["pid"])
    return p is not None and not p.dead and p.start == known.get("start")


class Stillness:
    """Whether a process stands still (SIGSTOP, a debugger): at several looks in a row it was stopped and had not run in between.
    The looks are the ticks of whoever looks: what suspends both, a sleeping laptop or a paused container, is never seen."""

    def __init__(self, known: dict | None) -> None:
        self.known = known or {}
        self.looks, self.mark = 0, b""

    def look(self) -> bool:
        """One tick later: does it stand still?"""
        mark = stopped_mark(self.known)
        self.looks = self.looks + 1 if mark and (mark == self.mark or not self.looks) else 0
        self.mark = mark
        return self.looks >= FROZEN_LOOKS


def stopped_mark(known: dict) -> bytes:
    """Of a process that is stopped now: how often it has run so far; b"" of any other."""
    p = proc(known.get("pid", 0))
    if p is None or p.start != known.get("start") or p.state not in ("T", "t"):
        return b""
    try:
        lines = read_bytes("/proc/%d/status" % p.pid).split(b"\n")
    except OSError:
        return b""
    return b" ".join(line.split()[1] for line in lines if b"voluntary_ctxt_switches" in line) or b"?"


def status_of_dead(known: dict) -> int | None:
    """The wait status of a process that has ended and that nobody has waited for; None where the kernel does not say."""
    me, group = str(os.geteuid()), str(os.getegid())
    try:
        lines = read_bytes("/proc/%d/status" % known["pid"]).decode("utf-8", "replace").splitlines()
        raw = read_bytes("/proc/%d/stat" % known["pid"])
    except (KeyError, OSError):
        return None
    if any(set(line.split()[1:]) != {own} for line in lines for name, own in (("Uid:", me), ("Gid:", group)) if line.startswith(name)):
        return None  # a 0 may stand there for "not for you to know"
    p = Proc(known["pid"], raw)
    return int(raw.split()[-1]) if p.dead and p.start == known.get("start") else None


def machine_identity() -> dict:
    """Which machine, and since when: a restarted container keeps its host's boot id. STOKER_IDENTITY is the tests' seam."""
    seam = os.environ.get("STOKER_IDENTITY")
    if seam:
        try:
            body = json.loads(seam)
        except ValueError:
            body = None
        return body if isinstance(body, dict) else {"hostname": os.uname().nodename, "boot_id": seam, "init_start": 0}
    try:
        boot = read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        boot = ""
    try:
        pid_ns = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        pid_ns = None
    first = proc(1)
    return {"hostname": os.uname().nodename, "boot_id": boot, "init_start": first.start if first else None, "pid_ns": pid_ns}


def same_place(one: object, here: dict) -> bool:
    """May pids of `one` be looked up `here`? A host's name may change while it runs, so it does not count. Records of earlier versions do
    not name their PID namespace."""
    if not isinstance(one, dict):
        return False
    keys = ("boot_id", "init_start", "pid_ns") if one.get("pid_ns") and here.get("pid_ns") else ("boot_id", "init_start")
    return all(one.get(k) == here.get(k) for k in keys)


def same_kernel(one: object, here: dict) -> bool:
    """Is the monotonic clock of `one` ours?"""
    return isinstance(one, dict) and one.get("boot_id") == here.get("boot_id")


def caretakers(att: Attempt, record: dict, beat: dict) -> str:
    """Do the caretakers of an attempt live: "alive", "dead", or "unseen" where that cannot be known from here.

    Where agent.json was written, its pids say so. From another PID namespace or node they say nothing: a door that answers or a heartbeat
    that changes proves life. On a local disk, which only this kernel serves, a closed door and a heartbeat that stands still prove death.
    """
    if not record:
        return "alive" if is_fresh(att, beat) else "dead"
    here = machine_identity()
    if same_place(record.get("machine"), here):
        return "alive" if lives(record.get("holder")) or lives(record.get("agent")) else "dead"
    door = door_state(att)
    if door == "open" or moves(att):
        return "alive"
    closed = door == "closed" or (door == "missing" and not same_kernel(record.get("machine"), here))
    return "dead" if closed and not in_doubt(att) and is_of_this_kernel(os.path.realpath(att.folder)) else "unseen"


_beats: dict[str, tuple] = {}  # heartbeat file -> (content, when this content was first seen, whether another was seen before)


def moves(att: Attempt) -> bool:
    """Was its heartbeat seen to change in the last FRESH_S? By content: the times in it are of another machine's clock."""
    try:
        content = read_regular(att.path(HEARTBEAT), JSON_MAX)
    except (OSError, ValueError):
        content = b""
    now = time.monotonic()
    known = _beats.get(att.folder)
    if known is None or known[0] != content:
        known = _beats[att.folder] = (content, now, known is not None)
    return known[2] and now - known[1] < FRESH_S


def in_doubt(att: Attempt) -> bool:
    """Has its heartbeat been looked at for too short a time to say that it stands still?"""
    known = _beats.get(att.folder)
    return known is not None and time.monotonic() - known[1] < STILL_BEAT_S


def environ_of(pid: int) -> bytes:
    try:
        return b"\0" + read_bytes("/proc/%d/environ" % pid)
    except OSError:
        return b""


class Tree:
    """Which processes belong to a run, whatever they did to hide: forked, left their session, renamed themselves.

    They are the descendants of the holder (a subreaper, so orphans come back to it) and of the run's first process, the
    members of its session, and whoever carries both marks of the run in the environment, with all below them. Daemons of
    ours and servers of terminal multiplexers, with all below them, are somebody else's: `spared` holds those of the last look.
    """

    def __init__(self, att: Attempt, holder: dict | None, agent: int, run: dict | None) -> None:
        self.marks = [b"\0" + encode(k + "=" + v) + b"\0" for k, v in ((RUN_MARK, att.id), (RUN_DIR_MARK, att.run_dir))]
        self.holder, self.agent, self.run = holder or {}, agent, run or {}
        self.uid = os.geteuid()
        self.spared: list[Proc] = []

    def look(self) -> list[Proc]:
        """Living members. "Nobody" is said only when it is certain: a member that forks and leaves while the process table is
        read may stand in it neither as the old pid nor as the new one."""
        for _ in range(LOOKS):
            before = listed_pids()
            found, spared = self._scan()
            if found or self._nobody(spared, before):
                break
        return found

    def _nobody(self, spared: set[int], before: list[int]) -> bool:
        """Every orphan below a living holder is its child, from before its own parent is dead. So the list of its children is read again
        until all that stand in it were dead before it was read: one of them may have left an orphan after the list before."""
        if lives(self.holder) and children_listed():
            known = spared | {self.agent, os.getpid()}
            while born := set(children_of(self.holder["pid"])) - known:
                if any(is_alive(pid) for pid in born):
                    return False
                known |= born
            return True
        return set(before) == set(listed_pids())  # else: nobody came or went meanwhile

    def _scan(self) -> tuple[list[Proc], set[int]]:
        """Living members, and the spared ones, by a full scan of the process table."""
        table = all_procs()
        children: dict[int, list[int]] = {}
        for p in table.values():
            children.setdefault(p.ppid, []).append(p.pid)

        def below(roots: list[int], stop: set[int]) -> set[int]:
            seen: set[int] = set()
            todo = list(roots)
            while todo:
                pid = todo.pop()
                if pid in seen or pid in stop or pid not in table:
                    continue
                seen.add(pid)
                todo.extend(children.get(pid, ()))
            return seen

        holder = table.get(self.holder.get("pid", 0))
        keeper = holder.pid if holder is not None and holder.start == self.holder.get("start") else 0  # a dead one's number may be reused
        ours = {self.agent, os.getpid()}
        roots = list(children.get(keeper, ())) if keeper else []
        first = table.get(self.run.get("pid", 0))
        if first is not None and first.start != self.run.get("start"):
            first = None
        if first is not None:
            roots.append(first.pid)
        roots += self._session(table, first)
        found = below(roots, ours)
        marked = [pid for pid in table if pid not in found and pid not in ours and pid != keeper and self._marked(pid)]
        found |= below(marked, ours)
        mine = self.run.get("pid")
        spared = below([pid for pid in found if pid != mine and is_spared(table[pid])], set())
        self.spared = [table[pid] for pid in sorted(spared) if not table[pid].dead]
        return [table[pid] for pid in sorted(found - spared - {keeper}) if not table[pid].dead], spared

    def chase(self, stopped: dict[tuple[int, int], Proc]) -> None:
        """Stop what was born since the table was read. The kernel's lists of children are quicker to read than the table, so
        a process that forks and leaves all the time is caught between two jumps."""
        seen = {pid for pid, _ in stopped} | {self.agent, os.getpid()}
        parents = [self.holder["pid"]] if lives(self.holder) else []
        for _ in range(100):
            born = [pid for parent in parents + [pid for pid, _ in stopped] for pid in children_of(parent) if pid not in seen]
            if not born:
                return
            for pid in born:
                seen.add(pid)
                p = proc(pid)
                if p is not None and not p.dead and not is_spared(p):
                    send(p, signal.SIGSTOP)
                    stopped[p.key] = p

    def _session(self, table: dict[int, Proc], first: Proc | None) -> list[int]:
        sid = self.run.get("sid")
        if not sid:
            return []
        leader = table.get(sid)
        if leader is not None and leader is not first:
            return []  # the number was given to somebody else: our session is gone
        return [p.pid for p in table.values() if p.sid == sid and p.start >= self.run.get("start", 0)]

    def _marked(self, pid: int) -> bool:
        env = environ_of(pid)
        return all(mark in env for mark in self.marks)


def is_spared(p: Proc) -> bool:
    """Does it outlive the run that it was started in? A name or a variable that anybody may choose decides nothing."""
    return is_multiplexer(p) or is_daemon_of_ours(p)


def is_multiplexer(p: Proc) -> bool:
    """A server of tmux, screen, ...: its executable is such a program of the system's."""
    try:
        program = os.readlink("/proc/%d/exe" % p.pid)
    except OSError:
        return False
    folder, name = os.path.split(program.replace(" (deleted)", ""))
    return name.split("-")[0] in MULTIPLEXERS and (folder + "/").startswith(SYSTEM_FOLDERS) and "client" not in p.name


def is_daemon_of_ours(p: Proc) -> bool:
    """A server or a caretaker of Stoker: the record that its environment names has this very pid and start time."""
    for item in environ_of(p.pid).split(b"\0"):
        if item.startswith(DAEMON_MARK.encode() + b"=/"):
            record = read_json(os.fsdecode(item.split(b"=", 1)[1])) or {}
            return {"pid": p.pid, "start": p.start} in record.values()
    return False


def foreground_of(pid: int) -> int:
    """The foreground process group of its terminal; where it has none, the group that it leads."""
    try:
        group = int(read_bytes("/proc/%d/stat" % pid).rpartition(b")")[2].split()[5])
    except (OSError, ValueError, IndexError):
        group = 0
    return group if group > 0 else pid


def children_of(pid: int) -> list[int]:
    """Children of its main thread, where the kernel lists them."""
    try:
        return [int(c) for c in read_bytes("/proc/%d/task/%d/children" % (pid, pid)).split()]
    except OSError:
        return []


def children_listed() -> bool:
    """Does this kernel list children? (CONFIG_PROC_CHILDREN)"""
    return os.path.exists("/proc/self/task/%d/children" % os.getpid())


def send(p: Proc, sig: int) -> None:
    """Signal this very process; nothing when it has gone."""
    now = proc(p.pid)
    if now is None or now.start != p.start:
        return
    try:
        os.kill(p.pid, sig)
    except OSError:
        pass


def kill_all(tree: Tree, rounds: int = 8) -> None:
    """SIGKILL to every member. They are stopped first, so that one that forks faster than we look cannot get away."""
    stopped: dict[tuple[int, int], Proc] = {}
    for _ in range(rounds):
        fresh = [p for p in tree.look() if p.key not in stopped]
        if not fresh:
            break
        for p in fresh:
            stopped[p.key] = p
            send(p, signal.SIGSTOP)
        tree.chase(stopped)
    for p in stopped.values():
        send(p, signal.SIGKILL)


def name_process(name: str) -> None:
    try:
        with open("/proc/self/comm", "w") as f:
            f.write(name)
    except OSError:
        pass


def become_subreaper() -> bool:
    """Orphans below us become our children. Kept over exec. Without ctypes they are found by session and mark alone."""
    try:
        import ctypes
        return ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) == 0
    except Exception:
        return False


def close_inherited(keep: set[int]) -> None:
    """Close every descriptor from 3 on but those."""
    try:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        fds = list(range(3, 4096))
    for fd in fds:
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass


# ---------------------------------------------------------------------------------------------------------------------
# Claim and start

def claim(att: Attempt) -> bool:
    """Make the attempt's folder; False when somebody has. Raises Problem when it cannot be made."""
    try:
        try:
            os.mkdir(os.path.dirname(att.folder))  # never what is above it: that may have been moved or deleted
        except FileExistsError:
            pass
        os.mkdir(att.folder)
    except FileExistsError:
        return False
    except OSError as e:
        raise Problem("disk_full" if e.errno in FULL else "cannot_write", "%s cannot be made: %s" % (att.folder, e.strerror)) from None
    try:
        reserve(att.path(STATUS_SPARE), 4096)
        reserve(att.path(STOP_SPARE), 4096)
        reserve(att.path(EXIT_SPARE), 65536)
    except OSError as e:
        drop_spares(att)
        os.rmdir(att.folder)  # nothing was started: the number is free again
        raise Problem("disk_full" if e.errno in FULL else "cannot_write", "%s cannot be written: %s" % (att.folder, e.strerror)) from None
    return True


def launch(att: Attempt, gpus: str, wait_s: float) -> str:
    """Detach a holder for a claimed attempt. Gives what it said within wait_s: "spawned", "failed ..." or "" (still at it)."""
    ready, tell = os.pipe()
    try:
        child = os.fork()
    except OSError as e:
        os.close(ready)
        os.close(tell)
        return "no holder: " + (e.strerror or str(e))
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                exec_holder(att, gpus, tell)
            os._exit(0)
        except BaseException as e:
            os.write(tell, ("no holder: %s" % e).encode())
        finally:
            os._exit(1)
    os.close(tell)
    os.waitpid(child, 0)
    said = b""
    deadline = time.monotonic() + wait_s
    poller = select.poll()
    poller.register(ready, select.POLLIN)
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(ready, 4096)
        if not data:
            break
        said += data
    os.close(ready)
    return said.decode("utf-8", "replace")


# Leases of GPUs: a lock on a file that all users of the machine see. The kernel lets go of it when the last caretaker is dead.

_leases: list[int] = []  # descriptors that hold a lock; they go from start to the holder, to the agent proper, and to the next attempt's
LEASE_WAIT_S = 1.0  # somebody who only looks has the lock for a moment


def lease_folder() -> str:
    """The same for all users: where anybody may make files and nobody may remove those of others."""
    for folder in ("/run/lock", "/tmp"):
        try:
            mode = os.stat(folder).st_mode
        except OSError:
            continue
        if mode & 0o1002 == 0o1002:
            return folder
    return "/tmp"


def lease_file(uuid: str, make: bool) -> int:
    """A descriptor of the lock file of a GPU; -1 where there is none. What somebody planted in its place (a link, a folder, a pipe) is
    passed over: all users take the next name then."""
    import re
    name = "stoker-gpu-" + re.sub(r"[^A-Za-z0-9-]", "_", uuid)
    for suffix in ("", ".1", ".2", ".3"):
        path = os.path.join(lease_folder(), name + suffix)
        fd = open_lease(path, make)
        if fd >= 0 or not os.path.lexists(path):
            return fd
    return -1


def open_lease(path: str, make: bool) -> int:
    """A descriptor of this very file, a plain one with one name; -1 for anything else."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = -1
    for way in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        if way & os.O_CREAT and not make:
            continue
        try:
            fd = os.open(path, flags | way, 0o666)
        except OSError:
            continue
        if way & os.O_CREAT:
            os.fchmod(fd, 0o666)
        break
    if fd < 0:
        return -1
    s = os.fstat(fd)
    if s.st_mode & 0o170000 == 0o100000 and s.st_nlink == 1:
        return fd
    os.close(fd)
    return -1


def take_leases(att: Attempt, uuids: list[str], needed: bool) -> None:
    """Lock these GPUs for the caretakers of this attempt. Raises Problem where another state folder, or another user, holds one."""
    import fcntl
    for uuid in uuids:
        fd = lease_file(uuid, make=True)
        if fd < 0:
            continue  # no file can be made that all users see
        deadline = time.monotonic() + LEASE_WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    owner = lease_owner(fd)
                    os.close(fd)
                    if not needed:
                        return
                    raise Problem("gpu_taken", "the GPU %s is used by %s" % (uuid, owner)) from None
                time.sleep(0.05)
        note = json.dumps({"run": att.id, "user": user_name(), "root": att.root, "at": time.time()}).encode()
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, note, 0)
        except OSError:
            pass  # another user's file: the lock holds without the note
        _leases.append(fd)


def lease_owner(fd: int) -> str:
    """Who says to hold it; any user may have written that, so it is for people only."""
    try:
        said = json.loads(os.pread(fd, 2000, 0).decode("utf-8", "replace"))
        words = ["%s" % said.get(k) for k in ("run", "user")]
    except (OSError, ValueError, AttributeError):
        return "another user of Stoker"
    shown = ["".join(c for c in word if c.isprintable())[:40] for word in words]
    return "the run %s of %s" % (shown[0], shown[1])


def leased(uuid: str) -> str | None:
    """Who holds this GPU by a lease; None where nobody does."""
    import fcntl
    fd = lease_file(uuid, make=False)
    if fd < 0:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return lease_owner(fd)
    finally:
        os.close(fd)


def exec_holder(att: Attempt, gpus: str, tell: int) -> None:
    """In the detached grandchild: say who we are, let go of the caller, begin afresh with an environment of our own."""
    if not write_once(att.path(AGENT), agent_record(att, holder=who(os.getpid())), sync=False):
        raise Problem("state", "the attempt already has a holder")
    code = compiled_twin()
    mask = os.umask(0o022)
    env = {k: v for k, v in os.environ.items() if k in KEPT_ENV or k.startswith("LC_")}
    env[DAEMON_MARK] = att.path(AGENT)
    if not _crash_name:
        env.pop("STOKER_CRASH_AT", None)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(att.path(CARETAKER_LOG), WRITE | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    close_inherited({tell, *_leases})
    for fd in (tell, *_leases):
        os.set_inheritable(fd, True)
    env["STOKER_LEASES"] = ",".join(map(str, _leases))
    become_subreaper()
    command = [sys.executable, "-I", "-S", code, "_hold", att.run_dir, str(att.n), str(tell), str(mask), gpus, _source]
    os.execve(sys.executable, command, env)


_source = os.path.abspath(__file__)


def compiled_twin() -> str:
    """This file compiled, where Python itself would keep it: a holder started from it needs 8 MB less and starts sooner.
    The source where no twin can be kept."""
    if not _source.endswith(".py"):
        return _source
    folder, name = os.path.split(_source)
    twin = os.path.join(folder, "__pycache__", "%s.%s.pyc" % (name[:-3], sys.implementation.cache_tag))
    try:
        from _frozen_importlib_external import MAGIC_NUMBER
        s = os.stat(_source)
        head = MAGIC_NUMBER + struct.pack("<III", 0, int(s.st_mtime) & 0xFFFFFFFF, s.st_size & 0xFFFFFFFF)
        if os.path.exists(twin) and read_bytes(twin, 16) == head:
            return twin
        import marshal
        code = marshal.dumps(compile(read_bytes(_source), _source, "exec"))
        os.makedirs(os.path.dirname(twin), exist_ok=True)
        write_whole(twin, head + code, sync=True)
        return twin
    except (ImportError, OSError):
        return _source


def agent_record(att: Attempt, **known: object) -> dict:
    """agent.json, or its beginning. Only the holder writes it."""
    record = {"version": VERSION, "attempt": att.n, "machine": machine_identity(), "holder": None, "agent": None, "run": None}
    return att.json(AGENT) or dict(record, **known)


# ---------------------------------------------------------------------------------------------------------------------
# The holder: parent of the run. It owns the pty master and the pipes, writes the logs, reaps, and keeps an agent proper alive.

class Holder:
    """The parent of the run: keeps its terminal and its pipes, writes its logs, learns how it ended."""

    def __init__(self, att: Attempt, gpus: str, tell: int, mask: int) -> None:
        self.att, self.gpus, self.tell_fd, self.mask = att, gpus, tell, mask
        self.pid = os.getpid()
        self.me = who(self.pid)
        self.spec = read_json(os.path.join(att.run_dir, SPEC)) or {}
        self.poll = select.poll()
        self.on: dict = {}  # fd -> what to do when it is ready
        self.done = False
        self.started_at = self.started_mono = 0.0
        self.run: dict | None = None
        self.run_pid = 0  # 0 once it was reaped
        self.exec_fd = -1
        self.failure = b""
        self.status: dict | None = None
        self.interrupt: dict | None = None  # the last signal that a caller passed on
        self.master = self.slave = self.feed_fd = -1
        self.writers: list[LogWriter] = []
        self.outlets: list[Outlet] = []
        self.flows = False  # much output is coming through the pty
        self.feed = bytearray()
        self.feed_ends = False
        self.feed_retry = 0.0
        self.gaps: list[dict] = []
        self.callers: dict[int, tuple] = {}
        self.agent_pid = 0
        self.link: socket.socket | None = None
        self.agent_since = self.respawn_at = 0.0
        self.backoff = 0.1
        self.agents = 0
        self.agent_stillness = Stillness(None)
        self.frozen = 0  # agents that had to be replaced because they stood still
        self.next_tick = 0.0
        self.record: dict = {}  # what agent.json says

    def live(self) -> None:
        """Until the agent proper says that all is done."""
        self._catch_children()
        self._spawn()
        self._fork_agent()
        self._open_door()
        while not self.done:
            try:
                self._step()
            except Exception:
                log_exception()
                time.sleep(0.2)  # whatever is wrong must not become a busy loop; the run itself goes on
        unlink(self.att.path(SOCKET))

    def _step(self) -> None:
        for fd, events in self.poll.poll(self._timeout()):
            act = self.on.get(fd)
            if act:
                act(events)
        now = time.monotonic()
        if self.agent_pid and now >= self.next_tick:
            self.next_tick = now + TICK_S
            self._mind_agent()
        if self.respawn_at and now >= self.respawn_at:
            self._fork_agent()
        if self.feed_retry and now >= self.feed_retry:
            self._feed()
        for outlet in self.outlets:
            if outlet.due and now >= outlet.due:
                self._outlet_ready(outlet)

    def _timeout(self) -> int | None:
        tick = self.next_tick if self.agent_pid else 0.0
        due = [t for t in (tick, self.respawn_at, self.feed_retry, *(o.due for o in self.outlets)) if t]
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1) if due else None

    def _watch(self, fd: int, events: int, act: object) -> None:
        self.poll.register(fd, events)
        self.on[fd] = act

    def _unwatch(self, fd: int) -> None:
        if self.on.pop(fd, None) is not None:
            self.poll.unregister(fd)

    # -- children

    def _catch_children(self) -> None:
        wake, ring = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch(wake, select.POLLIN, lambda _events: self._children(wake))

    def _children(self, wake: int) -> None:
        try:
            os.read(wake, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.run_pid:
                self._run_ended(status)
            elif pid == self.agent_pid:
                self._agent_ended(status)

    def _run_ended(self, status: int) -> None:
        mono = time.monotonic()
        self._exec_news(0)
        for outlet in self.outlets:  # its last line is not kept waiting by the disk
            outlet.move()
        self.run_pid = 0
        self._close_feed()
        used = mono - self.started_mono
        self.status = {"status": status, "ended_mono": mono, "ended_at": self.started_at + used, "used_s": used}
        if self.failure:
            self.status["start_failed"] = self.failure.decode("utf-8", "replace")
        try:
            write_json(self.att.path(STATUS), self.status, sync=True, spare=self.att.path(STATUS_SPARE))
        except OSError:
            log_exception()  # the agent proper is told anyway
        crash_point("status_written")
        self._tell({"m": "ended", "status": self.status})

    def _agent_ended(self, status: int) -> None:
        self.agent_pid = 0
        if self.link is not None:
            self._unwatch(self.link.fileno())
            self.link.close()
            self.link = None
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            self.done = True
            return
        now = time.monotonic()
        if now - self.agent_since > 60:
            self.backoff = 0.1
        self.respawn_at = now + self.backoff
        self.backoff = min(self.backoff * 2, 5.0)

    def _mind_agent(self) -> None:
        """Replace an agent proper that stands still. It may be killed at any moment, so this loses nothing."""
        p = proc(self.agent_pid)
        if p is None or p.dead:
            ended, status = os.waitpid(self.agent_pid, os.WNOHANG)
            self._agent_ended(status if ended else signal.SIGKILL)  # not ours to know while a debugger has not waited for it
        elif self.agent_stillness.look():
            append_line(self.att.path(EVENTS), {"at": time.time(), "event": "agent_frozen", "pid": self.agent_pid})
            self.frozen += 1
            os.kill(self.agent_pid, signal.SIGKILL)

    def _fork_agent(self) -> None:
        self.respawn_at = time.monotonic() + 1.0  # should no socket or process be to be had now
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                close_inherited({theirs.fileno(), self.att.fd, *_leases}.union(*(o.descriptors() for o in self.outlets)))
                name_process("stoker-agent")
                if self.agents:
                    forget_crash_points()
                Agent(self, theirs).live()
                code = 0
            except BaseException:
                log_exception()
            finally:
                os._exit(code)
        self.respawn_at = 0.0
        theirs.close()
        ours.setblocking(False)
        self.agents += 1
        self.agent_pid, self.link, self.agent_since = pid, ours, time.monotonic()
        self.agent_stillness = Stillness(who(pid))
        self.next_tick = self.agent_since + TICK_S
        self._watch(ours.fileno(), select.POLLIN, lambda _events: self._agent_says())
        self._record({"agent": who(pid)})

    def _record(self, changes: dict) -> None:
        try:
            record = self.record = dict(self.record or agent_record(self.att), **changes)
            room = (len(json.dumps(record)) + 768) // 512 * 512  # so that it can be rewritten on a full disk
            write_json(self.att.path(AGENT), record, pad=room)
        except OSError:
            log_exception()

    def _tell(self, message: dict) -> None:
        """To the agent proper. It looks at the folder too, so a message that does not fit may be lost."""
        if self.link is not None:
            try:
                self.link.send(json.dumps(message).encode())
            except OSError:
                pass

    def _agent_says(self) -> None:
        try:
            data = self.link.recv(65536) if self.link is not None else b""
        except OSError:
            data = b""
        if not data:
            if self.link is not None:
                self._unwatch(self.link.fileno())
            return
        message = json.loads(data.decode())
        if message["m"] == "signal":
            self._signal(message["signal"])
        elif message["m"] == "record":
            self._record({})
        elif message["m"] == "drain":
            while self.master >= 0 and self._pump():
                pass
            for outlet in self.outlets:
                self._unwatch(outlet.source)
                outlet.finish()
            for writer in self.writers:
                writer.mind_cut()
            self._tell({"m": "drained", "gaps": self.gaps, "lost": sum(w.lost for w in self.writers)})

    # -- the run

    def _spawn(self) -> None:
        att, spec = self.att, self.spec
        argv = [encode(a) for a in (spec.get("argv") or spec.get("command") or [])]
        cwd = os.path.join(att.run_dir, WORK) if spec.get("copy") else (spec.get("folder") or "/")
        env = run_environment(att, spec, cwd, self.gpus)
        self.started_at, self.started_mono = time.time(), time.monotonic()
        group = memory_group(att, int(number(spec.get("memory_bytes"))))
        self._record({"memory_group": group, "started_at": self.started_at, "started_mono": self.started_mono, "tty": bool(spec.get("tty")),
                      "argv": spec.get("argv") or spec.get("command"), "cwd": cwd, "log_before": oom_counters()})
        try:
            if att.json(EXIT) or not argv:
                raise Problem("start_failed", "there is no command in spec.json" if not argv else "the attempt had ended before it started")
            stdio = self._open_stdio()
            report, self.exec_fd = os.pipe()
            report, self.exec_fd = self.exec_fd, report
            pid = os.fork()
        except (OSError, Broken, Problem) as e:
            self._not_started(str(e))
            return
        if pid == 0:
            become_run(argv, env, encode(cwd), stdio=stdio, slave=self.slave, mask=self.mask, report=report,
                       inherit=spec.get("inherit") or {}, group=group)
        os.close(report)
        for fd in set(stdio) - {self.slave}:
            os.close(fd)
        p = proc(pid)
        self.run_pid = pid
        self.run = {"pid": pid, "start": p.start if p else None, "sid": pid}
        self._watch(self.exec_fd, select.POLLIN, self._exec_news)
        crash_point("spawned")

    def _not_started(self, detail: str) -> None:
        self.failure = detail.encode("utf-8", "replace")
        self.status = {"status": None, "ended_mono": self.started_mono, "ended_at": self.started_at, "used_s": 0.0, "start_failed": detail}
        try:
            write_json(self.att.path(STATUS), self.status, sync=True, spare=self.att.path(STATUS_SPARE))
        except OSError:
            log_exception()
        self._ready(b"failed " + self.failure)

    def _open_stdio(self) -> list[int]:
        """Descriptors for 0, 1, 2 of the run; opens the pty master or the pipes on our side."""
        att, spec = self.att, self.spec
        self.writers = [LogWriter(att, OUT, self._gap)]
        kind = spec.get("stdin") or "none"
        source = -1
        if kind == "none":
            source = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        elif kind == "file":
            source = open_regular(os.path.join(att.run_dir, STDIN))
        if spec.get("tty"):
            self.master, self.slave = open_pty(spec.get("inherit") or {})
            os.set_blocking(self.master, False)
            self._watch(self.master, select.POLLIN, self._master_ready)
            if kind == "attached":
                self.feed_fd = self.master
            return [self.slave if source < 0 else source, self.slave, self.slave]
        if source < 0:
            source, self.feed_fd = os.pipe()
            os.set_blocking(self.feed_fd, False)
        if spec.get("split_stderr"):
            self.writers.append(LogWriter(att, ERR, self._gap))
        targets, moves = [], Moves(att)
        turns = Turns(att, self.writers) if len(self.writers) > 1 else None
        for writer in self.writers:
            outlet, target = open_outlet(writer, moves, turns)
            self.outlets.append(outlet)
            targets.append(target)
            self._outlet_ready(outlet)
        return [source, targets[0], targets[-1]]

    def _exec_news(self, _events: int) -> None:
        """The exec pipe closed (the command runs) or carries why it does not."""
        if self.exec_fd < 0:
            return
        data = os.read(self.exec_fd, 4096)
        if data:
            self.failure += data
            return
        self._unwatch(self.exec_fd)
        os.close(self.exec_fd)
        self.exec_fd = -1
        if self.failure:
            self._ready(b"failed " + self.failure)
            return
        self._record({"run": self.run})
        self._ready(b"spawned")
        self._tell({"m": "started", "run": self.run})

    def _ready(self, word: bytes) -> None:
        """To whoever started us, if they still wait."""
        if self.tell_fd < 0:
            return
        try:
            os.write(self.tell_fd, word)
        except OSError:
            pass
        os.close(self.tell_fd)
        self.tell_fd = -1

    def _signal(self, sig: int) -> None:
        """To the foreground process group, as a terminal would; what only asks, to the first process, as `kill` would."""
        if not self.run_pid:
            return
        if sig in ASKING:
            os.kill(self.run_pid, sig)
            return
        group = self.run_pid
        if self.master >= 0:
            try:
                group = os.tcgetpgrp(self.master) or self.run_pid
            except OSError:
                pass
        for target in (group, self.run_pid):
            try:
                os.killpg(target, sig)
                return
            except OSError:
                continue

    # -- output of a pty

    def _master_ready(self, _events: int) -> None:
        """While much is coming, wait half a millisecond for more: the kernel hands out 4 KB a read, and waking up for each
        of them would cost more than moving it."""
        if self.flows:
            time.sleep(0.0005)
        self.flows = self._pump() >= 4095

    def _pump(self) -> int:
        """Move what the pty holds, up to 256 KB, to the log. Gives its size."""
        chunks, size = [], 0
        while size < 262144:
            try:
                data = os.read(self.master, 65536)
            except BlockingIOError:
                break
            except OSError:  # EIO: no slave is open any more. We hold one, so this is the end.
                self._unwatch(self.master)
                break
            if not data:
                break
            chunks.append(data)
            size += len(data)
        if chunks:
            self.writers[0].write(b"".join(chunks))
        return size

    # -- output of pipes

    def _outlet_ready(self, outlet: Outlet) -> None:
        size = outlet.move()
        if size is None:
            self._unwatch(outlet.source)
            outlet.close()
        elif outlet.rest(size):
            self._unwatch(outlet.source)
        elif outlet.source not in self.on:
            self._watch(outlet.source, select.POLLIN, lambda _events: self._outlet_ready(outlet))

    def _gap(self, gap: dict) -> None:
        self.gaps = self.gaps[1 - GAPS_MAX:] + [gap]
        self._tell({"m": "gap", "gap": gap})

    # -- the door: input, window size, signals

    def _open_door(self) -> None:
        door = None
        try:
            unlink(self.att.path(SOCKET))
            door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                door.bind(self.att.path(SOCKET))
            finally:
                os.umask(before)
            door.listen(16)
            door.setblocking(False)
        except OSError:  # no sockets on this file system: wishes are still found in the folder, within a tick
            log_exception()
            if door is not None:
                door.close()
            return
        self._watch(door.fileno(), select.POLLIN, lambda _events: self._caller(door))

    def _caller(self, door: socket.socket) -> None:
        try:
            conn, _ = door.accept()
        except OSError:
            return
        conn.setblocking(False)
        self.callers[conn.fileno()] = (conn, bytearray())
        self._watch(conn.fileno(), select.POLLIN, lambda _events: self._caller_says(conn))
        self._backpressure()

    def _caller_says(self, conn: socket.socket) -> None:
        fd = conn.fileno()
        buffer = self.callers[fd][1]
        try:
            data = conn.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer += data
        good = True
        while good and len(buffer) >= 5:
            kind, size = struct.unpack_from(">cI", buffer)
            if size > FRAME_MAX:
                good = False
                break
            if len(buffer) < 5 + size:
                break
            payload = bytes(buffer[5:5 + size])
            del buffer[:5 + size]
            self._frame(kind, payload)
        if not data or not good:  # a caller that leaves does not end the input: others may come
            self._unwatch(fd)
            del self.callers[fd]
            conn.close()

    def _frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"i":
            if self.feed_fd >= 0 and not self.feed_ends:
                self._note_interrupt_key(payload)
                self.feed += payload
                self._feed()
        elif kind == b"e":
            self._end_input()
        elif kind == b"w":
            self._resize(payload)
        elif kind == b"s":
            self._pass_on(payload)
        elif kind == b"k":
            self._tell({"m": "kill"})
        elif kind == b"n":
            self._tell({"m": "look"})

    def _pass_on(self, name: bytes) -> None:
        sig = getattr(signal, "SIG" + name.decode("ascii", "replace").upper().replace("SIG", "", 1), None)
        if not isinstance(sig, signal.Signals):
            return
        self._interrupted(int(sig))
        self._signal(int(sig))

    def _interrupted(self, sig: int) -> None:
        self.interrupt = {"signal": sig, "mono": time.monotonic()}
        self._tell({"m": "passed", "interrupt": self.interrupt})

    def _note_interrupt_key(self, data: bytes) -> None:
        """Ctrl-C and Ctrl-\\ typed into the pty become signals in the kernel; remember that a person sent them."""
        if self.slave < 0 or not (b"\x03" in data or b"\x1c" in data):
            return
        import termios
        try:
            if termios.tcgetattr(self.slave)[3] & termios.ISIG:
                self._interrupted(int(signal.SIGINT if b"\x03" in data else signal.SIGQUIT))
        except termios.error:
            pass

    def _resize(self, payload: bytes) -> None:
        if self.master < 0:
            return
        try:
            size = json.loads(payload.decode())
            set_window(self.master, int(size["rows"]), int(size["cols"]))
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            pass

    def _end_input(self) -> None:
        if self.feed_fd < 0 or self.feed_ends:
            return
        if self.slave >= 0:  # what a person types: Ctrl-D, twice when the line has begun; the terminal stays usable
            self.feed += b"\x04" if not self.feed or self.feed.endswith(b"\n") else b"\x04\x04"
        else:
            self.feed_ends = True
        self._feed()

    def _feed(self) -> None:
        """Hand input to the run as fast as it takes it; callers wait while more than FEED_MAX is held."""
        self.feed_retry = 0.0
        while self.feed and self.feed_fd >= 0:
            try:
                del self.feed[:os.write(self.feed_fd, memoryview(self.feed)[:4096].tobytes())]
            except BlockingIOError:
                break
            except OSError:  # nobody reads it any more
                self._close_feed()
        if self.feed and self.slave >= 0:
            self.feed_retry = time.monotonic() + 0.02  # a pty says it is writable when it is not
        elif self.feed and self.feed_fd not in self.on:
            self._watch(self.feed_fd, select.POLLOUT, lambda _events: self._feed())
        elif not self.feed and self.slave < 0 and self.feed_fd >= 0:
            self._unwatch(self.feed_fd)
            if self.feed_ends:
                self._close_feed()
        self._backpressure()

    def _backpressure(self) -> None:
        events = select.POLLIN if len(self.feed) < FEED_MAX else 0
        for fd in self.callers:
            self.poll.modify(fd, events)

    def _close_feed(self) -> None:
        self.feed.clear()
        self.feed_retry = 0.0
        if self.feed_fd >= 0 and self.feed_fd != self.master:
            self._unwatch(self.feed_fd)
            os.close(self.feed_fd)
        self.feed_fd = -1
        self._backpressure()


def log_exception() -> None:
    """To the caretaker log, which is our stderr; not for ever."""
    import traceback
    try:
        if os.fstat(2).st_size > 1 << 20:
            return
        sys.stderr.write("%s pid %d\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getpid()))
        traceback.print_exc()
        sys.stderr.flush()
    except Exception:
        pass


# ---------------------------------------------------------------------------------------------------------------------
# Output: from the pipes of the run into its logs

_splice = getattr(os, "splice", None)  # from Python 3.10 on
SPLICE_F_NONBLOCK = 2


class LogWriter:
    """The one writer of a log. A full disk never blocks the run: bytes that do not fit are counted, and a line in the log says so
    once there is room again. A log that somebody cuts is written on from its new end. Of both, `on_gap` is told."""

    def __init__(self, att: Attempt, name: str, on_gap: object) -> None:
        self.path, self.name, self.on_gap = att.path(name), name, on_gap
        self.fd = os.open(self.path, WRITE, 0o644)  # without O_APPEND: the kernel moves no pages there
        os.lseek(self.fd, 0, os.SEEK_END)
        self.mark = b""  # rest of a gap mark that is not written yet
        self.lost = 0  # bytes dropped since the last mark
        self.cuts = 0

    @property
    def behind(self) -> bool:
        """Is a mark due before anything else?"""
        return bool(self.lost or self.mark)

    def write(self, data: bytes) -> None:
        """Append, after the mark that is due. What does not fit is counted as lost."""
        self.mind_cut()
        if self.lost and not self.mark:
            self.mark = b"\n[stoker: %d bytes of output lost here: disk full]\n" % self.lost
            marked, self.lost = self.lost, 0
            self.mark = self._append(self.mark)
            if self.mark and self.mark.startswith(b"\n[stoker"):  # not a byte of it fitted: no room yet
                self.lost, self.mark = marked, b""
            else:
                self.on_gap({"bytes": marked, "offset": size_of(self.path), "log": self.name})
        elif self.mark:
            self.mark = self._append(self.mark)
        if self.behind:
            self.lost += len(data)
            return
        self.lost += len(self._append(data))

    def _append(self, data: bytes) -> bytes:
        """What could not be written."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view):]
            except OSError:
                break
        return bytes(view)

    def mind_cut(self) -> None:
        """Somebody may have made the log shorter: no hole shall be left where it was."""
        try:
            size, here = os.fstat(self.fd).st_size, os.lseek(self.fd, 0, os.SEEK_CUR)
            if size >= here:
                return
            os.lseek(self.fd, size, os.SEEK_SET)
        except OSError:  # a file system that is gone: what comes is lost, but the run is not stopped by it
            return
        self.cuts += 1
        if self.cuts <= GAPS_MAX:  # a run may do it all the time
            self.on_gap({"bytes": here - size, "offset": size, "log": self.name, "why": "another program truncated the log"})


class Moves:
    """A number in a file of the attempt, odd while bytes are on their way from a pipe into a log. Whoever wants to know how much was
    printed adds what the pipe and the log hold, and looks at the number before and after."""

    def __init__(self, att: Attempt) -> None:
        self.fd, self.count = os.open(att.path(MOVES), WRITE, 0o644), 0
        self._write()

    def begin(self) -> None:
        """Before bytes are taken out of a pipe."""
        self.count |= 1
        self._write()

    def end(self) -> None:
        """They are in the log. Also said for a holder that died between the two."""
        self.count = (self.count | 1) + 1
        self._write()

    def _write(self) -> None:
        try:
            os.pwrite(self.fd, struct.pack("<Q", self.count), 0)
        except OSError:  # a disk without room for eight bytes: nobody can be told
            pass


class Turns:
    """The order in which bytes came into the two logs: a number in a file at each change from one log to the other, twice the size of
    the log that is left, and 1 more if that is the one of standard error. Written before the first byte after the change."""

    def __init__(self, att: Attempt, writers: list[LogWriter]) -> None:
        self.path, self.writers = att.path(TURNS), writers
        self.fd = os.open(self.path, WRITE | os.O_APPEND, 0o644)
        self.now = 0

    def take(self, writer: LogWriter, source: int) -> None:
        """Bytes go into the log of `writer` next, if there are any in `source`."""
        which = self.writers.index(writer)
        if which == self.now or not bytes_waiting(source):
            return
        left = self.writers[self.now]
        try:
            left.mind_cut()
            os.write(self.fd, struct.pack("<Q", 2 * os.lseek(left.fd, 0, os.SEEK_CUR) + self.now))
        except OSError:  # a full disk: the order of these is not known
            pass
        self.now = which

    def adopt(self) -> None:
        """In the agent proper: go on where the holder stopped."""
        found = size_of(self.path) // 8
        if found:
            with open(self.path, "rb") as f:
                self.now = 1 - struct.unpack("<Q", f.read()[8 * found - 8:8 * found])[0] % 2


class Outlet:
    """The reading end of a pipe that the run prints into, and the way from there into a log.

    The kernel moves the pages (splice): from the run's pipe into one of ours, from there into the log, so that the run never
    waits for our disk while its pipe has room. Both pipes and the log's position outlive the holder in the agent proper, which
    goes on where it stopped. Where there is no splice (before Python 3.10, odd file systems) the bytes are read and written.
    """

    def __init__(self, source: int, writer: LogWriter, moves: Moves, turns: Turns | None) -> None:
        self.source, self.writer, self.moves, self.turns = source, writer, moves, turns
        self.between = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if _splice else None
        self.moved_at = self.pause = 0.0
        self.small = 0  # small pieces in a row
        self.due = 0.0  # when to move again, if not at the next word

    def descriptors(self) -> set[int]:
        turns = self.turns.fd if self.turns else -1
        return {self.source, self.writer.fd, self.moves.fd, turns, *(self.between or ())} - {-1}

    def rest(self, size: int) -> float:
        """After a move: when the next one is due; 0 for at the next word. A run that prints little and often costs a waking each time,
        so the pauses become longer; one that prints much is never kept waiting, nor is a line after a silence."""
        now = time.monotonic()
        if now - self.moved_at > OFTEN_S or size > PIPE // 2:
            self.pause, self.small = 0.0, 0
        elif size > PIPE // 8:
            self.pause, self.small = (self.pause / 2 if self.pause > 0.001 else 0.0), 0
        elif 0 < size < PIPE // 64:
            self.small += 1
            if self.small > OFTEN:
                self.pause = min(max(2 * self.pause, 0.001), PAUSE_MAX_S)
        if size:
            self.moved_at = now
        self.due = now + self.pause if size and self.pause else 0.0
        return self.due

    def move(self) -> int | None:
        """Move what the pipe holds into the log. Gives how many bytes; None at the end, when nobody can write any more."""
        if self.source < 0:
            return None
        if self.turns:
            self.turns.take(self.writer, self.source)
        self.moves.begin()
        try:
            return self._splice() if self.between and not self.writer.behind else self._copy(self.source, PIECE)
        finally:
            self.moves.end()

    def _splice(self) -> int | None:
        try:
            size = _splice(self.source, self.between[1], PIPE, flags=SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return 0
        except OSError:
            self._stop_splicing()
            return self._copy(self.source, PIECE)
        if not size:
            return None
        self._empty_between(size)
        return size

    def _empty_between(self, left: int) -> None:
        self.writer.mind_cut()
        try:
            while left:
                moved = _splice(self.between[0], self.writer.fd, left)
                if not moved:
                    raise OSError(errno.EINVAL, "nothing was moved")
                left -= moved
        except OSError as e:  # the writer knows what to do on a full disk
            while left > 0:
                left -= self._copy(self.between[0], min(left, PIECE)) or left
            if e.errno not in FULL:
                self._stop_splicing()

    def _stop_splicing(self) -> None:
        for fd in self.between:
            os.close(fd)
        self.between = None

    def _copy(self, source: int, limit: int) -> int | None:
        try:
            data = os.read(source, limit)
        except BlockingIOError:
            return 0
        if not data:
            return None
        self.writer.write(data)
        return len(data)

    def adopt(self, on_gap: object) -> None:
        """In the agent proper, once the holder is dead: first what it had taken out of the pipe and not written."""
        self.writer.on_gap = on_gap
        if self.turns:
            self.turns.adopt()
        if self.between:
            self._empty_between(bytes_waiting(self.between[0]))
        self.moves.end()

    def finish(self) -> None:
        """Move what is there now, and no more: somebody else's process may print into the pipe for ever. Then close it."""
        left = bytes_waiting(self.source) if self.source >= 0 else 0
        while left > 0:
            left -= self.move() or left
        self.close()

    def close(self) -> None:
        """Nothing is read any more: who still prints gets SIGPIPE. Twice is harmless."""
        self.due = 0.0
        if self.source >= 0:
            os.close(self.source)
            self.source = -1
        if self.between:
            self._stop_splicing()


def open_outlet(writer: LogWriter, moves: Moves, turns: Turns | None) -> tuple[Outlet, int]:
    """A pipe into a log, and the end of it that the run gets. The run may open that end again by name (/dev/stderr): nothing is
    emptied by that, as a file would be."""
    source, target = os.pipe()
    os.set_blocking(source, False)
    return Outlet(source, writer, moves, turns), target


def bytes_waiting(fd: int) -> int:
    """What a pipe holds now."""
    import fcntl
    import termios
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]


# ---------------------------------------------------------------------------------------------------------------------
# Spawn

def run_environment(att: Attempt, spec: dict, cwd: str, gpus: str) -> dict[bytes, bytes]:
    """The environment of the run, as bytes: what the client sent, and our few variables."""
    try:
        packed = read_regular(os.path.join(att.run_dir, ENV), ENV_MAX)
    except (OSError, Broken):
        packed = encode("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\0HOME=%s\0" % os.path.expanduser("~"))
    env = {}
    if spec.get("machine_env"):
        env = {encode(k): encode(v) for k, v in os.environ.items() if k in LOGIN_ENV or k.startswith("LC_")}
    env.update(item.split(b"=", 1) for item in packed.split(b"\0") if b"=" in item[1:])
    for name in (b"STOKER_DAEMON", b"STOKER_CRASH_AT", b"STOKER_IDENTITY"):
        env.pop(name, None)
    ours = {RUN_MARK: att.id, RUN_DIR_MARK: att.run_dir, "STOKER_ATTEMPT": str(att.n)}
    if b"PWD" in env:
        ours["PWD"] = cwd
    if spec.get("home"):
        ours["HOME"] = spec["home"]
    if spec.get("unbuffered"):
        ours["PYTHONUNBUFFERED"] = "1"
    if gpus:
        ours["CUDA_VISIBLE_DEVICES"] = gpus
    hook_environment(att, spec, env, ours)
    env.update((encode(k), encode(v)) for k, v in ours.items())
    return env


def hook_environment(att: Attempt, spec: dict, env: dict[bytes, bytes], ours: dict[str, str]) -> None:
    """Our sitecustomize first in PYTHONPATH, and what it needs to know."""
    hooks = os.path.realpath(os.path.join(att.run_dir, HOOKS))  # its own name: Python looks at words in it (base/vendor.py)
    records, resume = os.path.join(att.folder, HOOKS), os.path.join(att.run_dir, RESUME)
    if not spec.get("hooks") or not os.path.isdir(hooks) or ":" in hooks:  # a colon would end the entry
        return
    try:
        os.close(att.made_folder(ATTEMPTS, str(att.n), HOOKS))
        os.close(att.made_folder(RESUME))
    except OSError:
        return  # a full disk: the run is worth more than what we would remember of it
    env[b"PYTHONPATH"] = b":".join([encode(hooks), *([env[b"PYTHONPATH"]] if env.get(b"PYTHONPATH") else [])])
    ours.update({"STOKER_HOOKS": records, "STOKER_RESUME": spec.get("resume") or "off", "STOKER_RESUME_DIR": resume})
    if spec.get("audit"):
        ours["STOKER_AUDIT"] = "on"
    if spec.get("settings"):
        settings = os.path.join(att.run_dir, SETTINGS)
        try:
            write_json(settings, spec["settings"])
            ours["STOKER_SETTINGS"] = settings
        except OSError:
            pass  # it runs as the script has it
    if spec.get("resume") == "auto" and b"PYTHONHASHSEED" not in env:
        import zlib
        ours["PYTHONHASHSEED"] = str(zlib.crc32(encode(att.id)))  # sets of text have the same order in each life


def open_pty(inherit: dict) -> tuple[int, int]:
    """A pty whose output is not rewritten: the log gets the script's own bytes, the client restores CR LF. It has the size of the
    terminal that asked before the run can look at it."""
    import termios
    try:
        master, slave = os.openpty()
    except OSError as e:
        raise Problem("start_failed", "no pseudo-terminal could be opened (%s)" % e.strerror) from None
    mode = termios.tcgetattr(slave)
    mode[0] |= 0o40000  # IUTF8
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    try:
        rows, cols = inherit.get("window") or (24, 80)
        set_window(master, rows, cols)
    except (OSError, TypeError, ValueError, struct.error):
        set_window(master, 24, 80)
    return master, slave


def set_window(fd: int, rows: int, cols: int) -> None:
    """Give a terminal its size, in characters."""
    import fcntl
    import termios
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def default_signals() -> None:
    """In a forked child that is about to become another program: no handler of ours, nothing held back."""
    signal.set_wakeup_fd(-1)
    for sig in signal.valid_signals():
        if sig not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(sig, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def become_run(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes, *, stdio: list[int], slave: int, mask: int, report: int,
               inherit: dict, group: str) -> None:
    """In the forked child: a session of its own, default signals, nothing of ours left open; then exec. Never returns."""
    step = "it"
    try:
        os.setsid()
        if slave >= 0:
            import fcntl
            import termios
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        step = "the folder " + cwd.decode("utf-8", "replace")
        os.chdir(cwd)
        step = argv[0].decode("utf-8", "replace")
        default_signals()
        restore_oom_score()
        enter_group(group)
        os.umask(int(number(inherit.get("umask"), mask)) & 0o777)
        for target, fd in enumerate(stdio):
            os.dup2(fd, target)
        close_inherited({report})
        if inherit.get("host") == os.uname().nodename:
            take_over(inherit)
        exec_found(argv, env)
    except Problem as e:
        os.write(report, encode(e.detail)[:2000])
    except OSError as e:
        os.write(report, encode("%s: %s" % (step, e.strerror))[:2000])
    except BaseException as e:
        os.write(report, repr(e).encode()[:2000])
    finally:
        os._exit(127)


def take_over(inherit: dict) -> None:
    """What the user's shell has, and not what the server had that happened to start first: CPUs, niceness, soft limits.
    What is not ours to raise stays as it is."""
    try:
        os.sched_setaffinity(0, [int(c) for c in inherit["cpus"]])
    except (KeyError, OSError, TypeError, ValueError):
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, int(inherit["nice"]))
    except (KeyError, OSError, TypeError, ValueError):
        pass
    import resource
    limits = inherit.get("rlimits")
    for name, soft in (limits.items() if isinstance(limits, dict) else ()):
        try:
            kind = getattr(resource, "RLIMIT_" + name)
            hard = resource.getrlimit(kind)[1]
            below = hard == resource.RLIM_INFINITY or 0 <= soft < hard
            resource.setrlimit(kind, (soft if below else hard, hard))
        except (AttributeError, OSError, TypeError, ValueError):
            pass


def exec_found(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """exec along the run's own PATH. Raises Problem with a sentence that says what is wrong with the command."""
    name = argv[0]
    shown = name.decode("utf-8", "replace")
    path = env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    places = [name] if b"/" in name else [os.path.join(d or b".", name) for d in path.split(b":")]
    denied = None
    for place in places:
        try:
            os.execve(place, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(place):
                first = read_bytes(os.fsdecode(place), 200).split(b"\n")[0]
                named = first[2:].strip().decode("utf-8", "replace") if first.startswith(b"#!") else "its loader"
                raise Problem("start_failed", "%s cannot run: its interpreter %s does not exist" % (shown, named)) from None
        except PermissionError:
            denied = denied or place
        except OSError as e:
            if e.errno == errno.ENOEXEC:
                raise Problem("start_failed", "%s is not a program: it has no #! line" % shown) from None
            raise
    if denied is None:
        raise Problem("start_failed", "%s: no such file" % shown if b"/" in name else "%s: no such command on PATH" % shown)
    if os.path.isdir(denied):
        raise Problem("start_failed", "%s is a folder" % shown)
    raise Problem("start_failed", "%s is not executable" % shown)


_oom_score = ""


def lower_oom_score() -> None:
    """The kernel should not pick the caretakers when memory runs out. Needs rights that we rarely have."""
    global _oom_score
    try:
        _oom_score = read_bytes("/proc/self/oom_score_adj").decode().strip()
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("-900")
    except OSError:
        _oom_score = ""


def restore_oom_score() -> None:
    if _oom_score:
        try:
            with open("/proc/self/oom_score_adj", "w") as f:
                f.write(_oom_score)
        except OSError:
            pass


# ---------------------------------------------------------------------------------------------------------------------
# The agent proper: watches, limits, ends, explains, starts again. It may die at any moment: the holder forks another.

class Agent:
    """The one who samples, enforces limits, ends the tree and writes the last words."""

    def __init__(self, holder: Holder, link: socket.socket) -> None:
        self.att, self.spec, self.gpus, self.link = holder.att, holder.spec, holder.gpus, link
        self.first = holder.agents == 0
        self.holder_stillness = Stillness(holder.me)
        self.holder_stands = False  # it stands still, and SIGCONT has not helped yet
        self.chased = holder.frozen > 1  # somebody stops one agent after the other
        self.run, self.status = holder.run, holder.status
        self.gaps, self.interrupt = holder.gaps, holder.interrupt
        self.lost = sum(w.lost for w in holder.writers)
        self.outlets = holder.outlets  # its descriptors are ours too: should it die, we write the logs
        self.started_at, self.started_mono = holder.started_at, holder.started_mono
        self.holder_lives = True
        self.drained = False
        self.tree = Tree(self.att, holder.me, os.getpid(), self.run)  # not getppid(): when the holder is dead that is somebody else
        self.used_before = sum(used_by(self.att.sibling(n)) for n in attempt_numbers(self.att.run_dir) if n < self.att.n)
        self.sampler = Sampler(self.att, holder.pid, os.getpid(), self.run, self.gpus)
        self.written = Written(self.att, self.spec)
        self.auditor = Auditor(self.att, self.spec)
        self.standstill = StandStill(self.att, self.spec, time.monotonic(), time.time())
        self.stamps: dict[str, tuple | None] = {}
        self.limits: dict = {}
        self.keep: dict = {}
        self.stop: dict | None = None
        self.ladder: Ladder | None = None
        self.begun = ""  # why an agent proper before us had begun to end the run
        self.warned: float | None = None  # the limit that `--warn` was sent for
        self.not_warned = ""  # why it was not sent
        self.memory_used = 0  # bytes, when `--memory` ended it
        self.phase = "running"
        self.waits = False
        self.next_tick = 0.0
        self.next_telemetry = 0.0

    def live(self) -> None:
        """Until the attempt has ended and, if one was planned, the next one has been started."""
        ended = self.att.json(EXIT)
        if ended is None:
            self._begin()
            while not self._step():
                pass
            ended = self._finish()
        self.sampler.gpus.close()
        self._after(ended)

    def _begin(self) -> None:
        if self.first:
            self.event("started", pid=(self.run or {}).get("pid"))
        else:
            self.event("agent_restarted")
        self._look()
        before = self.att.json(HEARTBEAT) or {}
        if not self.first:
            self.warned = before.get("warned")
        if not self.first and before.get("ladder") and self.ladder is None:
            self.begun = str(before["ladder"])
            if self.status is None:
                self._end(self.begun, self._grace(None))
        self.notify()

    def _step(self) -> bool:
        """One round; True when the tree is gone and the run's status known, or will never be."""
        now = time.monotonic()
        if self.ladder is None and self.status is None and now - self.started_mono >= self._limit_left():
            self.event("limit", limit_s=self._limit())
            self._end("limit_time", self._grace(None))
        if self.ladder is None and self.status is None and now - self.started_mono >= self._warn_left():
            self._warn(now)
        if self.ladder is None and (self.status is not None or not self.holder_lives):
            self._end_by_itself()
        due = self.next_tick
        if self.ladder is not None:
            if self.ladder.step(now):
                return True
            due = min(due, self.ladder.due)
        else:
            due = min(due, self.started_mono + min(self._limit_left(), self._warn_left()))
        if now >= self.next_tick:
            self._tick(now)
            due = min(due, self.next_tick) if self.ladder is not None else self.next_tick
        self._wait(due)
        return False

    # -- news

    def _wait(self, until: float) -> None:
        """Sleep until then, or until the holder says something, or dies."""
        timeout = max(0.0, until - time.monotonic())
        if not self.holder_lives:
            self._write_logs(min(timeout, 0.5))
            return
        poller = select.poll()
        poller.register(self.link.fileno(), select.POLLIN)
        if poller.poll(int(timeout * 1000) + 1):
            self._hear()

    def _hear(self) -> None:
        try:
            data = self.link.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.holder_lives = False
            self.event("holder_lost")
            for outlet in self.outlets:
                outlet.adopt(self._gap)
            return
        message = json.loads(data.decode())
        word = message["m"]
        if word == "started":
            self.run = self.tree.run = self.sampler.run = message["run"]
            self.notify()
        elif word == "ended":
            self.status = message["status"]
            if self.ladder is not None:
                self.ladder.due = 0.0
        elif word == "look":
            self._look()
        elif word == "kill":
            self._kill_asked()
        elif word == "gap":
            self._gap(message["gap"])
        elif word == "passed":
            self.interrupt = message["interrupt"]
            self.event("signal", signal=signal_name(self.interrupt["signal"]))
        elif word == "drained":
            self.gaps, self.lost, self.drained = message["gaps"], message["lost"], True
            for outlet in self.outlets:
                outlet.close()

    def _gap(self, gap: dict) -> None:
        self.gaps = self.gaps[1 - GAPS_MAX:] + [gap]
        self.event("gap", **gap)

    def _write_logs(self, for_s: float) -> None:
        """In the place of a dead holder: what the run prints while it is told to end belongs into its log."""
        until = time.monotonic() + for_s
        poller = select.poll()
        by_fd = {o.source: o for o in self.outlets if o.source >= 0}
        for fd in by_fd:
            poller.register(fd, select.POLLIN)
        while time.monotonic() < until:
            for fd, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000):
                if by_fd[fd].move() is None:
                    poller.unregister(fd)
                    by_fd[fd].close()

    def _changed(self, path: str) -> bool:
        stamp = stamp_of(path)
        if stamp == self.stamps.get(path):
            return False
        self.stamps[path] = stamp
        return True

    def _look(self) -> None:
        """Wishes in the folder: limits, keep, stop."""
        run_dir = self.att.run_dir
        if self._changed(os.path.join(run_dir, LIMITS)):
            seq = self.limits.get("seq")
            self.limits = read_json(os.path.join(run_dir, LIMITS)) or self.limits
            if seq is not None and seq != self.limits.get("seq"):
                self.next_tick = 0.0  # echo it at once
                self.event("limits", seq=self.limits.get("seq"))
        if self._changed(os.path.join(run_dir, KEEP_WISH)):
            self.keep = read_json(os.path.join(run_dir, KEEP_WISH)) or {}
            self.notify()
        if self._changed(self.att.path(STOP)):
            stop = self.att.json(STOP)
            if stop is not None:
                self._stop_asked(stop)

    def _stop_asked(self, stop: dict) -> None:
        self.stop = stop
        grace = self._grace(stop.get("grace_s"))
        self.event("stop_wish", reason=stop.get("reason"), grace_s=grace)
        if self.ladder is not None:
            self.ladder.hurry(grace)
        elif self.status is None:
            self._end(str(stop.get("reason") or "stopped_by_user"), grace)

    def _kill_asked(self) -> None:
        """TERM now. Written as a wish, so that a new agent proper knows of it."""
        try:
            write_json(self.att.path(STOP), {"reason": "stopped_by_user", "grace_s": [0, self._grace(None)[1]], "at": time.time()})
        except OSError:
            self._stop_asked({"reason": "stopped_by_user", "grace_s": [0, self._grace(None)[1]]})
        self._look()

    def _grace(self, wished: object) -> tuple[float, float]:
        if self.chased:
            return (0.0, 0.0)
        pair = wished if isinstance(wished, (list, tuple)) and len(wished) == 2 else self.spec.get("grace_s") or (10.0, 10.0)
        return (max(0.0, number(pair[0], 10.0)), max(0.0, number(pair[1], 10.0)))

    def _limit(self) -> float | None:
        """Running seconds over all attempts that are allowed; a `keep` typed here holds until a newer limit comes."""
        source = self.limits
        if "time_s" in self.keep and number(self.keep.get("seq"), -1) >= number(self.limits.get("seq"), 0):
            source = self.keep
        limit = source.get("time_s")
        return number(limit) if limit is not None else None

    def _limit_left(self) -> float:
        limit = self._limit()
        return float("inf") if limit is None else limit - self.used_before

    def _warn_left(self) -> float:
        """Running seconds of this attempt until the warning before the limit is due; infinite where none is, or it was given."""
        before = number(self.spec.get("warn_s"))
        return float("inf") if before <= 0 or self.warned == self._limit() else self._limit_left() - before

    def _warn(self, now: float) -> None:
        """The signal before the limit, only to processes that have a handler for it: others would die of it."""
        sig = signal_number(self.spec.get("warn_signal")) or signal.SIGUSR1
        self.warned = self._limit()
        found = handling(self.att, self.tree.look(), sig, self.run)
        self.not_warned = "" if found else "no process handles %s, so the warning before the limit was not sent" % signal_name(sig)
        self._beat(now)  # before the signal: an agent proper after us knows of it
        self.event("warned", signal=signal_name(sig), pids=[p.pid for p in found])
        for p in found:
            send(p, sig)

    def _warning_ended_it(self) -> bool:
        """Whether the run ended well, or of the warning's own signal, after it was warned of the limit."""
        raw = (self.status or {}).get("status")
        if self.warned is None or self.warned != self._limit() or self.not_warned or not isinstance(raw, int):
            return False
        sig = signal_number(self.spec.get("warn_signal")) or signal.SIGUSR1
        if os.WIFSIGNALED(raw):
            return os.WTERMSIG(raw) == sig
        return os.WEXITSTATUS(raw) in (0, 128 + sig)

    # -- each 2 seconds

    def _tick(self, now: float) -> None:
        self.next_tick = now + TICK_S
        self._look()
        self._mind_holder(now)
        if self.holder_lives and self._changed(self.att.path(AGENT)) and self.att.json(AGENT) is None:
            self.link.send(b'{"m": "record"}')  # somebody spoilt it
        if self.phase != "waiting":
            members = self.sampler.members()
            waits = stdin_is_awaited(members, self.run)
            if waits != self.waits:
                self.waits = waits
                self.notify()
            if now >= self.next_telemetry:
                used = now - self.started_mono
                self.next_telemetry = now + (TICK_S if used < THIN_AFTER_S else THIN_TICK_S) - 0.1
                append_line(self.att.path(TELEMETRY), dict({"at": time.time(), "t": round(used, 1)}, **self.sampler.sample(members)))
                self.written.look(now, members)
            if self.phase == "running" and self.auditor.look(self.sampler.last):
                self.notify()
            if self.phase == "running" and not waits:
                self._look_whether_it_moves(now, members)
            if self.phase == "running" and self.ladder is None:
                self._look_at_memory(members)
        self._beat(now)

    def _mind_holder(self, now: float) -> None:
        """A holder that stands still is sent SIGCONT, never killed: the run would end with it. While a debugger holds it, its part is
        done from here: signals, and the news that the run has ended."""
        stands = self.holder_lives and self.holder_stillness.look()
        if stands and not self.holder_stands:
            self.event("holder_frozen", pid=self.holder_stillness.known.get("pid"))
        self.holder_stands = stands
        if not stands:
            return
        try:
            os.kill(self.holder_stillness.known["pid"], signal.SIGCONT)
        except OSError:
            pass
        status = status_of_dead(self.run or {}) if self.status is None else None
        if status is not None:
            used = max(0.0, now - self.started_mono)
            self.status = {"status": status, "ended_mono": now, "ended_at": self.started_at + used, "used_s": used}

    def _holder_is_stopped(self) -> bool:
        return bool(stopped_mark(self.holder_stillness.known))

    def _look_at_memory(self, members: list[Proc]) -> None:
        """What `--memory` allows: where no cgroup could be made, and where one does not help (memory that was paid for elsewhere)."""
        limit = int(number(self.spec.get("memory_bytes")))
        if limit <= 0 or sum(p.rss_pages for p in members) * self.sampler.page <= limit:
            return  # shared pages count once in what it really uses, which is less
        used = sum(memory_of(p) for p in members)
        if used <= limit:
            return
        self.memory_used = used
        self.event("memory", used_bytes=used, limit_bytes=limit)
        self._end("host_oom", (0.0, min(self._grace(None)[1], LEFTOVER_GRACE_S)))

    def _look_whether_it_moves(self, now: float, members: list[Proc]) -> None:
        still = self.standstill
        if not still.look(now, time.time(), members, self.run):
            return
        self.notify()
        self.event("still", quiet=still.quiet, stalled=still.stalled, text=still.text)
        if still.stalled and still.wanted_s and still.act in ("stop", "restart"):
            self._end("stalled", self._grace(None))

    def _beat(self, now: float, begins: str | None = None) -> None:
        body = {"at": time.time(), "mono": now, "phase": self.phase, "used_s": round(self._used(now), 3),
                "limits_seq": self.limits.get("seq"), "waits_for_input": self.waits,
                "out_bytes": size_of(self.att.path(OUT)), "err_bytes": size_of(self.att.path(ERR)),
                "ladder": begins or (self.ladder.reason if self.ladder else None), "stage": self.ladder.told() if self.ladder else None,
                "warned": self.warned, "stalled": self.standstill.told() if self.standstill.stalled else None}
        try:
            write_json(self.att.path(HEARTBEAT), body, pad=512)
        except OSError:
            pass

    def _used(self, now: float) -> float:
        return self.status["used_s"] if self.status else max(0.0, now - self.started_mono)

    def event(self, word: str, **facts: object) -> None:
        append_line(self.att.path(EVENTS), dict({"at": time.time(), "event": word}, **facts))

    def notify(self) -> None:
        notify_watchers(self.att)

    # -- the end

    def _end(self, reason: str, grace: tuple[float, float]) -> None:
        """Begin the stop ladder."""
        self.phase = "stopping"
        self.auditor.stop()
        self._beat(time.monotonic(), reason)  # before the first signal: an agent proper after us knows who ended the run
        self.ladder = Ladder(self, reason, grace, natural=False)
        self._beat(time.monotonic())
        self.notify()

    def _end_by_itself(self) -> None:
        """The first process ended, or nobody can say any more: the same ladder over what is left."""
        self.phase = "stopping"
        self.auditor.stop()
        grace = [min(g, LEFTOVER_GRACE_S) for g in self._grace((self.stop or {}).get("grace_s"))]
        lost = self.status is None
        self.ladder = Ladder(self, "agent_lost" if lost else "", (0.0, grace[1]) if lost else (grace[0], grace[1]), natural=not lost)

    def pass_signal(self, sig: int) -> None:
        """To the foreground process group: through the holder, who alone knows that the pid is still the run's."""
        if self.holder_lives and not self._holder_is_stopped():
            try:
                self.link.send(json.dumps({"m": "signal", "signal": sig}).encode())
            except OSError:
                pass
        elif lives(self.run) and self.run:
            try:
                os.killpg(foreground_of(self.run["pid"]), sig)
            except OSError:
                pass

    def _finish(self) -> dict:
        crash_point("ladder_done")
        self.auditor.close()
        self._drain()
        self._sync_logs()
        give_files_back(self.att)
        ladder = self.ladder
        reason = ladder.reason if ladder is not None and ladder.signalled_run else self.begun
        if not reason and self._warning_ended_it():
            reason = "limit_time"
        if self.status is None:
            self.status = self.att.json(STATUS)  # the holder may have written it as its last deed
            if self.status is None and not self.holder_lives:
                reason = reason or "agent_lost"
        now = time.monotonic()
        body = conclude(self.att, self.status, reason, used_s=self._used(now), interrupt=self.interrupt, limit_s=self._limit(),
                        gaps=self.gaps + ([{"bytes": self.lost, "offset": None}] if self.lost else []),
                        leftovers=ladder.leftovers() if ladder else None)
        if body["reason"] == "host_oom" and self.memory_used:
            body["evidence"].update(kind="memory", limit_bytes=int(number(self.spec.get("memory_bytes"))), used_bytes=self.memory_used)
        leave_group((self.att.json(AGENT) or {}).get("memory_group"))
        if body["reason"] == "stalled":
            body["evidence"].update(limit=format_duration(self.standstill.wanted_s), place=self.standstill.text or "position not known")
        unlink(self.att.path(STILL))
        if self.not_warned:
            body["evidence"]["not_warned"] = self.not_warned
        if self.stop is None and self._limit_left() > body["used_s"]:
            body["restart"] = plan_restart(self.att, self.spec, body)
        crash_point("before_exit")
        gone_at = time.monotonic() + GONE_S
        while True:
            try:
                write_json(self.att.path(EXIT), body, sync=True, spare=self.att.path(EXIT_SPARE))
                break
            except OSError:  # the last words are worth waiting for
                log_exception()
                if os.path.isdir(self.att.folder):
                    gone_at = time.monotonic() + GONE_S
                elif time.monotonic() > gone_at:  # nobody can read them any more
                    return dict(body, restart=None)
                self._wait(time.monotonic() + TICK_S)
        crash_point("exit_written")
        if body["restart"]:
            self.event("restart_planned", **body["restart"])
        self.notify()
        if body["reason"] == "exited":
            forget_images(self.att)
        return body

    def _sync_logs(self) -> None:
        """exit.json shall not outlive the end of the log when the plug is pulled. Giants are left to the kernel."""
        for name in (OUT, ERR):
            try:
                fd = open_regular(self.att.path(name))
                try:
                    if os.fstat(fd).st_size <= SYNC_MAX:
                        os.fdatasync(fd)
                finally:
                    os.close(fd)
            except (OSError, Broken):
                pass

    def _drain(self) -> None:
        """Have moved into the logs what the pty or the pipes still hold: by the holder, or in its place."""
        stands = self.holder_stands and self._holder_is_stopped()
        if stands:
            for outlet in self.outlets:
                outlet.adopt(self._gap)
        if not self.holder_lives or stands:
            for outlet in self.outlets:
                outlet.finish()
                outlet.writer.mind_cut()
            self.lost = sum(o.writer.lost for o in self.outlets) or self.lost
            return
        try:
            self.link.send(b'{"m": "drain"}')
        except OSError:
            return
        deadline = time.monotonic() + 5.0
        while self.holder_lives and not self.drained and time.monotonic() < deadline:
            self._wait(deadline)

    def _after(self, ended: dict) -> None:
        """Wait out the backoff, then start the next attempt; a stop calls it off."""
        plan = ended.get("restart")
        if plan:
            self._wait_and_restart(ended, plan)
        drop_spares(self.att)

    def _wait_and_restart(self, ended: dict, plan: dict) -> None:
        self.phase, self.ladder = "waiting", None
        self.status = self.status or {"used_s": number(ended.get("used_s"))}
        following = self.att.sibling(int(plan["attempt"]))
        self.stop = None
        while time.monotonic() < plan["mono"]:
            now = time.monotonic()
            if now >= self.next_tick:
                self._tick(now)
            else:
                self._look()
            if self.stop is not None:
                break
            self._wait(min(self.next_tick, plan["mono"]) if self.holder_lives else now + 0.5)
        self._look()
        if self.stop is not None and not os.path.isdir(following.folder):
            self._call_off(ended)
            return
        self._restart(following)

    def _call_off(self, ended: dict) -> None:
        ended["restart"] = None
        self.event("restart_called_off")
        write_json(self.att.path(EXIT), ended, sync=True, spare=self.att.path(EXIT_SPARE))
        self.notify()

    def _restart(self, following: Attempt) -> None:
        """In a fresh holder, as `start` does. A folder that a dead predecessor of ours claimed is taken over."""
        if not claim(following):
            while not following.json(AGENT) and not following.json(EXIT) and folder_age(following) < CLAIM_S:
                self._wait(time.monotonic() + 0.5)
            if following.json(AGENT) or following.json(EXIT):
                return
        crash_point("restart_claimed")
        forget_crash_points()
        self._look()
        if self.stop is not None:  # typed while we claimed; whoever types it later looks at the new attempt
            settle(following, str(self.stop.get("reason") or "stopped_by_user"))
            return
        said = launch(following, self.gpus, 10.0)
        if said.startswith("no holder"):
            log_exception()
            settle(following, "start_failed", said[len("no holder: "):])
        notify_watchers(following)


class Auditor:
    """Starts the child that audits exact resume (docs/reference/contracts.md, 8) where the hooks have made a room for it, one at a time
    and in the idle class; ends it in time, and writes down what came of it. It dies with us, and before the run is told to end."""

    def __init__(self, att: Attempt, spec: dict) -> None:
        self.att, self.tty, self.inherit = att, bool(spec.get("tty")), spec.get("inherit") or {}
        self.on = bool(spec.get("audit"))
        self.rooms = os.path.join(att.run_dir, RESUME, AUDIT)
        self.pid, self.room, self.order = 0, "", {}
        self.terminal = -1
        self.until = 0.0
        self.spare = True  # was there a core for it?
        if self.on:
            self._remove()  # of an agent before us, whose child died with it

    def look(self, used: dict) -> bool:
        """Each 2 seconds. `used`: the newest telemetry. True when there is something new to tell."""
        if not self.on:
            return False
        if self.pid:
            return self._has_ended()
        try:
            fd = self.att.open_folder(RESUME, AUDIT)
        except OSError:
            return False
        try:
            with os.scandir(fd) as entries:
                rooms = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        finally:
            os.close(fd)
        for name in rooms:
            order = read_json(os.path.join(self.rooms, name, ORDER))
            if order is not None:
                self.room, self.order = os.path.join(self.rooms, name), order
                return self._begin(used)
        return False

    def stop(self) -> None:
        """No audit from here on; the one that is at work is killed. Does not wait."""
        self.on = False
        if self.pid:
            self._kill()

    def close(self) -> None:
        """What is left of it is gone."""
        if self.pid:
            deadline = time.monotonic() + 2.0
            while not self._reaped()[0] and time.monotonic() < deadline:
                time.sleep(0.01)
            self._sweep()

    # -- its life

    def _begin(self, used: dict) -> bool:
        pid = int(number(self.order.get("pid")))
        try:
            argv = read_bytes("/proc/%d/cmdline" % pid).split(b"\0")[:-1]
            env = dict(pair.split(b"=", 1) for pair in read_bytes("/proc/%d/environ" % pid).split(b"\0") if b"=" in pair[1:])
            cpus = os.sched_getaffinity(pid)
        except OSError:
            argv, env, cpus = [], {}, set()
        if not argv or env.get(RUN_DIR_MARK.encode()) != encode(self.att.run_dir):  # it has gone since
            self._sweep()
            return False
        hooks = os.fsdecode(env.get(b"PYTHONPATH", b"").split(b":")[0])
        if not all(os.path.isfile(os.path.join(hooks, name)) for name in ("sitecustomize.py", "stoker_hooks/ghost/auditor.py")):
            return self._tell({"why": "Stoker's hooks are no longer in %s" % hooks})  # without them it would train for real
        free, needed = memory_bytes()[1], number(used.get("rss_bytes")) * 1.2 + AUDIT_SPARE
        if free is not None and free < needed:
            return self._tell({"why": "not enough memory for a second training (%d MB of %d)" % (free >> 20, int(needed) >> 20)})
        self.spare = min(len(cpus), cpu_quota() or 1e9) - number(used.get("cpu_percent")) / 100 >= 0.9
        for name in (RUN_MARK, RUN_DIR_MARK, "STOKER_RESUME_TRIES", "STOKER_DIGEST", "STOKER_DIGEST_AT"):
            env.pop(name.encode(), None)
        env.update({b"STOKER_AUDIT": b"child", b"STOKER_RESUME_DIR": encode(self.room), b"CUDA_VISIBLE_DEVICES": b"",
                    b"STOKER_HOOKS": encode(os.path.join(self.room, HOOKS))})
        try:
            self._fork(pid, argv, env, cpus)
        except (OSError, Problem) as e:
            return self._tell({"why": "the audit could not start: %s" % e})
        self.until = time.monotonic() + number(self.order.get("limit_s"), 600.0)
        return False

    def _fork(self, pid: int, argv: list[bytes], env: dict[bytes, bytes], cpus: set[int]) -> None:
        master, slave = open_pty(self.inherit) if self.tty else (-1, -1)
        parent = os.getpid()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                become_audit(pid, argv, env, cpus=cpus, parent=parent, slave=slave, room=self.room, cwd=str(self.order.get("cwd") or "/"),
                             inherit=self.inherit)
        finally:
            if slave >= 0:
                os.close(slave)
        if master >= 0:
            os.set_blocking(master, False)
        self.terminal = master

    def _has_ended(self) -> bool:
        self._read_terminal()
        ended, status = self._reaped()
        if ended:
            return self._tell(read_json(os.path.join(self.room, VERDICT)) or {"why": self._last_word(status)})
        if time.monotonic() < self.until:
            return False
        self._kill()
        self.close()
        return self._tell({"why": "the audit did not finish within %s" % format_duration(number(self.order.get("limit_s")))})

    def _reaped(self) -> tuple[bool, int]:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return True, 0
        if pid:
            self._kill()  # its loader's workers
        return bool(pid), status

    def _last_word(self, status: int) -> str:
        lines = read_tail(os.path.join(self.room, ERR), 4096).decode("utf-8", "replace").split("\n")
        said = next((": " + line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        if os.WIFSIGNALED(status):
            return "its process was killed by %s" % signal_name(os.WTERMSIG(status))
        return "its process exited early%s" % said

    def _kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def _read_terminal(self) -> None:
        """Nothing of it is kept: what the script prints is held back in an audit."""
        try:
            while self.terminal >= 0 and os.read(self.terminal, 65536):
                pass
        except OSError:
            pass

    def _tell(self, told: dict) -> bool:
        """Into audits.json, whose one writer we are; True."""
        entry = {name: self.order.get(name) for name in ("attempt", "image", "step", "from_step")}
        entry.update({"verdict": "not audited", "why": "", "at": time.time(), "spare_core": self.spare}, **told)
        try:
            resume = self.att.open_folder(RESUME)
        except OSError:
            log_exception()
        else:
            path = "/proc/self/fd/%d/%s" % (resume, AUDITS)
            try:
                write_json(path, {"audits": [*((read_json(path) or {}).get("audits") or [])[1 - AUDITS_KEPT:], entry]})
            except OSError:
                log_exception()
            os.close(resume)
        self._sweep()
        return True

    def _sweep(self) -> None:
        if self.terminal >= 0:
            os.close(self.terminal)
        if self.room:
            self._remove(os.path.basename(self.room))
        self.pid, self.room, self.order, self.terminal = 0, "", {}, -1

    def _remove(self, *names: str) -> None:
        try:
            remove(*self.att.below(RESUME, AUDIT, *names))
        except OSError:
            log_exception()


def become_audit(run: int, argv: list[bytes], env: dict[bytes, bytes], *, cpus: set[int], parent: int, slave: int, room: str, cwd: str,
                 inherit: dict) -> None:
    """In the forked child: the program that trains once more, as an audit; of all processes the first to be without a core or memory.
    Never returns."""
    try:
        os.setsid()
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # die with the agent
        if os.getppid() != parent:
            os._exit(1)
        default_signals()
        if inherit.get("host") == os.uname().nodename:
            take_over(inherit)
        os.sched_setaffinity(0, cpus)
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")
        os.chdir(encode(cwd))
        null = os.open(os.devnull, os.O_RDWR)
        err = slave if slave >= 0 else os.open(os.path.join(room, ERR), WRITE | os.O_TRUNC, 0o600)
        for target, fd in enumerate((slave, slave, slave) if slave >= 0 else (null, null, err)):
            os.dup2(fd, target)
        close_inherited(set())
        os.execve("/proc/%d/exe" % run, argv, env)
    except BaseException:
        log_exception()
    finally:
        os._exit(127)


def drop_spares(att: Attempt) -> None:
    for name in (STATUS_SPARE, STOP_SPARE, EXIT_SPARE):
        unlink(att.path(name))


def used_by(att: Attempt) -> float:
    """Running seconds of an earlier attempt."""
    return number((att.json(EXIT) or att.json(HEARTBEAT) or {}).get("used_s"))


def folder_age(att: Attempt) -> float:
    """Seconds since the folder was claimed; very old when the clock makes no sense."""
    try:
        age = time.time() - os.stat(att.folder).st_ctime
    except OSError:
        return 1e9
    return age if age >= 0 else 1e9


def plan_restart(att: Attempt, spec: dict, body: dict) -> dict | None:
    """The automatic restart that follows this end, if the spec allows one."""
    allowed = int(number(spec.get("restarts")))
    stalled = body["reason"] == "stalled" and spec.get("stall_do") == "restart"
    allowed = max(allowed, STALL_RESTARTS) if stalled else allowed
    if allowed <= 0 or (body["reason"] not in (spec.get("retry_reasons") or ()) and not stalled):
        return None
    if comes_again(body):
        body["evidence"]["not_restarted"] = True
        return None
    backoff = number(spec.get("backoff_s"), 5.0)
    done = 0
    quick = body["used_s"] <= BACKOFF_RESET_S
    for n in range(att.n - 1, 0, -1):  # automatic restarts in a row; a start by hand begins a new row
        earlier = att.sibling(n).json(EXIT) or {}
        if not earlier.get("restart"):
            break
        done += 1
        quick = quick and number(earlier.get("used_s")) <= BACKOFF_RESET_S
        if quick:
            backoff = min(backoff * 2, BACKOFF_MAX_S)
    if done >= allowed:
        return None
    return {"attempt": att.n + 1, "at": time.time() + backoff, "mono": time.monotonic() + backoff}


def comes_again(body: dict) -> bool:
    """Whether it died of an error that each attempt would meet: an error of that kind is the last that it said. One that it had caught and
    printed before it was killed, or before it failed for another reason, says nothing."""
    kind = (body["evidence"].get("exception") or {}).get("type")
    last_line = (body["evidence"].get("tail") or "").rstrip().rpartition("\n")[2]
    return body["reason"] == "nonzero_exit" and kind in NEVER_PASSES and last_line.startswith(kind)


def notify_watchers(att: Attempt) -> None:
    """The run's id to every `watch` of this root. A watcher that died is unlinked."""
    folder = os.path.join(att.root, "watch")
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".sock")]
        if not names:
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.setblocking(False)
    for name in names:
        try:
            out.sendto(encode(att.id), "/proc/self/fd/%d/%s" % (fd, name))
        except ConnectionRefusedError:
            unlink(os.path.join(folder, name))
        except OSError:
            pass
    out.close()
    os.close(fd)


# ---------------------------------------------------------------------------------------------------------------------
# The stop ladder: an image of what is recorded; INT to the foreground, or TERM to the processes that handle it; TERM to the tree, KILL to
# the tree; then see that nothing is left

class Ladder:
    """Takes steps when asked; `due` says when it wants to be asked again. Stages without grace are skipped."""

    def __init__(self, agent: Agent, reason: str, grace: tuple[float, float], natural: bool) -> None:
        self.agent, self.reason, self.grace = agent, reason, grace
        self.signalled_run = False  # did the run's own process get a signal from us?
        self.found: dict[tuple[int, int], Proc] = {}  # left behind by the first process
        self.survivors: list[Proc] = []
        self.sent: set[tuple[int, int, int]] = set()
        self.signal: int = signal.SIGINT  # the first one
        self.asked: list[Proc] = []  # who alone gets the first signal; empty: the foreground process group
        self.heard = 0.0  # when all of them had ended
        self.due = 0.0
        self.pause = 0.01
        self.began = self.opened = time.monotonic()
        self.stage = "wait"
        if not natural:
            self._enter(self._after("wait"))

    def hurry(self, grace: tuple[float, float]) -> None:
        """A newer wish: its graces count from when the present stage began."""
        self.grace, self.opened = grace, self.began
        self.due = 0.0

    def told(self) -> dict:
        """Where it is, for people: the stage, and until when it lasts."""
        names = {"int": signal_name(self.signal), "term": "SIGTERM", "kill": "SIGKILL"}
        return {"name": names.get(self.stage, self.stage),
                "began": time.time() - (time.monotonic() - self.began),
                "left_s": None if self.stage == "kill" else round(max(0.0, self._ends() - time.monotonic()), 1)}

    def leftovers(self) -> dict:
        """What was found after the run's own end, what could not be killed, and what was spared."""
        return leftovers(list(self.found.values()), self.survivors, self.agent.tree.spared)

    def step(self, now: float) -> bool:
        """Do what is due; True when nothing is left, or what is left cannot be killed."""
        agent = self.agent
        over = agent.status is not None or not agent.holder_lives
        if self.stage == "image" and (over or image_answered(agent.att)):
            self._enter("int")
        if self.stage in ("image", "int") and not over and now < self._ends():
            self._listen(now)
            return False
        left = agent.tree.look()
        if not left and over:
            return True
        while self.stage != "kill" and now >= self._ends():
            self._enter(self._after(self.stage))
        if self.stage in ("image", "int") and not over:
            self._listen(now)
            return False
        if over and self.stage != "wait":  # noted before they are told to end: at the next look they may be gone
            for p in left:
                self.found.setdefault(p.key, p)
        if self.stage == "kill":
            if now - self.began >= KILL_S + (20.0 if not over else 0.0):
                self.survivors = left
                agent.event("survivors", pids=[p.pid for p in left])
                return True
            self.signalled_run = self.signalled_run or not over
            kill_all(agent.tree)
            self.due = now + min(self.pause, 0.5)
            self.pause *= 2
            return False
        if self.stage == "term" or (self.stage == "int" and over):
            for p in left:
                self._send_once(p)
        self.pause = min(self.pause * 1.5, 0.25)
        self.due = min(self._ends(), now + self.pause)
        return False

    def _listen(self, now: float) -> None:
        """When to look again while the run itself ends, or takes its image."""
        if self.stage == "int" and self.asked and not self.heard and not any(lives({"pid": p.pid, "start": p.start}) for p in self.asked):
            self.heard = now  # a shell around them lives on: it may end by itself before it is told to
        looks = self.stage == "image" or (self.asked and not self.heard)
        self.due = min(self._ends(), now + 0.1) if looks else self._ends()

    def _ends(self) -> float:
        if self.stage == "wait":
            return self.began + NATURAL_S
        if self.stage == "image":
            return self.began + self.grace[0] / 2
        if self.stage == "int" and self.agent.status is None:
            ends = self.opened + self.grace[0]
            return min(ends, self.heard + NATURAL_S) if self.heard else ends
        grace = self.grace[0] if self.stage == "int" else self.grace[1]
        return self.began + (min(grace, LEFTOVER_GRACE_S) if self.agent.status is not None else grace)

    def _after(self, stage: str) -> str:
        lives_on = self.agent.status is None and self.agent.holder_lives and self.reason != "stalled"
        if stage == "wait" and self.grace[0] > 0 and lives_on and image_possible(self.agent.att):
            return "image"
        if stage in ("wait", "image") and self.grace[0] > 0:
            return "int"
        if stage in ("wait", "image", "int") and self.grace[1] > 0:
            return "term"
        return "kill"

    def _enter(self, stage: str) -> None:
        agent = self.agent
        self.stage, self.began, self.pause = stage, time.monotonic(), 0.01
        if stage == "image":
            ask_for_image(agent.att)
        if stage == "int":
            self.signal, self.asked = first_signal(agent)
        agent.event("ladder", stage=signal_name(self.signal)[3:] if stage == "int" else stage.upper(), reason=self.reason or "leftovers")
        if stage == "int" and agent.status is None and agent.holder_lives:
            self.signalled_run = True
            self._send_first()
        if agent.ladder is self:
            agent._beat(self.began)

    def _send_first(self) -> None:
        if not self.asked:
            self.agent.pass_signal(self.signal)
        for p in self.asked:
            self._send(p, self.signal)

    def _send_once(self, p: Proc) -> None:
        first = self.signal if any(p.key == each.key for each in self.asked) else signal.SIGINT
        sig = first if self.stage == "int" else signal.SIGTERM
        if (p.pid, p.start, sig) in self.sent:
            return
        self.signalled_run = self.signalled_run or self.agent.status is None
        self._send(p, sig)

    def _send(self, p: Proc, sig: int) -> None:
        self.sent.add((p.pid, p.start, sig))
        send(p, sig)
        send(p, signal.SIGCONT)  # one that is suspended hears nothing else


def first_signal(agent: Agent) -> tuple[int, list[Proc]]:
    """The signal that the ladder begins with, and who gets it: nobody named means the foreground process group. It is the one that
    `--stop-signal` names, else TERM where the script has a handler for it, else INT."""
    wanted = signal_number(agent.spec.get("stop_signal"))
    if wanted == signal.SIGINT:
        return wanted, []
    sig = wanted or signal.SIGTERM
    found = handling(agent.att, agent.tree.look(), sig, agent.run)
    return (sig, found) if wanted or found else (signal.SIGINT, [])


def handling(att: Attempt, members: list[Proc], sig: int, run: dict | None) -> list[Proc]:
    """The processes of a run in which the script itself has a handler for this signal.

    Looked at are the Python processes that Stoker's hooks are in, and the first process; all, where there are no hooks. A forked copy
    of a process (a worker of a DataLoader) has its handlers too and is left out: the script's handler would run twice.
    """
    hooked, handled = told_handlers(att)
    lines = {p.pid: command_of(p.pid) for p in members}
    hooked &= set(lines)
    found = []
    for p in members:
        if p.pid not in hooked and (lines.get(p.ppid) == lines[p.pid] or (hooked and p.pid != (run or {}).get("pid"))):
            continue
        if p.pid in hooked and sig == signal.SIGTERM and p.pid not in handled:
            continue  # what is caught there is Stoker's own handler, or one of torch's
        if catches(p.pid, sig):
            found.append(p)
    return found


def told_handlers(att: Attempt) -> tuple[set[int], set[int]]:
    """Pids that told of themselves through the hooks; and those of them in which the script has a handler for SIGTERM."""
    hooked: set[int] = set()
    handled: set[int] = set()
    for said in told_lines(att):
        if "role" in said:
            hooked.add(said.get("pid"))
            handled.discard(said.get("pid"))  # a later process with the same number, or another program in its place
        if "handles_term" in said:
            (handled.add if said["handles_term"] else handled.discard)(said.get("pid"))
    return hooked, handled


def catches(pid: int, sig: int) -> bool:
    """Whether this process has a handler for the signal, of whatever kind."""
    try:
        for line in read_bytes("/proc/%d/status" % pid).splitlines():
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (sig - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def command_of(pid: int) -> bytes:
    try:
        return read_bytes("/proc/%d/cmdline" % pid)
    except OSError:
        return b""


def signal_number(name: object) -> int:
    """The number of "USR1" or "SIGUSR1"; 0 for anything else."""
    text = str(name or "").upper()
    found = getattr(signal, text if text.startswith("SIG") else "SIG" + text, 0)
    return int(found) if isinstance(found, signal.Signals) else 0


def image_possible(att: Attempt) -> bool:
    """Does exact resume record this attempt now? Its process lives, and its last life is one of this attempt."""
    resume = os.path.join(att.run_dir, RESUME)
    state = read_json(os.path.join(resume, RESUME_STATE)) or {}
    known = state.get("lives") or [{}]
    if state.get("state") not in ("recording", "resumable") or state.get("reason") or known[-1].get("attempt") != att.n:
        return False
    try:
        attempt, pid = read_tail(os.path.join(resume, OWNER), 100).split()
        return int(attempt) == att.n and proc(int(pid)) is not None
    except (OSError, ValueError):
        return False


def ask_for_image(att: Attempt) -> None:
    """Wish an image of the recorded training; `image_answered` tells when it is on the disk."""
    try:
        folder = open_folder(*os.path.split(att.path(HOOKS)))
    except OSError:
        return
    unlink("/proc/self/fd/%d/%s" % (folder, IMAGE_DONE))
    try:
        write_whole("/proc/self/fd/%d/%s" % (folder, IMAGE_ASK), b"")
    except OSError:
        pass
    os.close(folder)


def image_answered(att: Attempt) -> bool:
    return os.path.exists(os.path.join(att.path(HOOKS), IMAGE_DONE)) or not image_possible(att)


# ---------------------------------------------------------------------------------------------------------------------
# Telemetry

class Sampler:
    """What the tree uses. The whole process table is read rarely: its cost stays below a five-hundredth of the time."""

    def __init__(self, att: Attempt, holder: int, agent: int, run: dict | None, gpus: str) -> None:
        self.att, self.holder, self.agent, self.run = att, holder, agent, run
        self.known: dict[tuple[int, int], int] = {}  # process -> its CPU ticks at the last sample
        self.pids: set[int] = set()
        self.next_scan = 0.0
        self.sampled = time.monotonic()
        self.last: dict = {}  # the newest record
        self.tick = os.sysconf("SC_CLK_TCK")
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.gpus = Gpus(wanted_gpus(att, gpus))
        cwd = (att.json(AGENT) or {}).get("cwd")
        self.disks = [att.run_dir] + ([cwd] if isinstance(cwd, str) and is_local(os.path.realpath(cwd)) else [])

    def members(self) -> list[Proc]:
        """The processes of the run, as of now."""
        now = time.monotonic()
        if now >= self.next_scan:
            began = time.process_time()
            self._scan()
            self.next_scan = now + max(10.0, (time.process_time() - began) * 500)
        else:
            self._grow()
        found = [p for p in map(proc, sorted(self.pids)) if p is not None and not p.dead]
        self.pids = {p.pid for p in found}
        return found

    def _scan(self) -> None:
        table = all_procs()
        children: dict[int, list[int]] = {}
        for p in table.values():
            children.setdefault(p.ppid, []).append(p.pid)
        run = (self.run or {}).get("pid", 0)
        todo = [p.pid for p in table.values() if p.ppid == self.holder or (run and p.sid == run)]
        self.pids = set()
        while todo:
            pid = todo.pop()
            if pid not in self.pids and pid not in (self.agent, self.holder):
                self.pids.add(pid)
                todo.extend(children.get(pid, ()))

    def _grow(self) -> None:
        """Between scans: children of the main threads of those we know, where the kernel lists them."""
        run = (self.run or {}).get("pid")
        todo = list(self.pids) + ([run] if run and run not in self.pids else [])
        while todo:
            pid = todo.pop()
            self.pids.add(pid)
            todo.extend(child for child in children_of(pid) if child not in self.pids)

    def sample(self, members: list[Proc]) -> dict:
        """One record of telemetry: CPU, memory, GPUs, disk."""
        now = time.monotonic()
        spent = sum(max(0, p.ticks - self.known.get(p.key, 0)) for p in members)
        span, self.sampled = max(0.01, now - self.sampled), now
        self.known = {p.key: p.ticks for p in members}
        free = [os.statvfs(d) for d in self.disks if os.path.isdir(d)]
        self.last = {"cpu_percent": round(100.0 * spent / self.tick / span, 1), "rss_bytes": sum(p.rss_pages for p in members) * self.page,
                     "processes": len(members), "gpus": self.gpus.sample(),
                     "disk_free_bytes": min((s.f_bavail * s.f_frsize for s in free), default=None),
                     "inodes_free": min((s.f_favail for s in free if s.f_files), default=None), "out_bytes": size_of(self.att.path(OUT))}
        return self.last


class Written:
    """Which files of the working folder the run's processes have open for writing. What is open only between two looks is not seen: Python
    processes tell of that themselves."""

    def __init__(self, att: Attempt, spec: dict) -> None:
        cwd = (att.json(AGENT) or {}).get("cwd")
        self.path = att.path(WRITTEN)
        alone = spec.get("copy") or not isinstance(cwd, str)  # nobody else works in a copy
        self.below = "" if alone else os.path.join(os.path.realpath(cwd), "")
        self.known: set[str] = set()
        self.next = 0.0

    def look(self, now: float, members: list[Proc]) -> None:
        """Write down the paths that are new. Its cost stays below a five-hundredth of the time."""
        if not self.below or now < self.next or len(self.known) >= WRITTEN_MAX:
            return
        began = time.process_time()
        for p in members:
            for path in open_for_writing(p.pid, self.below) - self.known:
                self.known.add(path)
                append_line(self.path, {"path": path})
        self.next = now + (time.process_time() - began) * 500


def open_for_writing(pid: int, below: str) -> set[str]:
    """The files under the folder `below`, which ends with a slash, that a process has open for writing."""
    found = set()
    try:
        numbers = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return found
    for n in numbers:
        try:
            path = os.readlink("/proc/%d/fd/%s" % (pid, n))
            if path.startswith(below):
                words = read_bytes("/proc/%d/fdinfo/%s" % (pid, n)).split()
                found |= {path} if int(words[words.index(b"flags:") + 1], 8) & os.O_ACCMODE else set()
        except (OSError, ValueError):
            continue
    return found


class StandStill:
    """Whether a run stands still, and where. Time is passed in.

    Quiet: it has made steps, and none for max(30 s, 10 x the slowest hundredth), outside of an evaluation or a save. Stalled: no step, no
    output, no bytes read or written for max(5 min, 10 x the same), or for what `--stall` says. Without `--stall` only a run whose
    processes use torch can be stalled: others may mean to wait.
    """

    def __init__(self, att: Attempt, spec: dict, now: float, wall: float) -> None:
        self.att = att
        self.wanted_s, self.act = number(spec.get("stall_s")), str(spec.get("stall_do") or "")
        self.quiet = self.stalled = False
        self.text = ""  # where each rank and worker waits
        self.places: list[dict] = []
        self.sizes: tuple = ()
        self.io: dict[int, int] = {}
        self.next_io = 0.0
        self.moved = self.stepped = now
        self.since = wall  # when it moved, or stepped, last
        try:
            self.stepped = now - max(0.0, wall - os.stat(att.path(STEPS)).st_mtime)  # an agent before us has seen it
        except OSError:
            pass

    def look(self, now: float, wall: float, members: list[Proc], run: dict | None) -> bool:
        """Take notice of what has changed since the last look; True when quiet or stalled has."""
        steps = stamp_of(self.att.path(STEPS))
        sizes = (steps, size_of(self.att.path(OUT)), size_of(self.att.path(ERR)))
        if sizes != self.sizes:
            if self.sizes and steps != self.sizes[0]:
                self.stepped = now
            if self.sizes:
                self.moved = now
            self.sizes = sizes
        if now >= self.next_io:
            self.next_io = now + (STILL_LOOK_S if self.wanted_s <= 0 else min(STILL_LOOK_S, self.wanted_s / 4))
            io = bytes_moved(members)
            if self.io != io:
                self.moved = now
            self.io = io
        before = (self.quiet, self.stalled)
        self._judge(now, steps is not None, members)
        if before == (self.quiet, self.stalled):
            return False
        self.since = wall - (now - (self.stepped if steps is not None else max(self.moved, self.stepped)))
        if not self.quiet and not self.stalled:
            self.text, self.places = "", []
            unlink(self.att.path(STILL))
            return True
        self.places = places(self.att, members, run)
        self.text = place_words(self.places)
        self.io = bytes_moved(members)  # the stacks were written by them
        try:
            write_json(self.att.path(STILL), self.told())
        except OSError:
            pass
        return True

    def told(self) -> dict:
        """For still.json and the heartbeat."""
        return {"since": self.since, "quiet": self.quiet, "stalled": self.stalled, "text": self.text, "places": self.places}

    def _judge(self, now: float, stepped: bool, members: list[Proc]) -> None:
        idle = now - max(self.moved, self.stepped)
        if now - self.stepped < QUIET_S and idle < (self.wanted_s or STALLED_S):
            self.quiet = self.stalled = False
            return
        last = newest_line(self.att.path(STEPS)) if stepped else {}
        slow = SLOW_STEPS * number(last.get("p99_ms"), number(last.get("max_ms"))) / 1000
        trained = bool(last.get("step"))
        limit = max(QUIET_S, slow, 2 * number(last.get("s")))  # a line of a long run comes each minute
        self.quiet = trained and now - self.stepped >= limit and not busy_since(self.att)
        if self.wanted_s > 0:
            self.stalled = idle >= self.wanted_s
        else:
            self.stalled = idle >= max(STALLED_S, slow) and bool(told_stacks(self.att))


def newest_line(path: str) -> dict:
    """The last whole line of steps.jsonl that is an object; empty where there is none."""
    for line in reversed(read_tail(path, 65536).split(b"\n")):
        try:
            return parse_json(line, dict)
        except Broken:
            continue
    return {}


def told_lines(att: Attempt) -> list[dict]:
    """What the hooked processes of an attempt say of themselves. A script may write there too."""
    found = []
    for line in read_tail(os.path.join(att.path(HOOKS), PROCESSES), 2 << 20).splitlines():
        try:
            said = parse_json(line, dict)
        except Broken:
            continue
        if isinstance(said.get("pid"), int):
            found.append(said)
    return found


def told_ends(att: Attempt) -> list[dict]:
    """How processes of an attempt ended, as they say themselves: `{"pid", "rank", "uncaught"}`; `uncaught` is the exception that nobody
    caught, `{"type", "message", "frames"}`, or None."""
    found = []
    for said in told_lines(att):
        if "uncaught" not in said:
            continue
        told = said["uncaught"]
        try:
            if told is not None:
                told = {"type": str(told["type"]), "message": told["message"] if isinstance(told["message"], str) else None,
                        "frames": [(str(file), int(line)) for file, line in told["frames"]]}
        except (TypeError, KeyError, ValueError):
            continue
        found.append({"pid": said["pid"], "rank": str(said.get("rank")), "uncaught": told})
    return found


def told_begins(att: Attempt) -> frozenset:
    """The pids of the processes of an attempt in which Stoker's hooks were."""
    return frozenset(said["pid"] for said in told_lines(att) if "argv" in said)


def busy_since(att: Attempt) -> bool:
    """Has a process of the run begun an evaluation or a save since the newest line of its steps?"""
    try:
        line = os.stat(att.path(STEPS)).st_mtime
        names = [name for name in os.listdir(att.path(HOOKS)) if name.startswith("busy-")]
        return any(os.stat(os.path.join(att.path(HOOKS), name)).st_mtime >= line - 0.05 for name in names)
    except OSError:
        return False


def bytes_moved(members: list[Proc]) -> dict[int, int]:
    """Process -> bytes that it has read and written. torchrun keeps in touch with itself all the time and does not count."""
    found = {}
    for p in members:
        line = command_of(p.pid)
        if b"torch.distributed.run" in line or b"/torchrun\0" in line:
            continue
        path = "/proc/%d/io" % p.pid
        moved = [key_value(path, key) for key in ("rchar:", "wchar:")]
        if None not in moved:
            found[p.pid] = sum(moved)
    return found


def told_stacks(att: Attempt) -> dict[int, dict]:
    """Pid -> {"signal", "fd", "path"}: the processes that write their stacks into a file when they get that signal."""
    told = {said["pid"]: said["stacks"] for said in told_lines(att) if isinstance(said.get("stacks"), dict)}
    within = os.path.join(os.path.realpath(att.path(HOOKS)), "stacks-")
    return {pid: stacks for pid, stacks in told.items() if str(stacks.get("path")).startswith(within) and ".." not in str(stacks["path"])}


def places(att: Attempt, members: list[Proc], run: dict | None) -> list[dict]:
    """Where each rank and worker waits: `{"pid", "rank"?, "worker"?, "file", "line", "function", "call"}`; `call` is "data", the function
    of a library that the script's line is in, or "". Workers that wait for work are left out."""
    registered = told_stacks(att)
    by_pid = {p.pid: p for p in members}
    found = []
    workers: dict[int, int] = {}  # parent -> how many workers it has
    for p in sorted(members, key=lambda p: (p.start, p.pid))[:STACKS_MAX]:
        owner = p
        while owner.pid not in registered and owner.ppid in by_pid and command_of(owner.ppid) == command_of(p.pid):
            owner = by_pid[owner.ppid]  # a fork has the handlers, and the open file, of its parent
        if owner.pid not in registered:
            continue
        told: dict = {"pid": p.pid}
        if owner is not p:
            workers[owner.pid] = workers.get(owner.pid, 0) + 1
            told["worker"] = workers[owner.pid] - 1
        rank = rank_of(owner.pid)
        if rank is not None:
            told["rank"] = rank
        place = place_of(frames_of(stacks_of(p.pid, registered[owner.pid])), owner is not p)
        if place:
            found.append(dict(told, **place))
    return found


def stacks_of(pid: int, stacks: dict) -> str:
    """What this process writes when it is asked for its stacks; "" where it must not be asked, or does not answer."""
    sig, path = int(number(stacks.get("signal"))), str(stacks.get("path"))
    try:
        if not catches(pid, sig) or os.readlink("/proc/%d/fd/%d" % (pid, int(number(stacks.get("fd"), -1)))) != path:
            return ""
        before = size_of(path)
        os.kill(pid, sig)
        deadline, seen = time.monotonic() + STACK_WAIT_S, before
        while time.monotonic() < deadline:
            time.sleep(0.01)
            size = size_of(path)
            if size > before and size == seen:
                break
            seen = size
        with open(open_regular(path), "rb") as f:
            f.seek(before)
            return f.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""
    except ValueError:
        return ""


def frames_of(text: str) -> list[tuple[str, int, str]]:
    """(file, line, function) of the main thread, the innermost first, out of what faulthandler writes."""
    import re
    threads: list[list[tuple[str, int, str]]] = []
    current = -1
    for line in text.splitlines():
        frame = re.match(r'\s+File "(.+)", line (\d+) in (.+)$', line)
        if frame and threads:
            threads[-1].append((frame.group(1), int(frame.group(2)), frame.group(3)))
        elif "most recent call first" in line:
            threads.append([])
            current = len(threads) - 1 if line.startswith("Current thread") else current
    return threads[current] if threads else []  # the main thread is asked first; where it cannot, it is the last in the list


def place_of(frames: list[tuple[str, int, str]], forked: bool = False) -> dict | None:
    """The script's own line that it is in, and what is waited for there. None where none of its lines is. Below the start of a forked
    process lie lines of its parent."""
    import re
    starts = next((i for i, f in enumerate(frames) if f[2] == "_bootstrap" and "multiprocessing" in f[0]), len(frames))
    frames = frames[:starts] if forked else frames
    hooks = re.compile(r"/hooks-importlib_bootstrap|/stoker_hooks/")
    library = re.compile(r"(/site-packages/|/dist-packages/|/lib/python\d|^<)")
    own = [f for f in frames if not hooks.search(f[0])]
    at = next((i for i, f in enumerate(own) if not library.search(f[0])), None)
    if at is None:
        return None
    inner = [f for f in own[:at] if f[2] not in ("wrapper", "inner", "_fn", "decorate_context", "wrapped_fn")]
    call = inner[-1][2] if inner else ""
    collective = next((f[2] for f in reversed(inner) if f[0].endswith("/distributed_c10d.py")), "")
    if any("/torch/utils/data/" in f[0] for f in inner):
        call = "data"
    return {"file": own[at][0], "line": own[at][1], "function": own[at][2], "call": collective or call}


def place_words(places: list[dict]) -> str:
    """The places in words: "rank 0 waits in all_reduce (train.py, line 14), rank 1 in barrier (train.py, line 17)"."""
    ranks = len({p.get("rank") for p in places if "worker" not in p}) > 1
    told = []
    for p in places:
        rank = "rank %s" % p["rank"] if ranks and p.get("rank") is not None else ""
        who = ", ".join([each for each in (rank, "worker %d" % p["worker"] if "worker" in p else "") if each])
        where = "%s, line %d" % (os.path.basename(p["file"]), p["line"])
        doing = {"data": "waits for data at " + where, "": "is in %s (%s)" % (p["function"], where)}
        if "worker" in p:
            doing = {"": "is in %s (%s)" % (p["function"], where)}
        told.append((who + " " if who else "") + doing.get(p["call"], "waits in %s (%s)" % (p["call"], where)))
    return ", ".join(told)


def rank_of(pid: int) -> int | None:
    """The rank that a launcher gave a process by its environment."""
    import re
    found = re.search(rb"\0(?:RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK)=(\d+)\0", environ_of(pid))
    return int(found.group(1)) if found else None


def mounts() -> list[tuple[str, str]]:
    """(mount point, file system type), in the order of mounting."""
    found = []
    try:
        for line in read_bytes("/proc/self/mountinfo").decode("utf-8", "surrogateescape").splitlines():
            left, _, right = line.partition(" - ")
            found.append((left.split()[4].replace("\\040", " "), right.split()[0]))
    except (OSError, IndexError):
        pass
    return found


def mount_of(path: str) -> tuple[str, str]:
    """Mount point and type of the file system that holds this path."""
    best, kind = "", ""
    for mount, its_kind in mounts():
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, its_kind
    return best, kind


def is_of_this_kernel(path: str) -> bool:
    """Is it on a kind of file system that no other running machine can write to?"""
    return mount_of(path)[1] in ONE_KERNEL


def is_local(path: str) -> bool:
    """False for file systems that may hang for ever when their server is gone: we never ask those for their size."""
    kind = mount_of(path)[1]
    remote = kind.startswith(("nfs", "fuse", "smb", "cifs")) or kind in ("9p", "afs", "beegfs", "ceph", "gpfs", "lustre", "panfs")
    return bool(kind) and not remote


# System call numbers of read and pselect6/select, to see what a process sleeps in.
_READS = {"x86_64": ("0",), "aarch64": ("63",)}
_SELECTS = {"x86_64": ("23", "270"), "aarch64": ("72",)}


def stdin_is_awaited(members: list[Proc], run: dict | None) -> bool:
    """Does the main thread of one of them sleep in a read of the run's terminal or input pipe? Best effort.

    Where the kernel shows the system call, that is certain. Where it does not (Yama, containers), a sleep in the
    terminal's read counts, and a sleep in a pipe's read only for a process without children.
    """
    try:
        source = os.readlink("/proc/%d/fd/0" % run["pid"]) if run else ""
    except OSError:
        return False
    if not source.startswith(("/dev/pts/", "pipe:")):
        return False
    return any(p.state == "S" and _reads_stdin(p, source) for p in members[:64])


def _reads_stdin(p: Proc, source: str) -> bool:
    machine = os.uname().machine
    try:
        call = read_bytes("/proc/%d/syscall" % p.pid).decode().split()
        if len(call) < 2:
            return False
        if call[0] in _READS.get(machine, ()):
            return os.readlink("/proc/%d/fd/%d" % (p.pid, int(call[1], 16))) == source
        return call[0] in _SELECTS.get(machine, ()) and call[1] == "0x1" and os.readlink("/proc/%d/fd/0" % p.pid) == source
    except OSError:
        pass
    try:
        if os.readlink("/proc/%d/fd/0" % p.pid) != source:
            return False
        where = read_bytes("/proc/%d/wchan" % p.pid).decode()
        if source.startswith("/dev/pts/"):
            return where in ("n_tty_read", "wait_woken")
        return where in ("pipe_read", "anon_pipe_read", "pipe_wait") and not children_of(p.pid)
    except OSError:
        return False


def wanted_gpus(att: Attempt, handed_out: str) -> list[str] | None:
    """Uuids or indices of the run's GPUs; None = all of the machine."""
    chosen = handed_out
    if not chosen:
        try:
            env = read_regular(os.path.join(att.run_dir, ENV), ENV_MAX).split(b"\0")
        except (OSError, Broken):
            env = []
        for item in env:
            if item.startswith(b"CUDA_VISIBLE_DEVICES="):
                chosen = item.split(b"=", 1)[1].decode("utf-8", "replace")
                if not chosen.strip() or chosen.strip() == "-1":
                    return []
    return [c.strip() for c in chosen.split(",") if c.strip()] if chosen else None


class Gpus:
    """GPU figures by NVML. Where its library is missing, by `nvidia-smi`, at most each 30 s and never waited for."""

    def __init__(self, wanted: list[str] | None) -> None:
        self.wanted = wanted
        self.lib = None
        self.devices: list[dict] = []
        self.tried = wanted == []
        self.child = None
        self.last: list[dict] = []
        self.next_ask = 0.0

    def sample(self) -> list[dict]:
        """What each GPU does now; empty where there is none."""
        if not self.tried:
            self.tried = True
            self._open()
        if self.lib is not None:
            return [self._read(d) for d in self.devices]
        return self._ask()

    def facts(self) -> list[dict]:
        """Once: index, uuid, name, memory_bytes, used_bytes of each; `pids` of processes that compute on it, and who has `leased` it."""
        found = self._facts()
        for gpu in found:
            gpu["leased"] = leased(gpu["uuid"])
        return found

    def _facts(self) -> list[dict]:
        self.tried = True
        self._open()
        if self.lib is not None:
            return [dict({k: d[k] for k in ("index", "uuid", "name")}, memory_bytes=self._memory(d)[0], used_bytes=self._memory(d)[1],
                         pids=self._pids(d)) for d in self.devices]
        rows = [r for r in nvidia_smi("gpu=index,uuid,name,memory.total,memory.used") if len(r) >= 5 and r[0].isdigit()]
        apps = [r for r in nvidia_smi("compute-apps=pid,gpu_uuid,used_memory") if len(r) == 3 and r[0].isdigit()] if rows else []
        return [{"index": int(r[0]), "uuid": r[1], "name": r[2], "memory_bytes": mib(r[3]), "used_bytes": mib(r[4]),
                 "pids": [int(a[0]) for a in apps if a[1] == r[1]]} for r in rows]

    def _pids(self, d: dict) -> list[int]:
        import ctypes
        room, count = 64, ctypes.c_uint(64)
        table = (ctypes.c_ulonglong * (3 * room))()  # pid and padding, memory, two ids of MIG
        ask = getattr(self.lib, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None or ask(d["handle"], ctypes.byref(count), table) != 0:
            return []
        return [table[3 * i] & 0xFFFFFFFF for i in range(min(count.value, room))]

    def close(self) -> None:
        """Leave no nvidia-smi behind."""
        if self.child is not None:
            self.child.kill()
            self.child.stdout.close()
            self.child = None

    def _open(self) -> None:
        try:
            import ctypes
            lib = ctypes.CDLL("libnvidia-ml.so.1")
            if lib.nvmlInit_v2() != 0:
                return
            count = ctypes.c_uint(0)
            if lib.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
                return
        except (ImportError, OSError, AttributeError):
            return
        self.lib = lib
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
                continue
            uuid, name = self._text("nvmlDeviceGetUUID", handle), self._text("nvmlDeviceGetName", handle)
            d = {"index": index, "handle": handle, "uuid": uuid, "name": name}
            if self._is_wanted(str(index), uuid):
                self.devices.append(d)

    def _is_wanted(self, index: str, uuid: str) -> bool:
        return self.wanted is None or index in self.wanted or any(w.startswith("GPU-") and uuid.startswith(w) for w in self.wanted)

    def _text(self, function: str, handle: object) -> str:
        import ctypes
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode("utf-8", "replace") if getattr(self.lib, function)(handle, buffer, 96) == 0 else ""

    def _memory(self, d: dict) -> tuple[int | None, int | None]:
        import ctypes
        figures = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self.lib.nvmlDeviceGetMemoryInfo(d["handle"], ctypes.byref(figures)) != 0:
            return (None, None)
        return (figures[0], figures[2])

    def _read(self, d: dict) -> dict:
        import ctypes
        rates = (ctypes.c_uint * 2)()  # gpu, memory; not known under MIG
        known = self.lib.nvmlDeviceGetUtilizationRates(d["handle"], ctypes.byref(rates)) == 0
        return {"uuid": d["uuid"], "index": d["index"], "busy_percent": rates[0] if known else None, "memory_bytes": self._memory(d)[1]}

    def _ask(self) -> list[dict]:
        """nvidia-smi in the background: what it said last time, and start it again when 30 s have passed."""
        if self.child is not None and self.child.poll() is not None:
            rows = comma_rows(self.child.stdout.read())
            self.child.stdout.close()
            self.child = None
            rows = [r for r in rows if len(r) == 4 and r[0].isdigit() and self._is_wanted(r[0], r[1])]
            self.last = [{"uuid": r[1], "index": int(r[0]), "busy_percent": int(r[2]) if r[2].isdigit() else None,
                          "memory_bytes": mib(r[3])} for r in rows]
        now = time.monotonic()
        if self.child is not None and now >= self.next_ask + 60.0:  # it hangs, as it does when a GPU has failed: not again
            self.close()
            self.last, self.next_ask = [], float("inf")
        if self.child is None and now >= self.next_ask:
            self.next_ask = now + 30.0
            if not on_path("nvidia-smi"):
                self.next_ask = float("inf")
                return []
            import subprocess
            try:
                self.child = subprocess.Popen(smi_command("gpu=index,uuid,utilization.gpu,memory.used"), stdin=subprocess.DEVNULL,
                                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            except OSError:
                pass
        return self.last


def on_path(name: str) -> bool:
    return any(os.access(os.path.join(d, name), os.X_OK) for d in os.environ.get("PATH", "/usr/bin:/bin").split(":"))


def nvidia_smi(fields: str) -> list[list[str]]:
    """What "gpu=index,uuid" or "compute-apps=pid" asks of the program nvidia-smi; empty where there is none."""
    if not on_path("nvidia-smi"):
        return []
    import subprocess
    try:
        done = subprocess.run(smi_command(fields), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20,
                              check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return comma_rows(done.stdout)


def smi_command(fields: str) -> list[str]:
    return ["nvidia-smi", "--query-" + fields, "--format=csv,noheader,nounits"]


def comma_rows(raw: bytes) -> list[list[str]]:
    return [[part.strip() for part in line.split(",")] for line in raw.decode("utf-8", "replace").splitlines()]


def mib(text: str) -> int | None:
    return int(text) * 1048576 if text.isdigit() else None


# ---------------------------------------------------------------------------------------------------------------------
# Last words: why did it end

CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP")
GPU_OOM = ("CUDA out of memory", "OutOfMemoryError", "CUDA error: out of memory", "HIP out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
           "RESOURCE_EXHAUSTED: Out of memory")
GPU_FAULTS = ("illegal memory access was encountered", "uncorrectable ECC error", "unspecified launch failure", "NVRM: Xid",
              "fallen off the bus",
              "GPU is lost", "misaligned address", "illegal instruction was encountered", "hardware stack error",
              "CUDA_ERROR_ECC_UNCORRECTABLE",
              "CUDA-capable device(s) is/are busy or unavailable", "launch timed out and was terminated")
DISK_FULL = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
SHM_FULL = "is killed by signal: Bus error"  # of a worker of a DataLoader: it wrote to memory that /dev/shm could not give
DISK_WRITERS = ("PytorchStreamWriter failed", "file write failed", "iostream error", "unexpected pos")

HINTS = (  # text in the last words -> what it certainly means
    ("Torch not compiled with CUDA enabled", "The script needs CUDA, but this torch is a CPU build."),
    ("Cannot access accelerator device when none is available", "The script needs a GPU, but torch sees none on this machine."),
    ("No CUDA GPUs are available", "The script needs a GPU, but torch sees none on this machine."),
    ("Found no NVIDIA driver on your system", "This machine or container has no visible NVIDIA driver."),
    ("device-side assert triggered",
     "A value is out of range, often a label or an index. To see where: CUDA_LAUNCH_BLOCKING=1"),
    ("torchvision::nms does not exist", "The versions of torch and torchvision do not match; install matching versions."),
    ("Dataset not found or corrupted", "The data set is not at the path that the script uses; download it or change the path."),
    ("URL fetch failure on", "A download failed: this machine cannot reach the address."),
    ("EOF when reading a line", "The script asked for input and has none: give --stdin FILE, or run it in the foreground."),
    ("No API key configured. Use `wandb login`", "wandb has no API key. To run without a key: WANDB_MODE=offline"),
    ("Too many open files", "The limit of open files was reached: use ulimit -n 65536, or fewer workers."),
    ("use default_factory", "This code is for Python 3.10 or older: Python 3.11 forbids a dataclass default in it."),
    ("param 'initial_lr' is not specified in param_groups[0]",
     "A scheduler was resumed without the optimizer's state: restore the optimizer first."),
    ("Expected more than 1 value per channel when training",
     "The last batch has one sample, too few for BatchNorm: use drop_last=True in the DataLoader."),
    ("Address already in use", "The port is in use, often by another torchrun on this machine: choose another --master_port."),
    ("Unable to locate sufficient", "The script needs more GPUs than this machine has."),
)


def conclude(att: Attempt, status: dict | None, reason: str, *, used_s: float, interrupt: dict | None = None, limit_s: float | None = None,
             gaps: list | None = None, leftovers: dict | None = None) -> dict:
    """The body of exit.json. `reason` is ours if we ended it ("" if it ended by itself)."""
    record = att.json(AGENT) or {}
    started = number(record.get("started_at"), time.time())
    raw = (status or {}).get("status")
    code = sig = None
    if isinstance(raw, int):
        if os.WIFSIGNALED(raw):
            sig = os.WTERMSIG(raw)
        else:
            code = os.WEXITSTATUS(raw)
    failed_start = (status or {}).get("start_failed")
    if failed_start is not None:
        code = sig = None
    body = {"attempt": att.n, "code": code, "signal": sig, "signal_name": signal_name(sig) if sig else None, "reason": "", "evidence": {},
            "started_at": started, "ended_at": started + used_s, "used_s": round(used_s, 3),
            "leftovers": leftovers or {"found": [], "survivors": [], "spared": []}, "out_bytes": size_of(att.path(OUT)),
            "err_bytes": size_of(att.path(ERR)), "gaps": gaps or [], "restart": None}
    try:
        found, evidence = explain(att, body, record, failed_start=failed_start, reason=reason, interrupt=interrupt)
    except Exception:  # an odd log must not cost us the last words
        log_exception()
        found, evidence = reason or ("exited" if code == 0 else "nonzero_exit" if code is not None else "killed"), {}
    if found == "limit_time" and limit_s is not None:
        evidence["limit"] = format_duration(limit_s)
    evidence.setdefault("code", code)
    evidence.setdefault("signal_name", body["signal_name"])
    body["reason"], body["evidence"] = found, {k: v for k, v in evidence.items() if v is not None}
    return body


def forget_images(att: Attempt) -> None:
    """It ended well, and begins anew should it be started again: what exact resume kept to come back goes, twice the training's state."""
    try:
        resume = att.open_folder(RESUME)
    except OSError:
        return
    aside = "ended-%d" % att.n
    try:
        remove_at(resume, aside)
        os.rename("images", aside, src_dir_fd=resume, dst_dir_fd=resume)  # at once: half an image is never found
    except OSError:
        pass
    for name in (aside, "log", "log.old"):  # without images the log leads nowhere
        try:
            remove_at(resume, name)
        except OSError:
            log_exception()
    os.close(resume)


def files_stand_back(att: Attempt) -> bool:
    """Whether a life on its way to an image has put the user's files back, and was killed before it was certain of the image."""
    try:
        resume = att.open_folder(RESUME)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.stat(PUT_BACK, dir_fd=resume, follow_symlinks=False).st_mode)
    except OSError:
        return False
    finally:
        os.close(resume)


def give_files_back(att: Attempt) -> None:
    """The user's files are again as that life found them: by the run's own hooks, in a process that belongs to the run. Where that cannot
    be, the first process of the next attempt does it."""
    hooks = os.path.realpath(os.path.join(att.run_dir, HOOKS))
    if not files_stand_back(att) or not os.path.isdir(hooks):
        return
    import subprocess
    code = "import sys; sys.path.insert(0, sys.argv[1]); from stoker_hooks.ghost import as_found; as_found.at_the_end(sys.argv[2])"
    env = {**{name: os.environ[name] for name in LOGIN_ENV if name in os.environ}, RUN_MARK: att.id, RUN_DIR_MARK: att.run_dir,
           "STOKER_ATTEMPT": str(att.n)}
    try:
        subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code, hooks, os.path.join(att.run_dir, RESUME)], cwd="/", env=env,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=GIVE_BACK_S, check=False)
    except (OSError, subprocess.SubprocessError):
        log_exception()


def mind_files(att: Attempt) -> None:
    """Raises Problem where the run folder has the only copy of a file of the user's."""
    give_files_back(att)
    resume = os.path.join(att.run_dir, RESUME)
    if files_stand_back(att):
        raise Problem("state", "the folder has older files: a resume was interrupted, and the newer files in %s/undo could not be "
                      "restored. To retry, start the run again; to give up the newer files, remove %s/%s"
                      % (resume, resume, PUT_BACK))
    for n in attempt_numbers(att.run_dir):
        kept = os.path.join(resume, "aside", str(n), "not-given-back")
        if os.path.isdir(kept):
            raise Problem("state", "the only copy of some files is in %s; move them to their place, or remove that folder" % kept)


def explain(att: Attempt, body: dict, record: dict, *, failed_start: str | None, reason: str, interrupt: dict | None) -> tuple[str, dict]:
    """Reason and evidence of an end."""
    if failed_start is not None and not reason:
        return "start_failed", {"detail": failed_start}
    evidence: dict = {}
    if body["code"] == 0 and not reason:
        return "exited", evidence
    out, err = read_tail(att.path(OUT), TAIL_BYTES), read_tail(att.path(ERR), TAIL_BYTES)
    lines = clean_lines(out) + clean_lines(err)
    spec = read_json(os.path.join(att.run_dir, SPEC)) or {}
    words = LastWords(lines, stderr_at=len(clean_lines(out)), cwd=cwd_of(att, record), ends=told_ends(att), hooked=told_begins(att),
                      pid=(record.get("run") or {}).get("pid"), in_order=bool(spec.get("unbuffered")))
    lines = lines[words.handled:]
    text = "\n".join(lines[-400:])
    evidence["exception"] = words.exception
    evidence["hint_text"] = next((hint for sign, hint in HINTS if sign in words.said or (not words.exception and sign in text)), None)
    if body["code"] != 0:
        evidence["tail"] = "\n".join((clean_lines(err[-4096:]) if err.strip() else clean_lines(out[-4096:]))[-20:])[-2000:]
    if reason:
        return reason, evidence
    return explain_failure(att, body, record, words=words, lines=lines, interrupt=interrupt, evidence=evidence), evidence


def cwd_of(att: Attempt, record: dict) -> str:
    return record["cwd"] if isinstance(record.get("cwd"), str) else att.run_dir


def explain_failure(att: Attempt, body: dict, record: dict, *, words: LastWords, lines: list[str], interrupt: dict | None,
                    evidence: dict) -> str:
    """The reason of an end that was not ours and not exit code 0. Adds what it found to the evidence."""
    code, name = body["code"], body["signal_name"]
    text = "\n".join(lines[-400:])
    cwd = cwd_of(att, record)
    last_signal = name or signal_name(words.child_signal)
    if interrupt and interrupt.get("signal") not in ASKING and number(interrupt.get("mono")) <= time.monotonic():
        sig = interrupt.get("signal")
        soon = time.monotonic() - number(interrupt.get("mono")) < INTERRUPT_S
        if body["signal"] == sig or code == 128 + int(number(sig)) or (soon and code):
            evidence["interrupted"] = signal_name(sig)
            return "stopped_by_user"
    if kills_in(record.get("memory_group")):
        limit = (read_json(os.path.join(att.run_dir, SPEC)) or {}).get("memory_bytes")
        peak = first_number(record["memory_group"], "memory.peak") or first_number(record["memory_group"], "memory.max_usage_in_bytes")
        evidence.update(kind="memory", limit_bytes=limit, used_bytes=peak or limit)
        return "host_oom"
    before, after = record.get("log_before") or {}, oom_counters()
    source = "cgroup_oom_kill" if after.get("cgroup_oom_kill") is not None else "vmstat_oom_kill"
    told, tells = number(before.get(source), -1), number(after.get(source), -1)
    killed = last_signal == "SIGKILL" or code == 137 or "killed by signal: Killed" in text
    if killed and 0 <= told < tells:
        evidence.update(oom_kill_before=int(told), oom_kill_after=int(tells), oom_source=source, **memory_limit())
        return "host_oom"
    if name == "SIGHUP":
        return "hangup"
    # The final exception decides. Only where there is none (a crash in compiled code, a shell, another language) is the text searched.
    said = words.said or text[-8192:]
    worded = any(sign in said for sign in (*DISK_FULL, SHM_FULL))
    where = full_disk(att, said, cwd)
    if worded or (where and (where["log"] or (where["full"] and any(sign in said for sign in DISK_WRITERS)))):
        if where:
            evidence.update({k: where[k] for k in ("path", "mount", "disk_bytes", "disk_free_bytes", "inodes", "inodes_free")})
            evidence["kind"] = kind_of_full(said, where)
        return "disk_full"
    if "device-side assert" not in said:
        if any(sign in said for sign in GPU_OOM):
            return "gpu_oom"
        if any(sign in said for sign in GPU_FAULTS):
            return "gpu_fault"
    if last_signal == "SIGABRT" and words.exception and (name is None or words.aborted_after(lines)):
        evidence["code"] = 128 + signal.SIGABRT if code is None else code
        return "nonzero_exit"
    if name is None and words.child_signal:
        evidence.update(signal_name=last_signal, rank=words.root_rank)
    if name in CRASHES or (name is None and last_signal in CRASHES):
        evidence["signal_name"] = last_signal
        return "crashed"
    return "killed" if name or words.child_signal else "nonzero_exit"


def full_disk(att: Attempt, said: str, cwd: str) -> dict | None:
    """Which path has no room left: the one that the message names, else a full one of those that runs use, else any full
    disk of this machine, else the working folder. None when nothing speaks of a full disk.

    `log` tells that the log's own disk is full, which is proof without any words.
    """
    if SHM_FULL in said or re.search(r"shared memory|shm_open|</torch_\d", said):
        return room_at("/dev/shm", att.run_dir)
    named = re.search(r"(?:No space left on device|Disk quota exceeded): ['\"]([^'\"\n]+)['\"]", said)
    if named:
        return room_at(os.path.join(cwd, named.group(1)), att.run_dir)
    usual = [p for p in (att.run_dir, cwd, "/tmp", "/dev/shm") if p == att.run_dir or is_local(p)]
    worded = any(sign in said for sign in DISK_FULL)
    for place in usual + ([mount for mount, _ in mounts() if is_local(mount)] if worded else []):
        facts = room_at(place, att.run_dir)
        if facts and facts["full"]:
            return dict(facts, log=place == att.run_dir)
    return room_at(cwd, att.run_dir) if worded else None


def room_at(place: str, trusted: str) -> dict | None:
    """Bytes and inodes free where a path is, or would be. A remote file system other than the trusted one is not asked:
    it may hang."""
    facts = {"path": place, "mount": mount_of(place)[0], "disk_bytes": None, "disk_free_bytes": None, "inodes": None, "inodes_free": None,
             "full": False, "log": False}
    if place != trusted and not is_local(place):
        return facts
    at = place
    while at not in ("", "/") and not os.path.exists(at):
        at = os.path.dirname(at)
    try:
        s = os.statvfs(at or "/")
    except OSError:
        return None
    free, inodes = s.f_bavail * s.f_frsize, s.f_favail if s.f_files else None
    full = s.f_blocks > 0 and not s.f_flag & os.ST_RDONLY and (free < 1 << 18 or inodes == 0)
    return dict(facts, disk_bytes=s.f_blocks * s.f_frsize, disk_free_bytes=free, inodes=s.f_files or None, inodes_free=inodes, full=full)


def kind_of_full(said: str, where: dict) -> str:
    """What was used up: "shm", "quota", "inodes" or "disk"."""
    if where["mount"] == "/dev/shm":
        return "shm"
    if "Disk quota exceeded" in said or "[Errno 122]" in said:
        return "quota"
    return "inodes" if where["inodes_free"] == 0 and where["disk_free_bytes"] else "disk"


def memory_limit() -> dict:
    """What bounds the run's memory: `kind` "cgroup" with its `limit_bytes`, or `machine_bytes`."""
    limits = [first_number(f, "memory.max") for f in cgroup_folders("")]
    limits += [first_number(f, "memory.limit_in_bytes") for f in cgroup_folders("memory")]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = min((n for n in limits if n is not None), default=None)
    if limit is not None and limit < total:
        return {"kind": "cgroup", "limit_bytes": limit}
    return {"machine_bytes": total}


def clean_lines(raw: bytes) -> list[str]:
    """Lines as a person saw them: tolerant of any bytes, without colours, progress bars cut at CR."""
    text = re.sub(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])", "", raw.decode("utf-8", "replace"))
    return re.split(r"\r\n|\r|\n", text)


class LastWords:
    """What the end of a log says: the exception that ended the run, and under torchrun the first failing rank's own.

    exception: {"type", "message", "file", "line", "rank"?} or None. said: the texts of that exception and of those it was
    raised from. child_signal: the signal that killed the first failing rank, or 0.
    """

    def __init__(self, lines: list[str], *, stderr_at: int, cwd: str, ends: list[dict], pid: int | None, in_order: bool,
                 hooked: frozenset = frozenset()) -> None:
        self.hooked = hooked
        self.lines, self.stderr_at, self.cwd, self.ends, self.pid, self.in_order = lines, stderr_at, cwd, ends, pid, in_order
        every, self.aside = parse_exceptions(lines, cwd)
        self.found = [e for e in every if not e["thread"]]
        self.threads = [e for e in every if e["thread"]]
        self.handled = 0  # lines up to here tell of exceptions that the script handled
        self.root_rank: int | None = None
        self.child_signal = 0
        self.failed_ranks = 0
        self._launcher(lines)
        self._spawner(lines)
        chosen = self.chosen = self._choose()
        self.said = ""
        self.exception = None
        if chosen is not None:
            self.said = "\n".join("%s: %s" % (e["type"], e["message"]) for e in [chosen] + chosen["from"])
            rank = chosen["rank"] if chosen["rank"] is not None else self.root_rank
            self.exception = {"type": chosen["type"], "message": chosen["message"][:1000], "file": chosen["file"], "line": chosen["line"]}
            if rank is not None:
                self.exception["rank"] = rank

    def _launcher(self, lines: list[str]) -> None:
        """torchrun's table: which rank failed first, and how."""
        at = next((i for i in range(len(lines) - 1, -1, -1) if "Root Cause (first observed failure)" in lines[i]), None)
        if at is None:
            return
        for line in lines[at:at + 12]:
            rank = re.search(r"\brank\s*:\s*(\d+) \(local_rank", line)
            code = re.search(r"\bexitcode\s*:\s*(-?\d+)", line)
            if rank:
                self.root_rank = int(rank.group(1))
            if code:
                self.child_signal = max(0, -int(code.group(1)))
        self.failed_ranks = 1 + sum(1 for line in lines[max(0, at - 200):at] if re.search(r"\brank\s*:\s*\d+ \(local_rank", line))

    def _spawner(self, lines: list[str]) -> None:
        """As `_launcher`, for torch.multiprocessing.spawn."""
        import re
        for line in lines:
            killed = re.search(r"\bprocess (\d+) terminated with signal (SIG[A-Z0-9]+)", line)
            raised = re.search(r"^-- Process (\d+) terminated with the following error", line)
            if killed or raised:
                self.root_rank, self.child_signal = int((killed or raised).group(1)), signal_number(killed.group(2)) if killed else 0
                self.failed_ranks = 1

    def aborted_after(self, lines: list[str]) -> bool:
        """Did the abort that ended it come of the exception, as that left the interpreter? Nothing but the abort's own words follows."""
        if self.exception is None or self.chosen is None:
            return False
        import re
        words = re.compile(r"terminate called|what\(\)|Exception raised from|frame #|Aborted|core dumped|Fatal Python error|\W*$|\s")
        return all(words.match(line) for line in lines[self.chosen["at"] + 1:])

    def _choose(self) -> dict | None:
        own = [e for e in self.found if not e["launcher"]]
        if self.root_rank is None:
            return self._of_process(own)
        if self.child_signal:  # killed: what other ranks say is an effect, unless it is what the failed rank aborted of
            aborted = self.child_signal == signal.SIGABRT
            own = [e for e in own if e["rank"] == self.root_rank or (aborted and e["rank"] is None and not e["secondary"])]
            return own[-1] if own else None
        told = next((end["uncaught"] for end in reversed(self.ends) if end["rank"] == str(self.root_rank) and end["uncaught"]), None)
        if told:
            return self._as_told(told)
        ranked = [e for e in own if e["rank"] == self.root_rank]
        if ranked:
            return ranked[-1]
        first = [e for e in own[-self.failed_ranks:] if not e["secondary"]]
        return first[0] if first else (own[-1] if own else None)


    def _of_process(self, own: list[dict]) -> dict | None:
        """What the main process says of its end decides. Without its word, and where it handled all of its exceptions, only a traceback
        counts that was printed last."""
        main = next((end for end in reversed(self.ends) if end["pid"] == self.pid), None)
        if main is not None and main["uncaught"]:
            told = self._as_told(main["uncaught"])
            if not told["launcher"]:
                return told
        elif main is not None or self.in_order or any(self.lines[self.stderr_at:]):
            counted = [e for e in self.found if self._printed_last(e) or (main is None and self._ended_a_process(e))]
            if self.found and not counted:
                self.handled = self.found[-1]["at"] + 1
            return self._last([e for e in counted if not e["launcher"]] or counted, main)
        return self._last(own or self.found, main)

    def _last(self, found: list[dict], main: dict | None) -> dict | None:
        """Of a hooked process that left by os._exit the log alone can tell: there a thread's exception that was printed last counts too."""
        silent = main is None and self.pid in self.hooked
        threads = [e for e in self.threads if self._printed_last(e)] if silent else []
        return (found or threads or [None])[-1]

    def _as_told(self, told: dict) -> dict:
        """The exception that a process says it ended by, with what the log has of it: chain, all lines of the message, and a traceback of
        another process that the message quotes."""
        alike = [e for e in self.found if e["type"] == told["type"]]
        same = [e for e in alike if self._is(e, told)]
        if not same:
            texts = [e["message"] for e in alike if told["message"] is None or e["message"].startswith(told["message"])]
            message = texts[-1] if texts else told["message"] or ""
            made = make_exception(told["type"], message, {"frames": told["frames"], "from": []}, None, self.cwd)
            return dict(made, at=len(self.lines) - 1)
        chosen = same[-1]
        for e in self.found:
            if e["at"] > chosen["at"] and e["quoted"]:
                chosen = e
        return chosen

    def _is(self, e: dict, told: dict) -> bool:
        """Is this traceback of that exception? What cannot be compiled is shown at a place that is no frame."""
        if e["type"] != told["type"] or e["type"] in ("SyntaxError", "IndentationError", "TabError"):
            return e["type"] == told["type"]
        place = make_exception(told["type"], "", {"frames": told["frames"], "from": []}, None, self.cwd)
        return (e["file"], e["line"]) == (place["file"], place["line"])

    def _ended_a_process(self, e: dict) -> bool:
        return any(end["uncaught"] and self._is(e, end["uncaught"]) for end in self.ends)

    def _printed_last(self, e: dict) -> bool:
        """In its own stream, but for what launchers, libraries and the interpreter print at an end."""
        end = self.stderr_at if e["at"] < self.stderr_at else len(self.lines)
        after = re.compile(r"\W*$|\[\w+\]:\s*\[[WEI]|\[?[WEI]\d{4} |wandb: |Set the environment variable HYDRA_FULL_ERROR|"
                           r"CUDA kernel errors might|For debugging consider passing|Compile with `TORCH_USE_CUDA_DSA|terminate called|"
                           r"Aborted|Fatal Python error|"
                           r"make(?:\[\d+\])?: |srun: |slurmstepd: |.*\bresource_tracker\b|  warnings\.warn\(")
        return all(at in self.aside or after.match(self.lines[at]) for at in range(e["at"] + 1, end))


def parse_exceptions(lines: list[str], cwd: str) -> tuple[list[dict], set[int]]:
    """All Python exceptions in a text, in the order in which they end; lines of interleaved ranks are told apart by prefix.

    Also the lines that end nothing: of errors that Python only tells of, of threads, and those that a message goes on with."""
    header = re.compile(r"Traceback \(most recent call last\):\s*$")
    prefix = re.compile(r"^\[(?:rank|default|[a-z_]+)(\d+)\]:\s?")
    frame = re.compile(r'^\s*File "(.+)", line (\d+)(?:, in .*)?$')
    final = re.compile(r"^((?:(?:[^\W\d]\w*|<locals>)\.)*[^\W\d]\w*)(?::(?: (.*))?)?$")
    told_only = re.compile(r"Exception ignored |(Exception in thread )|Error in atexit\._run_exitfuncs")
    chained = re.compile(r"^(During handling of the above exception|The above exception was the direct cause)")
    open_: dict[int | None, dict] = {}
    ended: dict[int | None, dict] = {}  # the last one of each rank: for chains and message lines
    ignored: dict[int | None, bool] = {}  # ranks whose next traceback is of an error that Python only tells of; True: a thread's
    aside: set[int] = set()
    found: list[dict] = []
    for at_line, line in enumerate(lines):
        m = prefix.match(line)
        rank = int(m.group(1)) if m else None
        text = line[m.end():] if m else line
        if text.startswith(("  | ", "  +-")):  # a group of exceptions: what is within it stands further in
            text = text[4:]
        only = told_only.match(text)
        if only:
            ignored[rank] = bool(only.group(1))
            aside.add(at_line)
            continue
        if rank in ignored or (rank in open_ and open_[rank]["ignored"]):
            aside.add(at_line)
        if header.search(text):
            previous = ended.get(rank)
            chain = [previous] + previous["from"] if previous is not None and previous.get("chained") else []
            quoted = "Original Traceback" in text or bool(chain and chain[0]["quoted"])  # what a quoted one led to is quoted too
            open_[rank] = {"frames": [], "from": chain, "ignored": rank in ignored, "thread": ignored.pop(rank, False), "quoted": quoted}
            continue
        at = frame.match(text)
        block = open_.get(rank)
        if at:
            if block is None:  # a SyntaxError at the top has no header
                block = open_[rank] = {"frames": [], "from": [], "ignored": False, "thread": False, "quoted": False}
            block["frames"].append((at.group(1), int(at.group(2))))
            continue
        if block is None:
            last = ended.get(rank)
            if last is not None:
                if chained.match(text):
                    last["chained"] = True
                elif last["open"] and text[:1] in ("\t", " ") and text.strip() and last["open"] < 6:
                    last["message"] += "\n" + text.strip()
                    last["open"] += 1
                    aside.add(at_line)
                elif text.strip():
                    last["open"] = 0
            continue
        if not text.strip() or text[0] in " \t|+":
            continue
        m = final.match(text)
        if not m or not block["frames"] and "." not in m.group(1) and not m.group(1)[0].isupper():
            continue
        del open_[rank]
        e = dict(make_exception(m.group(1), m.group(2) or "", block, rank, cwd), at=at_line, quoted=block["quoted"], thread=block["thread"])
        if block["ignored"]:  # of a `__del__`: it ends nothing
            ended.pop(rank, None)
            found += [e] if e["thread"] else []
            continue
        found.append(e)
        ended[rank] = e
    return found, aside


def make_exception(kind: str, message: str, block: dict, rank: int | None, cwd: str) -> dict:
    """The innermost frame of the user's own code names file and line, else the innermost of a library; Stoker's frames never do.

    A command of `python -c` or on stdin is the user's own code too. A file that is not there counts less: its name is made up, or it
    is gone.
    """
    library = re.compile(r"(/site-packages/|/dist-packages/|/lib/python\d|^<)")
    frames = [f for f in block["frames"] if "/stoker_hooks/" not in f[0]]
    command = frames[0][0] if frames and frames[0][0] in ("<string>", "<stdin>") else None
    own = [f for f in frames if f[0] == command or not library.search(f[0])]
    there = next((f for f in reversed(own) if f[0] == command or is_there(os.path.join(cwd, f[0]))), None)
    file, line = there or (own or frames or [(None, None)])[-1]
    launcher = kind.endswith(("ChildFailedError", "ProcessExitedException")) or any(
        "/torch/distributed/run.py" in f or "/torch/distributed/launcher/" in f or "/distributed/elastic/" in f for f, _ in block["frames"])
    effect = r"Connection (closed|reset) by peer|Broken pipe|remote process exited|Socket Timeout|SignalException|store.*closed"
    secondary = bool(re.search(effect, kind + " " + message))
    return {"type": kind, "message": message, "file": file, "line": line, "rank": rank, "from": block["from"], "launcher": launcher,
            "secondary": secondary, "open": 1}


def is_there(path: str) -> bool:
    """A remote file system may hang: what lies there is taken as it is said."""
    return not is_local(path) or os.path.exists(path)


def signal_name(sig: object) -> str | None:
    try:
        return signal.Signals(int(number(sig))).name
    except ValueError:
        return "signal %d" % int(number(sig)) if number(sig) else None


def format_duration(seconds: float) -> str:
    """The two largest units that matter, as in base/units.py: "2h", "1h 30m"."""
    left, parts = round(max(0.0, seconds)), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        n, left = divmod(left, size)
        if n or (unit == "s" and not parts):
            parts.append("%d%s" % (n, unit))
    return " ".join(parts[:2])


def cgroup_folders(controller: str) -> list[str]:
    """Folders of our cgroup, innermost first, for a v1 controller or, with "", for v2. In a container the outer names do
    not exist in here: then the top of the mount is ours."""
    try:
        rows = read_bytes("/proc/self/cgroup").decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    for row in rows:
        parts = row.split(":", 2)
        if len(parts) < 3 or controller not in parts[1].split(","):
            continue
        if controller:
            top = "/sys/fs/cgroup/" + controller
        else:
            top = "/sys/fs/cgroup" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "/sys/fs/cgroup/unified"
        found, path = [], parts[2].rstrip("/")
        while path:
            if os.path.isdir(top + path):
                found.append(top + path)
            path = path.rpartition("/")[0]
        return found + [top]
    return []


def memory_group(att: Attempt, limit: int) -> str:
    """A memory cgroup for this attempt within our own, or "" where none may be made: then the agent watches."""
    if limit <= 0:
        return ""
    unified = [f for f in cgroup_folders("")[:1] if b"memory" in read_or_empty(f + "/cgroup.subtree_control")]
    for folder, names in [(f, ("memory.max", "memory.swap.max")) for f in unified] + \
            [(f, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")) for f in cgroup_folders("memory")[:1]]:
        group = os.path.join(folder, "stoker-%s-%d" % (att.id, att.n))
        try:
            os.makedirs(group, exist_ok=True)
            write_number(os.path.join(group, names[0]), limit)
        except OSError:
            leave_group(group)
            continue
        try:
            write_number(os.path.join(group, names[1]), limit if names[1].endswith("in_bytes") else 0)
        except OSError:
            pass  # a kernel that does not count swap
        return group
    return ""


def read_or_empty(path: str) -> bytes:
    try:
        return read_bytes(path)
    except OSError:
        return b""


def write_number(path: str, number: int) -> None:
    """Into a file of a cgroup. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % number)
    finally:
        os.close(fd)


def enter_group(group: str) -> None:
    """In the process that becomes the run. Where that fails, the agent watches alone."""
    try:
        if group:
            write_number(os.path.join(group, "cgroup.procs"), os.getpid())
    except OSError:
        pass


def leave_group(group: object) -> None:
    """Remove an empty cgroup of a run."""
    try:
        if group:
            os.rmdir(str(group))
    except OSError:
        pass


def kills_in(group: object) -> int:
    """How many processes the kernel has killed for lack of memory in this cgroup of a run's own."""
    found = [key_value("%s/%s" % (group, name), "oom_kill") for name in ("memory.events", "memory.oom_control")] if group else []
    return max([n for n in found if n is not None], default=0)


def memory_of(p: Proc) -> int:
    """Bytes of memory of a process, shared ones by its share of them."""
    try:
        for line in read_bytes("/proc/%d/smaps_rollup" % p.pid).splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return p.rss_pages * os.sysconf("SC_PAGE_SIZE")


def key_value(path: str, key: str) -> int | None:
    """The number behind `key` in a file of "name value" lines, or None."""
    try:
        for line in read_bytes(path).decode().splitlines():
            parts = line.split()
            if len(parts) == 2 and parts[0] == key:
                return int(parts[1])
    except (OSError, ValueError):
        pass
    return None


def oom_counters() -> dict:
    """How many processes the kernel has killed for lack of memory: in our cgroup, and on the machine."""
    in_group = None
    for path in [f + "/memory.events" for f in cgroup_folders("")[:1]] + [f + "/memory.oom_control" for f in cgroup_folders("memory")[:1]]:
        count = key_value(path, "oom_kill")
        in_group = count if in_group is None else in_group
    return {"cgroup_oom_kill": in_group, "vmstat_oom_kill": key_value("/proc/vmstat", "oom_kill")}


# ---------------------------------------------------------------------------------------------------------------------
# Settling: an attempt whose caretakers are dead

def settle(att: Attempt, reason: str = "", detail: str = "") -> None:
    """Kill what is left of the tree and write the last words. May be called by several at once, and again."""
    record = att.json(AGENT) or {}
    ended = att.json(EXIT)
    if ended is not None:
        if ended.get("restart") and not os.path.isdir(att.sibling(att.n + 1).folder):
            ended["restart"] = None
            write_json(att.path(EXIT), ended, sync=True, spare=att.path(EXIT_SPARE))
        drop_spares(att)
        notify_watchers(att)
        return
    here = machine_identity()
    run = record.get("run") if same_place(record.get("machine"), here) else None
    tree = Tree(att, None, 0, run if isinstance(run, dict) else None)
    survivors, found = end_tree(tree)
    give_files_back(att)
    status = att.json(STATUS)
    beat = att.json(HEARTBEAT) or {}
    used = number((status or beat).get("used_s"))
    if status is None and found and record.get("started_mono") is not None:
        used = max(used, time.monotonic() - number(record.get("started_mono")))  # it ran on, unwatched, until now
    if status is None and not reason:
        restarted = record.get("machine") is not None and not same_place(record.get("machine"), here)
        reason = "rebooted" if restarted else "agent_lost"
    body = conclude(att, status, reason, used_s=used, leftovers=leftovers(found, survivors, tree.spared))
    leave_group(record.get("memory_group"))
    if detail:
        body["evidence"]["detail"] = detail
    if flaw(att.path(EXIT)):
        remove(*att.below(ATTEMPTS, str(att.n), EXIT))
    write_once(att.path(EXIT), body)
    drop_spares(att)
    notify_watchers(att)


def leftovers(found: list[Proc], survivors: list[Proc], spared: list[Proc]) -> dict:
    """What exit.json says of processes that the first one left behind; 100 of each kind at most."""
    def facts(p: Proc) -> dict:
        return {"pid": p.pid, "name": p.name}
    return {"found": [facts(p) for p in found[:100]], "survivors": [dict(facts(p), state=p.state) for p in survivors[:100]],
            "spared": [facts(p) for p in spared[:100]]}


def end_tree(tree: Tree, grace_s: float = 2.0) -> tuple[list[Proc], list[Proc]]:
    """TERM, a short grace, KILL. Gives (survivors, found)."""
    found = tree.look()
    for p in found:
        send(p, signal.SIGTERM)
        send(p, signal.SIGCONT)
    left = found
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = tree.look()
    deadline = time.monotonic() + 5.0
    while left and time.monotonic() < deadline:
        kill_all(tree)
        time.sleep(0.05)
        left = tree.look()
    return left, found


# ---------------------------------------------------------------------------------------------------------------------
# Observing

def observe(root: str, run_id: str) -> dict:
    """What can be seen of a run now. Read-only. Takes up to STILL_BEAT_S for a run of another PID namespace or node."""
    seen = glance(root, run_id)
    while seen["phase"] == "unseen" and in_doubt(Attempt(os.path.join(root, "runs", run_id), seen["attempt"])):
        time.sleep(0.1)
        seen = glance(root, run_id)
    return seen


def glance(root: str, run_id: str) -> dict:
    """What can be seen of a run at once. Files that cannot be used are named in `broken`."""
    run_dir = os.path.join(root, "runs", run_id)
    seen = {"id": run_id, "attempt": None, "phase": "absent", "attempts": [], "started_at": None, "heartbeat_at": None,
            "heartbeat_age_s": None, "used_s": 0.0, "limits_seq": None, "waits_for_input": False, "out_bytes": 0, "err_bytes": 0,
            "telemetry": None, "exit": None,
            "keep": None, "run_pid": None, "broken": {}, "stalled": None}
    if not valid_id(run_id) or not os.path.isdir(run_dir) or os.path.islink(run_dir):
        return seen
    numbers = attempt_numbers(run_dir)
    seen.update(phase="staged", attempts=numbers, keep=read_json(os.path.join(run_dir, KEEP_WISH)), broken=flaws(run_dir, numbers))
    if not numbers:
        return seen
    att = Attempt(run_dir, numbers[-1])
    record, ended, beat = att.json(AGENT) or {}, att.json(EXIT), att.json(HEARTBEAT) or {}
    seen.update(attempt=att.n, started_at=record.get("started_at"), exit=ended, run_pid=(record.get("run") or {}).get("pid"),
                heartbeat_at=beat.get("at"), limits_seq=beat.get("limits_seq"), out_bytes=size_of(att.path(OUT)),
                err_bytes=size_of(att.path(ERR)),
                telemetry=last_sample(att.path(TELEMETRY)))
    seen["used_s"] = round(number((ended or beat).get("used_s")) + sum(used_by(att.sibling(n)) for n in numbers[:-1]), 3)
    if beat:
        here = same_kernel(record.get("machine"), machine_identity())
        seen["heartbeat_age_s"] = round(time.monotonic() - number(beat.get("mono")) if here else time.time() - number(beat.get("at")), 3)
    elif ended is None and same_kernel(record.get("machine"), machine_identity()) and record.get("started_mono"):
        seen["heartbeat_age_s"] = round(time.monotonic() - number(record["started_mono"]), 3)  # frozen before its first
    seen["phase"] = phase_of(att, record, ended, beat)
    seen["stalled"] = beat.get("stalled") if seen["phase"] == "running" else None
    seen["waits_for_input"] = bool(beat.get("waits_for_input")) and seen["phase"] == "running"
    return seen


def flaws(run_dir: str, attempts: list[int]) -> dict[str, str]:
    """Name of each file of a run that cannot be used -> why."""
    places = [(run_dir, (SPEC, LIMITS, KEEP_WISH))]
    places += [(os.path.join(run_dir, ATTEMPTS, str(n)), (AGENT, HEARTBEAT, STATUS, STOP, EXIT)) for n in attempts[-1:]]
    found = {os.path.relpath(path, run_dir): flaw(path) for folder, names in places for path in (os.path.join(folder, n) for n in names)}
    return {name: why for name, why in found.items() if why}


def phase_of(att: Attempt, record: dict, ended: dict | None, beat: dict) -> str:
    """Where an attempt is, read from its folder alone."""
    if ended is not None and not ended.get("restart"):
        return "ended"
    state = caretakers(att, record, beat)
    if ended is not None:
        return {"alive": "waiting", "dead": "abandoned"}.get(state, state)
    if state != "alive":
        if record or folder_age(att) >= CLAIM_S:
            told = "abandoned" if state == "dead" else state
            return "ended" if att.json(EXIT) else told  # it may have ended while we looked
        return "claimed"
    if beat.get("phase") == "stopping" or att.json(STOP) is not None:
        return "stopping"
    return "running" if record.get("run") or not record else "claimed"


def is_fresh(att: Attempt, beat: dict) -> bool:
    """Was the heartbeat written just now? It tells of living caretakers where agent.json was spoilt; they write that anew."""
    return os.path.lexists(att.path(AGENT)) and 0 <= time.monotonic() - number(beat.get("mono"), -FRESH_S) < FRESH_S


def valid_id(run_id: str) -> bool:
    return bool(run_id) and "/" not in run_id and "\0" not in run_id and not run_id.startswith(".")


def run_ids(root: str) -> list[str]:
    try:
        return sorted(e.name for e in os.scandir(os.path.join(root, "runs")) if valid_id(e.name) and e.is_dir())
    except OSError:
        return []


def say(body: dict) -> None:
    """One JSON line on stdout, at once."""
    write_all(1, (json.dumps(body, ensure_ascii=True) + "\n").encode())


# ---------------------------------------------------------------------------------------------------------------------
# Looking: what is asked about a run folder, all in one answer. The same functions serve who stands beside the folder.

def is_environment(entries: list[os.DirEntry]) -> bool:
    """True when these are the entries of a virtual or conda environment."""
    return any(e.name in ("pyvenv.cfg", "conda-meta") for e in entries)


class Listing:
    """The files under a folder without junk and without the folder `left_out`: path -> stat, the near ones first. `bulk`: folders with more
    than `in_folder` files, listed in part. `cut`: why it is not whole, "" if it is."""

    def __init__(self, folder: str, left_out: str, in_folder: int) -> None:
        self.files: dict[str, os.stat_result] = {}
        self.bulk: list[str] = []
        self.cut = ""
        self._folder, self._in_folder = folder, in_folder
        self._left_out = os.path.relpath(os.path.realpath(left_out), os.path.realpath(folder))
        self._queue = [""]

    def walk(self, deadline: float, most: int) -> Listing:
        """Itself, filled until the deadline, or until it has so many files. The folder itself is listed on the slowest machine."""
        for base in self._queue:
            if base and (time.monotonic() > deadline or len(self.files) >= most):
                self.cut = "only %d files were listed" % len(self.files)
                break
            try:
                with os.scandir(os.path.join(self._folder, base)) as opened:
                    entries = list(opened)
            except OSError:
                continue
            if not (base and is_environment(entries)):
                self._list(base, entries)
        return self

    def _list(self, base: str, entries: list[os.DirEntry]) -> None:
        count = 0
        for entry in entries:
            if entry.name in JUNK or entry.name.endswith(".pyc"):
                continue
            path = os.path.join(base, entry.name)
            try:
                if entry.is_dir(follow_symlinks=False):
                    if path != self._left_out:
                        self._queue.append(path)
                    continue
                count += 1
                if count > self._in_folder:
                    self.bulk.append(base)
                    return
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode):
                self.files[path] = info


def spelled(path: str) -> str:
    """A file name as JSON can hold it; bytes that are no UTF-8 become escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Change:
    """A file that is new, or not as the record of the code has it: `before` is its line in that record, None for a new file."""

    def __init__(self, path: str, info: os.stat_result, before: dict | None) -> None:
        self.path, self.info, self.before = path, info, before

    @property
    def kind(self) -> str:
        """"new" or "changed"."""
        return "new" if self.before is None else "changed"


def changes(listing: Listing, manifest: str, since: float, until: float | None) -> list[Change]:
    """The files of a walk that differ from the record in `manifest`, the newest first.

    since: Unix time of the start, which decides for files that the record does not cover. until: Unix time of the end; what was
    written later is somebody else's.
    """
    try:
        body = load_json(manifest, MANIFEST_KINDS, MANIFEST_MAX)
    except (OSError, ValueError):
        body = {}
    known = {f.get("path"): f for f in body.get("files") or () if f}
    complete, bulk = bool(body.get("complete")), frozenset(body.get("bulk") or ())
    found = []
    for path, info in listing.files.items():
        name = spelled(path)
        if name.endswith(UNDO) or (until is not None and info.st_mtime > until + LATE_S):
            continue
        before = known.get(name)
        if before is not None:
            if (before.get("size"), before.get("mtime_ns")) != (info.st_size, info.st_mtime_ns):
                found.append(Change(path, info, before))
        elif (complete and os.path.dirname(path) not in bulk) or max(info.st_ctime, info.st_mtime) >= since - 1:
            found.append(Change(path, info, None))
    return sorted(found, key=lambda each: -each.info.st_mtime_ns)


def changed_files(folder: str, manifest: str, left_out: str, *, since: float, until: float | None, limit: int) -> list[dict]:
    """`changes` of a folder: {"path", "size", "kind": "new"|"changed", "mtime", "mtime_ns"}, at most `limit`. A folder too large to be
    walked in a second is told of as far as it was seen."""
    listing = Listing(folder, left_out, CHANGED_MAX).walk(time.monotonic() + CHANGED_S, CHANGED_MAX)
    return [{"path": spelled(each.path), "size": each.info.st_size, "kind": each.kind, "mtime": each.info.st_mtime,
             "mtime_ns": each.info.st_mtime_ns}
            for each in changes(listing, manifest, since, until)[:limit]]


def written_paths(run_dirs: list[str]) -> set[str]:
    """The files that the processes of these runs were seen to open for writing, without symbolic links, spelled as `changed_files` does."""
    folders: dict[str, str] = {}
    found = set()
    for run_dir in run_dirs:
        for number in attempt_numbers(run_dir):
            attempt = os.path.join(run_dir, ATTEMPTS, str(number))
            for place in (attempt, os.path.join(attempt, HOOKS)):
                for line in read_tail(os.path.join(place, WRITTEN), WRITTEN_READ).splitlines():
                    try:
                        path = parse_json(line, {"path": str}).get("path") or ""
                    except Broken:
                        continue
                    folder, name = os.path.split(path)
                    if folder not in folders:
                        folders[folder] = os.path.realpath(folder)
                    path = os.path.join(folders[folder], name)
                    found.add(spelled(os.path.realpath(path) if os.path.islink(path) else path))
    return found


def folder_cost(folder: str, deadline: float) -> tuple[int, int] | None:
    """Bytes on disk and inodes of what is in a folder; links are counted, not followed. None when it took until the deadline."""
    size = inodes = 0
    waiting = [folder]
    while waiting:
        if time.monotonic() > deadline:
            return None
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    size += info.st_blocks * 512
                    inodes += 1
                    if stat.S_ISDIR(info.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue
    return size, inodes + (1 if inodes else 0)


def edited_files(run_dir: str) -> tuple[list[str], int]:
    """The files of the script's that are not what they were at the newest image any more, and the step of that image: with them, an
    attempt would begin anew. None where there is no image that could be lost."""
    from hashlib import blake2b
    try:
        state = load_json(os.path.join(run_dir, RESUME, RESUME_STATE), {"state": str, "image": {"n": int, "step": int}})
        image = state.get("image") or {}
        if state.get("state") != "resumable" or not image:
            return [], 0
        told = load_json(os.path.join(run_dir, RESUME, IMAGES, str(image.get("n")), MANIFEST), {"code": {"*": str}}, MANIFEST_MAX)
    except (OSError, ValueError):
        return [], 0
    edited = []
    for path, digest in (told.get("code") or {}).items():
        try:
            now = blake2b(read_regular(path, SCRIPT_MAX), digest_size=16).hexdigest()
        except (OSError, ValueError):
            now = ""
        if now != digest:
            edited.append(path)
    return edited, image.get("step") or 0


def pack(data: bytes) -> str:
    """Bytes in a line of JSON."""
    import base64
    import zlib
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def look_read(run_dir: str, name: str, limit: int) -> dict:
    """A whole file of at most `limit` bytes."""
    try:
        return {"data": pack(read_regular(os.path.join(run_dir, name), limit))}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, Broken) as e:
        return {"broken": getattr(e, "strerror", None) or str(e)}


def look_tail(run_dir: str, name: str, limit: int) -> dict:
    """The last bytes of a file."""
    return {"data": pack(read_tail(os.path.join(run_dir, name), limit))}


def look_has(run_dir: str, name: str) -> dict:
    """Whether there is such a file."""
    return {"has": os.path.isfile(os.path.join(run_dir, name))}


def look_env(run_dir: str) -> dict:
    """The names of the run's variables. Their values never leave the folder."""
    try:
        pairs = read_regular(os.path.join(run_dir, ENV), ENV_MAX).split(b"\0")
    except (OSError, Broken):
        return {}
    return {"names": sorted(item.split(b"=", 1)[0].decode("utf-8", "surrogateescape") for item in pairs if b"=" in item)}


def look_cost(run_dir: str) -> dict:
    """Bytes and inodes of the run folder; nothing where counting takes too long."""
    cost = folder_cost(run_dir, time.monotonic() + COST_S)
    return {} if cost is None else {"bytes": cost[0], "inodes": cost[1]}


def look_changed(run_dir: str, folder: str, since: float, until: float | None, limit: int) -> dict:
    """`changed_files` of the run's copy, or of another folder; `top` is where they are, without links."""
    work = folder or os.path.join(run_dir, WORK)
    root = os.path.dirname(os.path.dirname(run_dir))
    if not os.path.isdir(work):
        return {"top": work, "files": []}
    found = changed_files(work, os.path.join(run_dir, CODE, MANIFEST), root, since=since, until=until, limit=limit)
    return {"top": os.path.realpath(work), "files": found}


def look_made(run_dir: str, since: float, until: float | None) -> dict:
    """All files of the run's copy that it made or changed, packed, each with what was sent in its place. `cut`: why these are not all."""
    work, root = os.path.join(run_dir, WORK), os.path.dirname(os.path.dirname(run_dir))
    listing = Listing(work, root, MADE_MAX).walk(time.monotonic() + MADE_S, MADE_MAX)
    made = [{"path": each.path, "size": each.info.st_size, "mtime_ns": each.info.st_mtime_ns, "kind": each.kind, "sent": each.before}
            for each in changes(listing, os.path.join(run_dir, CODE, MANIFEST), since, until)]
    return {"data": pack(json.dumps(made).encode()), "cut": listing.cut}


def look_written(run_dir: str, ids: list[str]) -> dict:
    """What the processes of these runs wrote."""
    runs = os.path.dirname(run_dir)
    return {"paths": sorted(written_paths([os.path.join(runs, each) for each in ids if valid_id(each)]))}


def look_edited(run_dir: str) -> dict:
    """The script's files that were edited after the last image, and the step of that."""
    paths, step = edited_files(run_dir)
    return {"paths": paths, "step": step}


QUESTIONS = {"read": look_read, "tail": look_tail, "has": look_has, "env": look_env, "cost": look_cost, "changed": look_changed,
             "made": look_made, "written": look_written, "edited": look_edited}


# ---------------------------------------------------------------------------------------------------------------------
# Following logs

class Changes:
    """Wakes when something in a folder changes: by inotify where there is one, else by looking often."""

    def __init__(self, folder: str) -> None:
        self.fd = -1
        try:
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if fd >= 0 and libc.inotify_add_watch(fd, encode(folder), 0x2 | 0x80 | 0x100) >= 0:  # modify, moved to, create
                self.fd = fd
        except Exception:
            pass
        self.timeout_s = 0.5 if self.fd >= 0 else 0.03

    def clear(self) -> None:
        if self.fd >= 0:
            try:
                while os.read(self.fd, 65536):
                    pass
            except OSError:
                pass


class Log:
    """One log file, read from an offset on."""

    def __init__(self, path: str, offset: int) -> None:
        self.path = path
        self.fd = -1
        size = size_of(path)
        self.offset = max(0, size + offset) if offset < 0 else min(offset, size)

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes from where the last call ended; empty when there is nothing new."""
        if self.fd < 0:
            try:
                self.fd = open_regular(self.path)
            except (OSError, Broken):
                return b""
        data = os.pread(self.fd, limit, self.offset)
        if not data and os.fstat(self.fd).st_size < self.offset:  # somebody cut it: what is in it now is new
            self.offset = 0
            data = os.pread(self.fd, limit, 0)
        self.offset += len(data)
        return data


class Following:
    """Is the attempt over? Asks cheaply: for exit.json each time, for the caretakers each 2 seconds."""

    def __init__(self, att: Attempt) -> None:
        self.att = att
        self.next_look = 0.0
        self.missing = 0

    def over(self) -> bool:
        """Has the attempt ended, or is nobody left who could say so? Looks at the processes each 2 s."""
        if os.path.exists(self.att.path(EXIT)):
            return True
        now = time.monotonic()
        if now >= self.next_look:
            self.next_look = now + 2.0
            record = self.att.json(AGENT)
            dead = caretakers(self.att, record, {}) == "dead" if record else folder_age(self.att) >= CLAIM_S
            self.missing = self.missing + 1 if dead else 0
        return self.missing >= 2


def existing_attempt(run_dir: str, n: str) -> Attempt:
    """The attempt of that number. Raises Problem when it was never claimed."""
    att = Attempt(run_dir, whole_number(n))
    try:
        os.close(att.open_folder(ATTEMPTS, str(att.n)))
    except OSError:
        raise Problem("absent", "%s has no attempt %d" % (att.id, att.n)) from None
    return att


class Attachment:
    """The framed stream of one attempt: logs to stdout, frames from stdin to the holder's door."""

    def __init__(self, att: Attempt, out: int, err: int, takes_input: bool) -> None:
        self.att = att
        self.logs = [(b"o", Log(att.path(OUT), out)), (b"r", Log(att.path(ERR), err))]
        self.changes = Changes(att.folder)
        self.following = Following(att)
        self.waiting = bytearray()  # for stdout
        self.typed = bytearray()  # for the door, whole frames or the beginning of one
        self.input_open = takes_input
        self.door = open_door(att) if takes_input else None
        self.ending = False

    def frame(self, kind: bytes, payload: bytes) -> None:
        self.waiting += struct.pack(">cI", kind, len(payload)) + payload

    def live(self) -> None:
        """Until the exit frame is sent, or nobody listens any more."""
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        tty = bool((read_json(os.path.join(self.att.run_dir, SPEC)) or {}).get("tty"))
        offsets = [log.offset for _, log in self.logs]
        self.frame(b"m", json.dumps({"attempt": self.att.n, "tty": tty, "out": offsets[0], "err": offsets[1]}).encode())
        while True:
            over = self.following.over()
            more = self._collect()
            if over and not more and not self.ending:
                self.ending = True
                ended = self.att.json(EXIT)
                if ended is not None:
                    self.frame(b"x", json.dumps(ended).encode())
            if not self._write():
                return
            if self.ending and not self.waiting:
                return
            if not (more and len(self.waiting) < 262144):
                self._wait()
            self._read()

    def _collect(self) -> bool:
        """Take from the logs what stdout can use; True when there may be more."""
        more = False
        for kind, log in self.logs:
            if len(self.waiting) >= 262144:
                return True
            data = log.read(65536)
            if data:
                self.frame(kind, data)
                more = True
        return more

    def _write(self) -> bool:
        """False when nobody listens any more."""
        while self.waiting:
            try:
                del self.waiting[:os.write(1, memoryview(self.waiting)[:65536].tobytes())]
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(1, select.POLLOUT if self.waiting else 0)  # an error there means: the reader has gone
        if self.input_open and len(self.typed) < FEED_MAX:
            poller.register(0, select.POLLIN)
        if self.typed and self.door is not None:
            poller.register(self.door.fileno(), select.POLLOUT)
        if self.changes.fd >= 0 and not self.waiting:
            poller.register(self.changes.fd, select.POLLIN)
        for fd, events in poller.poll(self.changes.timeout_s * 1000):
            if fd == 1 and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                os._exit(0)
        self.changes.clear()

    def _read(self) -> None:
        if self.input_open and len(self.typed) < FEED_MAX:
            try:
                data = os.read(0, 65536)
                self.input_open = bool(data)  # end of our stdin is not end of the run's input: that is the frame "e"
                self.typed += data
            except BlockingIOError:
                pass
            except OSError:
                self.input_open = False
        if not self.typed:
            return
        if self.door is None:
            self.door = open_door(self.att)
            if self.door is None:
                if self.following.att.json(STATUS) or self.ending:
                    self.typed.clear()
                return
        try:
            del self.typed[:self.door.send(bytes(self.typed[:65536]))]
        except BlockingIOError:
            pass
        except OSError:
            self.door.close()
            self.door = None
            self.typed.clear()


def open_door(att: Attempt) -> socket.socket | None:
    """A connection to the holder; None when there is none (yet, or any more)."""
    try:
        return knock(att)
    except OSError:
        return None


def door_state(att: Attempt) -> str:
    """"open" while a process listens at the holder's socket, "closed" when none does, "missing" without a socket, else "unknown"."""
    try:
        knock(att).close()
    except (BlockingIOError, InterruptedError):
        return "open"  # it listens, and has no time
    except ConnectionRefusedError:
        return "closed"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unknown"
    return "open"


def knock(att: Attempt) -> socket.socket:
    """A connection to the holder. Raises OSError."""
    folder = os.open(att.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.setblocking(False)
    try:
        door.connect("/proc/self/fd/%d/%s" % (folder, SOCKET))
        return door
    except OSError:
        door.close()
        raise
    finally:
        os.close(folder)


def wake(att: Attempt) -> None:
    """Have the caretakers look at the folder now. Without it they look within two seconds."""
    door = open_door(att)
    if door is not None:
        try:
            door.send(struct.pack(">cI", b"n", 0))
        except OSError:
            pass
        door.close()


# ---------------------------------------------------------------------------------------------------------------------
# Verbs

def verb_start(args: list[str]) -> None:
    """start RUN_DIR N [--gpus UUID,UUID] [--lease UUID,UUID] [--again]"""
    (run_dir, n), options = arguments(args, 2, {"--gpus": 1, "--lease": 1, "--again": 0})
    att = Attempt(run_dir, whole_number(n))
    if read_json(os.path.join(att.run_dir, SPEC)) is None:
        raise Problem("no_spec", "%s has no readable %s" % (att.run_dir, SPEC))
    numbers = attempt_numbers(run_dir)
    if att.n not in numbers and numbers:
        last = att.sibling(numbers[-1])
        if att.n < last.n:
            raise Problem("state", "attempt %d exists already" % last.n)
        phase = observe(att.root, att.id)["phase"]
        if phase not in ("ended", "waiting") and not last.json(EXIT):
            raise Problem("state", "attempt %d is %s" % (last.n, phase))
    if not os.path.isdir(att.folder):
        take_leases(att, [u for u in options.get("--gpus", [""])[0].split(",") if u], needed=True)
        take_leases(att, [u for u in options.get("--lease", [""])[0].split(",") if u], needed=False)
    if not claim(att):
        say({"claimed": False, "attempt": att.n})
        return
    crash_point("claimed")
    if "--again" in options:
        note_restart(att)
    said = launch(att, options.get("--gpus", [""])[0], 10.0)
    if said.startswith("no holder"):
        settle(att, "start_failed", said[len("no holder: "):])
    say({"claimed": True, "attempt": att.n})


def note_restart(att: Attempt) -> None:
    """The attempt before is restarted automatically, by somebody who does it in the place of its dead caretakers: it counts."""
    before = att.sibling(att.n - 1)
    ended = before.json(EXIT)
    if ended is not None:
        try:
            write_json(before.path(EXIT), dict(ended, restart={"attempt": att.n, "at": time.time()}))
        except OSError:
            pass


def verb_hold(args: list[str]) -> None:
    """_hold RUN_DIR N READY_FD UMASK GPUS SOURCE: what `start` detaches."""
    global _source
    run_dir, n, tell, mask, gpus, _source = args
    name_process("stoker-holder")
    lower_oom_score()
    _leases[:] = [int(fd) for fd in os.environ.pop("STOKER_LEASES", "").split(",") if fd]
    for fd in (int(tell), *_leases):
        os.set_inheritable(fd, False)
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGTSTP, signal.SIGTTIN,
                signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXFSZ):
        signal.signal(sig, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    att = Attempt(run_dir, int(n))
    att.hold()
    Holder(att, gpus, int(tell), int(mask)).live()


def verb_poll(args: list[str]) -> None:
    """poll ROOT [ID...]"""
    if not args:
        raise Problem("usage", verb_poll.__doc__ or "")
    root = os.path.abspath(args[0])
    looks = [glance(root, run_id) for run_id in args[1:] or run_ids(root)]
    for look in looks:  # the times that `observe` waits began above: for all of them together it waits as long as for one
        seen = observe(root, look["id"]) if look["phase"] == "unseen" else look
        if seen["phase"] == "absent" and not os.path.isdir(os.path.join(root, "runs")):
            raise Problem("away", "the folder %s does not exist" % root)  # a disk that is not mounted: its runs are not lost
        say(seen)


def verb_look(args: list[str]) -> None:
    """look ROOT, with {ID: [[QUESTION, ARGUMENT...], ...], ...} on stdin; QUESTION is a name in QUESTIONS"""
    (root,), _ = arguments(args, 1, {})
    root = os.path.abspath(root)
    try:
        asked = parse_json(sys.stdin.buffer.read(), {"*": [list]})
        for run_id, questions in asked.items():
            run_dir = os.path.join(root, "runs", run_id)
            seen = observe(root, run_id)
            there = [] if seen["phase"] == "absent" else [QUESTIONS[what](run_dir, *words) for what, *words in questions]
            say({"id": run_id, "seen": seen, "answers": there})
    except (ValueError, KeyError, TypeError) as e:
        raise Problem("usage", "%s (%r)" % (verb_look.__doc__, e)) from None


def verb_watch(args: list[str]) -> None:
    """watch ROOT"""
    (root,), _ = arguments(args, 1, {})
    root = os.path.abspath(root)
    folder = os.path.join(root, "watch")
    try:
        os.mkdir(folder, 0o700)  # never the root itself: it may lie on a disk that is away
    except FileExistsError:
        pass
    name = "%d.sock" % os.getpid()
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.setblocking(False)
    unlink(os.path.join(folder, name))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    ear.bind("/proc/self/fd/%d/%s" % (fd, name))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        watch_loop(root, ear)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        unlink(os.path.join(folder, name))


def watch_loop(root: str, ear: socket.socket) -> None:
    """All live runs at once and each 10 s, the others when they change. Runs that have ended cost one stat each round."""
    live: set[str] = set()
    ended: dict[str, tuple | None] = {}  # id -> stamp of its attempts folder when it had ended
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(1, 0)
    poller.register(ear.fileno(), select.POLLIN)
    next_round = 0.0

    def tell(run_id: str, always: bool) -> None:
        stamp = stamp_of(os.path.join(root, "runs", run_id, ATTEMPTS))
        seen = glance(root, run_id)
        over = seen["phase"] in ("ended", "absent", "staged")
        if always or not over or run_id in live:
            say(seen)
        if over:
            live.discard(run_id)
            ended[run_id] = stamp
        else:
            live.add(run_id)
            ended.pop(run_id, None)

    while True:
        now = time.monotonic()
        if now >= next_round:
            next_round = now + 10.0
            present = set(run_ids(root))
            for run_id in sorted(present | live):
                if run_id not in ended or ended[run_id] != stamp_of(os.path.join(root, "runs", run_id, ATTEMPTS)):
                    tell(run_id, False)
            for run_id in set(ended) - present:
                del ended[run_id]
        changed: list[str] = []
        for ready, events in poller.poll(max(0, int((next_round - time.monotonic()) * 1000) + 1)):
            if ready == 0 and not os.read(0, 65536):
                return
            if ready == 1 and events & (select.POLLERR | select.POLLHUP):
                return
            if ready == ear.fileno():
                changed += heard(ear)
        for run_id in dict.fromkeys(changed):
            if valid_id(run_id):
                tell(run_id, True)


def heard(ear: socket.socket) -> list[str]:
    """The ids of the runs that were told of since the last look."""
    ids = []
    while True:
        try:
            ids.append(ear.recv(4096).decode("utf-8", "surrogateescape"))
        except OSError:
            return ids


def verb_stop(args: list[str]) -> None:
    """stop RUN_DIR [--attempt N] [--grace INT_S TERM_S] [--reason R] [--gone]"""
    (run_dir,), options = arguments(args, 1, {"--attempt": 1, "--grace": 2, "--reason": 1, "--gone": 0})
    if "--attempt" in options:
        forestall(Attempt(run_dir, whole_number(options["--attempt"][0])), options.get("--reason", ["stopped_by_user"])[0])
    att = newest_attempt(run_dir)
    if att is None:
        say({"attempt": None, "phase": "staged" if os.path.isdir(run_dir) else "absent"})
        return
    while True:
        wish_end(att, options)
        newest = newest_attempt(run_dir)
        if newest is None or newest.n == att.n:
            break
        att = newest  # begun by an automatic restart while we wrote: it is the one that is meant
    say({"attempt": att.n, "phase": observe(att.root, att.id)["phase"]})


def forestall(att: Attempt, reason: str) -> None:
    """End an attempt that has not begun: it is claimed and settled here, so that a start which is still on its way comes too late."""
    if read_json(os.path.join(att.run_dir, SPEC)) is None or os.path.isdir(att.folder):
        return
    if observe(att.root, att.id)["phase"] in ("staged", "ended") and max(attempt_numbers(att.run_dir), default=0) < att.n and claim(att):
        settle(att, reason)


def wish_end(att: Attempt, options: dict[str, list[str]]) -> None:
    """Write the wish to end this attempt and wake its caretakers; settle it when they are dead, or `--gone` with their machine.

    The reason `agent_lost` only settles: what lives by now, or cannot be seen from here, is left alone."""
    phase = observe(att.root, att.id)["phase"]
    reason = options.get("--reason", ["stopped_by_user"])[0]
    gone = "--gone" in options and phase == "unseen"
    if phase == "ended" or (reason == "agent_lost" and phase != "abandoned" and not gone):
        return
    spec = read_json(os.path.join(att.run_dir, SPEC)) or {}
    grace = [seconds(g) for g in options.get("--grace", [])] or list(spec.get("grace_s") or (10.0, 10.0))
    wish = {"reason": reason, "grace_s": grace, "at": time.time()}
    try:
        write_json(att.path(STOP), wish, sync=True, spare=att.path(STOP_SPARE), pad=256)
    except OSError as e:
        if phase != "abandoned":
            raise Problem("disk_full" if e.errno in FULL else "cannot_write", "the stop wish cannot be written: %s" % e.strerror) from e
    if phase == "abandoned":
        settle(att)
        return
    wake(att)
    if gone and not obeyed(att):
        settle(att, reason)
    elif grace == [0.0, 0.0] and not obeyed(att):
        end_without_caretakers(att, reason)


def obeyed(att: Attempt) -> bool:
    """Within FORCE_S after a wish: has the attempt ended, has a restart begun another, or are its caretakers at work on it?"""
    before = att.json(HEARTBEAT) or {}
    deadline = time.monotonic() + FORCE_S
    while time.monotonic() < deadline:
        if phase_of(att, att.json(AGENT) or {}, att.json(EXIT), {}) == "ended" or max(attempt_numbers(att.run_dir)) != att.n:
            return True
        time.sleep(0.05)
    beat = att.json(HEARTBEAT) or {}
    return beat.get("mono") != before.get("mono") and beat.get("phase") in ("stopping", "waiting")


def is_caretaker(att: Attempt, known: object) -> bool:
    """Is it the holder or the agent proper of this run? A run may write into its own records whatever it wants."""
    if not lives(known):
        return False
    words = read_bytes("/proc/%d/cmdline" % known["pid"]).split(b"\0")
    return b"_hold" in words and any(word.endswith(b"/" + encode(att.id)) for word in words)


def end_without_caretakers(att: Attempt, reason: str) -> None:
    """They stand still, or are stuck: the tree is ended while the holder, which keeps its orphans, is stopped; then both caretakers."""
    record = att.json(AGENT) or {}
    if not same_place(record.get("machine"), machine_identity()):
        return
    holder, agent = (known if is_caretaker(att, known) else None for known in (record.get("holder"), record.get("agent")))
    if holder:
        os.kill(holder["pid"], signal.SIGSTOP)  # or it would start another agent
    if agent:
        os.kill(agent["pid"], signal.SIGKILL)
    end_tree(Tree(att, holder, (agent or {}).get("pid", 0), record.get("run")), grace_s=0.0)
    if lives(holder):
        os.kill(holder["pid"], signal.SIGKILL)
    settle(att, "" if att.json(STATUS) else reason)


def verb_attach(args: list[str]) -> None:
    """attach RUN_DIR N [--out OFF] [--err OFF] [--no-input]"""
    (run_dir, n), options = arguments(args, 2, {"--out": 1, "--err": 1, "--no-input": 0})
    offsets = [whole_number(options.get(o, ["0"])[0]) for o in ("--out", "--err")]
    Attachment(existing_attempt(run_dir, n), offsets[0], offsets[1], "--no-input" not in options).live()


def verb_read(args: list[str]) -> None:
    """read RUN_DIR N out|err|both OFFSET [--limit BYTES] [--follow] [--tail LINES] [--from OUT ERR]"""
    (run_dir, n, which, offset), options = arguments(args, 4, {"--limit": 1, "--follow": 0, "--tail": 1, "--from": 2})
    if which not in ("out", "err", "both"):
        raise Problem("usage", verb_read.__doc__ or "")
    att = existing_attempt(run_dir, n)
    if which == "both":
        begins = [whole_number(each) for each in options.get("--from", ("0", "0"))]
        tail = whole_number(options["--tail"][0]) if "--tail" in options else None
        read_both(att, begins, whole_number(offset), tail, "--follow" in options)
        return
    log = Log(att.path(OUT if which == "out" else ERR), whole_number(offset))
    left = whole_number(options["--limit"][0]) if "--limit" in options else -1
    follow = "--follow" in options
    changes = Changes(att.folder) if follow else None
    following = Following(att)
    while left:
        over = not follow or following.over()
        data = log.read(min(65536, left) if left > 0 else 65536)
        if data:
            write_all(1, data)
            left -= len(data) if left > 0 else 0
        elif over or changes is None or wait_for(changes):
            return


def read_both(att: Attempt, begins: list[int], skip: int, tail: int | None, follow: bool) -> None:
    """Standard output and error of an attempt as one text: without its first `skip` bytes, or from `tail` lines before its end on."""
    changes = Changes(att.folder) if follow else None
    following = Following(att)
    text = Both(att, begins)
    if tail is not None:
        over = not follow or following.over()
        text, lines = last_of_both(att, tail, over)
        write_all(1, b"".join(lines))
    while True:
        over = not follow or following.over()
        written = False
        for piece in text.pieces(over):
            rest, skip = piece[skip:], max(0, skip - len(piece))
            write_all(1, rest)
            written = True
        if over or (not written and (changes is None or wait_for(changes))):
            return


def last_of_both(att: Attempt, lines: int, over: bool) -> tuple[Both, list[bytes]]:
    """The last lines of both logs as one text, and what reads on from there. Looks back 1 MiB at first, 64 MiB at most."""
    from collections import deque
    back = max(1 << 20, lines * 4096)
    while True:
        begins = [max(0, size_of(att.path(name)) - back) for name in (OUT, ERR)]
        text = Both(att, begins)
        found = deque((), lines)
        for piece in text.pieces(over):
            found.extend(split_lines(piece))
        if len(found) == lines or not any(begins) or back >= 1 << 26:
            return text, list(found)
        back *= 8


def split_lines(text: bytes) -> list[bytes]:
    """The lines of a text, each with its newline; nothing else ends a line."""
    parts = text.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


class Both:
    """Standard output and error of an attempt as one text, in whole lines, in the order in which they were read from the run."""

    def __init__(self, att: Attempt, begins: list[int]) -> None:
        self.att, self.at = att, list(begins)
        self.fds, self.rest = [-1, -1], [b"", b""]
        self.now = self.turns = 0  # whose bytes come next, and how many changes were followed

    def pieces(self, over: bool) -> Iterator[bytes]:
        """What has come since the last call. `over`: nothing comes after it, so a line without an end is a line."""
        sizes = [size_of(self.att.path(name)) for name in (OUT, ERR)]  # before the changes: those up to there are written by now
        try:
            changes = read_bytes(self.att.path(TURNS))[8 * self.turns:]
        except OSError:
            changes = b""
        for (word,) in struct.iter_unpack("<Q", changes[:len(changes) // 8 * 8]):
            which, end = word % 2, word // 2
            if end > sizes[which] and not over:
                return
            yield from self._lines(which, min(end, sizes[which]))
            self.now, self.turns = 1 - which, self.turns + 1
        for which in (self.now, 1 - self.now) if over else (self.now,):
            yield from self._lines(which, sizes[which])
        if over:
            rests = [self.rest[self.now], self.rest[1 - self.now]]
            yield b"\n".join(filter(None, rests))
            self.rest = [b"", b""]

    def _lines(self, which: int, end: int) -> Iterator[bytes]:
        """The whole lines of one log before `end`; what is left of the last one is kept."""
        if self.fds[which] < 0:
            try:
                self.fds[which] = os.open(self.att.path((OUT, ERR)[which]), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
        while self.at[which] < end:
            data = os.pread(self.fds[which], min(PIECE, end - self.at[which]), self.at[which])
            if not data:
                return
            self.at[which] += len(data)
            text = self.rest[which] + data
            whole = len(text) if len(text) > LINE_MAX else text.rfind(b"\n") + 1
            self.rest[which] = text[whole:]
            if whole:
                yield text[:whole]


def wait_for(changes: Changes) -> bool:
    """Until something changes; True when nobody reads our stdout any more."""
    poller = select.poll()
    poller.register(1, 0)
    if changes.fd >= 0:
        poller.register(changes.fd, select.POLLIN)
    gone = any(fd == 1 for fd, _ in poller.poll(changes.timeout_s * 1000))
    changes.clear()
    return gone


def verb_send(args: list[str]) -> None:
    """send RUN_DIR, with [[PATH, OFFSET], ...] as a line on stdin: the files of its copy, each as a frame h, frames d, a frame e"""
    (run_dir,), _ = arguments(args, 1, {})
    try:
        wanted = [(str(path), int(offset)) for path, offset in json.loads(sys.stdin.buffer.readline().decode())]
    except (ValueError, TypeError):
        raise Problem("usage", verb_send.__doc__ or "") from None
    for path, offset in wanted:
        try:
            send_file(run_dir, path, offset)
        except BrokenPipeError:
            raise
        except OSError as e:
            send_frame(b"e", {"error": e.strerror or str(e)})


def send_file(run_dir: str, path: str, offset: int) -> None:
    """One file from `offset` on; the checksum at its end is of the whole. `whole` is false where it was written to meanwhile."""
    from hashlib import sha256
    *folders, name = path.split("/")
    if not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise OSError(errno.EINVAL, "not a path in the copy")
    parent = open_folder(run_dir, WORK, *folders)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    with open(fd, "rb") as f:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        digest, left, skip = sha256(), before.st_size, offset if 0 <= offset <= before.st_size else 0
        send_frame(b"h", {"path": path, "size": left, "offset": skip, "mode": stat.S_IMODE(before.st_mode),
                          "mtime_ns": before.st_mtime_ns})
        while left > 0:
            data = f.read(min(PIECE, skip or left))
            if not data:
                break
            digest.update(data)
            left -= len(data)
            if skip:
                skip -= len(data)
            else:
                write_all(1, struct.pack(">cI", b"d", len(data)) + data)
        after = os.fstat(fd)
        same = (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        send_frame(b"e", {"sha256": digest.hexdigest(), "whole": same and not left})


def send_frame(kind: bytes, body: dict) -> None:
    """One frame to whoever asked: kind, length, JSON."""
    payload = json.dumps(body).encode("ascii")
    write_all(1, struct.pack(">cI", kind, len(payload)) + payload)


def verb_probe(args: list[str]) -> None:
    """probe [PATH]"""
    path = os.path.abspath(args[0]) if args else os.path.expanduser("~")
    at = path
    while at != "/" and not os.path.exists(at):
        at = os.path.dirname(at)
    disk, shm = space(at), space("/dev/shm")
    memory, free = memory_bytes()
    cpus = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    say({"identity": machine_identity(), "cpus": min(cpus, quota) if quota else cpus, "cpus_total": os.cpu_count(), "memory_bytes": memory,
         "memory_free_bytes": free, "gpus": Gpus(None).facts(), "path": path, "disk_bytes": disk[0], "disk_free_bytes": disk[1],
         "inodes": disk[2],
         "inodes_free": disk[3], "shm_bytes": shm[0], "shm_free_bytes": shm[1],
         "python": {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable}, "user": user_name(),
         "home": os.path.expanduser("~"), "torch": torch_version(), "at": time.time(),
         "kernel": os.uname().release})


def torch_version() -> str:
    """Of the torch that is installed beside this Python; "" without one. Nothing is imported."""
    import sysconfig
    for place in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        try:
            names = sorted(os.listdir(place or ""))
        except OSError:
            continue
        for name in names:
            if name.startswith("torch-") and name.endswith(".dist-info"):
                return name[len("torch-"):-len(".dist-info")]
    return ""


def space(path: str) -> tuple:
    """(bytes, bytes free to us, inodes, inodes free) of the file system there; None for what it does not say."""
    try:
        s = os.statvfs(path)
    except OSError:
        return (None, None, None, None)
    return (s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize, s.f_files or None, s.f_favail if s.f_files else None)


def memory_bytes() -> tuple[int | None, int | None]:
    """(total, available), cut down to what our cgroup allows."""
    facts = {}
    try:
        for line in read_bytes("/proc/meminfo").decode().splitlines():
            name, _, rest = line.partition(":")
            facts[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    total, free = facts.get("MemTotal"), facts.get("MemAvailable")
    files = [(f, "memory.max", "memory.current") for f in cgroup_folders("")]
    files += [(f, "memory.limit_in_bytes", "memory.usage_in_bytes") for f in cgroup_folders("memory")]
    for folder, limit_name, used_name in files:
        limit, used = first_number(folder, limit_name), first_number(folder, used_name)
        if limit is not None and total is not None and limit < total:
            total = limit
            free = min(free or 0, max(0, limit - (used or 0)))
    return total, free


def cpu_quota() -> float | None:
    """CPUs that the cgroup allows; None = no quota."""
    best = None
    for folder in cgroup_folders(""):
        try:
            quota, period = read_bytes(folder + "/cpu.max").split()
            if quota != b"max":
                best = min(best or 1e9, int(quota) / int(period))
        except (OSError, ValueError):
            pass
    for folder in cgroup_folders("cpu"):
        quota, period = first_number(folder, "cpu.cfs_quota_us"), first_number(folder, "cpu.cfs_period_us")
        if quota and period and quota > 0:
            best = min(best or 1e9, quota / period)
    return round(best, 2) if best else None


def first_number(folder: str, name: str) -> int | None:
    try:
        return int(read_bytes(os.path.join(folder, name)).split()[0])
    except (OSError, ValueError, IndexError):
        return None


def user_name() -> str:
    try:
        import pwd
        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())


def verb_rm(args: list[str]) -> None:
    """rm RUN_DIR"""
    (run_dir,), _ = arguments(args, 1, {})
    run_dir = os.path.abspath(run_dir)
    root, run_id = os.path.dirname(os.path.dirname(run_dir)), os.path.basename(run_dir)
    if os.path.basename(os.path.dirname(run_dir)) != "runs" or not valid_id(run_id):
        raise Problem("not_a_run", "%s is not a run folder: its parent folder is not named runs" % run_dir)
    phase = observe(root, run_id)["phase"]
    if phase not in ("absent", "staged", "ended"):
        raise Problem("state", "%s is %s" % (run_id, phase))
    newest = newest_attempt(run_dir)
    record = (newest.json(AGENT) if newest else None) or {}
    runs_on = same_place(record.get("machine"), machine_identity()) and lives(record.get("run"))
    if phase != "ended" or runs_on:  # it may have spoilt its folder
        end_tree(Tree(Attempt(run_dir, 0), None, 0, None))
    if newest:
        mind_files(newest)
    try:
        runs = open_folder(root, "runs")
    except FileNotFoundError:
        say({"removed": False})
        return
    there = run_id in os.listdir(runs)
    if there:
        aside = ".rm-%s-%d" % (run_id, os.getpid())
        remove_at(runs, aside)
        os.rename(run_id, aside, src_dir_fd=runs, dst_dir_fd=runs)  # at once absent for all who look
    for name in os.listdir(runs):
        if name.rpartition("-")[0] == ".rm-" + run_id:  # ours, or of one that was killed in the middle
            remove_at(runs, name)
    os.close(runs)
    say({"removed": there})


VERBS = {"start": verb_start, "poll": verb_poll, "look": verb_look, "watch": verb_watch, "stop": verb_stop, "attach": verb_attach,
         "read": verb_read, "send": verb_send, "probe": verb_probe, "rm": verb_rm, "_hold": verb_hold}


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


def main(argv: list[str]) -> int:
    """Run one verb; the exit code."""
    if len(argv) < 2 or argv[1] not in VERBS:
        problem = Problem("usage", "agent.py %s ..." % "|".join(v for v in VERBS if not v.startswith("_")))
    else:
        try:
            VERBS[argv[1]](argv[2:])
            return 0
        except Problem as e:
            problem = e
        except BrokenPipeError:
            return 0
        except OSError as e:
            problem = Problem("system", str(e))
    line = json.dumps({"error": problem.error, "detail": problem.detail}) + "\n"
    try:
        os.write(2 if len(argv) > 1 and argv[1] in ("attach", "read", "send") else 1, line.encode())
    except OSError:
        pass
    return 2 if problem.error == "usage" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))

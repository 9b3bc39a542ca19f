"""Files of run folders, read: regular ones only, a bounded number of bytes,
fields of the kinds that a table names."""

from __future__ import annotations

import json
import os
import re
import stat

from .words import (
    AGENT, AUDITS, DEEP, EXIT, HEARTBEAT, HOOKS, JSON_MAX, KEEP_WISH, LIMITS, NUMBER_MAX, ORDER, PROCESSES,
    SPEC, STATUS, STOP, TIME_MAX, VERDICT, WHOLE_MAX,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempts import Attempt


def read_bytes(path: str, limit: int = -1) -> bytes:
    with open(path, "rb") as f:
        return f.read(limit)


class Broken(ValueError):
    """A file of a run folder is not what it should be: says why."""


def open_regular(path: str) -> int:
    """A descriptor to read a regular file. Never waits.
    Raises OSError, and Broken for a pipe, a device, a socket or a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Broken("not a regular file")
    os.set_blocking(fd, True)
    return fd


def read_regular(path: str, limit: int) -> bytes:
    """What a regular file holds. Raises OSError,
    and Broken where it is none or holds more than `limit` bytes."""
    with open(open_regular(path), "rb") as f:
        data = f.read(limit + 1)
    if len(data) > limit:
        raise Broken("larger than %d bytes" % limit)
    return data


def load_json(path: str, kinds: object = None, limit: int = JSON_MAX) -> dict:
    """The JSON object in a file of a run folder, whose fields are of these kinds (see `misfit`;
    without them those that FILES has for its name). Raises OSError, and Broken for anything else."""
    return parse_json(
        read_regular(path, limit), FILES.get(os.path.basename(path), dict) if kinds is None else kinds
    )


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


def misfit(value: Any, kind: Any) -> str | None:
    """Where in `value` something is not of its kind, as "run.pid"; None where all is well.
    Null is of each kind.

    Kinds: a type (float stands for all numbers); TIME; {name:
    kind} of the known fields of an object, "*" for all others; [kind] of the members of a list.
    """
    if value is None:
        return None
    if kind == TIME:
        return (
            None
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < TIME_MAX
            else ""
        )
    if isinstance(kind, (dict, list)) and not isinstance(value, type(kind)):
        return ""
    members: list[tuple[str, Any, Any]]
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
SAMPLE = {
    "at": TIME,
    "t": float,
    "cpu_percent": float,
    "rss_bytes": float,
    "processes": int,
    "disk_free_bytes": float,
    "inodes_free": float,
    "out_bytes": int,
    "err_bytes": int,
    "gpus": [{"uuid": str, "index": int, "busy_percent": float, "memory_bytes": float}],
}
MANIFEST_KINDS = {
    "complete": bool,
    "bulk": [str],
    "files": [{"path": str, "size": int, "mtime_ns": int, "sha256": str}],
}
# what the files that others than their writer read must hold: name -> kinds of the fields that are looked at
FILES = {
    SPEC: {
        "id": str,
        "name": str,
        "command": [str],
        "argv": [str],
        "folder": str,
        "copy": bool,
        "stdin": str,
        "tty": bool,
        "home": str,
        "resume": str,
        "audit": bool,
        "hooks": bool,
        "settings": dict,
        "inherit": dict,
        "grace_s": [float],
        "restarts": int,
        "retry_reasons": [str],
        "backoff_s": float,
        "unbuffered": bool,
        "split_stderr": bool,
        "machine_env": bool,
    },
    LIMITS: {"seq": int, "time_s": float},
    KEEP_WISH: {"at": TIME, "seq": int, "time_s": float},
    AGENT: {
        "attempt": int,
        "machine": dict,
        "holder": PROCESS,
        "agent": PROCESS,
        "run": PROCESS,
        "started_at": TIME,
        "started_mono": float,
        "tty": bool,
        "argv": [str],
        "cwd": str,
        "log_before": {"cgroup_oom_kill": int, "vmstat_oom_kill": int},
    },
    HEARTBEAT: {
        "at": TIME,
        "mono": float,
        "phase": str,
        "used_s": float,
        "limits_seq": int,
        "waits_for_input": bool,
        "out_bytes": int,
        "err_bytes": int,
        "ladder": str,
    },
    STATUS: {"status": int, "ended_mono": float, "ended_at": TIME, "used_s": float, "start_failed": str},
    STOP: {"reason": str, "grace_s": [float], "at": TIME},
    EXIT: {
        "attempt": int,
        "code": int,
        "signal": int,
        "signal_name": str,
        "reason": str,
        "started_at": TIME,
        "ended_at": TIME,
        "used_s": float,
        "out_bytes": int,
        "err_bytes": int,
        "gaps": [dict],
        "restart": {"attempt": int, "at": TIME, "mono": float},
        "leftovers": {
            "found": [{"pid": int, "name": str}],
            "survivors": [{"pid": int, "name": str, "state": str}],
            "spared": [{"pid": int, "name": str}],
        },
        "evidence": {
            "exception": {"type": str, "message": str, "file": str, "line": int, "rank": int},
            "hint_text": str,
            "code": int,
            "signal_name": str,
        },
    },
    ORDER: {
        "pid": int,
        "attempt": int,
        "image": int,
        "step": int,
        "from_step": int,
        "limit_s": float,
        "cwd": str,
    },
    VERDICT: {"verdict": str, "why": str},
    AUDITS: {
        "audits": [
            {
                "verdict": str,
                "why": str,
                "attempt": int,
                "image": int,
                "step": int,
                "from_step": int,
                "at": TIME,
                "spare_core": bool,
            }
        ]
    },
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


def read_or_empty(path: str) -> bytes:
    try:
        return read_bytes(path)
    except OSError:
        return b""


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


def first_number(folder: str, name: str) -> int | None:
    try:
        return int(read_bytes(os.path.join(folder, name)).split()[0])
    except (OSError, ValueError, IndexError):
        return None

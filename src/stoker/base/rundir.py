"""The run folder: one module that names every file in it, and writes them whole or not at all.

The agent keeps its own copy of these names (it imports nothing of ours); tests/house compares the two.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

SPEC = "spec.json"
LIMITS = "limits.json"
ENV = "env"
STDIN = "stdin"
WORK = "work"
OUTPUTS = "outputs"  # on the user's machine: what came home and could not be put into the user's folder
PULLED, PARTIAL = "pulled.jsonl", "partial"  # there too: what has come home, and files on their way
CHECKPOINTS = "checkpoints"
ATTEMPTS = "attempts"
MANIFEST = "manifest.json"  # in CODE: the files that there were when the run began
COMMIT = "commit.json"  # in CODE
DIFF = "diff.patch"  # in CODE, bytes
COPY_LIST = "copy.list"  # in code/, until the frozen copy is on the disk here; it is not sent
CODE = "code"  # manifest.json, commit.json, diff.patch: what the code was when the run began
# a link to the hooks that this run began with; in an attempt's folder what hooked processes say of themselves
HOOKS = "hooks"
RESUME = "resume"  # what exact resume keeps over all attempts: log, images, state.json
AUDIT = "audit"  # in the folder of RESUME: rooms of audits that are at work
AUDITS = "audits.json"  # in the folder of RESUME: what came of the audits
ORDER = "order.json"  # in an audit's room: what is to be audited
VERDICT = "verdict.json"  # in an audit's room: what came of it
SETTINGS = "settings.json"  # what `stoker tune` had found when the run was made, for the hooks
KEEP_WISH = "keep.json"  # a `keep` typed on the machine
OWNED = "owner.json"  # the id of the state folder that it belongs to, on a machine that several use
INDEX = "index"  # what the server read of large files of numbers, derived: may be deleted at any time
HOME_MARK = "home.json"  # that its files have come home, of which attempt

AGENT = "agent.json"
HEARTBEAT = "heartbeat"
OUT = "out.log"
ERR = "err.log"
TURNS = "turns"  # the order in which bytes came into the two logs
METRICS = "metrics.jsonl"
STEPS = "steps.jsonl"
# that the run makes no step, since when, and the line in which each rank and worker waits
STILL = "still.json"
TELEMETRY = "telemetry.jsonl"
EVENTS = "events.jsonl"
EXIT = "exit.json"
STOP = "stop.json"  # a wish: end this attempt
# paths that were opened for writing, as the agent has seen; in HOOKS: as the processes tell
WRITTEN = "written.jsonl"
ENGINE = "engine.json"  # what a script's Engine says of itself: grade, reasons, checkpoint folder, step
STATUS = "status.json"  # the raw wait status, written by the holder before anything else happens
SOCKET = "sock"  # the holder's door: input, window size, signals

# a path in the run folder
PICTURE = re.compile(rf"{ATTEMPTS}/[0-9]{{1,9}}/{HOOKS}/pictures/[A-Za-z0-9][A-Za-z0-9.\-]*", re.ASCII)


@dataclass(frozen=True)
class RunDir:
    """The paths of one run. `attempt(n)` gives the folder of attempt n, counted from 1."""

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / SPEC

    @property
    def limits(self) -> Path:
        return self.path / LIMITS

    @property
    def env(self) -> Path:
        return self.path / ENV

    @property
    def work(self) -> Path:
        return self.path / WORK

    @property
    def code(self) -> Path:
        return self.path / CODE

    def attempt(self, n: int) -> Path:
        return self.path / ATTEMPTS / str(n)

    def attempts(self) -> list[int]:
        """Numbers of the attempts that were claimed, in order."""
        # here: every command imports this module, few read run folders
        from stoker.agent.attempts import attempt_numbers

        return attempt_numbers(os.fspath(self.path))


def write_whole(path: Path | str, data: bytes, mode: int = 0o644) -> None:
    """Write to a temporary file, fsync, rename: a reader sees the old or the new content, never a part.
    Raises OSError."""
    path = os.fspath(path)
    temp = f"{path}.tmp-{os.getpid()}"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temp, path)
    except BaseException:
        try:
            os.unlink(temp)
        except OSError:
            pass
        raise


def write_json(path: Path | str, body: object, mode: int = 0o644) -> None:
    """Write a JSON document with `write_whole`."""
    write_whole(path, (json.dumps(body, ensure_ascii=True) + "\n").encode(), mode)


def read_json(path: Path | str) -> dict | None:
    """Read a JSON object from a file; None if it is missing, incomplete or invalid."""
    from stoker.base import reading  # here, since every command imports this module and few read run folders

    return reading.read_json(path)


def code_hashes(folder: Path) -> dict[tuple[str, int, int], str]:
    """What the record of the code in a run folder says of its files: (path, size, mtime_ns) -> sha256.
    A name that stands for two files (see `reading.spelled`) is left out."""
    found: dict[tuple[str, int, int], str] = {}
    twice = set()
    for each in (read_json(folder / CODE / MANIFEST) or {}).get("files") or ():
        if each and each.get("sha256"):
            key = (each["path"], each["size"], each["mtime_ns"])
            if found.setdefault(key, each["sha256"]) != each["sha256"]:
                twice.add(key)
    return {key: sha256 for key, sha256 in found.items() if key not in twice}


def pack_env(env: dict[str, str]) -> bytes:
    """Encode an environment as the bytes of the `env` file: KEY=VALUE, each ended by NUL."""
    return b"".join(os.fsencode(k) + b"=" + os.fsencode(v) + b"\0" for k, v in env.items())


def unpack_env(data: bytes) -> dict[str, str]:
    """Decode the bytes that `pack_env` returned."""
    pairs = (item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)
    return {os.fsdecode(k): os.fsdecode(v) for k, v in pairs}

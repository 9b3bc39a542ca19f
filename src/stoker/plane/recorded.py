"""What was recorded of a run beside its numbers:
its use of the machine over time, its code, its pictures. Read wherever the run is."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stoker.base import rundir
from stoker.base.errors import InvalidSpec, NotFound, StokerError
from stoker.plane.logs import Log
from stoker.plane.present import begun
from stoker.plane.record import Run
from stoker.plane.run_folder import RunFolder, whole
from stoker.plane.targets import Target

ATTEMPTS = 20  # the newest ones
POINTS = 600  # over all attempts
DIFF_MAX = 6 << 20  # bytes
PICTURE_MAX = 20 << 20  # as the hooks keep
KINDS = ("usage", "code")


def recorded(run: Run, target: Target, kind: str) -> dict:
    """`kind` "usage": `{"attempts": [{"attempt", "points"}]}`, see `thinned`. "code": `{"code":
    commit.json or None, "diff": str}`.
    Raises InvalidSpec for another kind."""
    if kind not in KINDS:
        raise InvalidSpec(f"There is no record of the kind '{kind[:40]}'.", hint=f"Use {' or '.join(KINDS)}.")
    return usage(run, target) if kind == "usage" else code(run, target)


def usage(run: Run, target: Target) -> dict:
    """CPU, memory and GPUs of each attempt; no points if nothing was recorded or the machine does not
    answer."""
    attempts = range(max(1, begun(run) - ATTEMPTS + 1), begun(run) + 1)
    each = POINTS // max(1, len(attempts))
    return {
        "attempts": [
            {"attempt": n, "points": thinned(list(logs.telemetry()), each)}
            for n, logs in ((n, Log(target.reader(run.id, n), run.id, n, "out")) for n in attempts)
        ]
    }


def thinned(records: Sequence[dict], count: int) -> list[dict]:
    """At most `count` points `{"at", "cpu_percent", "rss_bytes", "gpus": {index: {"busy_percent",
    "memory_bytes"}}}` of telemetry records. Neighbouring records are joined: the mean of percentages, the
    maximum of bytes."""
    size = max(1, math.ceil(len(records) / max(1, count)))
    return [_point(records[begin:begin + size]) for begin in range(0, len(records), size)]


def _point(records: Sequence[dict]) -> dict:
    gpus: dict[str, list[dict]] = {}
    for record in records:
        for gpu in record.get("gpus") or ():
            gpus.setdefault(str(gpu.get("index")), []).append(gpu)
    return {
        "at": records[-1].get("at"),
        "cpu_percent": _mean(records, "cpu_percent"),
        "rss_bytes": _largest(records, "rss_bytes"),
        "gpus": {
            index: {
                "busy_percent": _mean(found, "busy_percent"),
                "memory_bytes": _largest(found, "memory_bytes"),
            }
            for index, found in gpus.items()
        },
    }


def _mean(records: Sequence[dict], name: str) -> float | None:
    found = [value for record in records if (value := record.get(name)) is not None]
    return round(sum(found) / len(found), 2) if found else None


def _largest(records: Sequence[dict], name: str) -> float | None:
    return max((value for record in records if (value := record.get(name)) is not None), default=None)


def code(run: Run, target: Target) -> dict:
    """The recorded commit and changes of the run; bytes of the diff that are not UTF-8 are replaced."""
    commit = f"{rundir.CODE}/{rundir.COMMIT}"
    reader = target.code_reader(run.id)
    told = RunFolder.look(reader, run.id, [whole(commit)], None).json(commit)
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
        copy = Path(folder) / rundir.DIFF
        try:
            reader.fetch(run.id, f"{rundir.CODE}/{rundir.DIFF}", copy, DIFF_MAX)
            diff = copy.read_bytes().decode("utf-8", "replace")
        except (StokerError, OSError):
            diff = ""
    return {"code": told, "diff": diff}


def picture(run: Run, target: Target, path: str) -> bytes:
    """One captured picture, by its path in the run folder.
    Raises NotFound, also for a path where no pictures are kept;
    TargetError for one that is too large, or where its machine does not answer."""
    if not rundir.PICTURE.fullmatch(path):
        raise NotFound(f"{run.name} has no picture '{path[:200]}'.", hint=f"stoker show {run.name}")
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
        copy = Path(folder) / "picture"
        try:
            target.reader(run.id, int(path.split("/")[1])).fetch(run.id, path, copy, PICTURE_MAX)
            return copy.read_bytes()
        except OSError as e:
            raise NotFound(f"{path} of {run.name} cannot be read: {e.strerror}.") from e

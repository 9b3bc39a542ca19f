"""What the store says of the files of runs on other machines:
whether they are owed to the user's folder, and what has come. Pure.

It is a row of `meta` for each run, written with the end of the run.
So an older Stoker opens the same database.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Sequence

from stoker.base.units import format_size, iso
from stoker.plane.record import Run

PREFIX = "home/"
NAMED = 20  # files that are listed of those that did not come
SHOWN = 5  # of them in a sentence


def key(run_id: str) -> str:
    """Key of a run's row in `meta`."""
    return f"{PREFIX}{run_id}"


def read(text: str | None) -> dict:
    """Decode a row; {} for none."""
    return json.loads(text) if text else {}


def owed(run: Run) -> str | None:
    """The row of a run that has just ended; None if no files must be copied."""
    return json.dumps({"owed": True, "why": ""}) if run.spec.pull or run.spec.pull_limit_bytes else None


def on_its_way(body: dict | None) -> bool:
    """True if `outputs` of a run object says that files are still being copied."""
    return (body or {}).get("state") in ("coming", "late")


def coming(text: str | None) -> bool:
    """True if the files of an ended run are still being copied, and no try has failed."""
    row = read(text)
    return bool(row.get("owed")) and not row.get("why")


def late(before: dict, why: str) -> dict:
    """The row after a failed try."""
    return {**before, "owed": True, "why": why}


def to_bring(
    files: Sequence[dict], patterns: Sequence[str], limit_bytes: int
) -> tuple[list[dict], list[dict]]:
    """Split files into those to copy at the end and those to leave: all files that match the patterns,
    then the smallest others up to a total size."""
    named: list[dict] = []
    rest: list[dict] = []
    for file in files:
        (named if any(is_meant(file["path"], each) for each in patterns) else rest).append(file)
    left: list[dict] = []
    total = 0
    for file in sorted(rest, key=lambda each: (each["size"], each["path"])):
        total += file["size"]
        (named if total <= limit_bytes else left).append(file)
    return named, left


def settled(
    files: Iterable[tuple[dict, str]], left: Sequence[dict], failed: dict[str, str], cut: str, at: float
) -> dict:
    """The row after all automatic copies. `files`: each with its `Ground.place`. `failed`: path -> why it
    was not copied."""
    by: dict[str, list[dict]] = {"here": [], "outputs": [], "there": []}
    for file, place in files:
        by[place].append(file)
    here, lost = by["here"], [each for each in by["there"] if each["path"] in failed]
    return {
        "owed": False,
        "at": at,
        "files": len(here),
        "bytes": _bytes(here),
        "kept": _listed(by["outputs"]),
        "left": _listed([each for each in left if each in by["there"]]),
        "failed": {**_listed(lost), "why": failed[lost[0]["path"]] if lost else ""},
        "cut": cut,
    }


def nothing_missing(row: dict) -> bool:
    """True if all files of the run are on this machine, so that its machine may be switched off."""
    return not (row["left"]["count"] or row["failed"]["count"] or row["cut"] or row.get("log_left"))


def told(run: Run, row: dict, kept_in: str, typed: str) -> dict | None:
    """`outputs` of the run object; None if the run's files are not copied automatically, or if it has
    none.

    `{"state": "running", "coming", "late" (a try failed: `why`) or "settled", "folder", "files", "bytes",
    "kept_in", "why", "at", "kept", "left" and "failed": each {"count", "bytes", "paths"}, "lines":
    [sentence]}`.
    """
    if not owed(run) or not (row or not run.state.final):
        return None
    state = "running" if not run.state.final else "settled"
    if run.state.final and row.get("owed"):
        state = "late" if row.get("why") else "coming"
    body = {
        "state": state,
        "folder": run.spec.folder,
        "files": row.get("files", 0),
        "bytes": row.get("bytes", 0),
        "kept_in": kept_in,
        "why": row.get("why", ""),
        "at": iso(row["at"]) if row.get("at") else None,
        **{name: row.get(name) or _listed([]) for name in ("kept", "left", "failed")},
    }
    lines = [*_lines(run, body, row.get("cut", ""), typed), *_log_line(run, row.get("log_left", ""))]
    return {**body, "lines": lines}


def _lines(run: Run, body: dict, cut: str, typed: str) -> Iterable[str]:
    """What a person is told, a sentence each; first what went well."""
    if body["files"]:
        yield f"Stoker copied {_count(body['files'])} ({format_size(body['bytes'])}) to {body['folder']}."
    if body["state"] == "coming":
        yield f"Stoker is copying the run's files to {body['folder']}."
    if body["state"] == "late":
        yield f"The run's files have not been copied to this machine yet: {body['why']} Stoker tries again."
    if body["kept"]["count"]:
        yield (
            f"Stoker put {_count(body['kept']['count'])} into {body['kept_in']}, because your folder has "
            "files "
            "with the same name but different content: "
            f"{_names(body['kept'])}."
        )
    if body["left"]["count"]:
        limit = format_size(run.spec.pull_limit_bytes)
        yield (
            f"Stoker left {_count(body['left']['count'])} ({format_size(body['left']['bytes'])}) on "
            f"{run.target}, "
            f"because of the limit of {limit} (pull_limit in config.toml): {_names(body['left'])}. "
            f"To copy these files: stoker pull {typed}"
        )
    if body["failed"]["count"]:
        yield (
            f"{_count(body['failed']['count'])} could not be copied: {_names(body['failed'])} "
            f"({body['failed']['why']}). "
            f"To try again: stoker pull {typed}"
        )
    if cut:
        yield f"Stoker does not know all files of the run: {cut}."


def _log_line(run: Run, why: str) -> list[str]:
    return (
        [
            (
                f"The run's log stays on {run.target}, because the log is larger than the limit of "
                f"{format_size(run.spec.pull_limit_bytes)} (pull_limit in config.toml)."
            )
        ]
        if why
        else []
    )


def _listed(files: Sequence[dict]) -> dict:
    return {"count": len(files), "bytes": _bytes(files), "paths": [each["path"] for each in files[:NAMED]]}


def _bytes(files: Iterable[dict]) -> int:
    return sum(each["size"] for each in files)


def _count(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"


def _names(listed: dict) -> str:
    more = listed["count"] - len(listed["paths"][:SHOWN])
    return ", ".join(listed["paths"][:SHOWN]) + (f" and {more:,} more" if more else "")


def is_meant(path: str, pattern: str) -> bool:
    """True if a pattern matches this path: the path itself, a folder above it, or a shell pattern whose
    "*" also matches "/"."""
    return fnmatch.fnmatchcase(path, pattern) or path.startswith(f"{pattern}/") or pattern == "."

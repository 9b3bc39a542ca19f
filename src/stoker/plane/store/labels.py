"""Tags and a note of a run. They are rows of `meta`, so that an older Stoker opens the same database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from stoker.base.errors import InvalidSpec
from stoker.plane.store.queries import Queries

NOTE_MAX, TAGS_MAX = 2000, 50
_TAG = re.compile(r"[^\s,/\x00-\x1f\x7f]{1,40}")
NONE: dict = {"tags": [], "note": ""}


def of(q: Queries, ids: Sequence[str]) -> dict[str, dict]:
    """`{"tags": [...], "note": str}` of each of these runs that has tags or a note."""
    found = {}
    for key, text in q.metas([_key(run_id) for run_id in ids]).items():
        found[key.removeprefix(_key(""))] = json.loads(text)
    return found


def change(q: Queries, run_id: str, add: Iterable[str], remove: Iterable[str], note: str | None) -> None:
    """Add and remove tags; set the note if given ("" removes it). Raises InvalidSpec."""
    now = of(q, [run_id]).get(run_id, NONE)
    wrong = next((tag for tag in add if not _TAG.fullmatch(tag)), None)
    if wrong is not None:
        raise InvalidSpec(
            f"{wrong!r} is not a valid tag. A tag has at most 40 characters, and no spaces, commas or "
            "slashes.",
            hint="stoker tag NAME lr",
        )
    tags = [tag for tag in dict.fromkeys([*now["tags"], *add]) if tag not in set(remove)]
    if len(tags) > TAGS_MAX:
        raise InvalidSpec(f"A run has at most {TAGS_MAX} tags.", hint="stoker tag RUN --remove TAG")
    if note is not None and len(note) > NOTE_MAX:
        raise InvalidSpec(f"A note has at most {NOTE_MAX} characters, not {len(note)}.",
                          hint="Write the text to a file next to the script.")
    body = {"tags": tags, "note": now["note"] if note is None else note}
    q.set_meta(_key(run_id), None if body == NONE else json.dumps(body))


def _key(run_id: str) -> str:
    return f"label/{run_id}"

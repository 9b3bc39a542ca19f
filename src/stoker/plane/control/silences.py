"""Since when machines are silent, as rows of `meta`:
a machine that is silent still is so since then for the next server."""

from __future__ import annotations

from stoker.plane.reach import Reach
from stoker.plane.store.database import Store

PREFIX = "silent/"


def silent_before(store: Store) -> dict[str, float]:
    """Machines that did not answer the previous server -> since when (Unix seconds)."""
    with store.read() as q:
        return {key.removeprefix(PREFIX): float(since) for key, since in q.metas_under(PREFIX).items()}


def keep_silence(store: Store, name: str, reach: Reach) -> None:
    """Store whether this machine answers. Raises StokerError."""
    with store.write() as q:
        silence = reach.silence(name)
        q.set_meta(f"{PREFIX}{name}", repr(silence.since) if silence else None)

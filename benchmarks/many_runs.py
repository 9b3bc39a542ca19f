"""Thousands of runs that have ended, in seconds: rows of the store, copied from the row of a real run.

A copy has a folder only if asked: `folders=True` links the files of the real one.
The server may run meanwhile; it reads the rows as those of any other run.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.ground import Ground

APART_S = 0.001  # between the creation of two copies; all are older than the real run


@contextmanager
def _store(ground: Ground) -> Iterator[sqlite3.Connection]:
    """The database of a ground, in one transaction."""
    connection = sqlite3.connect(ground.home / "server" / "stoker.db", timeout=60)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def copies(
    ground: Ground, run_id: str, count: int, *, name: str = "old", newer: bool = False, folders: bool = False
) -> list[str]:
    """Add so many copies of a run that has ended, all older than any run (or newer):
    their ids, the oldest first."""
    ids = [f"{name}-{n:06}" for n in range(count)]
    if folders:
        for each in ids:
            shutil.copytree(ground.folder(run_id), ground.folder(each), symlinks=True, copy_function=os.link)
    with _store(ground) as store:
        columns = [row[1] for row in store.execute("pragma table_info(runs)")]
        row = dict(
            zip(columns, store.execute("select * from runs where id = ?", (run_id,)).fetchone(), strict=True)
        )
        oldest = store.execute("select min(created_at) from runs").fetchone()[0]
        begin = time.time() if newer else oldest - count * APART_S - 1
        rows = [
            {
                **row,
                "id": own,
                "name": own,
                "name_stem": name,
                "name_number": n + 1,
                "created_at": begin + n * APART_S,
            }
            for n, own in enumerate(ids)
        ]
        store.executemany(
            f"insert into runs ({', '.join(columns)}) values ({', '.join(f':{each}' for each in columns)})",
            rows,
        )
    return ids


def forget(ground: Ground, ids: list[str]) -> None:
    """Take the rows of copies out again."""
    with _store(ground) as store:
        store.executemany("delete from runs where id = ?", [(each,) for each in ids])


def older(ground: Ground, run_id: str) -> None:
    """Make a run the oldest of all."""
    with _store(ground) as store:
        store.execute(
            "update runs set created_at = (select min(created_at) from runs) - 1 where id = ?", (run_id,)
        )

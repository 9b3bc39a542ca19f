"""The store: opens the database (SQLite; portable to PostgreSQL), migrates it,
and hands out short transactions.

The queries are in queries.py, the tables in tables.py. Nothing here touches a machine or a run folder.

Only the setup of SQLAlchemy's engine may use SQL of SQLite's own. Opening checks the version by one query,
and imports alembic only for a migration. A damaged or foreign file is renamed, and the plane recovers the
runs (control/recovery.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from stoker.base import crash
from stoker.base.config import reserve_bytes
from stoker.base.errors import Denied, ServerError, StateError, StokerError
from stoker.base.units import format_size
from stoker.plane.store.queries import Queries
from stoker.plane.store.tables import SCHEMA, meta, metadata

BUSY_MS = 15_000
CHECK_MAX_BYTES = 64_000_000  # a larger database is not read through at each opening
FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h
KNOWN_SCHEMAS = ("0001", "0002")


class Store:
    """One database. `read()` and `write()` give named queries within one transaction; there is one writer
    at a time."""

    def __init__(
        self, engine: sa.Engine, place: str, fresh: bool = False, kept_aside: Path | None = None
    ) -> None:
        self.place = place
        self.fresh = fresh  # it was made just now: there may be runs to be found again
        self.kept_aside = kept_aside  # the damaged or foreign file that stood in its place
        # called after a commit that touched these runs
        self.on_change: Callable[[list[str]], None] = lambda ids: None
        self.on_gone: Callable[[], None] = lambda: None  # called when the file was deleted or replaced
        self._engine = engine
        self._writing = threading.Lock()
        self._file = os.stat(place)

    @contextlib.contextmanager
    def read(self) -> Iterator[Queries]:
        """Queries with one consistent state."""
        self._assure()
        with _plain_errors(self.place), self._engine.connect() as connection:
            yield Queries(connection)

    @contextlib.contextmanager
    def write(self) -> Iterator[Queries]:
        """Queries that are committed together when the block ends, or not at all. On disk when this
        returns."""
        self._assure()
        with _plain_errors(self.place), self._writing, _writer(self._engine) as connection:
            queries = Queries(connection)
            yield queries
        if queries.touched:
            self.on_change(list(dict.fromkeys(queries.touched)))

    def stands(self) -> bool:
        """False if the file was deleted or replaced, so that later writes are lost."""
        try:
            now = os.stat(self.place)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (self._file.st_dev, self._file.st_ino)

    def _assure(self) -> None:
        if not self.stands():
            self.on_gone()
            raise ServerError(
                (
                    f"The database {self.place} was deleted while the server was running. "
                    "Stoker rebuilds the database from the run folders."
                ),
                hint="Repeat the command.",
            )

    def close(self) -> None:
        """Close the connections. The last connection merges the WAL into the file."""
        self._engine.dispose()


def open_store(path: Path) -> Store:
    """Open the store in the file `path`: created if missing, migrated if old, renamed if damaged or not
    Stoker's.
    Raises StateError if a newer Stoker wrote it, Denied if it cannot be opened."""
    kind = _look(path)
    if kind == "newer":
        raise StateError(f"The database {path} was written by a newer Stoker.",
                         hint="Update Stoker, or choose another folder: export STOKER_HOME=...")
    aside = _keep_aside(path) if kind in ("corrupt", "foreign") else None
    fresh = kind != "0" and kind not in KNOWN_SCHEMAS
    engine = _sqlite_engine(path)
    if kind != SCHEMA:
        with _plain_errors(str(path)):
            _migrate(engine) if kind in KNOWN_SCHEMAS else _create(engine)
    os.chmod(path, 0o600)
    _keep_room(engine, path)
    return Store(engine, str(path), fresh=fresh, kept_aside=aside)


def _look(path: Path) -> str:
    """The schema of a database of ours; else "missing", "corrupt", "foreign" or "newer". Changes nothing."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "missing"
    except OSError as e:
        raise Denied(f"The database {path} cannot be opened ({e.strerror}).") from e
    if path.is_dir():
        return "foreign"
    if size == 0:
        return "missing"
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_MS / 1000)) as connection:
            tables = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            if not tables:
                return "missing"
            if not {"alembic_version", "runs", "meta"} <= tables:
                return "foreign"
            found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            if size <= CHECK_MAX_BYTES and connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                return "corrupt"
    except sqlite3.OperationalError as e:
        raise Denied(f"The database {path} cannot be opened ({e}).") from e
    except sqlite3.DatabaseError:
        return "corrupt"
    if found is None:
        return "foreign"
    return found[0] if found[0] in KNOWN_SCHEMAS else "newer"


def _keep_aside(path: Path) -> Path:
    aside = path.with_name(
        f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{time.time_ns() % 1000:03}"
    )
    for tail in ("-wal", "-shm", ""):  # the file itself last: until then the next opening sees the same
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{tail}", f"{aside}{tail}")
    return aside


def _sqlite_engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), pool_size=8, max_overflow=24,
                              connect_args={"check_same_thread": False, "timeout": BUSY_MS / 1000})

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, so that migrations are transactions too
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        # with NORMAL a power cut may undo a commit, and a wish with it
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("stoker_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _keep_room(engine: sa.Engine, path: Path) -> None:
    """Give the write-ahead log the blocks that it will use, so that a wish can be written when a run has
    filled the disk: the end of that run, above all.
    Where the file system cannot do that, or has little room, it is done without."""
    with contextlib.suppress(OSError, AttributeError, DBAPIError):
        reserved = reserve_bytes(path)
        if not reserved:
            return
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1 FROM sqlite_master")  # the log exists from the first look on
        fd = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
        try:
            libc, size = ctypes.CDLL(None), ctypes.c_int64
            libc.fallocate(ctypes.c_int(fd), ctypes.c_int(FALLOC_FL_KEEP_SIZE), size(0), size(reserved))
        finally:
            os.close(fd)


def _create(engine: sa.Engine) -> None:
    """Make the tables of a new database in one transaction, as the migrations would:
    without them, since their import takes 0.2 s."""
    with _writer(engine) as connection:
        metadata.create_all(connection, checkfirst=False)
        connection.execute(meta.insert().values(key="product", value="stoker"))
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
                                   "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))")
        connection.exec_driver_sql("INSERT INTO alembic_version (version_num) VALUES (?)", (SCHEMA,))
        crash.point("migrate.middle")


def _migrate(engine: sa.Engine) -> None:
    """Run the missing migrations in one transaction: a kill in the middle leaves the database as it was."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    with _writer(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, SCHEMA)


@contextlib.contextmanager
def _writer(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection in a transaction that takes the write lock at once,
    so that it cannot fail half-way for want of it."""
    with engine.connect() as plain:
        writer = plain.execution_options(stoker_write=True)
        with writer.begin():
            yield writer


@contextlib.contextmanager
def _plain_errors(place: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as e:
        raise _plain(place, str(e.orig)) from e


def _plain(place: str, text: str) -> StokerError:
    if "full" in text or "disk I/O error" in text:
        free = _free(place)
        return ServerError(f"The disk that holds {place} is full ({free}); nothing was changed.",
                           hint="Free some disk space (stoker gc deletes old runs), then repeat the command.")
    if "malformed" in text or "not a database" in text:
        return ServerError(
            f"The database {place} is damaged.",
            hint="stoker server stop   (the next command sets the database aside and recovers the runs)",
        )
    if "readonly" in text or "unable to open" in text:
        return Denied(f"The database {place} cannot be written ({text}).",
                      hint="Choose another folder: export STOKER_HOME=/some/local/folder")
    return ServerError(f"The database {place} failed ({text}).")


def _free(place: str) -> str:
    try:
        room = os.statvfs(os.path.dirname(place))
    except OSError:
        return "free space unknown"
    return f"{format_size(room.f_bavail * room.f_frsize)} and {room.f_favail} inodes free"

"""The store: migrations from empty and from the one before, damaged and foreign files, optimistic writes, a full disk."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from stoker.base.errors import Denied, ServerError, StateError
from stoker.base.spec import Limits, Spec
from stoker.base.state import State
from stoker.plane.record import WISH_RM, WISH_STOP, Run, command_key, folder_key
from stoker.plane.store.database import KNOWN_SCHEMAS, open_store
from stoker.plane.store.tables import SCHEMA, metadata


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path / "stoker.db")
    yield opened
    opened.close()


def a_run(run_id="tavo-miku", name=None, **more):
    spec = Spec(command=("python", "train.py"), id=run_id, folder="/tmp/\udcff", name=name or run_id)
    defaults = {"created_at": 1.0, "queued_at": 1.0, "folder_hash": folder_key("/p"), "command_hash": command_key(["x"])}
    return Run(id=run_id, name=name or run_id, spec=spec, **{**defaults, **more})


def test_a_run_comes_back_as_it_went_in(store):
    run = a_run(name="名前 '; --", gpu_uuids=("GPU-1",), limits=Limits(seq=4, time_s=1.5), evidence={"a": [1]}, warnings=("w",), stop_grace=(1.0, 2.0),
                pinned=True, in_place=True, started_at=5.25)
    with store.write() as q:
        q.insert(run)
    with store.read() as q:
        assert q.get("tavo-miku") == run == q.by_name("名前 '; --")
        assert q.by_prefix("tav") == [run] and q.by_prefix("x") == []
        assert [e["state"] for e in q.events_of("tavo-miku")] == ["pending"]


def test_the_slower_of_two_writers_learns_of_it(store):
    with store.write() as q:
        q.insert(a_run())
    with store.read() as q:
        one = q.get("tavo-miku")
    with store.write() as q:
        assert q.update(one, wish=WISH_STOP).version == 2
    with store.write() as q:
        assert q.update(one, state=State.RUNNING) is None
        assert q.get("tavo-miku").state is State.PENDING


def test_a_block_that_fails_leaves_nothing_and_tells_nobody(store):
    told = []
    store.on_change = told.append
    with pytest.raises(RuntimeError), store.write() as q:
        q.insert(a_run())
        raise RuntimeError
    with store.read() as q:
        assert q.get("tavo-miku") is None
    assert told == []
    with store.write() as q:
        q.insert(a_run())
    assert told == [["tavo-miku"]]


def test_writers_from_many_threads_take_turns(store):
    def add(k):
        for i in range(20):
            with store.write() as q:
                q.insert(a_run(f"id-{k}-{i}"))
    threads = [threading.Thread(target=add, args=(k,)) for k in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    with store.read() as q:
        assert q.counts() == {"pending": 120}


def test_the_queue_is_ordered_and_who_waits_for_another_is_not_in_it(store):
    with store.write() as q:
        for i, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 0), ("d", 9)]):
            q.insert(a_run(name, slots=1, priority=priority, queued_at=float(i)))
        q.insert(a_run("g", gpus=1))
        q.insert(a_run("n"))
        q.insert(a_run("s", slots=1, wish=WISH_STOP))
        q.add_waits("d", ["a", "a", "zz"])
        assert [r.id for r in q.next_for_slots("local", 10)] == ["b", "a", "c"]
        assert [r.id for r in q.next_for_slots("local", 2)] == ["b", "a"]
        assert [r.id for r in q.next_for_gpus("local", 9)] == ["g"] and [r.id for r in q.next_for_nothing("local", 9)] == ["n"]
        assert q.waits_of(["d", "a"]) == {"d": ["a", "zz"]}
        q.clear_waits("d")
        assert [r.id for r in q.next_for_slots("local", 1)] == ["d"]
        assert q.targets_with_queue() == ["local"] and q.next_for_slots("box", 9) == []


@pytest.mark.parametrize("end", [State.DONE, State.FAILED, State.STOPPED, None])
def test_an_end_frees_those_that_wait_for_it_and_only_a_good_one_those_that_need_it_good(store, end):
    with store.write() as q:
        q.insert(a_run("first"))
        for name, waits in (("well", {"after": ("first",)}), ("any", {"after_any": ("first",)})):
            run = a_run(name)
            q.insert(run.with_(spec=run.spec.with_(**waits)))
            q.add_waits(name, q.not_over(q.get(name).spec))
        assert q.waits_of(["well", "any"]) == {"well": ["first"], "any": ["first"]}
        if end is None:
            q.delete("first")
        else:
            q.update(q.get("first"), state=end)
        assert q.waits_of(["well", "any"]) == ({} if end is State.DONE else {"well": ["first"]})
        assert q.not_over(q.get("any").spec) == []


def test_lists(store):
    with store.write() as q:
        q.insert(a_run("old", state=State.DONE, created_at=1.0, ended_at=3.0))
        q.insert(a_run("bad", state=State.FAILED, created_at=2.0, ended_at=4.0, started_at=2.5, reason="killed"))
        q.insert(a_run("new", state=State.RUNNING, created_at=3.0, in_place=True, slots=1))
        q.insert(a_run("going", state=State.STOPPED, wish=WISH_RM, created_at=4.0))
        q.insert(a_run("far", state=State.RUNNING, created_at=0.5, target="box", folder_hash="other"))
        assert [r.id for r in q.listing(everything=True)] == ["new", "bad", "old", "far"]
        assert [r.id for r in q.listing(everything=False)] == ["new", "far"]
        assert [r.id for r in q.listing(everything=True, folder_hash=folder_key("/p"), limit=1)] == ["new"]
        assert [r.id for r in q.candidates(folder_key("/p"), command_key(["x"]))] == ["bad"]
        assert [r.id for r in q.neighbours(folder_key("/p"))] == ["new"]
        assert sorted(q.in_care()) == [("far", "box"), ("going", "local"), ("new", "local")]
        assert [r.id for r in q.holders("local")] == ["new"]
        assert [r.id for r in q.ended_before(3.5)] == ["old"]
        q.delete("old")
        assert q.all_ids() == {"bad", "new", "going", "far"} and q.events_of("old") == []


def test_picked_names_count_on(store):
    with store.write() as q:
        assert q.highest_number("train") == 0
        q.insert(a_run("a", name="train", name_stem="train", name_number=1))
        q.insert(a_run("b", name="train-9", name_stem="train", name_number=9))
        assert q.highest_number("train") == 9


# -- opening


def test_the_migrations_lead_to_the_tables(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    store = open_store(tmp_path / "stoker.db")
    with store._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    store.close()
    from pathlib import Path

    import stoker.plane.store.migrations as package
    script = ScriptDirectory(str(Path(package.__file__).parent))
    assert script.get_heads() == [SCHEMA]
    assert tuple(r.revision for r in script.walk_revisions())[::-1] == KNOWN_SCHEMAS


def at_schema(path, revision):
    """A database as an older version left it, with one run in it."""
    from alembic import command
    from alembic.config import Config

    from stoker.plane.store import database as module
    engine = module._sqlite_engine(path)
    config = Config()
    config.set_main_option("script_location", str(module.Path(module.__file__).with_name("migrations")))
    with module._writer(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    with module._writer(engine) as connection:
        module.Queries(connection).insert(a_run("kept-kept"))
    engine.dispose()


def test_from_the_one_before_nothing_is_lost(tmp_path):
    path = tmp_path / "stoker.db"
    at_schema(path, KNOWN_SCHEMAS[-2])
    store = open_store(path)
    with store.read() as q:
        assert q.get("kept-kept").name == "kept-kept" and q.waits_of(["kept-kept"]) == {}
    assert not store.fresh and store.kept_aside is None
    store.close()


def test_a_kill_in_the_middle_of_a_migration_is_survived(tmp_path):
    path = tmp_path / "stoker.db"
    program = "from pathlib import Path; import sys; from stoker.plane.store.database import open_store; open_store(Path(sys.argv[1])); print('open')"
    done = subprocess.run([sys.executable, "-c", program, str(path)], env={**os.environ, "STOKER_CRASH_AT": "migrate.middle"}, check=False)
    assert done.returncode == -9
    store = open_store(path)
    with store.write() as q:
        q.insert(a_run())
    store.close()
    path2 = tmp_path / "old.db"
    at_schema(path2, KNOWN_SCHEMAS[-2])
    done = subprocess.run([sys.executable, "-c", program, str(path2)], env={**os.environ, "STOKER_CRASH_AT": "migrate.middle"}, check=False)
    assert done.returncode == -9
    store = open_store(path2)
    with store.read() as q:
        assert q.get("kept-kept")
    store.close()


def schema_of(path):
    """What the file itself says about its tables, without the spaces."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        contents = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("meta", "alembic_version")]
    return sorted((kind, name, table, "".join((sql or "").split())) for kind, name, table, sql in rows), contents


def test_a_new_database_is_what_the_migrations_make(tmp_path):
    open_store(tmp_path / "new.db").close()
    at_schema(tmp_path / "old.db", SCHEMA)
    open_store(tmp_path / "old.db").close()
    assert schema_of(tmp_path / "new.db") == schema_of(tmp_path / "old.db")


def test_a_database_without_old_tables_needs_no_alembic(tmp_path):
    path = tmp_path / "stoker.db"
    program = "from pathlib import Path; import sys; from stoker.plane.store.database import open_store; open_store(Path(sys.argv[1])); print('alembic' in sys.modules)"
    for _ in ("new", "present"):
        assert subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True).stdout == "False\n"


def write_garbage(path):
    path.write_bytes(os.urandom(9000))


def write_torn(path):
    store = open_store(path)
    with store.write() as q:
        for i in range(200):
            q.insert(a_run(f"id-{i}"))
    store.close()
    body = bytearray(path.read_bytes())
    body[8192:16384] = os.urandom(8192)
    path.write_bytes(body)


def write_foreign(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (id)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("spoil", [write_garbage, write_torn, write_foreign])
def test_a_damaged_or_foreign_file_is_kept_aside(tmp_path, spoil):
    path = tmp_path / "stoker.db"
    spoil(path)
    before = path.read_bytes()
    store = open_store(path)
    assert store.fresh and store.kept_aside.name.startswith("stoker.db.corrupt-")
    assert store.kept_aside.read_bytes() == before
    with store.read() as q:
        assert q.counts() == {}
    store.close()


def test_a_newer_database_is_left_alone(tmp_path):
    path = tmp_path / "stoker.db"
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(StateError, match="newer Stoker"):
        open_store(path)
    assert list(tmp_path.glob("*corrupt*")) == []


def test_a_full_disk_is_said_and_nothing_is_changed(store):
    with store.write() as q:
        q.insert(a_run())
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    from sqlalchemy import event
    event.listens_for(store._engine, "checkout")(lambda c, *_: c.execute(f"PRAGMA max_page_count={pages}"))  # the same error as a full disk
    with pytest.raises(ServerError, match="is full"), store.write() as q:
        for i in range(200):
            q.insert(a_run(f"id-{i}"))
    with store.read() as q:
        assert q.counts() == {"pending": 1}


def test_a_folder_in_its_place_is_kept_aside_and_what_cannot_be_opened_is_denied(tmp_path):
    (tmp_path / "stoker.db").mkdir()
    store = open_store(tmp_path / "stoker.db")
    assert store.fresh and store.kept_aside.is_dir()
    store.close()
    (tmp_path / "file").write_text("x")
    with pytest.raises(Denied):
        open_store(tmp_path / "file" / "stoker.db")


def test_commits_are_on_disk_when_they_return(store):
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"

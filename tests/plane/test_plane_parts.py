"""The parts of the plane one by one: who waits is told, the spool is whole or absent, logs are cut at lines, folders become rows again."""

import errno
import json
import os
import threading
import time

import pytest

from stoker.base import rundir
from stoker.base.errors import ServerError
from stoker.base.spec import Limits, Spec
from stoker.base.state import State
from stoker.plane import names
from stoker.plane.control.recovery import recover
from stoker.plane.control.spool import Spool, fill, said_when_full
from stoker.plane.logs import Pieces, last_lines
from stoker.plane.notifier import Hub
from stoker.plane.store.database import open_store
from stoker.plane.targets import _used_by

# -- hub


def test_a_waiter_is_woken_by_its_run_and_by_nobody_else():
    hub, asked = Hub(), []

    def done():
        asked.append(1)
        return len(asked) > 1
    threading.Timer(0.05, hub.publish, (["other", "mine"],)).start()
    assert hub.wait_until("mine", done, 20, time.monotonic) is True and len(asked) == 2
    assert hub.wait_until("mine", lambda: False, 0.01, time.monotonic) is False
    assert hub._waiters == {}


def test_a_slow_subscriber_has_one_entry_for_each_run():
    hub = Hub()
    subscription = hub.subscribe()
    for _ in range(1000):
        hub.publish(["a", "b"])
    assert [next(subscription), next(subscription)] == ["a", "b"]
    threading.Timer(0.05, subscription.close).start()
    assert list(subscription) == [] and hub._subscribers == set()


def test_closing_sends_everybody_home():
    hub = Hub()
    subscription = hub.subscribe()
    threading.Timer(0.05, hub.close).start()
    assert hub.wait_until("mine", lambda: False, 20, time.monotonic) is False
    assert list(subscription) == []


# -- spool


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path)


def test_a_folder_appears_whole_or_not_at_all(spool, tmp_path):
    with pytest.raises(RuntimeError), spool.build("a-b") as folder:
        (folder / "x").write_text("x")
        raise RuntimeError
    assert os.listdir(tmp_path) == [] and not spool.has("a-b")
    with spool.build("a-b") as folder:
        assert not spool.has("a-b")
        fill(folder, Spec(command=("x",)), Limits(), {"A": "\udcff"}, b"in")
    assert sorted(os.listdir(spool.path("a-b"))) == ["env", "limits.json", "spec.json", "stdin"]
    assert (spool.path("a-b") / "env").stat().st_mode & 0o777 == 0o600
    assert rundir.unpack_env((spool.path("a-b") / "env").read_bytes()) == {"A": "\udcff"}
    spool.remove("a-b")
    assert not spool.has("a-b")


def test_only_old_and_unknown_folders_are_swept(spool, tmp_path):
    for name in ("known", "stray", ".building-dead"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("x")
    assert spool.sweep(lambda: {"known"}) == []
    with spool.build("slow"):
        assert sorted(spool.sweep(lambda: {"known"}, time.time() + 61)) == [".building-dead", "stray"]
        assert (tmp_path / ".building-slow").is_dir()
    assert sorted(os.listdir(tmp_path)) == ["file", "known", "slow"]


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(ServerError, match="is full") as caught, said_when_full(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "stoker gc" in caught.value.hint
    with pytest.raises(ServerError, match="cannot be written"), said_when_full(tmp_path):
        raise OSError(errno.EIO, "Input/output error")


# -- logs


@pytest.mark.parametrize(("data", "lines", "rest"), [
    (b"a\nb\nc\n", 2, b"b\nc\n"), (b"a\nb\nc", 2, b"b\nc"), (b"a\nb\nc\n", 9, b"a\nb\nc\n"), (b"", 3, b""), (b"\n\n\n", 2, b"\n\n"), (b"abc", 1, b"abc"),
    (b"a\r50%\rb\n", 1, b"a\r50%\rb\n"), (b"\xff\n\xfe\n", 1, b"\xfe\n"),
])
def test_the_last_lines(data, lines, rest):
    assert data[last_lines(data, lines):] == rest


def test_pieces_that_are_closed_before_they_began_open_nothing():
    pieces = Pieces(lambda closed: pytest.fail("opened"))
    pieces.close()
    assert list(pieces) == []


# -- recovery


def a_folder(place, run_id, *, name="train", attempts=(), exit_=None, **spec):
    folder = place / run_id
    folder.mkdir(parents=True)
    rundir.write_json(folder / "spec.json", Spec(command=("x",), id=run_id, name=name, folder="/w", created_at="2026-01-01T00:00:00.000Z", **spec).to_json())
    rundir.write_json(folder / "limits.json", Limits(seq=4, time_s=60.0).to_json())
    for n in attempts:
        (folder / "attempts" / str(n)).mkdir(parents=True)
    if exit_:
        rundir.write_json(folder / "attempts" / str(attempts[-1]) / "exit.json", exit_)
    return folder


def test_runs_are_found_again(tmp_path):
    runs, spool = tmp_path / "runs", tmp_path / "spool"
    a_folder(runs, "da-ne", attempts=(1, 2), exit_={"code": 0, "reason": "exited", "ended_at": 99.0, "used_s": 5.0, "evidence": {"code": 0}})
    a_folder(runs, "li-ve", attempts=(1,), gpus=1)
    a_folder(runs, "wa-it", attempts=(1,), exit_={"code": 1, "reason": "nonzero_exit", "restart": {"attempt": 2, "at": 1.0}})
    a_folder(runs, "st-ag", name="other")
    a_folder(spool, "sp-ol", priority=4)
    a_folder(spool, "li-ve")
    for torn in ("to-rn", "fi-le"):
        (runs / torn).mkdir()
    (runs / "to-rn" / "spec.json").write_text('{"command": [')
    a_folder(runs, "mo-ve").rename(runs / "moved")
    (runs / "plain").write_text("x")
    store = open_store(tmp_path / "stoker.db")
    with store.write() as q:
        recover(q, {"local": tmp_path}, spool)
    with store.read() as q:
        found = {r.id: r for r in q.listing(everything=True)}
    store.close()
    assert {i: (r.state, r.reason, r.attempt) for i, r in found.items()} == {
        "da-ne": (State.DONE, "exited", 2), "li-ve": (State.STARTING, None, 1), "wa-it": (State.STARTING, None, 1),
        "st-ag": (State.FAILED, "start_failed", 0), "sp-ol": (State.FAILED, "start_failed", 0)}
    assert sorted(r.name for r in found.values()) == ["other", "train", "train-2", "train-3", "train-4"]
    assert (found["da-ne"].exit_code, found["da-ne"].ended_at, found["da-ne"].limits) == (0, 99.0, Limits(seq=4, time_s=60.0))
    assert sorted(os.listdir(runs)) == ["da-ne", "fi-le", "li-ve", "moved", "plain", "st-ag", "to-rn", "wa-it"]
    assert json.loads((runs / "da-ne" / "spec.json").read_bytes())["id"] == "da-ne"


# -- names


@pytest.mark.parametrize(("ref", "meant"), [
    ("trian", "Did you mean train? "), ("tra", "Did you mean train, train-3 or train-2? "), ("BASE", "Did you mean base? "), ("zeda-suof", "Did you mean zeda-sufo? "),
    ("two wrods", "Did you mean 'two words'? "), ("nothing-like-it", ""), ("x", ""),
])
def test_a_run_that_is_not_there_was_meant_to_be_one_that_is(ref: str, meant: str):
    known = [("train-3", "zeda-sufo"), ("train-2", "kogi-daza"), ("base", "gige-labi"), ("two words", "mima-topo"), ("train", "fuve-sila")]
    assert names.meant(ref, known) == (meant and f"{meant}List all runs: stoker ps --all")

# -- GPUs


@pytest.mark.parametrize(("pids", "used_mb", "whole_mb", "words"), [
    ([], 0, 24_000, ""), ([], 900, 24_000, ""), ([], None, None, ""),
    ([7], 10, 24_000, "process 7 (10.0 MB of 24.0 GB)"),
    ([], 1_001, 24_000, "another program (1.0 GB of 24.0 GB)"),  # more than 1 GB
    ([], 900, 8_000, "another program (900 MB of 8.0 GB)"),  # more than a tenth
])
def test_a_gpu_is_used_by_a_process_or_by_memory_that_is_taken(pids, used_mb, whole_mb, words):
    gpu = {"pids": pids, "used_bytes": used_mb and used_mb * 10**6, "memory_bytes": whole_mb and whole_mb * 10**6}
    assert _used_by(gpu) == words

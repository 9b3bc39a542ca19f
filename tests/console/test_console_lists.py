"""Lists of many runs: kept up to date cheaply, in pages; a sweep that is begun in the browser; cores; what is made once for all pages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from benchmarks import many_runs
from benchmarks.ground import until
from console_place import Place

from stoker.base.config import Home
from stoker.base.state import State
from stoker.client import Client
from stoker.console import cores, table, words
from stoker.console.app import Rendered
from stoker.console.lasts import Lasts, last_values
from stoker.console.source import Source

COUNT = 1250


class Counted(Client):
    """A client that also notes what it asks its server for."""

    def __init__(self, place: Place) -> None:
        super().__init__(Home(place.ground.home), start=False)
        self.asked: list[str] = []

    def runs(self, *, all: bool = False, folder: str | None = None, limit: int = 200, active: bool = False) -> list[dict]:
        self.asked.append("all" if limit > table.NEWEST else "newest and active" if all and active else "?")
        return super().runs(all=all, folder=folder, limit=limit, active=active)

    def run(self, ref: str, active: bool = False) -> dict:
        self.asked.append(ref)
        return super().run(ref, active)


@pytest.fixture
def old(place: Place) -> Iterator[list[str]]:
    """The ids of many runs that have ended, in the store of a real server, the oldest first."""
    ids = many_runs.copies(place.ground, place.ended["id"], COUNT)
    yield ids
    many_runs.forget(place.ground, ids)


def test_many_runs_are_asked_for_once(place: Place, old):
    client, now = Counted(place), [0.0]
    many_runs.older(place.ground, place.active["id"])
    known = table.Table(client, lambda: now[0])
    found = known.look()
    assert [len(found), client.asked] == [COUNT + 2, ["newest and active", "all"]]
    assert [each["id"] for each in found[:3]] == [place.active["id"], place.ended["id"], old[-1]], "active ones first, then the newest"

    client.asked.clear()
    client.stop(place.active["id"])
    client.wait(place.active["id"], 60)
    added = many_runs.copies(place.ground, place.ended["id"], 1, name="added", newer=True)
    many_runs.forget(place.ground, [*old[-2:-1], *old[7:8]])
    found = known.look()
    assert client.asked == ["newest and active", place.active["id"]]
    assert [each["id"] for each in found[:4]] == [*added, place.ended["id"], old[-1], old[-3]], "one came, one of the newest was removed"
    assert next(each["state"] for each in found if each["id"] == place.active["id"]) == "stopped"
    assert old[7] in {each["id"] for each in found}, "an old one that is gone is not noticed yet"

    client.asked.clear()
    now[0] += table.WHOLE_S + 1
    assert old[7] not in {each["id"] for each in known.look()}
    assert "all" in client.asked
    many_runs.forget(place.ground, added)


def test_a_run_that_was_active_and_is_gone(place: Place, old):
    active = place.ground.detach("--name", "gone", "--", "python", "waits.py")["id"]
    many_runs.older(place.ground, active)
    client = Counted(place)
    known = table.Table(client)
    found = known.look()
    first = [each["id"] for each in found if not State(each["state"]).final]
    assert active in first and [each["id"] for each in found[:len(first)]] == first, "active runs come first"
    client.rm(active, force=True)
    assert until(lambda: active not in {each["id"] for each in known.look()}, 60)
    assert client.asked.count("all") == 1


def test_a_list_comes_in_pages(place: Place, old):
    source = Source(Client(Home(place.ground.home), start=False))
    first, last = source.runs({}), source.runs({"page": "13"})
    assert [len(first["runs"]), first["pages"], first["found"], len(last["runs"]), last["first"]] == [100, 13, COUNT + 2, 52, 1201]
    assert source.runs({"page": "99"})["page"] == 13
    assert source.runs({"page": "-1"})["page"] == 1
    assert source.runs({"page": "x", "grep": "old-00077"})["found"] == 10


def test_runs_left_out_of_a_list_match_its_filter(place: Place):
    rehearsal = place.ground.detach("--name", "tried", "--env", "STOKER_VERIFY=1", "--", "python", "train.py", "1")["id"]
    source = Source(Client(Home(place.ground.home), start=False))
    try:
        assert [source.runs(wanted)["hidden"] for wanted in ({}, {"grep": "tried"}, {"grep": "active"}, {"all": "1"})] == [1, 1, 0, 0]
        assert "more run" not in place.reader.get("/runs?grep=active")
        page = place.reader.get("/runs?grep=tried")
        assert "No run matches" in page and "/runs?grep=tried&amp;all=1" in page
        assert "Show all runs" in place.reader.get("/runs?grep=nothing")
    finally:
        place.ground.wait_state(rehearsal, "done", "failed")
        place.ground.stoker("rm", "--yes", rehearsal).ok()


def test_what_has_not_changed_is_made_once():
    made: list[int] = []

    def make() -> str:
        made.append(1)
        return f"text {len(made)}"
    kept = Rendered()
    data = {"runs": [{"name": "a"}]}
    first = kept.get(("runs", "en"), data, make)
    assert kept.get(("runs", "en"), {"runs": [{"name": "a"}]}, make) == first
    assert kept.get(("runs", "zh"), data, make) != first
    assert kept.get(("runs", "en"), {"runs": [{"name": "b"}]}, make)[0] == "text 3"
    for n in range(200):
        kept.get(("runs", str(n)), data, make)
    assert len(kept._held) <= 64


def test_cores_over_time():
    lines = ["cpu  9 9 9 9", "cpu0 10 0 10 80 0 0 0 0 5", "cpu1 0 0 0 100 0 0 0 0", "intr 1"]
    assert cores.counted(lines) == {0: (20, 100), 1: (0, 100)}
    told, now, paused = [{0: (20, 100)}, {0: (30, 120)}, {0: (80, 220)}, {0: (80, 320)}, {0: (90, 9000)}, {0: (100, 9010)}], [0.0], []
    watch = cores.Watch(lambda: told.pop(0), lambda: now[0], paused.append)
    first = [{"name": "CPU 0", "now": 50.0, "history": [50.0]}]
    assert watch.look({}) == first, "at once"
    now[0] = 1.0
    assert watch.look({}) == first, "too early"
    now[0] = 2.0
    assert watch.look({"GPU 0": 30.0}) == [{"name": "CPU 0", "now": 50.0, "history": [50.0, 50.0]},
                                           {"name": "GPU 0", "now": 30.0, "history": [None, 30.0]}]
    now[0] = 9.0
    assert watch.look({"GPU 0": 40.0})[1]["history"] == [None, 30.0, 40.0]
    assert len(paused) == 1
    now[0] = 99.0
    assert watch.look({})[0]["now"] == 100.0, "of this moment, not of the time in which nobody looked"


def test_the_last_values_of_a_run_that_has_ended(place: Place):
    def told() -> dict | None:
        return next(each for each in place.reader.json("/runs.json")["runs"] if each["name"] == "ended")["numbers"]
    assert until(told, 60, "the last values")["values"] == {"loss": [pytest.approx(1 / 12, abs=1e-4), ""]}
    assert last_values([]) is None


def test_the_values_of_a_run_that_has_just_ended_stay_in_the_list():
    lasts, going = Lasts(lambda run: {"series": []}), {"epoch": 3, "epochs": 4, "values": {"loss": [0.5, ""]}}
    run = {"id": "a", "attempts": 1, "target": "local"}
    assert lasts.told(run | {"state": "running", "numbers": going})["numbers"] == going
    assert lasts.told(run | {"state": "done"})["numbers"] == going, "until the last values are known"
    assert "numbers" not in lasts.told(run | {"state": "done", "attempts": 2})


def test_a_sweep_is_begun_in_the_browser(place: Place):
    page = place.reader.get(f"/sweeps/new?from={place.ended['id']}")
    assert f'value="{place.ground.work}"' in page
    form = {"folder": str(place.ground.work), "command": "python train.py 3", "params": "lr=1,2\n\n", "name": "web", "at_once": "2"}
    answer = place.reader.open("POST", "/sweeps", urlencode(form), Origin=f"http://{place.reader.host}")
    answer.read()
    assert (answer.status, answer.headers["Location"]) == (303, "/runs?tag=web")
    found = place.reader.json("/runs.json?tag=web")["runs"]
    assert sorted(each["command"][-2:] for each in found) == [["--lr", "1"], ["--lr", "2"]]
    for name in ("web-1", "web-2"):
        place.ground.wait_state(name, "done", timeout_s=90)
    assert "<code>python train.py 3 --lr …</code>" in place.reader.get("/sweeps")


@pytest.mark.parametrize(("commands", "shown"), [
    (["python train.py lr=1 'a b'", "python train.py lr=2 'a b'"], "python train.py lr=… 'a b'"),
    (["python train.py lr=1 x", "python train.py wd=1 x"], "python train.py … x"),
    (["python train.py 1", "python train.py a=1"], "python train.py …"),
    (["python train.py --deep", "python train.py"], "python train.py"),
    (["python train.py"], "python train.py"),
])
def test_a_sweep_has_one_command(commands, shown):
    assert words.shared_command([{"command": shlex.split(each)} for each in commands]) == shown


@pytest.mark.parametrize(("change", "says"), [
    ({"folder": "/nowhere"}, "no folder"), ({"folder": "relative"}, "no folder"), ({"params": "lr"}, "NAME=VALUES"),
    ({"command": "python 'open"}, "is not valid"), ({"params": "lr=1 --env=A=B"}, ""), ({"name": "--dry-run"}, "name of a sweep"),
])
def test_what_cannot_be_a_sweep(place: Place, change, says):
    client = Client(Home(place.ground.home), start=False)
    before = {each["id"] for each in client.runs(all=True)}
    form = {"folder": str(place.ground.work), "command": "python train.py 1", "params": "lr=1", **change}
    answer = place.reader.open("POST", "/sweeps", urlencode(form), Origin=f"http://{place.reader.host}", Accept="application/json")
    told = json.loads(answer.read())
    if says:
        assert answer.status == 400
        assert says in told["message"]
        assert {each["id"] for each in client.runs(all=True)} == before
    else:
        assert told["runs"][0]["command"][-1] == "1 --env=A=B", "a value, never an option"
        place.ground.wait_state(told["runs"][0]["id"], timeout_s=90)

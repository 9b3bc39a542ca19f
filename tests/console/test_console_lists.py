"""Lists of many runs: kept up to date cheaply, in pages; a sweep that is begun in the browser; cores; what is made once for all pages."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from benchmarks.ground import until
from console_place import Place

from stoker.base.errors import NotFound
from stoker.console import cores, table
from stoker.console.app import Rendered
from stoker.console.lasts import last_values
from stoker.console.source import Source


class Server:
    """Stands for a server with thousands of runs, and counts what is asked of it."""

    def __init__(self, count: int) -> None:
        self.all = {f"r{n:05}": run(n) for n in range(count)}
        self.asked: list[str] = []

    def runs(self, *, all: bool = False, limit: int = 200) -> list[dict]:
        self.asked.append("all" if all and limit > 100 else "newest" if all else "active")
        found = sorted(self.all.values(), key=lambda each: each["created_at"], reverse=True)
        return [each for each in found if all or each["state"] == "running"][:limit]

    def run(self, ref: str) -> dict:
        self.asked.append(ref)
        if ref not in self.all:
            raise NotFound(f"There is no run '{ref}'.")
        return self.all[ref]


def run(n: int, state: str = "done") -> dict:
    return {"id": f"r{n:05}", "name": f"run-{n}", "state": state, "created_at": f"2026-01-01T{n:06}", "command": ["python"], "tags": [],
            "note": "", "attempts": 1, "target": "far"}


def test_thousands_of_runs_are_asked_for_once():
    server, now = Server(3000), [0.0]
    server.all["r00005"]["state"] = "running"
    known = table.Table(server, lambda: now[0])
    assert [len(known.look()), server.asked] == [3000, ["newest", "all"]]
    assert known.look()[0]["id"] == "r00005", "active ones first"
    server.asked.clear()
    server.all["r00005"] = run(5, "failed")
    server.all["r03000"] = run(3000, "running")
    del server.all["r02999"]
    found = known.look()
    assert server.asked == ["newest", "active", "r00005"]
    assert [each["id"] for each in found[:2]] == ["r03000", "r02998"], "a new one came, the newest was removed"
    assert next(each for each in found if each["id"] == "r00005")["state"] == "failed"
    server.asked.clear()
    del server.all["r00007"]
    now[0] += table.WHOLE_S + 1
    assert "r00007" not in {each["id"] for each in known.look()}
    assert "all" in server.asked


def test_a_run_that_was_active_and_is_gone():
    server = Server(500)
    server.all["r00005"]["state"] = "running"
    known = table.Table(server)
    known.look()
    del server.all["r00005"]
    assert len(known.look()) == 499


def test_a_list_comes_in_pages():
    source = Source(Server(1250))
    first, last = source.runs({}), source.runs({"page": "13"})
    assert [len(first["runs"]), first["pages"], first["found"], len(last["runs"]), last["first"]] == [100, 13, 1250, 50, 1201]
    assert source.runs({"page": "99"})["page"] == 13
    assert source.runs({"page": "-1"})["page"] == 1
    assert source.runs({"page": "x", "grep": "run-77"})["found"] == 11


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
    told, now = [{0: (20, 100)}, {0: (70, 200)}, {0: (70, 300)}], [0.0]
    watch = cores.Watch(lambda: told.pop(0), lambda: now[0])
    assert watch.look({}) == []
    now[0] = 1.0
    assert watch.look({}) == [], "too early"
    now[0] = 2.0
    assert watch.look({"GPU 0": 30.0}) == [{"name": "CPU 0", "now": 50.0, "history": [50.0]},
                                           {"name": "GPU 0", "now": 30.0, "history": [30.0]}]
    now[0] = 9.0
    assert watch.look({"GPU 0": 40.0})[1]["history"] == [30.0, 40.0]


def test_the_last_values_of_a_run_that_has_ended(place: Place):
    def told() -> dict | None:
        return next(each for each in place.reader.json("/runs.json")["runs"] if each["name"] == "ended")["numbers"]
    assert until(told, 60, "the last values")["values"] == {"loss": [pytest.approx(1 / 12, abs=1e-4), ""]}
    assert last_values([]) is None


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


@pytest.mark.parametrize(("change", "says"), [
    ({"folder": "/nowhere"}, "no folder"), ({"folder": "relative"}, "no folder"), ({"params": "lr"}, "NAME=VALUES"),
    ({"command": "python 'open"}, "cannot be read"), ({"params": "lr=1 --env=A=B"}, ""), ({"name": "--dry-run"}, "name of a sweep"),
])
def test_what_cannot_be_a_sweep(place: Place, change, says):
    before = {each["id"] for each in place.ground.runs()}
    form = {"folder": str(place.ground.work), "command": "python train.py 1", "params": "lr=1", **change}
    answer = place.reader.open("POST", "/sweeps", urlencode(form), Origin=f"http://{place.reader.host}", Accept="application/json")
    told = json.loads(answer.read())
    if says:
        assert answer.status == 400
        assert says in told["message"]
        assert {each["id"] for each in place.ground.runs()} == before
    else:
        assert told["runs"][0]["command"][-1] == "1 --env=A=B", "a value, never an option"
        place.ground.wait_state(told["runs"][0]["id"], timeout_s=90)

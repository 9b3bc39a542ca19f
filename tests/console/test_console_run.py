"""The page of one run: its log of any length, its use of the machine, its code, its attempts, tables of values."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from benchmarks.ground import until
from console_place import LONG, Place

from stoker.console import drawn, words
from stoker.plane.recorded import thinned


@pytest.fixture(scope="module")
def long(place: Place) -> str:
    """The address of a run whose log has 60,000 lines, with an error in the middle."""
    place.ground.script("long.py", LONG)
    run = place.ground.detach("--name", "long", "--", "python", "long.py")
    place.ground.wait_state("long", "done", timeout_s=120)
    return f"/runs/{run['id']}"


def line_of(found: dict) -> str:
    return found["found"]["text"].split("\n")[found["line"]]


def test_a_text_is_found_anywhere_in_a_long_log(place: Place, long):
    whole = place.reader.get(f"{long}/log.txt")
    for text in ("LINE 0 ", "line 59999", "Line 12345"):
        found = place.reader.json(f"{long}/log/find.json?text={quote(text)}")
        assert line_of(found).startswith(f"{text.lower()}".strip())
        assert whole[found["at"]:].lower().startswith(text.lower())
        assert len(found["found"]["text"]) < 1 << 17, "a part, however long the log"
        again = place.reader.json(f"{long}/log.json?begin={found['found']['begin']}")
        assert again["text"] == found["found"]["text"]
    assert place.reader.json(f"{long}/log/find.json?text=nowhere") == {"found": None, "cut": False}


def test_the_next_and_the_last_hit(place: Place, long):
    first = place.reader.json(f"{long}/log/find.json?text=line+77")
    second = place.reader.json(f"{long}/log/find.json?text=line+77&at={first['at'] + 1}")
    assert [line_of(each).split()[1] for each in (first, second)] == ["77", "770"]
    assert place.reader.json(f"{long}/log/find.json?text=line+77&back=1&at={second['at']}")["at"] == first["at"]
    last = place.reader.json(f"{long}/log/find.json?text=line+77&back=1")
    assert line_of(last).split()[1] == "7799"
    place.reader.get(f"{long}/log/find.json?text=x&at=-1", 400)


def test_without_a_text_an_error_is_found(place: Place, long):
    assert line_of(place.reader.json(f"{long}/log/find.json?back=1")).endswith("ValueError: the middle")
    assert place.reader.json(f"/runs/{place.ended['id']}/log/find.json?back=1")["found"] is not None, "onerror=alert"


def test_its_use_of_the_machine_is_drawn(place: Place):
    path = f"/runs/{place.active['id']}/usage.json"

    def drawn_now() -> dict:
        found = {chart["title"]: chart["curves"][0] for chart in place.reader.json(path)["charts"]}
        return found if len(found.get("Memory", {}).get("points", ())) > 2 else {}
    found = until(drawn_now, 60, "three samples")
    assert found["CPU"]["unit"] == "%"
    assert all(value > 1 << 20 for _, value in found["Memory"]["points"][1:])
    told = json.loads(place.ground.attempt_file(place.active["id"], 1, "telemetry.jsonl").read_text().splitlines()[0])
    assert found["Memory"]["points"][0] == [told["at"], told["rss_bytes"]]


def test_many_samples_are_thinned():
    gpu = [{"index": 0, "busy_percent": 50.0, "memory_bytes": 7}]
    records = [{"at": n, "cpu_percent": float(n % 2), "rss_bytes": n, "gpus": gpu if n > 1 else []} for n in range(1000)]
    found = thinned(records, 100)
    assert len(found) == 100
    assert found[0] == {"at": 9, "cpu_percent": 0.5, "rss_bytes": 9, "gpus": {"0": {"busy_percent": 50.0, "memory_bytes": 7}}}
    assert thinned(records[:3], 100)[2]["at"] == 2
    assert thinned([], 5) == []
    assert thinned([{"at": 1}], 5) == [{"at": 1, "cpu_percent": None, "rss_bytes": None, "gpus": {}}]


def test_between_attempts_is_a_gap():
    point = {"cpu_percent": 1.0, "rss_bytes": 5, "gpus": {"1": {"busy_percent": 9.0, "memory_bytes": 3}}}
    told = {"attempts": [{"attempt": 1, "points": [{"at": 10, **point}]}, {"attempt": 2, "points": [{"at": 20, **point}]}]}
    charts = drawn.usage(told)["charts"]
    assert [(chart["title"], chart["curves"][0]["points"]) for chart in charts] == [
        ("CPU", [[10, 1.0], [15, None], [20, 1.0]]), ("Memory", [[10, 5], [15, None], [20, 5]]),
        ("GPU", [[10, 9.0], [15, None], [20, 9.0]]), ("GPU memory", [[10, 3], [15, None], [20, 3]])]


def test_the_code_is_shown_as_text(place: Place):
    path = f"/runs/{place.ended['id']}"
    assert f'href="{path}/code"' in place.reader.get(path)
    page = place.reader.get(f"{path}/code")
    assert re.search(r'<span class="add">\+print\(.*&lt;img src=x onerror=alert\(1\)&gt;', page)
    patch = place.reader.open("GET", f"{path}/diff.patch")
    assert patch.headers["Content-Disposition"].startswith("attachment")
    assert b"+++ b/train.py\n" in patch.read()
    assert ["add", "+import base64, sys"] in place.reader.json(f"{path}/code.json")["lines"]


def attempt(number: int, started: str, ended: str | None, reason: str | None) -> dict:
    day = "2026-01-01T00:0"
    return {"attempt": number, "started_at": f"{day}{started}Z", "ended_at": ended and f"{day}{ended}Z", "reason": reason}


def test_attempts_on_a_time_line():
    attempts = [attempt(1, "0:00", "1:00", "killed"), attempt(2, "2:00", "3:00", "stopped_by_user"), attempt(3, "3:00", "4:00", "exited")]
    line = drawn.timeline({"attempts_detail": attempts, "resume": {"lives": [{"attempt": 2, "from": 40}, {"attempt": 3, "from": 0}]}})
    assert [(each["x"], each["width"], each["state"], each["from"]) for each in line] == [
        (0, 25, "failed", None), (50, 25, "stopped", 40), (75, 25, "done", 0)]
    assert drawn.timeline({"attempts_detail": []}) == []
    assert drawn.timeline({"attempts_detail": [attempt(1, "0:00", None, None)], "resume": None})[0]["state"] == "running"


def test_a_table_of_values_is_a_table(place: Place):
    path = f"/runs/{place.ended['id']}/preview"
    page = place.reader.get(f"{path}?path=table.csv")
    assert "<th>epoch</th>" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert place.reader.json(f"{path}.json?path=table.csv")["file"]["table"] == [["epoch", "note"], ["1", "<b>bold</b>"], ["2", "a, b"]]
    assert place.reader.json(f"{path}.json?path=note.txt")["file"]["table"] is None


def test_the_age_of_a_run_is_never_nothing(place: Place):
    assert words.since({**place.ground.show("ended"), "ended_at": "2999-01-01T00:00:00Z"}) == "< 10s"


def told(points: list, name: str = "loss") -> dict:
    """A curve as the server tells it."""
    return {"name": name, "metric": name, "split": None, "axis": "step", "unit": "", "source": "printed", "better": "min",
            "count": len(points), "last": points[-1], "points": points}


def test_odd_names_and_values_of_curves():
    run = {"id": "x", "name": "x"}
    names = ["<b>loss</b>", "a/b/c", "\N{DIRECT HIT}", *(f"name-{n}" for n in range(10_000))]
    odd = [[0, "nan"], [1, "inf"], [2, 1e300], [1, 0.5]]  # as JSON has them; the steps go backwards
    series = [told(odd, name) for name in names]
    drawn_now = drawn.charts([{"run": run, "series": series, "notes": []}])
    assert (len(drawn_now["charts"]), drawn_now["more"]) == (drawn.CHARTS, len(names) - drawn.CHARTS)
    assert [chart["title"] for chart in drawn_now["charts"][:3]] == names[:3]
    assert drawn_now["charts"][0]["curves"][0]["points"] == [[0, None], [1, None], [2, 1e300], [1, 0.5]]
    spark = drawn.spark([series[0]]).decode()
    assert "<b>" not in spark and "&lt;b&gt;" in spark and "nan" not in spark
    assert words.point([0, "nan"], axis="step") == "nan (step 0)"
    assert words.point([17120, 0.3], axis="count") == "0.3 (count 17,120)"
    run |= {"parameters": {}, "steps_s": None, "metrics": {
        "loss": {"best": [0, "nan"], "last": [0, "-inf"], "better": "min", "unit": "", "axis": "step"}}}
    table = drawn.table({"metrics": ["loss"], "parameters": [], "runs": [run, run], "verdicts": {}}, "loss", [])
    assert not any(cell["best"] for row in table["rows"] for cell in row["cells"]), "not finite: not the best"

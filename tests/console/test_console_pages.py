"""The pages and their JSON twins, over real runs: what they show, what can never get in, what the buttons do."""

from __future__ import annotations

import html
import json
import os
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from benchmarks.ground import until
from console_place import EVIL, Place

from stoker.base.errors import Denied, NotFound
from stoker.console import logs
from stoker.console.files import _open_below

PAGES = ("/runs", "/sweeps", "/sweeps/new?from={ended}", "/reports", "/machines", "/machines/local", "/runs/{ended}", "/runs/{active}", "/compare?run={ended}&run={active}",
         "/runs/{ended}/preview?path=note.txt")


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found.append((tag, dict(attrs)))


def address(place: Place, page: str) -> str:
    return page.format(ended=place.ended["id"], active=place.active["id"])


@pytest.mark.parametrize("page", PAGES)
def test_a_page_its_twin_and_its_changing_part(place: Place, page):
    path = address(place, page)
    text = place.reader.get(path)
    tags = Tags(text).found
    assert not [t for t in tags if t[0] == "script" and not t[1].get("src", "").startswith("/static/")], "a script of somebody else"
    assert not [t for t in tags if any(name.startswith("on") or name == "style" for name in t[1])], "code in an attribute"
    assert not [t for t in tags if t[1].get("src") == "x"], "a name or a note became a tag"
    assert "{'" not in html.unescape(re.sub(r"<[^>]*>", "", text)), "an object of Python"
    plain, _, query = path.partition("?")
    by_name, by_format = (place.reader.json(p) for p in (f"{plain}.json?{query}", f"{plain}?{query}&format=json"))
    assert by_name.keys() == by_format.keys()
    part = place.reader.open("GET", f"{plain}?{query}&live=1")
    part.read()
    assert part.status == 200
    changed = place.reader.open("GET", f"{plain}?{query}&live=1", X_Seen=part.headers["X-Version"])
    changed.read()
    assert changed.status in (200, 204)


def test_what_has_not_changed_is_not_sent_again(place: Place):
    path = f"/runs/{place.ended['id']}/preview?path=note.txt&live=1"
    first = place.reader.open("GET", path)
    first.read()
    assert place.reader.get(path, 204, X_Seen=first.headers["X-Version"]) == ""


def test_the_list_is_found_by_text_state_and_tag(place: Place):
    def names(query: str) -> list[str]:
        return [run["name"] for run in place.reader.json(f"/runs.json?{query}")["runs"]]
    assert set(names("")) == {"ended", "active"}
    assert names("state=running") == ["active"]
    assert names("grep=ONERROR") == ["ended"]
    assert names(f"tag={quote(EVIL.replace(' ', '_'))}") == ["ended"]
    assert "No run matches" in place.reader.get("/runs?grep=nothing")
    assert "没有符合条件的运行" in place.reader.get("/runs?grep=nothing", Accept_Language="zh-CN,zh;q=0.9")


def test_the_curves_and_the_comparison(place: Place):
    charts = place.reader.json(f"/curves.json?run={place.ended['id']}")["charts"]
    assert [(chart["title"], chart["axis"], [curve["name"] for curve in chart["curves"]]) for chart in charts] == [
        ("loss", "epoch", ["loss", "val_loss"])]
    assert charts[0]["curves"][0]["points"][:2] == [[1.0, 1.0], [2.0, 0.5]]
    assert b"polyline" in place.reader.get(f"/runs/{place.ended['id']}/spark.svg").encode()
    table = place.reader.json(f"/compare.json?run={place.ended['id']}&run={place.active['id']}")
    titles = [column["title"] for column in table["columns"]]
    assert "val_loss best" in titles
    row = next(row for row in table["rows"] if row["run"]["name"] == "ended")
    assert row["cells"][titles.index("val_loss best")]["text"] == "0.0917 (epoch 12)"
    told = place.ground.stoker("compare", "ended", "active", "--json").json()
    assert [run["metrics"] for run in table["runs"]] == [run["metrics"] for run in told["runs"]]
    chinese = place.reader.get(f"/compare?run={place.ended['id']}&run={place.active['id']}", Accept_Language="zh")
    assert "val_loss 最佳" in chinese and "(轮次 12)" in chinese
    lost = place.reader.get("/runs/nothing", 404, Accept_Language="zh")
    assert "<h1>没有名为“nothing”的运行。" in lost and "列出全部运行：" in lost
    place.reader.get("/compare", 404)
    place.reader.get("/compare?tag=none", 404)


def test_a_log_never_becomes_markup(place: Place):
    part = place.reader.json(f"/runs/{place.ended['id']}/log.json")
    assert part["begin"] == 0
    assert part["text"].startswith(f"red {EVIL} </pre>\nEpoch 1/12")
    whole = place.reader.open("GET", f"/runs/{place.ended['id']}/log.txt")
    assert b"\x1b[31mred" in whole.read(), "the file is the log as it is"
    assert whole.headers["Content-Disposition"].startswith("attachment")
    second = place.reader.json(f"/runs/{place.ended['id']}/log.json?begin=0")
    assert (second["text"], second["end"]) == (part["text"], part["end"])
    assert place.reader.json(f"/runs/{place.ended['id']}/log.json?begin={part['end']}")["text"] == ""


def test_a_live_log_comes_as_events_and_goes_on_where_it_broke(place: Place):
    path = f"/runs/{place.active['id']}/log/live"
    answer = place.reader.open("GET", path)
    lines, texts, position = [], [], 0
    while "one more\none more\n" not in "".join(texts):
        lines.append(answer.readline().decode())
        if lines[-1].startswith("id: "):
            position = int(lines[-1][4:])
        if lines[-1].startswith("data: "):
            texts.append(json.loads(lines[-1][6:]))
    answer.close()
    text = "".join(texts)
    assert text.startswith("first line\n")
    assert position == len(text)
    answer = place.reader.open("GET", path, Last_Event_ID=str(position))
    while not (line := answer.readline()).startswith(b"data: "):
        pass
    answer.close()
    more = json.loads(line[6:])  # a piece may begin and end within a line
    assert more and re.fullmatch(r"first line\n(one more\n)*(one more)?", text + more), "neither a gap nor a double"


@pytest.mark.parametrize(("data", "whole"), [(b"abc", 3), (b"ab\xc3", 2), (b"ab\xc3\xa9", 4), (b"a\xe2\x82", 1), (b"a\xf0\x9f\x98", 1),
                                             (b"a\x1b", 1), (b"a\x1b[3", 1), (b"a\x1b[31m", 6), (b"\x80\x80\x80\x80", 4), (b"", 0)])
def test_a_piece_of_a_log_ends_between_characters(data, whole):
    assert logs.safe_end(data) == whole


def test_escape_codes_are_left_out():
    assert logs.clean(b"\x1b[1;31mred\x1b[0m\x1b]0;title\x07 50%\r100%\x00\n\tend") == "red 50%\r100%\n\tend"


def test_files_are_listed_shown_and_brought(place: Place):
    page = place.reader.get(f"/runs/{place.ended['id']}")
    assert "a&lt;b&gt;&amp;.txt" in page
    shown = place.reader.get(f"/runs/{place.ended['id']}/preview?path=note.txt")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert place.reader.get(f"/runs/{place.ended['id']}/file?path={quote('a<b>&.txt')}") == "odd name"
    picture = place.reader.open("GET", f"/runs/{place.ended['id']}/file?path=dot.png&show=1")
    assert picture.read().startswith(b"\x89PNG")
    assert picture.headers["Content-Type"] == "image/png"
    text = place.reader.open("GET", f"/runs/{place.ended['id']}/file?path=note.txt&show=1")
    text.read()
    assert text.headers["Content-Type"] == "application/octet-stream"
    assert text.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in text.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/passwd", "..%2f..%2fetc/passwd", "train.py", "", "note.txt%00", ".",
                                  "attempts/1/hooks/pictures/../numbers.jsonl", "attempts/1/hooks/pictures/none.png"])
def test_other_paths_are_refused(place: Place, path):
    for page in ("file", "preview", "preview.json", "picture"):
        assert place.reader.open("GET", f"/runs/{place.ended['id']}/{page}?path={path}").status == 404
    for page in ("/static/../door.py", "/static/..%2fdoor.py", "/static/%2fetc%2fpasswd", "/runs/..%2f..%2fetc"):
        assert place.reader.open("GET", page).status == 404


def test_no_link_leads_out_of_the_folder(tmp_path):
    folder, secret = tmp_path / "run", tmp_path / "secret"
    (folder / "sub").mkdir(parents=True)
    secret.mkdir()
    (secret / "key").write_text("secret")
    (folder / "plain").write_text("plain")
    (folder / "link").symlink_to(secret / "key")
    (folder / "way").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    fd = _open_below(str(folder), "plain")
    assert os.read(fd, 10) == b"plain"
    os.close(fd)
    before = len(os.listdir("/proc/self/fd"))
    for path in ("link", "way/key", "pipe", "sub", "../secret/key", "sub/../../secret/key", "plain/x", "a//b", "x\0"):
        with pytest.raises(Denied):
            _open_below(str(folder), path)
    with pytest.raises(NotFound):
        _open_below(str(folder), "missing")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_buttons(place: Place):
    path = f"/runs/{place.active['id']}"
    place.reader.post(f"{path}/label", "tag=good")
    place.reader.post(f"{path}/label", f"note={quote(EVIL)}")
    told = place.ground.show("active")
    assert (told["tags"], told["note"]) == (["good"], EVIL)
    place.reader.post(f"{path}/keep", "pin=yes")
    assert place.ground.show("active")["pinned"]
    place.reader.post(f"{path}/rm", status=409)
    place.reader.post(f"{path}/stop")
    assert place.ground.wait_state("active")["reason"] == "stopped_by_user"
    assert "has ended already" in place.reader.post(f"{path}/stop", status=409), "the other tab"
    place.reader.post(f"{path}/start")
    place.ground.wait_state("active", "running")
    assert place.reader.json(f"{path}/log.json?attempt=1")["attempt"] == 1
    place.reader.post(f"{path}/nothing", status=404)
    assert place.reader.open("GET", f"{path}/stop").status == 404


def test_a_run_that_is_removed_while_it_is_looked_at(place: Place):
    gone = place.ground.detach("--name", "gone", "--", "python", "train.py", "1")
    place.ground.wait_state("gone", "done")
    path = f"/runs/{gone['id']}"
    assert "gone" in place.reader.get(path)
    place.reader.post(f"{path}/rm")
    until(lambda: place.reader.open("GET", f"{path}?live=1").status == 404, what="404")
    place.reader.get(f"{path}/log.json", 404)
    assert b"event: away" in place.reader.open("GET", f"{path}/log/live").read()
    assert "polyline" not in place.reader.get(f"{path}/spark.svg")


def test_the_page_says_that_the_server_is_away_and_comes_back(place: Place):
    place.ground.kill_server()
    until(lambda: place.reader.open("GET", "/runs.json").status == 500, 10, "the end of what the console holds for a moment")
    told = json.loads(place.reader.get("/runs.json", 500))
    assert told["away"]
    assert "stoker" in place.reader.get("/runs", 500)
    assert re.search("event: away", place.reader.get(f"/runs/{place.active['id']}/log/live"))
    assert not place.ground.server_pids(), "the console does not start it"
    place.ground.stoker("ps").ok()
    assert [run["name"] for run in place.reader.json("/runs.json?state=running")["runs"]] == ["active"]
    place.ground.stoker("stop", "active").ok()
    place.ground.stoker("server", "stop").ok()

"""Who may open the console: the link, the cookie, the Host, the Origin."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from console_place import Place, Reader, start_console

from stoker.base.config import Home
from stoker.console.door import CODE_S, COOKIE_S, Door, Kept, refusal
from stoker.console.routes import ROUTES

NOW = 1_000_000.0


def test_a_code_opens_once_within_a_minute():
    door = Door(b"s" * 32, 8000)
    code = door.code(NOW)
    assert door.enter(code, NOW + CODE_S) is None, "too late"
    cookie = door.enter(code, NOW + CODE_S - 1)
    assert door.knows(cookie, NOW + COOKIE_S - 1)
    assert not door.knows(cookie, NOW + CODE_S + COOKIE_S + 1)
    assert door.enter(code, NOW + 1) is None, "twice"


def test_another_secret_port_or_kind_is_refused():
    door = Door(b"s" * 32, 8000)
    for other in (Door(b"t" * 32, 8000), Door(b"s" * 32, 8001)):
        assert door.enter(other.code(NOW), NOW) is None
        assert not door.knows(other.enter(other.code(NOW), NOW), NOW)
    code = door.code(NOW)
    assert not door.knows(code, NOW), "a code is no cookie"
    assert door.enter(door.enter(code, NOW), NOW) is None, "a cookie is no code"
    for wrong in ("", ".", "a.b.c", "é.9999999999.x", code[:-1], f"{code}0", "\udcff.1.2"):
        assert door.enter(wrong, NOW) is None
        assert not door.knows(wrong, NOW)


HOST = "127.0.0.1:8000"
SAME = {"host": HOST, "origin": f"http://{HOST}"}


@pytest.mark.parametrize(("method", "headers", "passes"), [
    ("GET", {"host": HOST}, True),
    ("GET", {"host": "localhost:9"}, True),  # a port that is forwarded
    ("GET", {"host": "[::1]:8000"}, True),
    ("GET", {"host": "evil.example:8000"}, False),
    ("GET", {"host": "127.0.0.1.evil.example"}, False),
    ("GET", {"host": "127.0.0.1@evil.example"}, False),
    ("GET", {"host": ""}, False),
    ("GET", {}, False),
    ("GET", {"host": HOST, "origin": "http://evil.example"}, False),
    ("GET", {"host": HOST, "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, False),
    ("GET", {"host": HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True),  # a link in a mail
    ("POST", SAME, True),
    ("POST", {"host": HOST}, False),
    ("POST", {"host": HOST, "origin": "null"}, False),
    ("POST", {"host": HOST, "origin": "http://127.0.0.1:8888"}, False),  # a notebook on this machine
    ("DELETE", {"host": HOST, "origin": "https://evil.example"}, False),
])
def test_which_requests_pass(method, headers, passes):
    assert (refusal(method, headers) is None) == passes


def test_the_secret_is_private_and_stays(tmp_path):
    home = Home(tmp_path)
    home.server.mkdir()
    first = Kept(home)
    first.keep(8123)
    path = home.server / "console.json"
    assert path.stat().st_mode & 0o777 == 0o600
    again = Kept(home)
    assert (again.secret, again.port) == (first.secret, 8123)
    path.chmod(0o644)
    assert Kept(home).secret != first.secret, "others could have read it"
    path.write_text('{"secret": "zz", "port": 1}')
    assert Kept(home).port is None


def test_the_link_the_cookie_and_the_headers(place: Place):
    reader = Reader(place.reader.url)
    assert "stoker ui" in reader.get("/runs", 401), "without a cookie"
    for route in ROUTES:
        path = route.path.format(ref=place.active["id"], name="local")
        answer = reader.open("POST" if "POST" in route.methods else "GET", path, Origin=f"http://{reader.host}")
        answer.read()
        assert answer.status == 401, f"{path} without a cookie"
    used = reader.open("GET", reader.url[reader.url.index("/enter"):])
    assert used.status == 401, "the link was used already"
    used.read()
    link = place.ground.stoker("ui", "--json").json()["url"]  # the console that runs gives another one
    answer = Reader(link).open("GET", link[link.index("/enter"):])
    cookie = answer.headers["Set-Cookie"]
    answer.read()
    assert answer.status == 303
    assert re.search("httponly", cookie, re.I)
    assert re.search("samesite=strict", cookie, re.I)
    other = Door(b"x" * 32, int(reader.host.split(":")[1]))
    reader.cookie = f"{other.cookie}={other.enter(other.code(NOW), NOW)}"
    reader.get("/runs", 401)
    for path in ("/runs", "/runs.json", "/enter?code=x", "/nowhere"):
        answer = place.reader.open("GET", path)
        answer.read()
        policy = answer.headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_what_another_site_asks_is_refused(place: Place):
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert place.reader.open("GET", "/runs", **headers).status == 403
    path = f"/runs/{place.active['id']}/stop"
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert place.reader.open("POST", path, "", **headers).status == 403
    assert place.ground.show("active")["state"] == "running"


def test_only_this_machine_reaches_it(place: Place):
    port = int(place.reader.host.split(":")[1])
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert [words[1] for words in listening if words[1].endswith(f":{port:04X}") and words[3] == "0A"] == [f"0100007F:{port:04X}"]
    six = Path("/proc/net/tcp6")
    assert not six.exists() or not [line for line in six.read_text().splitlines() if f":{port:04X} " in line and " 0A " in line]


def test_the_port_and_the_cookie_outlive_the_console_and_ctrl_c_ends_it(ground):
    first, reader = start_console(ground)
    reader.enter()
    reader.get("/runs")
    first.kill()
    first.wait()
    second, again = start_console(ground)
    assert again.host == reader.host
    reader.get("/runs")
    second.send_signal(signal.SIGINT)
    assert second.wait(20) == 0
    ground.stoker("server", "stop").ok()

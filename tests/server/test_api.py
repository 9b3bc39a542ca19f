"""The verbs over the wire: odd bytes, large and endless answers, many at once, bad requests. Real server, plane, agent and runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path

import pytest
from server_help import children_of, kill, peak_bytes, rss_bytes, servers_of, submit, until

from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, NotFound, StateError, StokerError
from stoker.client import Client, connect

ODD = "v\udc80\udcff é 日本 😀 \n=\""


def request(method: str, target: str, body: bytes | None) -> bytes:
    """The bytes of a request that asks for an end of the connection."""
    head = f"{method} {target} HTTP/1.1\r\nHost: stoker\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body is not None else ""
    return head.encode() + b"\r\n" + (body or b"")


def raw(home: Home, sent: bytes) -> tuple[int, dict]:
    """Status and JSON of whatever is sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(30)
        link.connect(str(home.socket))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(sent)
        answer = HTTPResponse(link)
        answer.begin()
        return answer.status, json.loads(answer.read())


def test_odd_bytes_reach_the_run_unchanged(client: Client, tmp_path: Path):
    folder = tmp_path / "sp ace 日本 \udcfe"
    folder.mkdir()
    script = "import os, sys; sys.stdout.buffer.write(b'|'.join([os.environb[b'K\\xff'], os.fsencode(sys.argv[1]), os.getcwdb()]))"
    run = submit(client, folder, sys.executable, "-c", script, "a\udcfe -rf", env={"K\udcff": ODD}, name="rf \"'日本 😀")
    done = until(lambda: client.wait(run["name"], 5)["exit_code"] is not None and client.run(run["id"]), "it ends")
    assert done["state"] == "done"
    assert b"".join(client.logs(run["id"])) == b"|".join(map(os.fsencode, [ODD, "a\udcfe -rf", str(folder)]))
    assert done["workdir"] == str(folder) and [r["id"] for r in client.runs(all=True, folder=str(folder))] == [run["id"]]
    assert client.candidates(str(folder), done["command"]) == []


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "\0"}, {"A": 1}, {"A": "\ud800"}, ["A"]])
def test_an_environment_that_no_program_can_have(shared: Client, env):
    body = json.dumps({"spec": {"command": ["true"], "folder": "/"}, "limits": {}, "env": env}).encode()
    status, said = raw(shared.home, request("POST", "/v1/runs", body))
    assert status == 400 and said["error"] == "invalid_spec"
    assert shared.runs(all=True) == []


@pytest.mark.parametrize(("method", "target", "body", "status"), [
    ("POST", "/v1/runs", b"{", 400), ("POST", "/v1/runs", b"[]", 400), ("POST", "/v1/runs", b'{"spec": []}', 400),
    ("POST", "/v1/runs", b'{"stdin": "?"}', 400), ("POST", "/v1/runs", b"[" * 100_000, 400), ("POST", "/v1/gc", b"x" * (2 << 20), 413),
    ("GET", "/v1/runs?limit=many", None, 400), ("GET", "/v1/nothing", None, 404), ("PUT", "/v1/runs", b"{}", 405),
    ("GET", "/v1/runs/%FF%2F..", None, 404), ("GET", "/v1/runs/none/show", None, 404), ("GET", "/v1/runs/none/wait", None, 404),
    ("GET", "/v1/runs/none/logs?follow=true", None, 404), ("DELETE", "/v1/runs/none", None, 404), ("POST", "/v1/runs/none/stop", b"{}", 404),
    ("POST", "/v1/runs/none/keep", b'{"pin": "yes"}', 400), ("GET", "/v1/capacity?target=nowhere", None, 400),
])
def test_bad_requests_are_one_sentence(shared: Client, *, method: str, target: str, body: bytes | None, status: int):
    got, said = raw(shared.home, request(method, target, body))
    assert got == status and set(said) >= {"error", "message", "hint"}
    assert "\n" not in said["message"] and "Traceback" not in said["message"]
    assert "Traceback" not in shared.home.server_log.read_text()


def test_what_is_too_large_is_refused_without_being_kept(client: Client, home: Home):
    before = rss_bytes(client.info()["pid"])
    head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: {10 << 30}\r\n\r\n".encode()
    status, said = raw(home, head + b"x" * (70 << 20))
    assert status == 413 and "MiB" in said["message"] and said["hint"]
    assert rss_bytes(client.info()["pid"]) < before + (200 << 20)


def test_many_large_requests_at_once_are_read_one_after_the_other(client: Client, home: Home):
    """Each is allowed; together they would take ten times as much."""
    server = servers_of(home)[0]
    body = json.dumps({"spec": {"nonsense": 1}, "stdin": "A" * (40 << 20)}).encode()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: raw(home, request("POST", "/v1/runs", body)), range(10)))
    assert {status for status, _ in answers} == {400}
    assert peak_bytes(server) < 450 << 20 and rss_bytes(server) < 250 << 20


def test_a_request_of_many_values_is_refused(client: Client, home: Home):
    status, told = raw(home, request("POST", "/v1/runs", b"[" + b"[]," * (6 << 20) + b"1]"))
    assert status == 413 and "values" in told["message"]


def test_who_connects_and_does_not_ask_is_hung_up_on(client: Client, home: Home):
    """And who asks slowly, or half, while everybody else is answered; whoever only listens stays."""
    events = client.events()
    halves = {b"": b"", b"GET /v1/ser": b"", b"POST /v1/runs HTTP/1.1\r\nHost: stoker\r\nContent-Length: 9\r\n\r\n{": b"HTTP/1.1 408",
              b"POST /v1/runs HTTP/1.1\r\nHost: stoker\r\nContent-Length: 60000000\r\n\r\n" + b"x" * 300_000: b"HTTP/1.1 408"}
    links = []
    for half in halves:
        links.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        links[-1].settimeout(60)
        links[-1].connect(str(home.socket))
        links[-1].sendall(half)
    assert client.info()
    for link, told in zip(links, halves.values(), strict=True):
        with link:
            assert link.recv(1 << 16)[:12] == told
    assert client.info()
    events.close()


def test_an_error_nobody_foresaw_is_500_and_its_story_is_in_the_log(home: Home, tmp_path: Path):
    """A server whose app got one more route that fails."""
    script = ("import sys; from starlette.routing import Route; from stoker.server import app, __main__\n"
              "made = app.create_app\n"
              "def with_fault(service, end):\n"
              "    found = made(service, end)\n"
              "    def fault(request): raise KeyError('secret')\n"
              "    found.router.routes.append(Route('/v1/fault', fault))\n"
              "    return found\n"
              "app.create_app = with_fault\n"
              "sys.exit(__main__.main([]))")
    from stoker.base.daemon import server_environment
    server = subprocess.Popen([sys.executable, "-c", script], env=server_environment(os.environ, home), stdout=subprocess.PIPE)
    try:
        assert json.loads(server.stdout.readline()) == {"ready": server.pid}
        status, said = raw(home, request("GET", "/v1/fault", None))
        assert status == 500 and "secret" not in said["message"] and said["error"] == "server_error"
        until(lambda: "KeyError: 'secret'" in home.server_log.read_text(), "the story is in the log")
        assert connect(home).runs() == []
    finally:
        server.terminate()
        assert server.wait(10) == 0
        server.stdout.close()


def test_two_hundred_requests_at_once(client: Client, tmp_path: Path):
    run = submit(client, tmp_path, "sh", "-c", "echo hello; sleep 600")
    with ThreadPoolExecutor(200) as pool:
        states = list(pool.map(lambda n: client.run(run["id"])["id"] if n % 2 else len(client.runs()), range(200)))
    assert set(states) == {1, run["id"]}


def test_many_who_wait_hold_nobody_up(client: Client, tmp_path: Path):
    run = submit(client, tmp_path, "sleep", "600")
    with ThreadPoolExecutor(60) as pool:
        waits = [pool.submit(client.wait, run["id"], 20) for _ in range(60)]
        began = time.monotonic()
        assert client.run(run["id"])["id"] == run["id"] and time.monotonic() - began < 10
        client.stop(run["id"], force=True)
        assert {w.result()["state"] for w in waits} == {"stopped"}


def test_a_log_comes_whole_and_in_parts(client: Client, tmp_path: Path):
    run = submit(client, tmp_path, sys.executable, "-c", "for n in range(2_000_000): print(n)")
    expected = b"".join(b"%d\n" % n for n in range(2_000_000))
    assert b"".join(client.logs(run["id"], follow=True)) == expected
    assert b"".join(client.logs(run["id"], offset=5_000_000)) == expected[5_000_000:]
    assert b"".join(client.logs(run["id"], tail=3)) == b"1999997\n1999998\n1999999\n"
    with pytest.raises(StokerError):
        list(client.logs(run["id"], stream="all"))
    with pytest.raises(StokerError):
        list(client.logs(run["id"], attempt=7))


def test_a_slow_reader_slows_the_source_and_a_gone_one_ends_it(client: Client, tmp_path: Path):
    pid = client.info()["pid"]
    run = submit(client, tmp_path, "sh", "-c", "head -c 300000000 /dev/zero; sleep 600")
    until(lambda: client.show(run["id"])["usage"], "it has a log")
    before = rss_bytes(pid)
    pieces = client.logs(run["id"], follow=True)
    seen = len(next(pieces))
    until(lambda: " read " in children_of(pid), "somebody reads the log")
    time.sleep(1)  # for the source to run ahead, if it did
    assert rss_bytes(pid) < before + (60 << 20)
    while seen < 300_000_000:
        seen += len(next(pieces))
    assert seen == 300_000_000
    waiter = threading.Thread(target=lambda: list(pieces))
    waiter.start()
    pieces.close()
    waiter.join(10)
    assert not waiter.is_alive()
    until(lambda: " read " not in children_of(pid), "nobody reads the log any more")


def test_events_tell_of_each_change_until_one_leaves(client: Client, tmp_path: Path):
    events = client.events()
    states: list[tuple[str, str]] = []
    reader = threading.Thread(target=lambda: states.extend((e["run"]["id"], e["run"]["state"]) for e in events if e.get("run")))
    reader.start()
    run = submit(client, tmp_path, "true")
    until(lambda: (run["id"], "done") in states, "the end is told")
    events.close()
    reader.join(10)
    assert not reader.is_alive()


# --- attach ------------------------------------------------------------------------------------------------------------------

def frames(link, want: str) -> list:
    """What comes until a frame of that kind, included."""
    found = []
    while True:
        frame = link.recv(30)
        assert frame is not None and frame[0] != "closed", found
        found.append(frame)
        if frame[0] == want:
            return found


def test_attach_gives_state_meta_bytes_and_exit(client: Client, tmp_path: Path):
    run = submit(client, tmp_path, "sh", "-c", "cat; echo bad >&2; exit 3", stdin="attached", split_stderr=True)
    with client.attach(run["id"]) as link:
        came = frames(link, "m")
        assert came[0][0] == "state" and came[0][1]["id"] == run["id"]
        link.send("i", b"one\n")
        assert frames(link, "o")[-1] == ("o", b"one\n")
        link.send("i", bytes(range(256)) * 1000)
        link.send("e")
        rest = frames(link, "x")
        assert b"".join(p for k, p in rest if k == "o") == bytes(range(256)) * 1000
        assert b"".join(p for k, p in rest if k == "r") == b"bad\n"
        assert json.loads(rest[-1][1])["code"] == 3 and link.ended
        assert (link.attempt, link.out, link.err) == (1, 256_004, 4)
        assert link.recv(10) == ("closed", b"") == link.recv(0)
    with client.attach(run["id"], attempt=1, out=256_000, err=4) as link:
        assert [k for k, _ in link] == ["state", "m", "o", "x"] and link.out == 256_004


def test_attach_waits_for_its_turn_and_tells_when_it_never_comes(client: Client, tmp_path: Path):
    first = submit(client, tmp_path, "sleep", "600")
    run = submit(client, tmp_path, "echo", "hi", after=[first["id"]])
    with client.attach(run["id"]) as link:
        assert link.recv(10)[1]["state"] == "pending" and link.recv(0.3) is None
        client.stop(run["id"])
        came = list(link)
        assert came[-1][0] == "state" and came[-1][1]["state"] == "stopped" and not link.ended
    with pytest.raises(NotFound):
        client.attach("none")
    other = submit(client, tmp_path, "true")
    until(lambda: client.wait(other["id"], 5)["state"] == "done", "it ends")
    with pytest.raises(NotFound) as caught:
        list(client.attach(other["id"], attempt=5))
    assert "no attempt 5" in caught.value.message


@pytest.mark.parametrize("how", ["close", "kill"])
def test_a_client_that_goes_leaves_no_process_behind(client: Client, home: Home, tmp_path: Path, how: str):
    """Also one whose input nobody takes."""
    pid = client.info()["pid"]
    run = submit(client, tmp_path, "sleep", "600", stdin="attached")
    script = ("import sys; from stoker.client import connect; link = connect().attach(sys.argv[1])\n"
              "while link.recv()[0] != 'm': pass\n"
              "print('in', flush=True)\n"
              "while True: link.send('i', b'x' * 60000)\n")
    other = subprocess.Popen([sys.executable, "-c", script, run["id"]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    quiet = client.attach(run["id"], input=False)
    frames(quiet, "m")
    other.stdout.readline()
    until(lambda: children_of(pid).count(" attach ") == 2, "both are attached")
    quiet.close()
    until(lambda: children_of(pid).count(" attach ") == 1, "one has gone")
    other.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
    other.wait(10)
    other.stdout.close()
    until(lambda: " attach " not in children_of(pid), "the other too", 40)
    assert client.run(run["id"])["state"] == "running"


def test_a_client_that_does_not_read_slows_the_stream(client: Client, tmp_path: Path):
    pid = client.info()["pid"]
    run = submit(client, tmp_path, "head", "-c", "300000000", "/dev/zero")
    until(lambda: client.wait(run["id"], 5)["state"] == "done", "it ends: nobody is waited for")
    before = rss_bytes(pid)
    with client.attach(run["id"]) as link:
        frames(link, "m")
        time.sleep(1)  # for the source to run ahead, if it did
        assert rss_bytes(pid) < before + (60 << 20)
        assert sum(len(p) for k, p in link if k == "o") == 300_000_000


def test_attached_through_the_death_of_the_server(client: Client, home: Home, tmp_path: Path):
    run = submit(client, tmp_path, "sh", "-c", "echo 1; read x; echo $x; exit 5", stdin="attached")
    with client.attach(run["id"]) as link:
        frames(link, "o")
        kill(client.info()["pid"])
        while (frame := link.recv(10)) != ("closed", b""):
            assert frame is not None
    with client.attach(run["id"], attempt=link.attempt, out=link.out, err=link.err) as link:
        frames(link, "m")
        link.send("i", b"2\n")
        assert b"".join(p for k, p in link if k == "o") == b"2\n"
    assert client.wait(run["id"], 20)["exit_code"] == 5 and len(servers_of(home)) == 1


def test_a_server_that_is_killed_loses_no_answer_that_it_gave(client: Client, home: Home, tmp_path: Path):
    """Submitted runs stay, whatever happens next; what was not answered may be asked again under its name."""
    given = []
    for n in range(3):
        given.append(submit(client, tmp_path, "true", name=f"n{n}")["id"])
        kill(client.info()["pid"])
    assert {r["id"] for r in client.runs(all=True)} == set(given)
    for run_id in given:
        until(lambda run_id=run_id: client.wait(run_id, 5)["state"] == "done", "it ends")
    with pytest.raises(StateError):
        submit(client, tmp_path, "false", name="n0")
    with pytest.raises(InvalidSpec):
        submit(client, tmp_path)

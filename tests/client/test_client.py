"""The client against servers that die, lie and stay silent, and what it costs to import."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker import client as client_module
from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, NotFound, ServerError, TargetError, UnknownField
from stoker.client import Client, connect

INFO = b'{"version": "0.1.0", "pid": 1}'


def answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


class Liar:
    """A program at the server's place: gives one prepared answer a connection, then the last one for ever."""

    def __init__(self, home: Home, *answers: bytes) -> None:
        home.server.mkdir(parents=True)
        self.asked: list[bytes] = []
        self._answers = list(answers)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(home.socket))
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            link, _ = self._socket.accept()
            with link:
                if not (asked := self._read(link)):
                    return
                self.asked.append(asked)
                link.sendall(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    @staticmethod
    def _read(link: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data and (piece := link.recv(65536)):
            data += piece
        return data.partition(b"\r\n")[0]

    def close(self, home: Home) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.connect(str(home.socket))
        self._thread.join()
        self._socket.close()


@pytest.fixture
def liar() -> Iterator[Callable[..., tuple[Client, Liar]]]:
    folder = Path(tempfile.mkdtemp(prefix="sk-", dir="/tmp"))
    home, made = Home(folder / "h"), []

    def make(*answers: bytes) -> tuple[Client, Liar]:
        made.append(Liar(home, *answers))
        return Client(home, start=False), made[0]

    try:
        yield make
    finally:
        for one in made:
            one.close(home)
        shutil.rmtree(folder)


def test_no_server_and_none_wanted(tmp_path: Path):
    with pytest.raises(ServerError) as caught:
        connect(Home(tmp_path), start=False)
    assert "is not running" in caught.value.message and caught.value.hint
    assert not list(tmp_path.iterdir()), "looking creates nothing"


def test_errors_come_back_as_they_were(liar):
    client, _ = liar(answer(b'{"error": "target_error", "message": "m.", "hint": "h", "retry": false}', b"502 Bad Gateway"))
    with pytest.raises(TargetError) as caught:
        client.run("x")
    assert (caught.value.message, caught.value.hint, caught.value.retry) == ("m.", "h", False)


@pytest.mark.parametrize("said", [answer(b"<html>"), answer(b"[1]", b"500 Oops"), answer(b"", b"503 Busy"), b"SSH-2.0-OpenSSH\r\n", b""])
def test_a_stranger_at_the_socket_is_a_server_error(liar, said: bytes):
    client, _ = liar(said)
    with pytest.raises(ServerError) as caught:
        client.top()
    assert "\n" not in caught.value.message


def test_a_get_is_asked_again_when_the_server_died(liar):
    client, server = liar(b"", answer(INFO), answer(b"[]"))
    assert client.runs() == []
    assert [line.split()[1] for line in server.asked] == [b"/v1/runs?all=false&limit=200", b"/v1/server", b"/v1/runs?all=false&limit=200"]


def test_a_server_that_dies_of_each_request_is_given_up(liar):
    client, server = liar(b"", answer(INFO), b"", answer(INFO), b"", answer(INFO))
    with pytest.raises(ServerError) as caught:
        client.top()
    assert len(server.asked) == 6 and "repeatedly" in caught.value.message


def test_what_may_have_been_done_is_not_done_twice(liar):
    client, server = liar(b"", answer(INFO), answer(b"{}"))
    with pytest.raises(ServerError) as caught:
        client.start("x")
    assert len(server.asked) == 1 and "stoker ps" in caught.value.hint


def test_an_answer_that_breaks_off_is_no_short_answer(liar):
    client, _ = liar(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", answer(INFO), b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")
    with pytest.raises(ServerError):
        client.run("x")


def test_a_log_that_breaks_off_says_so(liar):
    client, _ = liar(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    pieces = client.logs("x")
    assert next(pieces) == b"hello"
    with pytest.raises(ServerError):
        next(pieces)
    with pytest.raises(StopIteration):
        next(pieces)


def test_a_silent_server_is_given_up(liar, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "LOOK_MAX_S", 0.2)
    home = Home(Path(tempfile.mkdtemp(prefix="sk-", dir="/tmp")))
    home.server.mkdir()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.bind(str(home.socket))
            silent.listen()
            with pytest.raises(ServerError) as caught:
                connect(home)
        assert "did not answer" in caught.value.message
    finally:
        shutil.rmtree(home.path)


def test_a_server_of_the_same_version_that_lacks_what_we_send(liar):
    error = UnknownField("Any sentence.", fields=["hooks", "resume"]).to_json()
    client, _ = liar(answer(INFO), answer(json.dumps(error).encode(), b"400 Bad Request"))
    client.reach()
    with pytest.raises(ServerError, match="is older than this command and does not know these fields: hooks, resume") as wrong:
        client.submit({}, {}, {})
    assert "stoker server stop" in wrong.value.hint


def test_a_field_that_nobody_knows_is_the_server_s_refusal(liar):
    error = UnknownField("Any sentence.", fields=["colour"]).to_json()
    client, _ = liar(answer(INFO), answer(json.dumps(error).encode(), b"400 Bad Request"))
    client.reach()
    with pytest.raises(UnknownField, match="Any sentence") as wrong:
        client.submit({}, {}, {})
    assert wrong.value.fields == ("colour",)


def test_what_is_too_large_is_refused_before_it_is_sent(liar, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "BODY_MAX", 1000)
    client, server = liar(answer(b"{}"))
    with pytest.raises(InvalidSpec):
        client.submit({}, {}, {}, b"x" * 1000)
    assert not server.asked


def test_a_run_without_a_name_is_not_found(tmp_path: Path):
    with pytest.raises(NotFound):
        Client(Home(tmp_path)).rm("")


@pytest.mark.parametrize(("ref", "path"), [("a b", "a%20b"), ("-rf", "-rf"), ("日本", "%E6%97%A5%E6%9C%AC"), ("a/b?c#d", "a%2Fb%3Fc%23d"),
                                           ("x\udcff", "x%FF"), ("%41", "%2541")])
def test_any_name_makes_a_path(ref: str, path: str):
    assert client_module.path_of(ref, "show") == f"/v1/runs/{path}/show"


def test_queries_keep_odd_bytes_and_lists():
    words = {"folder": "/a b\udcff", "command": ["x", "--y=1&2"], "none": None, "yes": True, "n": 3}
    assert client_module.query_of(words) == "?folder=%2Fa%20b%FF&command=x&command=--y%3D1%262&yes=true&n=3"
    assert client_module.query_of({"none": None}) == ""


def test_versions_compare_as_numbers():
    read = client_module._version
    assert read("0.10.0") > read("0.9.9") and read("1.2.3rc1") == (1, 2, 3) and read("1.0.dev3") == (1, 0) and read("None") == ()


def test_importing_the_client_is_cheap():
    """Every command pays for this: nothing of the server, of the CLI, of asyncio or of typing comes along."""
    script = "import sys, stoker.client; print(*sorted(sys.modules))"
    loaded = set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30,
                                env={**os.environ, "PYTHONPROFILEIMPORTTIME": ""}).stdout.split())
    heavy = {"asyncio", "fastapi", "uvicorn", "sqlalchemy", "websockets", "click", "rich", "subprocess", "tomllib", "typing", "torch", "pydantic"}
    assert not heavy & loaded
    assert not [name for name in loaded if name.startswith("stoker.") and name.split(".")[1] not in ("base", "client")]

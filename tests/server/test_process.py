"""The server as a process: one a folder, found again, gone when it should be, and never a trace of who started it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from server_help import kill, servers_of, until

import stoker
from stoker import client as client_module
from stoker.base.config import Home, private_folder
from stoker.base.daemon import begin_ahead, server_command, server_environment
from stoker.base.errors import Denied, InvalidSpec, ServerError, StateError
from stoker.client import connect
from stoker.server.process import Door, Lock

CONNECT = "from stoker.client import connect; print(connect().info()['pid'])"


def start_clients(count: int, **environ: str) -> list[str]:
    """So many processes at once that all want a server; what each said."""
    crowd = [subprocess.Popen([sys.executable, "-c", CONNECT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **environ}) for _ in range(count)]
    said = [process.communicate(timeout=60) for process in crowd]
    assert not any(err for _, err in said), said
    return [out.strip() for out, _ in said]


def test_twenty_starters_end_with_one_server(home: Home):
    pids = start_clients(20)
    assert len(set(pids)) == 1
    until(lambda: servers_of(home) == [int(pids[0])], "those that found the lock held are gone", 60)


def test_a_server_begun_ahead_is_the_one_that_the_client_takes(home: Home):
    assert begin_ahead(home)
    pid = connect(home).info()["pid"]
    assert servers_of(home) == [pid] and home.server_log.read_text().count("serves at") == 1
    assert not begin_ahead(home), "one listens"
    kill(pid)
    assert begin_ahead(home), "a stale socket is nobody"
    assert connect(home).info()["pid"] != pid


def test_a_second_server_leaves_at_once_with_code_0(home: Home):
    pid = connect(home).info()["pid"]
    second = subprocess.run([sys.executable, "-m", "stoker.server"], check=False, capture_output=True, text=True, timeout=20)
    assert second.returncode == 0 and json.loads(second.stdout) == {"held": True} and servers_of(home) == [pid]


def test_a_killed_server_is_replaced_and_its_stale_socket_too(home: Home):
    client = connect(home)
    first = client.info()["pid"]
    kill(first)
    assert home.socket.is_socket(), "SIGKILL leaves the socket behind"
    assert client.runs() == []  # the same client goes on
    assert client.info()["pid"] != first and len(servers_of(home)) == 1


def test_killed_while_it_starts_it_is_started_again(home: Home):
    stop = threading.Event()

    def kill_early() -> None:
        """Two servers die as soon as they have the lock."""
        for _ in range(2):
            for pid in until(lambda: servers_of(home) or (stop.is_set() and [0]), "a server starts"):
                pid and kill(pid)

    killer = threading.Thread(target=kill_early)
    killer.start()
    try:
        client = connect(home)
    finally:
        stop.set()
        killer.join()
    assert [client.info()["pid"]] == servers_of(home)


def test_the_door_is_private_whatever_the_umask(home: Home):
    subprocess.run([sys.executable, "-c", "import os; os.umask(0); " + CONNECT], check=True, timeout=30, capture_output=True)
    for path, mode in ((home.socket, 0o600), (home.server, 0o700), (home.path, 0o700), (home.lock, 0o600), (home.server_log, 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_the_door_takes_no_rights_from_folders_that_other_threads_create(tmp_path: Path):
    """A umask is of the whole process: a folder that was created beside the door had no way in."""
    done, wrong = threading.Event(), []

    def create():
        for n in itertools.count():
            folder = tmp_path / str(n)
            folder.mkdir(mode=0o700)
            if stat.S_IMODE(folder.stat().st_mode) != 0o700:
                wrong.append(folder)
            folder.rmdir()
            if done.is_set():
                break

    beside = threading.Thread(target=create)
    beside.start()
    for n in range(300):
        Door(tmp_path / f"{n}.sock").close()
    done.set()
    beside.join()
    assert not wrong


def test_a_private_folder_without_rights_for_its_owner_gets_them(tmp_path: Path):
    folder = tmp_path / "sockets"
    folder.mkdir()
    folder.chmod(0o600)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


def test_it_keeps_nothing_of_whoever_started_it(home: Home, tmp_path: Path):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    marks = {"STOKER_RUN": "x", "STOKER_RUN_DIR": "/x", "STOKER_ATTEMPT": "1", "VIRTUAL_ENV": "/nowhere", "PYTHONSTARTUP": "/nowhere"}
    source = os.path.dirname(os.path.dirname(stoker.__file__))
    done = subprocess.run([sys.executable, "-P", "-c", CONNECT], check=True, timeout=30, capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, **marks, "PYTHONPATH": f"/nowhere:{source}"})
    pid = int(done.stdout)
    proc = Path(f"/proc/{pid}")
    environ = dict(item.split(b"=", 1) for item in (proc / "environ").read_bytes().split(b"\0") if item)
    assert environ[b"STOKER_DAEMON"] == os.fsencode(home.lock) and environ[b"PYTHONPATH"] == os.fsencode(source)
    assert not {os.fsencode(name) for name in marks} & set(environ)
    fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
    assert int(fields[3]) != os.getsid(0) and int(fields[3]) != pid and fields[4] == "0", "a session of its own, not its leader, no terminal"
    assert os.readlink(proc / "cwd") == str(home.path)
    assert os.readlink(proc / "fd/0") == os.devnull and os.readlink(proc / "fd/2") == str(home.server_log)
    ignored = int(next(line for line in (proc / "status").read_text().splitlines() if line.startswith("SigIgn")).split()[1], 16)
    assert not ignored & (1 << (signal.SIGHUP - 1)), "runs would inherit an ignored hangup"


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_soon_even_while_somebody_listens(home: Home, sign: int):
    client = connect(home)
    pid = client.info()["pid"]
    events = client.events()
    os.kill(pid, sign)
    until(lambda: not servers_of(home), "the server ends", 10)
    assert not home.socket.exists() and "runs continue" in home.server_log.read_text()
    with contextlib.suppress(ServerError):
        for _ in events:
            pass
    until(lambda: Lock.take(home.lock), "the lock is free", 5)


def test_shutdown_ends_only_the_server_that_was_meant(home: Home):
    client = connect(home)
    pid = client.info()["pid"]
    with pytest.raises(StateError):
        client.shutdown(pid=pid + 1)
    client.shutdown(pid=pid)
    until(lambda: not servers_of(home), "the server ends", 10)
    with pytest.raises(ServerError) as caught:
        connect(home, start=False)
    assert "is not running" in caught.value.message


@pytest.mark.parametrize("loss", ["socket", "lock", "folder", "replaced"])
def test_it_ends_when_its_place_is_gone(home: Home, loss: str):
    first = connect(home).info()["pid"]
    if loss == "socket":
        home.socket.unlink()
    elif loss == "lock":
        home.lock.unlink()
    else:
        shutil.rmtree(home.path)
        if loss == "replaced":
            home.server.mkdir(parents=True)
            home.lock.write_text("")
    second = connect(home).info()["pid"]  # nobody has to wait until the old one has noticed
    until(lambda: servers_of(home) == [second] or (loss == "lock" and first == second and not servers_of(home)), "only one is left")
    assert connect(home).runs() == []


def test_a_home_with_a_path_too_long_for_a_socket(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    long = Home(home.path / ("x" * 120))
    monkeypatch.setenv("STOKER_HOME", str(long.path))
    try:
        pid = connect(long).info()["pid"]
        assert start_clients(1, TMPDIR=str(tmp_path)) == [str(pid)], "another TMPDIR, the same server"
        assert stat.S_IMODE(long.socket.parent.stat().st_mode) == 0o700
    finally:
        for pid in servers_of(long):
            kill(pid)
        long.socket.unlink(missing_ok=True)


def test_a_home_that_cannot_be_used_is_one_sentence(home: Home, monkeypatch: pytest.MonkeyPatch):
    home.path.mkdir(parents=True)
    (home.path / "file").write_text("")
    for bad in (Home(home.path / "file" / "h"), Home(Path("/proc/stoker"))):
        monkeypatch.setenv("STOKER_HOME", str(bad.path))
        with pytest.raises(Denied) as caught:
            connect(bad)
        assert str(bad.path) in caught.value.message and "STOKER_HOME" in caught.value.hint and "\n" not in caught.value.message


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_a_home_of_another_user_is_refused(home: Home):
    home.path.mkdir(parents=True)
    os.chown(home.path, 65534, 65534)
    with pytest.raises(Denied) as caught:
        connect(home)
    assert "another user" in caught.value.message and not servers_of(home)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_server_of_another_user_gets_nothing(home: Home):
    home.server.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trap:
        trap.bind(str(home.socket))
        ready, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            trap.listen(1)  # the peer's credentials are those of the listener
            os.write(said, b"x")
            link, _ = trap.accept()
            os._exit(1 if link.recv(1) else 0)
        os.read(ready, 1)
        with pytest.raises(Denied) as caught:
            connect(home)
        assert "another user" in caught.value.message
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "not a byte was sent"
        os.close(ready)
        os.close(said)


def test_a_corrupt_config_is_named(home: Home):
    home.path.mkdir(parents=True)
    home.config.write_text("slots = [")
    with pytest.raises(InvalidSpec) as caught:
        connect(home)
    assert "config.toml" in caught.value.message
    home.config.unlink()
    assert connect(home).runs() == []


def test_a_stuck_server_is_reported_with_what_to_do(home: Home, monkeypatch: pytest.MonkeyPatch):
    pid = connect(home).info()["pid"]
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(client_module, "LOOK_MAX_S", 0.5)
    with pytest.raises(ServerError) as caught:
        connect(home)
    assert f"kill -9 {pid}" in caught.value.hint


def other_version(folder: Path, version: str) -> str:
    """A copy of the package under another version number; the PYTHONPATH that finds it first."""
    shutil.copytree(Path(stoker.__file__).parent, folder / "stoker", ignore=shutil.ignore_patterns("__pycache__"))
    init = folder / "stoker" / "__init__.py"
    init.write_text(init.read_text().replace(stoker.__version__, version))
    return str(folder)


def test_a_newer_client_replaces_the_server(home: Home, tmp_path: Path):
    old = other_version(tmp_path, "0.0.9")
    first = int(start_clients(1, PYTHONPATH=old)[0])
    assert connect(home, start=False, say=print).info()["version"] == "0.0.9", "without start nothing is replaced"
    told: list[str] = []
    client = connect(home, say=told.append)
    assert client.info()["version"] == stoker.__version__ and client.info()["pid"] != first
    assert len(told) == 1 and "0.0.9" in told[0] and "runs continue" in told[0]
    assert servers_of(home) == [client.info()["pid"]]
    with ThreadPoolExecutor(5) as pool:
        assert len(set(pool.map(lambda _: connect(home).info()["pid"], range(5)))) == 1


def test_an_older_client_is_told_so(home: Home, tmp_path: Path):
    new = other_version(tmp_path, "9.10.1")
    pid = int(start_clients(1, PYTHONPATH=new)[0])
    with pytest.raises(ServerError) as caught:
        connect(home)
    assert "9.10.1" in caught.value.message and "stoker server stop" in caught.value.hint
    assert servers_of(home) == [pid]


def test_a_client_reads_from_a_server_of_the_next_minor_version_and_stops_any(home: Home, tmp_path: Path):
    major, minor = stoker.__version__.split(".")[:2]
    start_clients(1, PYTHONPATH=other_version(tmp_path / "near", f"{major}.{int(minor) + 1}.3"))
    client = connect(home)
    assert client.runs() == [] and client.info()["version"] == f"{major}.{int(minor) + 1}.3"
    with pytest.raises(ServerError, match="older"):
        client.gc()
    stop = [str(Path(sys.executable).parent / "stoker"), "server", "stop"]
    for version in (None, "9.10.1"):
        if version:
            start_clients(1, PYTHONPATH=other_version(tmp_path / "far", version))
        done = subprocess.run(stop, env={**os.environ, "STOKER_HOME": str(home.path)}, capture_output=True, text=True, timeout=60, check=True)
        assert "Server stopped" in done.stdout
        until(lambda: not servers_of(home), "the end of the server")


def test_wait_stands_in_line_for_the_folder(home: Home):
    first = connect(home).info()["pid"]
    waiting = subprocess.Popen(server_command("--wait"), env=server_environment(os.environ, home), stdout=subprocess.PIPE)
    try:
        until(lambda: len(servers_of(home)) == 2, "the second stands in line")
        kill(first)
        assert json.loads(waiting.stdout.readline()) == {"ready": waiting.pid}
        assert connect(home).info()["pid"] == waiting.pid
    finally:
        waiting.terminate()
        assert waiting.wait(10) == 0
        waiting.stdout.close()


def test_the_log_rotates_and_takes_stderr_along(tmp_path: Path):
    script = (
        "import logging, os, sys; from stoker.base.config import Home; from pathlib import Path; from stoker.server import process\n"
        "process.LOG_MAX_BYTES = 2000; where = Home(Path(sys.argv[1])); where.server.mkdir(parents=True); process.open_log(where)\n"
        "for n in range(100): logging.info('line %d of many that fill the log', n)\n"
        "os.write(2, b'the last word\\n'); process.leave(0)")
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "h")], check=True, timeout=20)
    logs = sorted((tmp_path / "h" / "server").iterdir())
    assert [p.name for p in logs] == ["log", "log.1", "log.2"] and all(p.stat().st_size <= 2100 for p in logs)
    assert logs[0].read_text().endswith("the last word\n") and logs[0].stat().st_mode & 0o077 == 0

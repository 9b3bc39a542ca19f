"""The server is killed at every named point, and at random moments; the next one finds everything and nothing happens twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.patience import until

pytestmark = pytest.mark.slow

SERVER = """
import json, sys
from pathlib import Path
from stoker.base.config import Home
from stoker.base.errors import StokerError
from stoker.plane.service import Service
if sys.argv[2:]:
    sys._base_executable = sys.argv[2]  # the Python that agents are run with here
service = Service(Home(Path(sys.argv[1])))
print("ready", flush=True)
for line in sys.stdin:
    verb, args, more = json.loads(line)
    try:
        answer = getattr(service, verb)(*args, **more)
    except StokerError as e:
        answer = e.to_json()
    print(json.dumps(answer), flush=True)
service.close()
"""
# argv: a file to leave a mark in, numbered lines, pause between two
COUNT = """
import os, sys, time
with open(sys.argv[1], "ab", 0) as f: f.write(b"x")
for i in range(int(sys.argv[2])):
    os.write(1, b"line %d\\n" % i)
    time.sleep(float(sys.argv[3]))
"""
FOREVER = "import time; print('begun', flush=True); time.sleep(600)"
FINAL = ("done", "failed", "stopped")


class Killed(Exception):
    """The server died instead of answering."""


class Server:
    """A process that holds the plane of one state folder."""

    def __init__(self, home: Path, crash: str = "", python: str = "") -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER")} | ({"STOKER_CRASH_AT": crash} if crash else {})
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(home), *([python] if python else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.alive = self.process.stdout.readline() == b"ready\n"

    def __call__(self, verb: str, *args, **more):
        try:
            self.process.stdin.write(json.dumps([verb, args, more]).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise Killed from None
        line = self.process.stdout.readline()
        if not line:
            raise Killed
        return json.loads(line)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def dead(self) -> bool:
        return self.process.poll() == -signal.SIGKILL

    def end(self) -> None:
        """End it as a server ends; runs go on."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(20)
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class Ground:
    """A state folder, and servers on it one after the other."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.work = root, root / "h", root / "w"
        self.servers: list[Server] = []

    def server(self, crash: str = "", python: str = "") -> Server:
        server = Server(self.home, crash, python)
        self.servers.append(server)
        return server

    def counter(self, name: str, count: int = 5, pause: float = 0.01, **more) -> tuple:
        spec = {"command": [sys.executable, "-c", COUNT, str(self.work / name), str(count), str(pause)], "folder": str(self.work), "name": name, **more}
        return ("submit", spec, {}, {"PATH": os.environ["PATH"]}, None)

    def sleeper(self, name: str) -> tuple:
        return ("submit", {"command": [sys.executable, "-c", FOREVER], "folder": str(self.work), "name": name}, {}, {"PATH": os.environ["PATH"]}, None)

    def starts(self, name: str) -> int:
        path = self.work / name
        return len(path.read_bytes()) if path.exists() else 0

    def final(self, server: Server, name: str) -> dict:
        def look():
            run = server("run", name)
            assert "error" not in run, run
            return run if run["state"] in FINAL else None
        return until(look, f"the end of {name}")

    def log(self, run: dict, attempt: int = 1) -> bytes:
        return Path(run["folder"], "attempts", str(attempt), "out.log").read_bytes()

    def close(self) -> None:
        for server in self.servers:
            if server.process.poll() is None:
                server.kill()
        last = Server(self.home)
        for run in last("runs", all=True, limit=1000):
            if run["state"] not in FINAL:
                last("stop", run["id"], force=True)
        for run in last("runs", all=True, limit=1000):
            self.final(last, run["id"])
        last.end()


@pytest.fixture
def ground() -> Iterator[Ground]:
    root = Path(tempfile.mkdtemp(prefix="sc-", dir="/tmp"))
    (root / "w").mkdir()
    ground = Ground(root)
    try:
        yield ground
    finally:
        ground.close()
        until(lambda: not left_of(root), f"the end of all processes: {left_of(root)}", 20)
        shutil.rmtree(root, ignore_errors=True)


def left_of(root: Path) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if os.fsencode(root) in line and int(pid) != os.getpid():
                found.append(f"{pid} {line!r}")
    return found


def runs_still(pid: int) -> bool:
    """False for a process that is gone, or dead and not yet reaped by init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % i for i in range(count))


def test_a_kill_before_the_commit_leaves_no_run_and_the_folder_is_swept(ground):
    first = ground.server("submit.spooled")
    with pytest.raises(Killed):
        first(*ground.counter("mine"))
    assert len(os.listdir(ground.home / "spool")) == 1
    second = ground.server()
    assert second("runs", all=True) == []
    made = second(*ground.counter("mine"))
    assert ground.final(second, "mine")["state"] == "done" and ground.starts("mine") == 1
    from stoker.plane.control.spool import Spool
    swept = Spool(ground.home / "spool").sweep(lambda: {made["id"]}, time.time() + 61)
    assert len(swept) == 1 and os.listdir(ground.home / "spool") == []


POINTS = ["submit.committed", "stage.before", "stage.after", "start.before", "start.after",
          *(f"apply.{when}:{n}" for when in ("before", "after") for n in (1, 2, 3))]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_on_the_way_of_a_run_is_not_noticed(ground, point):
    first = ground.server(point)
    with contextlib.suppress(Killed):
        first(*ground.counter("mine", 40, 0.02))
    until(lambda: first.dead() or list((ground.home / "runs").glob("*/attempts/1/exit.json")), "the kill or the end")
    assert first.dead() or point.startswith("apply")  # there may be fewer steps than n
    second = ground.server()
    run = ground.final(second, "mine")
    assert (run["state"], run["reason"], run["attempts"]) == ("done", "exited", 1)
    assert ground.log(run) == lines(40) and ground.starts("mine") == 1
    assert os.listdir(ground.home / "spool") == []


@pytest.mark.parametrize("point", ["start.before", "start.after", "apply.before", "apply.after"])
def test_a_kill_on_the_way_of_a_second_attempt_starts_it_once(ground, point):
    quiet = ground.server()
    quiet(*ground.counter("mine"))
    ground.final(quiet, "mine")
    quiet.end()
    first = ground.server(point)
    first("start", "mine")
    until(first.dead, "the kill")
    second = ground.server()
    run = ground.final(second, "mine")
    assert (run["state"], run["attempts"]) == ("done", 2) and ground.starts("mine") == 2
    assert ground.log(run, 2) == lines(5)


@pytest.mark.parametrize("point", ["stop.before", "stop.after"])
def test_a_kill_between_the_wish_to_stop_and_its_telling_keeps_the_wish(ground, point):
    first = ground.server(point)
    first(*ground.sleeper("mine"))
    until(lambda: first("run", "mine")["state"] == "running", "the start")
    with contextlib.suppress(Killed):
        first("stop", "mine")
    until(first.dead, "the kill")
    run = ground.final(ground.server(), "mine")
    assert (run["state"], run["reason"]) == ("stopped", "stopped_by_user")


SLOW = """#!/bin/sh
case " $* " in *" start "*) echo $$ > {root}/waits; while [ ! -e {root}/go ]; do sleep 0.05; done ;; esac
exec {python} "$@"
"""


@pytest.mark.parametrize(("attempt", "wish"), [(1, "stop"), (2, "stop"), (1, "rm")])
def test_a_start_that_hangs_while_the_server_is_killed_and_the_run_stopped_comes_too_late(ground, attempt, wish):
    if attempt == 2:
        quiet = ground.server()
        quiet(*ground.counter("mine", 1000, 0.1))  # so long that no attempt ends by itself before it hears the wish
        until(lambda: ground.starts("mine") == 1, "the first attempt")
        quiet("stop", "mine")
        ground.final(quiet, "mine")
        quiet.end()
    slow, waits = ground.root / "python", ground.root / "waits"
    slow.write_text(SLOW.format(root=ground.root, python=sys._base_executable))
    slow.chmod(0o755)
    first = ground.server(python=str(slow))
    if attempt == 1:
        first(*ground.counter("mine", 1000, 0.1))
    else:
        first("start", "mine")
    until(lambda: waits.exists() and waits.read_text().strip(), "the start that hangs")
    first.kill()
    second = ground.server()
    folder = Path(second("run", "mine")["folder"])
    if wish == "stop":
        second("stop", "mine")
        run = ground.final(second, "mine")
        assert (run["state"], run["reason"]) == ("stopped", "stopped_by_user")
    else:
        assert "error" not in second("rm", "mine", force=True)
    begun = ground.starts("mine")  # on a busy machine the second server may start it before it hears the wish
    assert begun in (attempt - 1, attempt) and runs_still(int(waits.read_text()))
    (ground.root / "go").touch()
    until(lambda: not runs_still(int(waits.read_text())), "the end of the late start")
    assert ground.starts("mine") == begun
    assert begun == attempt or not list(folder.glob(f"attempts/{attempt}/agent.json"))
    if wish == "stop":
        assert second("run", "mine")["state"] == "stopped"
        second("start", "mine")  # and what is asked for now is done
        until(lambda: ground.starts("mine") == begun + 1, "the next attempt")
    else:
        assert not folder.exists()


def test_who_is_killed_for_good_goes_on_without_a_server(ground):
    first = ground.server()
    first(*ground.counter("mine", 30, 0.05))
    until(lambda: ground.starts("mine"), "the start")
    first.kill()
    until(lambda: list((ground.home / "runs").glob("*/attempts/1/exit.json")), "the end without a server")
    run = ground.final(ground.server(), "mine")
    assert run["state"] == "done" and ground.log(run) == lines(30)


def test_a_lost_database_is_rebuilt_from_the_folders(ground):
    first = ground.server()
    for name in ("ended", "living"):
        first(*ground.counter(name, 3 if name == "ended" else 60, 0.05, restarts=1))
    ended = ground.final(first, "ended")
    first(*ground.counter("waiting", after=["living"]))
    until(lambda: ground.starts("living"), "the start")
    first.kill()
    database = ground.home / "server" / "stoker.db"
    for path in database.parent.glob("stoker.db*"):
        path.write_bytes(b"noise" * 4000)
    second = ground.server()
    found = {r["name"]: r for r in second("runs", all=True)}
    assert set(found) == {"ended", "living", "waiting"}
    assert found["ended"]["id"] == ended["id"] and found["ended"]["state"] == "done"
    assert (found["waiting"]["state"], found["waiting"]["reason"]) == ("failed", "start_failed")
    info = second("info")
    assert all(any(word in line for line in info["warnings"]) for word in ("damaged", "were recovered"))
    assert list(database.parent.glob("stoker.db.corrupt-*"))
    run = ground.final(second, "living")
    assert (run["state"], run["attempts"]) == ("done", 1) and ground.log(run) == lines(60)
    second("start", "waiting")
    assert ground.final(second, "waiting")["state"] == "done"


def test_caretakers_killed_with_the_server_are_settled_and_the_run_restarted(ground):
    first = ground.server()
    first(*ground.counter("mine", 400, 0.05, restarts=1, backoff_s=0.1))
    until(lambda: ground.starts("mine"), "the start")
    run = first("run", "mine")
    until(lambda: first("run", "mine")["state"] == "running", "the state")
    first.kill()
    told = json.loads(Path(run["folder"], "attempts", "1", "agent.json").read_bytes())
    for who in ("holder", "agent"):
        os.kill(told[who]["pid"], signal.SIGKILL)
    second = ground.server()
    until(lambda: second("run", "mine")["attempts"] == 2 and ground.starts("mine") == 2, "the second attempt")
    assert not runs_still(told["run"]["pid"])
    shown = second("show", "mine")
    assert shown["attempts_detail"][0]["reason"] == "agent_lost"


@pytest.mark.timeout(400)
def test_kills_at_random_moments_lose_nothing(ground):
    """Runs print, others are submitted, stopped and started again; the server is killed 20 times."""
    chance = random.Random(int(os.environ.get("STOKER_TEST_SEED", "7")))
    wanted: dict[str, str] = {}  # name -> the state it shall end in
    attempts: dict[str, int] = {}
    for k in range(20):
        server = ground.server()
        deadline = time.monotonic() + chance.uniform(0.05, 1.2)
        n = 0
        while time.monotonic() < deadline and n < 4:
            n += 1
            name = f"r{k}-{n}"
            if chance.random() < 0.6:
                answer = server(*ground.counter(name, chance.randrange(5, 60), 0.02))
                wanted[name] = "done"
            else:
                answer = server(*ground.sleeper(name))
                wanted[name] = "stopped"
            assert "error" not in answer, answer
            attempts[name] = 1
            sleepers = [x for x, state in wanted.items() if state == "stopped"]
            if sleepers and chance.random() < 0.5:
                server("stop", chance.choice(sleepers), grace_s=0.5)
            time.sleep(chance.uniform(0, 0.1))
        time.sleep(max(0.0, deadline - time.monotonic()))
        server.kill()
    last = ground.server()
    for name, state in wanted.items():
        if state == "stopped":
            last("stop", name, grace_s=0.5)
    for name, state in wanted.items():
        run = ground.final(last, name)
        assert (run["state"], run["attempts"] <= 1) == (state, True), run
        if state == "done":
            spec = run["command"]
            assert ground.starts(name) == 1 and ground.log(run) == lines(int(spec[4])), name
    assert {r["name"] for r in last("runs", all=True, limit=1000)} == set(wanted)
    begun = {r["id"] for r in last("runs", all=True, limit=1000) if r["attempts"]}
    assert not begun & set(os.listdir(ground.home / "spool"))

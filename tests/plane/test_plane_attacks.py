"""What a hostile moment may not do to the plane: leave a run alone that nobody looks after, lose a stop, spin, or refuse on a full disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.patience import until
from stoker.base.config import Home, keep_reserve, make_home
from stoker.base.errors import Denied, TargetError
from stoker.hosts.base import Stream
from stoker.plane import present
from stoker.plane.control import reconciler
from stoker.plane.control.watching import first_lines
from stoker.plane.service import Service

FOREVER = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"]


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sa-", dir="/tmp"))
    (folder / "w").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def plane(home: Path) -> Iterator[Service]:
    service = Service(Home(home))
    try:
        yield service
    finally:
        for run in service.runs():
            service.stop(run["id"], force=True)
        for run in service.runs():
            service.wait(run["id"], 30)
        service.close()


def submit(service: Service, root: Path, command: list[str], **more) -> str:
    return service.submit({"command": command, "folder": str(root / "w"), **more}, {}, {"PATH": os.environ["PATH"]}, None)["id"]


def in_state(service: Service, run_id: str, *states: str) -> dict:
    return until(lambda: (run := service.run(run_id))["state"] in states and run, f"{states}, not {service.run(run_id)['state']}")


def frozen(verb: str) -> list[int]:
    """Stops the next process that asks the agent for this verb; its pid appears in the list."""
    caught: list[int] = []

    def look() -> None:
        deadline = time.monotonic() + 30
        while not caught and time.monotonic() < deadline:
            for pid in children():
                with contextlib.suppress(OSError):
                    if verb.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[4:]:
                        os.kill(pid, signal.SIGSTOP)
                        caught.append(pid)
            time.sleep(0.001)
    threading.Thread(target=look, daemon=True).start()
    return caught


def children() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/self/task/{task}/children").read_text().split())
    return found


def test_a_stop_while_the_second_attempt_is_on_its_way_does_not_leave_it_running_alone(root):
    """The look that follows the stop sees the first attempt, ended, since the start has not claimed the second one yet."""
    with plane(root / "h") as service:
        run_id = submit(service, root, FOREVER)
        in_state(service, run_id, "running")
        service.stop(run_id, force=True)
        in_state(service, run_id, "stopped")
        start = frozen("start")
        service.start(run_id)
        until(lambda: start, "the start")
        looks = watch_looks(service)
        service.stop(run_id, force=True)
        until(lambda: looks, "a look")
        time.sleep(0.1)
        os.kill(start[0], signal.SIGCONT)
        run = in_state(service, run_id, "stopped", "failed")
        seen = service._targets.get("local").backend.poll([run_id])[run_id]
        assert (run["reason"], seen.phase) == ("stopped_by_user", "ended"), seen


def test_a_start_in_the_moment_in_which_the_plane_lays_the_ended_run_aside_is_followed_to_its_end(root):
    """Between the last look into the store, which finds the run at rest, and the end of our care for it."""
    with plane(root / "h") as service:
        run_id = submit(service, root, FOREVER)
        in_state(service, run_id, "running")
        forget, started = service._reconciler._forget, []

        def late(which, *more):
            if not started:
                started.append(service.start(which))
            forget(which, *more)
        service._reconciler._forget = late
        service.stop(run_id, force=True)
        until(lambda: started, "the start")
        assert in_state(service, run_id, "running")["attempts"] == 2
        service.stop(run_id, force=True)
        assert in_state(service, run_id, "stopped")["reason"] == "stopped_by_user"


def watch_looks(service: Service) -> list:
    """The looks of the plane from now on."""
    looks: list = []
    backend = service._targets.get("local").backend
    poll = backend.poll

    def counted(ids):
        found = poll(ids)
        looks.append(ids)
        return found
    backend.poll = counted
    return looks


def test_a_look_that_hangs_does_not_make_the_loop_spin(root, monkeypatch):
    monkeypatch.setattr(reconciler, "POLL_S", 0.3)
    with plane(root / "h") as service:
        run_id = submit(service, root, FOREVER)
        in_state(service, run_id, "running")
        poll, turns = frozen("poll"), []
        until(lambda: poll, "a look")
        turn = service._reconciler._turn
        service._reconciler._turn = lambda: (turns.append(1), turn())
        time.sleep(2)
        os.kill(poll[0], signal.SIGCONT)
        assert len(turns) < 100


def test_a_machine_that_is_out_of_files_for_a_moment_is_asked_again():
    """In a process of its own, which has no descriptor left for the pipes of a child."""
    code = ("import resource, sys; from stoker.base.errors import TargetError; from stoker.hosts.local import LocalHost; import os\n"
            "host = LocalHost(); host.run(['true'])\n"
            "used = max(map(int, os.listdir('/proc/self/fd')))\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, 4096))\n"
            "for call in (host.run, host.open):\n"
            "    try: call(['true'])\n"
            "    except TargetError as e: print(e.retry, e.message)\n"
            "    else: print('started')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    told = done.stdout.splitlines()
    assert len(told) == 2 and all(line.startswith("True This machine has reached a limit") for line in told), (done.stdout, done.stderr)


@contextlib.contextmanager
def small_disk(where: Path, options: str) -> Iterator[Path]:
    where.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "stoker-test", str(where)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=False)


def fill(disk: Path) -> None:
    with open(disk / "filler", "ab", buffering=0) as f, contextlib.suppress(OSError):
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while f.write(b"x" * size) == size:
                    pass


@pytest.mark.parametrize("size", ["100m", "8m"])
def test_a_run_that_filled_the_disk_can_be_stopped_and_removed_by_this_server_and_by_the_next(root, size):
    with small_disk(root / "d", f"size={size}") as disk:
        with contextlib.closing(Service(Home(disk / "h"))) as service:
            for name in ("first", "second", "third"):
                in_state(service, submit(service, root, FOREVER, name=name), "running")
            fill(disk)
            service.stop("first", force=True)
            in_state(service, "first", "stopped")
            service.rm("first")
        fill(disk)
        with plane(disk / "h") as following:
            following.stop("second", force=True)
            in_state(following, "second", "stopped")
            following.rm("second")
            assert [r["name"] for r in following.runs(all=True)] == ["third"]


def test_what_is_kept_for_a_full_disk_is_made_again_when_there_is_room(root):
    with small_disk(root / "d", "size=100m") as disk:
        where = Home(disk / "h")
        make_home(where)
        keep_reserve(where)
        assert where.reserve.stat().st_size > 1 << 20
        fill(disk)
        make_home(where)
        assert not where.reserve.exists()
        fill(disk)
        with pytest.raises(Denied, match="No space left"):
            make_home(where)
        keep_reserve(where)
        assert not where.reserve.exists()
        (disk / "filler").unlink()
        keep_reserve(where)
        assert where.reserve.exists()


def test_restarts_are_counted_over_dead_caretakers(root):
    code = "import os, sys, time\nif os.environ['STOKER_ATTEMPT'] == '2': time.sleep(600)\nsys.exit(3)"
    with plane(root / "h") as service:
        run_id = submit(service, root, [sys.executable, "-c", code], restarts=2, backoff_s=0.1)
        folder = Path(service.run(run_id)["folder"])
        told = until(lambda: caretakers(folder / "attempts" / "2"), "the second attempt")
        for pid in told:
            os.kill(pid, signal.SIGKILL)
        run = in_state(service, run_id, "failed")
        assert (run["attempts"], run["reason"]) == (3, "nonzero_exit")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def caretakers(attempt: Path) -> list[int]:
    from stoker.base import rundir
    record = rundir.read_json(attempt / rundir.AGENT) or {}
    return [record[who]["pid"] for who in ("holder", "agent")] if record.get("run") and record.get("agent") else []


@contextlib.contextmanager
def running_on_a_disk(root: Path) -> Iterator[tuple[Service, str]]:
    """A plane, and a run on a target whose root may go away."""
    (root / "h").mkdir()
    (root / "disk").mkdir()
    (root / "h" / "config.toml").write_text(f'[targets.disk]\nroot = "{root}/disk"\n')
    with plane(root / "h") as service:
        run_id = submit(service, root, FOREVER, target="disk")
        in_state(service, run_id, "running")
        yield service, run_id


def test_caretakers_that_stand_still_are_told_and_force_ends_the_run_without_them(root, monkeypatch):
    monkeypatch.setattr(present, "STANDS_STILL_S", 3.0)
    (root / "h").mkdir()
    with plane(root / "h") as service:
        run_id = submit(service, root, FOREVER)
        in_state(service, run_id, "running")
        assert service.run(run_id)["still_s"] is None
        frozen = until(lambda: caretakers(root / "h" / "runs" / run_id / "attempts" / "1"), "the caretakers")
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        told = until(lambda: r if (r := service.run(run_id))["still_s"] else None, "the stillness", 40)
        assert "has been silent for" in told["sentence"] and told["next"] == f"stoker stop --force {told['name']}"
        assert service.show(run_id)["sentence"].startswith("Running.")
        service.stop(run_id)
        assert service.wait(run_id, 1)["state"] == "stopping"
        service.stop(run_id, force=True)
        ended = until(lambda: r if (r := service.wait(run_id, 1))["state"] == "stopped" else None, "the end", 40)
        assert ended["reason"] == "stopped_by_user" and ended["still_s"] is None
        assert not any(map(lives, frozen))


def test_a_disk_that_is_away_for_a_while_loses_no_run(root):
    with running_on_a_disk(root) as (service, run_id):
        os.rename(root / "disk", root / "away")
        service._reconciler.wake(run_id, "disk")
        until(lambda: service.run(run_id)["reachability"] == "unreachable", "the silence")
        assert service.run(run_id)["state"] == "running" and not (root / "disk").exists()
        os.rename(root / "away", root / "disk")
        until(lambda: service.run(run_id)["reachability"] == "ok", "the disk")
        assert service.run(run_id)["state"] == "running"


def test_a_disk_that_goes_away_under_a_look_loses_no_run(root, monkeypatch):
    """The look has loaded the agent already, and finds no folder: nothing is known, which is not the same as lost."""
    with running_on_a_disk(root) as (service, run_id):
        backend = service._targets.get("disk").backend
        loaded = shutil.copytree(root / "disk" / "agent", root / "loaded") / backend._agent.name
        monkeypatch.setattr(backend, "_agent_path", lambda: str(loaded))
        os.rename(root / "disk", root / "away")
        with pytest.raises(TargetError, match="does not exist") as raised:
            backend.poll([run_id])
        assert raised.value.retry and not (root / "disk").exists()
        service._reconciler.wake(run_id, "disk")
        until(lambda: service.run(run_id)["reachability"] == "unreachable", "the silence")
        assert service.run(run_id)["state"] == "running"
        os.rename(root / "away", root / "disk")
        until(lambda: service.run(run_id)["reachability"] == "ok", "the disk")


def test_a_machine_that_floods_in_its_first_words_is_cut_off():
    flood = subprocess.Popen([sys.executable, "-c", "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 1_000_000 + b'\\n')"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    stream = Stream(flood, "a flood")
    try:
        assert list(first_lines(stream)) == []
    finally:
        stream.close()

"""The state folder in every bad condition: unwritable, full, on a network, somebody else's, with a broken database."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from benchmarks.ground import NUMBERED, Ground, numbered, until
from parts import missing, refused, root_only, tmpfs

NOBODY = 65534


def fill(folder: Path) -> Path:
    """A file that takes all the space there is."""
    path = folder / "filler"
    with open(path, "wb", 0) as f:
        try:
            while True:
                f.write(b"x" * 65536)
        except OSError:
            pass
        try:
            while True:
                f.write(b"x")
        except OSError:
            pass
    return path


@root_only
def test_not_writable(ground: Ground):
    with tmpfs(ground.home, "size=4m,mode=700"):
        subprocess.run(["mount", "-o", "remount,ro", str(ground.home)], check=True)
        refused(ground.stoker("run", "--", "true"), 125, str(ground.home), "STOKER_HOME")
        refused(ground.stoker("ps"), 4, str(ground.home), "STOKER_HOME")


def test_the_state_folder_is_a_file(ground: Ground):
    ground.home.write_text("not a folder")
    refused(ground.stoker("ps"), 4, str(ground.home), "STOKER_HOME")
    assert ground.home.read_text() == "not a folder"


@root_only
def test_a_full_disk_from_the_start(ground: Ground):
    with tmpfs(ground.home, "size=1m,mode=700"):
        (ground.home / "tune").mkdir()
        fill(ground.home / "tune")
        done = ground.stoker("run", "--", "true")
        assert done.code == 125, done.err
        assert "Traceback" not in done.err
        assert "space" in done.err or "full" in done.err or "written" in done.err, done.err


@root_only
def test_a_disk_that_fills_under_a_living_server(ground: Ground):
    with tmpfs(ground.home, "size=24m,mode=700"):
        first = ground.detach("--", "echo", "kept")
        ground.wait_state(first["id"])
        filler = fill(ground.home)
        done = ground.stoker("run", "-d", "--", "true")
        assert done.code == 125 and "Traceback" not in done.err, done.err
        assert ground.show(first["id"])["state"] == "done", "reading must go on"
        filler.unlink()
        until(lambda: ground.stoker("run", "-d", "--name", "after", "--", "true").code == 0, 30, "a run once there is space again")
        assert ground.wait_state("after")["state"] == "done"
        assert ground.log(first["id"]) == b"kept\n"
        ground.end_runs()
        ground.stoker("server", "stop").ok()
        until(lambda: not ground.processes(), 20, "the end of all processes")


@root_only
def test_a_log_on_a_full_disk_keeps_draining(ground: Ground):
    """The run goes on though nothing of its output can be kept; the log of a pty run gets a gap mark."""
    with tmpfs(ground.home, "size=24m,mode=700"):
        ground.script("loud.py", "import os, sys, time\nfor i in range(400):\n    try: os.write(1, b'x' * 99999 + b'\\n')\n    except OSError: pass\n"
                                 "open('finished', 'w').close()\n")
        term = ground.terminal("run", "loud.py")
        until(lambda: term.pump() or (ground.work / "finished").exists(), 60, "the end of a run whose log has no space")
        term.wait(60)
        term.close()
        run = ground.runs()[0]
        assert run["state"] in ("done", "failed")
        ground.stoker("server", "stop").ok()
        until(lambda: not ground.processes(), 20, "the end of all processes")


@root_only
def test_of_another_user(ground: Ground):
    ground.home.mkdir(mode=0o700)
    os.chown(ground.home, NOBODY, NOBODY)
    refused(ground.stoker("ps"), 4, "another user")
    refused(ground.stoker("run", "--", "true"), 125, "another user")
    assert not (ground.home / "server" / "stoker.db").exists()


@pytest.mark.parametrize(("mode", "inside"), [(0o1777, []), (0o755, ["thesis.txt"])], ids=["shared", "with other files"])
def test_a_folder_that_is_not_stokers_is_left_as_it_is(ground: Ground, mode: int, inside: list[str]):
    ground.home.mkdir()
    for name in inside:
        (ground.home / name).touch()
    ground.home.chmod(mode)
    refused(ground.stoker("ps"), 4, str(ground.home), f"STOKER_HOME={ground.home}/stoker")
    refused(ground.stoker("run", "--", "true"), 125, str(ground.home))
    assert (ground.home.stat().st_mode & 0o7777, os.listdir(ground.home)) == (mode, inside)


def test_a_database_that_is_deleted_under_a_live_server_is_made_again(ground: Ground):
    run = ground.detach("--name", "living", "--", "sleep", "100")
    ground.wait_state(run["id"], "running")
    for path in (ground.home / "server").glob("stoker.db*"):
        path.unlink()
    until(lambda: "living" in ground.stoker("ps").out, 20, "the run in ps")
    assert ground.stoker("run", "--", "true").code == 0
    ground.stoker("stop", "--force", "living").ok()
    assert ground.wait_state(run["id"])["reason"] == "stopped_by_user"


def test_a_server_keeps_no_secret_of_the_shell_that_came_first(ground: Ground):
    ground.stoker("ps", env={"API_KEY": "very-secret", "STOKER_ATTEMPT": "7", "LC_TIME": "C"}).ok()
    told = Path(f"/proc/{ground.server_pid()}/environ").read_bytes().split(b"\0")
    assert not [each for each in told if each.startswith((b"API_KEY=", b"STOKER_ATTEMPT="))]
    assert {b"LC_TIME=C", b"HOME=" + os.fsencode(ground.user), b"STOKER_HOME=" + os.fsencode(ground.home)} <= set(told)


def test_words_of_a_run_do_not_steer_the_terminal(ground: Ground):
    evil = r"\u001b[31m\u009b2J\udc9b5m\u202egnp.\nforged line"
    run = ground.detach("--", "sleep", "100")
    ground.wait_state(run["id"], "running")
    (ground.folder(run["id"]) / "code" / "commit.json").write_text(f'{{"commit": "{evil}"}}')
    ground.attempt_file(run["id"], 1, "stop.json").write_text(f'{{"reason": "{evil}", "grace_s": [0, 0]}}')
    ended = ground.wait_state(run["id"])
    assert (ended["reason"], ended["state"]) == ("unknown", "failed")
    for words in (("show", run["id"]), ("ps", "-a"), ("wait", run["id"])):
        done = ground.stoker(*words)
        text = done.stdout + done.stderr
        assert not [mark for mark in (b"\x1b[31m", b"\x9b", "\u202e".encode(), b"\nforged line") if mark in text], text


def test_others_may_not_look_in(ground: Ground):
    ground.home.mkdir(mode=0o755)
    ground.home.chmod(0o755)
    ground.stoker("ps").ok()
    assert ground.home.stat().st_mode & 0o077 == 0


@pytest.mark.real("sshfs")
@root_only
def test_on_a_network_file_system(ground: Ground):
    sftp = next((p for p in ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server") if Path(p).exists()), None)
    if not shutil.which("sshfs") or not sftp:
        missing("sshfs or sftp-server")
    if not Path("/dev/fuse").exists():
        pytest.skip("this machine has no /dev/fuse")
    ground.home.mkdir()
    there = ground.root / "there"
    there.mkdir()
    link = ground.script("link", f"#!/bin/sh\nexec {sftp}\n", 0o755, folder=ground.root)
    made = subprocess.run(["sshfs", "-o", f"ssh_command={link}", f"far:{there}", str(ground.home)], capture_output=True, text=True, check=False, timeout=20)
    if made.returncode:
        pytest.skip(f"sshfs cannot mount here: {made.stderr.strip()}")
    try:
        refused(ground.stoker("ps"), 4, "network", "fuse.sshfs", "STOKER_HOME")
        refused(ground.stoker("run", "--", "true"), 125, "network")
        assert not (there / "server" / "stoker.db").exists()
    finally:
        subprocess.run(["umount", str(ground.home)], check=False)


def test_a_very_long_path(ground: Ground):
    deep = ground.root / ("d" * 100) / ("e" * 100)
    env = {"STOKER_HOME": str(deep)}
    run = ground.stoker("run", "-d", "--json", "--", "echo", "hello", env=env).json()
    assert ground.stoker("wait", run["id"], env=env).code == 0
    assert ground.stoker("logs", run["id"], env=env).stdout == b"hello\n"
    ground.stoker("server", "stop", env=env).ok()


@pytest.mark.parametrize("kind", ["torn", "noise", "empty", "foreign", "folder"])
def test_a_corrupt_or_foreign_database_is_kept_aside_and_runs_are_found_again(ground: Ground, kind: str):
    ground.script("count.py", NUMBERED)
    side = str(ground.work / "starts")
    ended = ground.detach("--name", "ended", "--", "echo", "kept")
    ground.wait_state("ended")
    living = ground.detach("--name", "living", "count.py", "150", "0.02", side)
    ground.until_log(living["id"], b"line 5\n")
    ground.kill_server()
    database = ground.home / "server" / "stoker.db"
    for extra in ("-wal", "-shm"):
        Path(str(database) + extra).unlink(missing_ok=True)
    if kind == "torn":
        data = bytearray(database.read_bytes())
        data[100:] = b"\xa5" * (len(data) - 100)
        database.write_bytes(data)
    elif kind == "noise":
        database.write_bytes(os.urandom(50_000))
    elif kind == "empty":
        database.write_bytes(b"")
    elif kind == "folder":
        database.unlink()
        database.mkdir()
    else:
        database.unlink()
        with sqlite3.connect(database) as other:
            other.execute("create table cats (name text)")
            other.execute("insert into cats values ('Tom')")
    old = None if kind in ("empty", "folder") else database.read_bytes()
    found = {r["name"]: r for r in ground.runs()}
    assert set(found) == {"ended", "living"}
    assert found["ended"]["id"] == ended["id"] and found["ended"]["state"] == "done"
    if old:
        aside = [p for p in database.parent.iterdir() if p.name.startswith("stoker.db") and p != database and p.is_file() and p.read_bytes()[:4096] == old[:4096]]
        assert aside, f"the old file was not kept: {os.listdir(database.parent)}"
    finished = ground.wait_state("living")
    assert (finished["state"], finished["attempts"]) == ("done", 1)
    assert ground.log(living["id"]) == numbered(150)
    assert ground.stoker("logs", "ended").stdout == b"kept\n"


def test_a_torn_run_folder_harms_nobody_else(ground: Ground):
    good = ground.detach("--name", "good", "--", "echo", "kept")
    bad = ground.detach("--name", "bad", "--", "echo", "torn")
    for run in (good, bad):
        ground.wait_state(run["id"])
    ground.kill_server()
    (ground.home / "server" / "stoker.db").write_bytes(b"noise" * 1000)
    for extra in ("-wal", "-shm"):
        Path(str(ground.home / "server" / "stoker.db") + extra).unlink(missing_ok=True)
    (ground.folder(bad["id"]) / "spec.json").write_bytes(b'{"command": [')
    (ground.home / "runs" / "stray").mkdir()
    (ground.home / "runs" / "file").write_text("x")
    assert ground.show("good")["state"] == "done"
    assert (ground.folder(bad["id"]) / "attempts" / "1" / "out.log").read_bytes() == b"torn\n"


def test_a_stale_socket_and_lock_do_not_stop_a_new_server(ground: Ground):
    ground.stoker("ps").ok()
    ground.kill_server()
    assert ground.stoker("ps").ok().code == 0
    assert len(ground.server_pids()) == 1


def test_racing_starters_end_with_one_server(ground: Ground):
    started = [ground.start_stoker("ps", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)]
    results = [(*proc.communicate(timeout=60), proc.returncode) for proc in started]
    assert [code for _, _, code in results] == [0] * 6, results
    assert ground.server_pid()

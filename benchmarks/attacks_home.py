"""Attacks on the state folder: its disk, its database, the folder itself,
and what the server keeps of a shell."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.attacks import Attack, Skipped, attack
from benchmarks.ground import Ground, alive, kill, until

ATTACKS: list[Attack] = []


@contextlib.contextmanager
def _small(options: str) -> Iterator[Ground]:
    """A ground of its own on a small disk."""
    ground = Ground()
    ground.home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", options, "stoker-attack", str(ground.home)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        ground.close()
        raise Skipped(f"no tmpfs can be mounted: {made.stderr.strip()}")
    try:
        yield ground
        ground.end_runs()
        ground.stoker("server", "stop").ok()
        until(lambda: not ground.processes(), 20, "the end of all processes")
    finally:
        for pid in ground.processes():
            kill(pid)
        subprocess.run(["umount", "-l", str(ground.home)], check=False)
        ground.close()


def _fill(folder: Path) -> None:
    with contextlib.suppress(OSError), open(folder / "filler", "wb", buffering=0) as f:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while f.write(b"x" * size):
                    pass


@attack(ATTACKS, "disk", "8 MB, full: stop", quick=True)
def small_and_full(_shared: Ground) -> None:
    with _small("size=8m,mode=700") as ground:
        run = ground.detach("--", "sleep", "1000")
        ground.wait_state(run["id"], "running")
        _fill(ground.home)
        done = ground.stoker("stop", "--force", run["id"])
        assert done.code == 0, done.err
        assert ground.wait_state(run["id"])["state"] == "stopped"
        (ground.home / "filler").unlink()


@attack(ATTACKS, "disk", "no inodes left: stop")
def no_inodes(_shared: Ground) -> None:
    with _small("size=64m,nr_inodes=400,mode=700") as ground:
        run = ground.detach("--", "sleep", "1000")
        ground.wait_state(run["id"], "running")
        files = ground.home / "tune"
        files.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            for n in range(1000):
                (files / str(n)).touch()
        assert ground.stoker("stop", "--force", run["id"]).code == 0
        shutil.rmtree(files)


@attack(ATTACKS, "database", "deleted under a live server")
def deleted_database(ground: Ground) -> None:
    run = ground.detach("--", "sleep", "1000")
    ground.wait_state(run["id"], "running")
    for path in (ground.home / "server").glob("stoker.db*"):
        path.unlink()
    until(lambda: run["id"] in ground.stoker("ps", "--json").out, 20, "the run in ps")
    assert ground.stoker("run", "--", "true").code == 0, "no new run can be made"
    ground.stoker("stop", "--force", run["id"]).ok()
    assert (ground.home / "server" / "stoker.db").exists()


@attack(ATTACKS, "other users", "STOKER_HOME is a folder with other files")
def foreign_home(ground: Ground) -> None:
    folder = ground.root / "mine"
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / "thesis.txt").write_text("x")
    _refused(ground, folder)


@attack(ATTACKS, "other users", "STOKER_HOME is shared by all users", quick=True)
def shared_home(ground: Ground) -> None:
    folder = ground.root / "shared"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    _refused(ground, folder)


def _refused(ground: Ground, folder: Path) -> None:
    mode, names = folder.stat().st_mode, sorted(os.listdir(folder))
    for words, code in ((("ps",), 4), (("run", "--", "true"), 125)):
        done = ground.stoker(*words, env={"STOKER_HOME": str(folder)})
        assert done.code == code and "hint:" in done.err, (done.code, done.err)
    assert folder.stat().st_mode == mode, "its mode was changed"
    assert sorted(os.listdir(folder)) == names, "something was put into it"


@attack(ATTACKS, "other users", "a secret in the environment of the first shell")
def secrets(ground: Ground) -> None:
    ground.stoker("server", "stop")
    ground.stoker("ps", env={"WANDB_API_KEY": "very-secret", "STOKER_ATTEMPT": "7"}).ok()
    told = Path(f"/proc/{ground.server_pid()}/environ").read_bytes()
    assert b"very-secret" not in told and b"STOKER_ATTEMPT" not in told, "the server keeps it"


@attack(ATTACKS, "deletion", "the whole state folder is deleted under a run that then ends")
def vanished_home(_shared: Ground) -> None:
    ground = Ground()
    try:
        run = ground.detach("--", "sh", "-c", f"while ! test -e {ground.work}/end; do sleep 0.1; done")
        caretakers = ground.caretakers(run["id"])
        ground.run_pid(run["id"])
        shutil.rmtree(ground.home)
        (ground.work / "end").touch()
        until(lambda: not any(map(alive, caretakers)), 60, "the caretakers leave")
        assert not (ground.home / "runs").exists(), "the folder was made again"
    finally:
        ground.close()


@attack(ATTACKS, "deletion", "the state folder is moved under a run")
def moved_home(_shared: Ground) -> None:
    ground = Ground()
    try:
        run = ground.detach("--", "sh", "-c", "sleep 6; echo done")
        ground.wait_state(run["id"], "running")
        moved = ground.root / "moved"
        ground.home.rename(moved)
        until(
            lambda: (moved / "runs" / run["id"] / "attempts/1/out.log").read_bytes() == b"done\n",
            20,
            "the end of the run's log",
        )
        moved.rename(ground.home)
        until(lambda: ground.json_file(run["id"], 1, "exit.json"), 40, "the last words")
        assert ground.show(run["id"])["state"] == "done"
    finally:
        ground.close()

"""Attacks on deletion: links planted where Stoker deletes. What they point to stays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.attacks import Attack, attack
from benchmarks.ground import Ground, until

ATTACKS: list[Attack] = []
GROUP = "deletion"


def _victim(ground: Ground) -> Path:
    """A folder of the user's with some files in it, and names that Stoker uses among them."""
    folder = ground.root / "victim"
    shutil.rmtree(folder, ignore_errors=True)
    for name in (
        "images/1/data",
        "images/1/manifest.json",
        "1/data",
        "log",
        "log.old",
        "audit/room/order.json",
        "keep/own.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def _planted(ground: Ground, lines: str, *options: str) -> None:
    """A run that executes these lines of sh ($v: the victim, $r:
    its run folder) ends well and is deleted; the victim is as it was."""
    victim = _victim(ground)
    before, modes = _files(victim), victim.stat().st_mode
    run = ground.detach(*options, "--", "sh", "-c", f"v={victim}; r=$STOKER_RUN_DIR; {lines}")
    ground.wait_state(run["id"])
    until(lambda: not any(run["id"] in text for text in _caretakers(ground)), 60, "the caretakers leave")
    assert _files(victim) == before, f"gone at the run's end: {sorted(before - _files(victim))}"
    ground.stoker("rm", "-y", "--force", run["id"]).ok()
    assert _files(victim) == before, f"gone with the run: {sorted(before - _files(victim))}"
    assert victim.stat().st_mode == modes, "its mode was changed"
    left = [path.name for path in (ground.home / "runs").iterdir() if run["id"] in path.name]
    assert not left, f"left in runs: {left}"


def _caretakers(ground: Ground) -> list[str]:
    return [Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace") for pid in ground.processes()
            if Path(f"/proc/{pid}/cmdline").exists()]


@attack(ATTACKS, GROUP, "resume/images is a link, resume off", quick=True)
def images(ground: Ground) -> None:
    _planted(ground, "mkdir -p $r/resume; ln -s $v $r/resume/images", "--resume", "off")


@attack(ATTACKS, GROUP, "resume is a link")
def resume(ground: Ground) -> None:
    _planted(ground, "rm -rf $r/resume; ln -s $v $r/resume")


@attack(ATTACKS, GROUP, "resume/audit is a link")
def audit(ground: Ground) -> None:
    _planted(ground, "mkdir -p $r/resume; ln -s $v/audit $r/resume/audit; sleep 5", "--audit")


@attack(ATTACKS, GROUP, "a room in resume/audit is a link")
def room(ground: Ground) -> None:
    _planted(ground, "mkdir -p $r/resume/audit; ln -s $v/audit/room $r/resume/audit/room; sleep 5", "--audit")


@attack(ATTACKS, GROUP, "a planted .rm-ID-1", quick=True)
def removal(ground: Ground) -> None:
    _planted(ground, "ln -s $v $r/../.rm-$STOKER_RUN-1")


@attack(ATTACKS, GROUP, "the run folder is replaced by a link")
def run_folder(ground: Ground) -> None:
    _planted(ground, "mv $r $r.old; ln -s $v $r; rm -rf $r.old")


@attack(ATTACKS, GROUP, "links in every corner of the run folder")
def inside(ground: Ground) -> None:
    _planted(
        ground,
        (
            "for d in . attempts attempts/1 code resume work; do mkdir -p $r/$d; ln -s $v $r/$d/to; "
            "ln -s $v/log $r/$d/file; done"
        ),
    )


DEEP = """
import os, sys
os.chdir(os.environ["STOKER_RUN_DIR"])
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.symlink(sys.argv[1], "end")
os.chdir(os.environ["STOKER_RUN_DIR"])
os.chmod("d", 0)
"""


@attack(ATTACKS, GROUP, "folders 3,000 deep, without rights")
def deep(ground: Ground) -> None:
    script = ground.script("deep.py", DEEP)
    try:
        _planted(ground, f"python -I {script} $v")
    finally:
        # too deep for Python's own removal
        subprocess.run(["rm", "-rf", str(ground.home / "runs")], check=False)


@attack(ATTACKS, GROUP, "links in the spool")
def spool(ground: Ground) -> None:
    victim = _victim(ground)
    before = _files(victim)
    run = ground.detach("--", "true")
    ground.wait_state(run["id"])
    (ground.home / "spool" / run["id"]).symlink_to(victim)
    ground.stoker("rm", "-y", run["id"]).ok()
    assert _files(victim) == before, f"gone: {sorted(before - _files(victim))}"

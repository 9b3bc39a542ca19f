"""An image that is refused costs the user nothing: whichever way his files changed since, and wherever a life is killed on its way, each of
them is what it was at the kill: content, time, mode, links."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lives import live
from random_files import KILLER, UNDO, begin, run, same

# Each round changes files of all kinds. `WHEN` is the round in which the second life leaves its way.
KINDS = '''
import os, shutil
begin()
second = os.environ["STOKER_ATTEMPT"] == "2"
os.makedirs("kept/deep", exist_ok=True)
for name in ("rewritten", "appended", "cut", "sparse", "timed"):
    with open(name, "wb") as f: f.write(name.encode() * 500)
for i in range(20):
    with open(f"gone{i}", "w") as f: f.write(str(i))
os.truncate("sparse", 8 << 20)
os.mkdir("moved0")
held = open("held", "w")
for i in range(20):
    if i == WHEN and second: open("another", "w").close()
    held.write(f"{i} " * 99); held.flush()
    with open("tmp", "w") as f: f.write(f"replaced {i}")
    os.replace("tmp", "replaced")
    os.chmod("replaced", 0o640)
    with open("rewritten", "w") as f: f.write(f"rewritten {i}")
    with open("kept/deep/appended", "a") as f: f.write(f"appended {i}")
    with open("appended", "a") as f: f.write(f"appended {i}")
    os.truncate("cut", 400 - i)
    os.remove(f"gone{i}")
    with open(f"new{i}", "w") as f: f.write(f"new {i}")
    with open("sparse", "r+b") as f: f.seek((i % 7) << 20); f.write(b"x" * 99)
    os.symlink(f"new{i}", "link"); os.replace("link", "latest")
    os.link(f"new{i}", "best.tmp"); os.replace("best.tmp", "best")
    os.utime("timed", (i, i))
    os.makedirs(f"folder{i}/inner")
    with open(f"folder{i}/inner/file", "w") as f: f.write(f"in folder {i}")
    if i > 1: shutil.rmtree(f"folder{i - 2}")
    os.rename(f"moved{i}", f"moved{i + 1}")
    with open(f"moved{i + 1}/{i}", "w") as f: f.write("moved")
    if i == 5: image()
    if i == 12 and not second: os.kill(os.getpid(), 9)
'''

GIVE = '''
import os, signal, sys
sys.path.insert(0, {src!r})
from stoker.inside.resume.world import as_found
base, kill_at = sys.argv[1], int(sys.argv[2])
''' + KILLER + '''os.environ["STOKER_ATTEMPT"] = "3"
as_found.begin(os.path.join(base, "resume"))
'''


def test_a_mark_that_makes_no_sense_stops_nobody(tmp_path: Path) -> None:
    base = begin(tmp_path, 70)
    then = found(base / "work")
    (base / "resume" / "put_back").write_text("nonsense")
    run(GIVE, base, 0)
    unchanged(then, found(base / "work"))
    assert "all (ValueError" in (base / "resume" / "state.json").read_text()


def found(folder: Path) -> dict:
    """path -> all that one sees of it, its kind of time included."""
    shapes, names = {}, {}
    for path in sorted([folder, *folder.rglob("*")]):
        now = path.lstat()
        held = os.readlink(path) if path.is_symlink() else sorted(os.listdir(path)) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        names.setdefault(now.st_ino, []).append(str(path.relative_to(folder)))
        shapes[str(path.relative_to(folder))] = (stat.filemode(now.st_mode), now.st_mtime_ns, held, names[now.st_ino])
    return shapes


def unchanged(then: dict, now: dict) -> None:
    assert {path: (then.get(path), now.get(path)) for path in then.keys() | now.keys() if then.get(path) != now.get(path)} == {}


@pytest.mark.parametrize("at", [3, 9])
def test_a_refused_image_leaves_the_files_as_at_the_kill(tmp_path: Path, at: int) -> None:
    """Refused on the way to the image, and in what is repeated behind it: then they were put back, and the script had written again."""
    script = KINDS.replace("WHEN", str(at))
    one = live(tmp_path / "run", script)
    assert one.returncode == -9, one.stderr
    then = found(tmp_path / "run" / "work")
    two = live(tmp_path / "run", script, attempt=2)
    assert "DIVERGED" in two.stdout, (two.stdout, two.stderr)
    unchanged(then, found(tmp_path / "run" / "work"))
    assert not (tmp_path / "run" / "resume" / "put_back").exists()


@pytest.mark.parametrize("seed", range(60, 63))
def test_killed_while_files_are_put_back_or_given_back(tmp_path: Path, seed: int) -> None:
    """Whenever that is, the next life finds the files as at the first kill; and the image can still be used."""
    base = begin(tmp_path, seed)
    then = found(base / "work")
    for kill_at in (*range(1, 40, 3), 60, 90, 0):
        run(UNDO, base, 2, kill_at)
        for give_at in (2 + kill_at // 3, 5 + kill_at // 2):
            run(GIVE, base, give_at)
        run(GIVE, base, 0)
        unchanged(then, found(base / "work"))
    run(UNDO, base, 1, 0)
    same(base, 1)
    run(UNDO, base, 2, 0)
    same(base, 2)

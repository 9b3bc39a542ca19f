"""The undo journal: whatever a script does to its files after an image, and wherever it or the undoing is killed, each file comes back as
it was at the image."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from random_files import UNDO, begin, run, same


@pytest.mark.parametrize("seed", range(12))
def test_every_file_comes_back(tmp_path: Path, seed: int) -> None:
    base = begin(tmp_path, seed)
    run(UNDO, base, 2, 0)
    same(base, 2)
    run(UNDO, base, 2, 0)
    same(base, 2)
    run(UNDO, base, 1, 0)  # the older image too, after the newer one
    same(base, 1)


@pytest.mark.parametrize("seed", range(20, 26))
def test_killed_between_the_journal_and_the_change(tmp_path: Path, seed: int) -> None:
    base = begin(tmp_path, seed, kill_at=3 + seed % 7)
    run(UNDO, base, 2, 0)
    same(base, 2)


KILLED_AT_AN_IMAGE = '''
import os, signal, sys
sys.path.insert(0, {src!r})
from stoker.inside.resume.core import phases; from stoker.inside.resume.world import as_found, journal
base, kill_at = sys.argv[1], int(sys.argv[2])
phases.folder, phases.attempt = os.path.join(base, "resume"), 1
path = os.path.join(base, "work", "notes")
seen = 0


def killer(event, args):
    global seen
    if event in ("open", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.listdir", "os.truncate", "os.link", "os.utime"):
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def change(text):
    journal.touch(path, journal.OVERWRITE)
    with open(path, "w") as f:
        f.write(text)


change("at the image")
journal.begin(1)
journal.sync()
change("behind it")
sys.addaudithook(killer)
journal.begin(2)  # another image is being taken, and never becomes one
change("behind another")
journal.begin(3)
journal.forget(1)
as_found.put_back(1, {{}})
change("behind it again")
as_found.accept()
journal.begin(5)
journal.forget(5)
os._exit(3)
'''


@pytest.mark.timeout(400)
def test_killed_anywhere_around_an_image(tmp_path: Path) -> None:
    """Each moment from the next image's begin to the way back and on, one after the other: the file is as it was at the first image."""
    for kill_at in range(1, 200):
        base = tmp_path / str(kill_at)
        (base / "work").mkdir(parents=True)
        whole = run(KILLED_AT_AN_IMAGE, base, kill_at) == 3
        if whole or not (base / "resume" / "undo" / "1").exists():
            break
        for _ in range(2):
            (base / "resume" / "image1").write_text(json.dumps([1, {}, {}]))
            run(UNDO, base, 1, 0)
            assert (base / "work" / "notes").read_text() == "at the image", kill_at
    assert kill_at > 40
    assert not whole


@pytest.mark.parametrize("seed", range(40, 44))
def test_killed_while_putting_back(tmp_path: Path, seed: int) -> None:
    base = begin(tmp_path, seed)
    for kill_at in (3, 9, 14, 22):
        run(UNDO, base, 2, kill_at)
    run(UNDO, base, 2, 0)
    same(base, 2)

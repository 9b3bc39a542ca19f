"""`stoker run --data` on a machine behind a real sshd: sent once, read-only, never used again once it was changed there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until

from real.sshd import Sshd

READ = "import os; print(open('d/set/a').read(), os.path.realpath('d/set'), len(os.listdir('d/set')), flush=True)\n"


@pytest.fixture
def far(ground: Ground, sshd: Sshd) -> Path:
    """A machine `far`; its root. The working folder has data in d/set."""
    settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
    ground.home.mkdir()
    (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n')
    ground.script("d/set/a", "first")
    ground.script("d/set/deep/b", "b" * 3000)
    ground.script("d/code.txt", "code")
    ground.script("x.py", READ)
    return ground.root / "far"


def run(ground: Ground, *words: str) -> list[str]:
    """What the script printed: content, folder, files."""
    return ground.stoker("run", "--on", "far", "--new", *words, "x.py").ok().out.split()


@pytest.mark.real("sshd")
def test_data_is_sent_once_and_a_copy_that_changed_there_is_not_used_again(ground: Ground, far: Path):
    first = run(ground, "--data", "d/set")
    assert first[0] == "first" and first[1].startswith(str(far / "data")) and first[2] == "2"
    place = Path(first[1])
    inode = (place / "a").stat().st_ino
    assert (place / "a").stat().st_mode & 0o222 == 0 and place.joinpath("a").stat().st_nlink == 1
    assert run(ground, "--data", "./d/set") == first and (place / "a").stat().st_ino == inode
    os.utime(place / "a")  # touched: the same content
    assert run(ground, "--data", "d/set") == first and (place / "a").stat().st_ino == inode
    seen = (place / "a").stat()
    (place / "a").chmod(0o644)
    (place / "a").write_text("FIRST")  # of the same size, with the old time
    os.utime(place / "a", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert run(ground, "--data", "d/set") == first and (place / "a").stat().st_ino != inode
    ground.script("d/set/a", "second")
    second = run(ground, "--data", "d/set")
    assert second[0] == "second" and second[1] != first[1]
    told = ground.stoker("machine", "data", "far", "--json").json()
    assert sorted((each["label"], each["state"], each["files"]) for each in told) == [("set", "changed", 2), ("set", "whole", 2), ("set", "whole", 2)]
    ground.stoker("machine", "data", "far", "--rm", "set").ok()
    assert ground.stoker("machine", "data", "far", "--json").json() == []
    preview = ground.stoker("run", "--on", "far", "--dry-run", "--json", "--data", "d/set", "x.py").json()
    assert preview["left_out"] == {"d/set": "data"} and preview["data"] == {"d/set": str(ground.work / "d/set")}


@pytest.mark.real("sshd")
def test_a_run_may_write_to_a_copy_and_finds_its_data_at_a_later_attempt(ground: Ground, far: Path):
    ground.script("x.py", "import os\nopen('d/set/new', 'w').write('n')\nopen('d/set/a', 'a').write('!')\n" + READ + "raise SystemExit(3)\n")
    made = ground.stoker("run", "--on", "far", "--name", "one", "--data-rw", "d/set", "x.py")
    assert made.code == 3 and made.out.split()[0] == "first!" and made.out.split()[2] == "3"
    assert not list((far / "data").rglob("new")) and not (ground.work / "d/set/new").exists()
    ground.stoker("start", "one").ok()
    ended = ground.wait_state("one")
    assert ended["attempts"] == 2 and "first!!" in ground.stoker("logs", "one").ok().out
    ground.script("x.py", READ + "raise SystemExit(3)\n")
    ground.stoker("run", "--on", "far", "--name", "two", "--data", "d/set", "x.py")
    place = next(path for path in (far / "data").glob("*/tree/a"))
    place.chmod(0o644)
    place.write_text("wrong")
    ground.script("d/set/a", "other")  # nor is that what the run began with
    ground.stoker("start", "two")
    ended = ground.wait_state("two")
    assert ended["reason"] == "start_failed" and "has changed since the run began" in json.dumps(ground.show("two"))
    ground.script("d/set/a", "first")
    ground.stoker("start", "two").ok()
    until(lambda: (shown := ground.show("two"))["reason"] == "nonzero_exit" and shown["attempts"] == 2, 60, "the attempt with its data")
    assert ground.stoker("logs", "two").ok().out.startswith("first ")


def test_data_of_this_machine_is_used_in_place_and_linked_into_copies(ground: Ground):
    ground.script("d/set/a", "first")
    ground.script("x.py", READ)
    place = str(ground.work / "d/set")
    assert ground.stoker("run", "--data", "d/set", "x.py").ok().out.split()[:2] == ["first", place]
    assert ground.stoker("run", "--new", "--copy", "--data", "d/set", "x.py").ok().out.split()[:2] == ["first", place]
    (ground.work / "d").rename(ground.root / "d")
    assert ground.stoker("run", "--new", "--copy", "--data", f"d/set={ground.root}/d/set", "x.py").ok().out.split()[0] == "first"
    for words, said in ((("--data", str(ground.root / "d")), "outside of the working folder"), (("--data", "none"), "there is no folder"),
                        (("--data", f"q={ground.root}/d"), "--copy")):
        refused = ground.stoker("run", "--new", *words, "x.py")
        assert refused.code == 125 and said in refused.err, (words, refused.err)

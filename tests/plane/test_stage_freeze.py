"""Frozen copies of real folders and real git repositories."""

import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.errors import InvalidSpec, StateError, TargetError
from stoker.plane.staging import frozen_copy, stage

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]
BIG = 10**12
ODD_NAMES = ["two words", "it's", "\u8bad\u7ec3", "\U0001f525", "-rf", "new\nline"]

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path):
    work = tmp_path / "project"
    work.mkdir()
    return work


def _git(folder, *args):
    subprocess.run([*GIT, "-C", str(folder), *args], check=True, capture_output=True)


def _repository(folder, **files):
    for name, text in files.items():
        _write(folder / name, text)
    _git(folder, "init", "-q")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "x")


def _write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _names(folder):
    found = (os.path.relpath(os.path.join(base, name), folder) for base, _, files in os.walk(folder) for name in files)
    return sorted(name for name in found if name != ".git" and not name.startswith(".git/"))


def test_tracked_and_new_files_travel_ignored_and_deleted_ones_do_not(folder, tmp_path):
    _write(folder / ".gitignore", "data/\n*.ckpt\n.venv\n")
    _repository(folder, **{"train.py": "old", "gone.py": "x", "lib/a.py": "a"})
    (folder / "train.py").write_text("edited")
    (folder / "gone.py").unlink()
    for name in ("new.py", "data/big.bin", "x.ckpt", ".venv/bin/python"):
        _write(folder / name)
    seen = stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == [".gitignore", "lib/a.py", "new.py", "train.py"]
    assert (tmp_path / "copy/train.py").read_text() == "edited"
    assert seen.files == 4
    assert any("data/" in s and "ignored by git" in s for s in seen.skipped)
    assert not any(".venv" in s for s in seen.skipped)
    assert not (tmp_path / "copy/.git").exists()


def test_an_untracked_environment_stays_at_home(folder, tmp_path):
    _repository(folder, **{"train.py": "x"})
    for name in ("myenv/pyvenv.cfg", "myenv/lib/x.py", "venv/lib/y.py", "pkg/__pycache__/a.pyc"):
        _write(folder / name)
    stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == ["train.py"]


def test_a_folder_inside_a_repository_and_one_that_it_ignores(folder, tmp_path):
    _write(folder / ".gitignore", "scratch/\n")
    _repository(folder, **{"sub/train.py": "x", "other.py": "x"})
    _write(folder / "scratch/exp.py")
    stage.freeze(folder / "sub", tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == ["train.py"]
    stage.freeze(folder / "scratch", tmp_path / "copy2", BIG)
    assert _names(tmp_path / "copy2") == ["exp.py"]


def test_submodules_travel_and_missing_ones_are_named(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    _repository(other, **{"lib.py": "x"})
    _repository(folder, **{"train.py": "x"})
    _git(folder, "submodule", "add", "-q", str(other), "deps/lib")
    _git(folder, "submodule", "add", "-q", str(other), "deps/gone")
    _git(folder, "commit", "-q", "-m", "y")
    _git(folder, "submodule", "deinit", "-q", "-f", "deps/gone")
    _write(folder / "deps/lib/untracked.py")
    seen = stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == [".gitmodules", "deps/lib/lib.py", "deps/lib/untracked.py", "train.py"]
    assert (tmp_path / "copy/deps/gone").is_dir()
    assert any("deps/gone" in s and "submodule update" in s for s in seen.skipped)


def test_without_git_everything_but_junk(folder, tmp_path):
    for name in ("train.py", "data/x.bin", "a/b/c.txt", "__pycache__/a.pyc", ".venv/x", "node_modules/y", "old/conda-meta/history", "c.pyc"):
        _write(folder / name)
    (folder / "empty/deep").mkdir(parents=True)
    seen = stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == ["a/b/c.txt", "data/x.bin", "train.py"]
    assert (tmp_path / "copy/empty/deep").is_dir()
    assert seen.files == 3 and seen.bytes == 3


@pytest.mark.parametrize("repository", [True, False])
def test_stokerignore(folder, tmp_path, repository):
    _write(folder / ".stokerignore", "# big\n*.bin\n/out\ndata/**/raw/\n!keep.bin\n")
    for name in ("train.py", "a.bin", "lib/b.bin", "keep.bin", "out/x", "lib/out/x", "data/1/raw/x", "data/1/good"):
        _write(folder / name)
    if repository:
        _repository(folder)
    seen = stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == [".stokerignore", "data/1/good", "keep.bin", "lib/out/x", "train.py"]
    assert any(".stokerignore" in s and "out" in s for s in seen.skipped)


def test_stokerignore_brings_back_what_git_ignores(folder, tmp_path):
    _write(folder / ".gitignore", "data/\nsecret\n")
    _write(folder / ".stokerignore", "!data/tiny/\n")
    _repository(folder, **{"train.py": "x"})
    for name in ("data/tiny/a.txt", "data/huge.bin", "secret"):
        _write(folder / name)
    stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == [".gitignore", ".stokerignore", "data/tiny/a.txt", "train.py"]


def test_modes_times_and_content_are_kept_and_nothing_is_shared(folder, tmp_path):
    for name, size in (("small.py", 10), ("large.bin", 3_000_001), ("empty", 0)):
        (folder / name).write_bytes(os.urandom(size))
        os.utime(folder / name, ns=(1_500_000_000_123_456_789, 1_400_000_000_987_654_321))
    (folder / "small.py").chmod(0o755)
    (folder / "large.bin").chmod(0o444)
    _write(folder / "sub/x")
    (folder / "sub").chmod(0o555)
    stage.freeze(folder, tmp_path / "copy", BIG)
    for name in ("small.py", "large.bin", "empty"):
        one, other = (folder / name).stat(), (tmp_path / "copy" / name).stat()
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes()
        assert (one.st_mode, one.st_mtime_ns) == (other.st_mode, other.st_mtime_ns)
        assert one.st_ino != other.st_ino and other.st_nlink == 1
    with open(tmp_path / "copy/small.py", "w", encoding="utf-8") as f:
        f.write("other")
    assert (folder / "small.py").stat().st_size == 10
    assert stat.S_IMODE((tmp_path / "copy/sub").stat().st_mode) & 0o700 == 0o700


def test_holes_stay_holes(folder, tmp_path):
    with open(folder / "sparse.bin", "wb") as f:
        f.write(b"head")
        f.seek(300_000_000)
        f.write(b"tail")
        f.truncate(400_000_000)
    if (folder / "sparse.bin").stat().st_blocks * 512 > 1_000_000:
        pytest.skip("this file system has no sparse files")
    seen = stage.freeze(folder, tmp_path / "copy", 1_000_000)
    copy = tmp_path / "copy/sparse.bin"
    assert seen.bytes < 1_000_000 and copy.stat().st_blocks * 512 < 1_000_000
    with open(copy, "rb") as f:
        assert f.read(4) == b"head"
        f.seek(300_000_000)
        assert f.read(5) == b"tail\0" and f.seek(0, os.SEEK_END) == 400_000_000


def test_bytes_are_the_same_where_the_kernel_does_not_copy(folder, tmp_path):
    (folder / "large.bin").write_bytes(os.urandom(5_000_003))
    way = frozen_copy._Way(clone=False, kernel=False)
    frozen_copy.copy_file(str(folder / "large.bin"), str(tmp_path / "copy.bin"), (folder / "large.bin").stat(), way)
    assert (tmp_path / "copy.bin").read_bytes() == (folder / "large.bin").read_bytes()


def test_links(folder, tmp_path):
    _write(tmp_path / "outside/data.txt", "outside")
    _write(folder / "conf/a.yaml", "a")
    _write(folder / "venv/ignored.txt", "ignored")
    links = {"same.yaml": "conf/a.yaml", "conf/up": "../conf", "abs.yaml": str(folder / "conf/a.yaml"), "out": "../outside",
             "absout": str(tmp_path / "outside"), "to_ignored": "venv/ignored.txt", "dead": "nowhere"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    copy = tmp_path / "state/spool/id/work"
    seen = stage.freeze(folder, copy, BIG)
    for name in ("same.yaml", "conf/up", "dead"):
        assert os.readlink(copy / name) == links[name]
    assert os.readlink(copy / "abs.yaml") == "conf/a.yaml"
    assert (copy / "out/data.txt").read_text() == (copy / "absout/data.txt").read_text() == "outside"
    assert (copy / "to_ignored").read_text() == "ignored"
    said = " ".join(seen.skipped)
    assert all(f"{n} is a link" in said for n in ("out", "absout", "to_ignored"))
    assert "same.yaml" not in said and "abs.yaml" not in said


def test_sockets_and_pipes_are_left_out(folder, tmp_path, monkeypatch):
    _write(folder / "train.py")
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        seen = stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == ["train.py"]
    assert [s for s in seen.skipped if "pipe" in s] and [s for s in seen.skipped if "door" in s]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
@pytest.mark.parametrize("repository", [True, False])
def test_odd_names(folder, tmp_path, name, repository):
    _write(folder / name / f"{name}.py", name)
    raw = os.fsdecode(b"bad-\xff")
    (folder / raw).write_text("bytes")
    if repository:
        _repository(folder)
    stage.freeze(folder, tmp_path / "copy", BIG)
    assert (tmp_path / "copy" / name / f"{name}.py").read_text() == name
    assert (tmp_path / "copy" / raw).read_text() == "bytes"


def test_home_and_root_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (Path("/"), tmp_path, tmp_path.parent):
        with pytest.raises(InvalidSpec, match="does not copy"):
            stage.freeze(folder, tmp_path / "copy", BIG)


def test_a_big_folder_is_refused_with_its_three_biggest(folder, tmp_path):
    sizes = {"data/a": 600_000, "data/b": 500_000, "model.bin": 800_000, "logs/x": 400_000, "train.py": 10, "z": 300_000}
    for name, size in sizes.items():
        _write(folder / name, "x" * size)
    with pytest.raises(InvalidSpec) as wrong:
        stage.freeze(folder, tmp_path / "copy", 2_000_000)
    text = wrong.value.message
    assert text.index("data/ (1.1 MB)") < text.index("model.bin (800 kB)") < text.index("logs/ (400 kB)")
    assert "z (" not in text
    assert ".stokerignore" in wrong.value.hint
    assert not (tmp_path / "copy").exists()
    (folder / ".stokerignore").write_text("data\n")
    stage.freeze(folder, tmp_path / "copy", 2_000_000)


def test_the_copy_is_whole_or_absent(folder, tmp_path):
    _write(folder / "a.py")
    _write(tmp_path / "copy/x")
    with pytest.raises(StateError):
        stage.freeze(folder, tmp_path / "copy", BIG)
    shutil.rmtree(tmp_path / "copy")
    (tmp_path / "copy").mkdir()
    stage.freeze(folder, tmp_path / "copy", BIG)
    assert _names(tmp_path / "copy") == ["a.py"]
    assert [p.name for p in tmp_path.iterdir() if ".part-" in p.name] == []


def test_our_own_state_folder_inside_the_folder_is_never_copied(folder, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(folder / "deep/.stoker"))
    for name in ("train.py", "deep/keep.py", "deep/.stoker/runs/1/out.log"):
        _write(folder / name)
    target = folder / "deep/.stoker/spool/2/work"
    stage.freeze(folder, target, BIG)
    assert _names(target) == ["deep/keep.py", "train.py"]


FREEZE = """
import sys
from pathlib import Path
from stoker.base.errors import StokerError
from stoker.plane.staging import stage
try:
    stage.freeze(Path(sys.argv[1]), Path(sys.argv[2]), 10**12)
except StokerError as e:
    print(type(e).__name__, e.message, e.hint)
"""


def _without_privileges(program, *args):
    argv = [sys.executable, "-c", program, *map(str, args)]
    if os.geteuid() == 0:  # root may read everything, unless it gives that up
        if not shutil.which("setpriv"):
            pytest.skip("root without setpriv")
        argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *argv]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("repository", [True, False])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_cannot_be_read_is_named(folder, tmp_path, repository, what):
    _write(folder / "train.py")
    if repository:
        _repository(folder)
    _write(folder / "locked/secret.key")
    locked = folder / "locked" / ("secret.key" if what == "file" else "")
    locked.chmod(0)
    try:
        out = _without_privileges(FREEZE, folder, tmp_path / "copy")
    finally:
        locked.chmod(0o700)
    assert out.startswith("Denied") and "locked" in out and ".stokerignore" in out
    assert not (tmp_path / "copy").exists() and not [p for p in tmp_path.iterdir() if ".part-" in p.name]


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (folder / "big.bin").write_bytes(os.urandom(3_000_000))
        with pytest.raises(TargetError, match="Not enough disk space") as wrong:
            stage.freeze(folder, disk / "copy", BIG)
        assert "stoker gc" in wrong.value.hint and not wrong.value.retry
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_files_of_the_folder_named_by_path_move_into_the_copy(folder, tmp_path):
    for name in ("train.py", "data/x"):
        _write(folder / name)
    stage.freeze(folder, tmp_path / "copy", BIG)
    argv = ["/usr/bin/python3", str(folder / "train.py"), str(folder / "data"), "train.py", "/etc/passwd"]
    assert stage.into_copy(argv, folder, tmp_path / "copy") == [argv[0], str(tmp_path / "copy/train.py"), *argv[2:]]

"""What is recorded of the code, and which files are told to be new or changed."""

import json
import os
import shutil
import subprocess
import time

import pytest

from stoker.plane.staging import code_record, stage

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]

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
    return subprocess.run([*GIT, "-C", str(folder), *args], check=True, capture_output=True, text=True).stdout


def _write(path, text="x\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _commit(folder):
    _git(folder, "init", "-q")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "x")


def _manifest(code):
    return {f["path"]: f for f in json.loads((code / "manifest.json").read_text())["files"]}


def test_a_clean_repository(folder, tmp_path):
    _write(folder / "train.py")
    _commit(folder)
    _git(folder, "remote", "add", "origin", "https://ann:secret-token@example.org/ann/project.git")
    seen = stage.record_code(folder, tmp_path / "code", ["train.py"])
    assert seen["commit"] == _git(folder, "rev-parse", "HEAD").strip()
    assert (seen["branch"], seen["dirty"], seen["cut"]) == ("main", False, [])
    assert seen["remote"] == "https://example.org/ann/project.git"
    assert json.loads((tmp_path / "code/commit.json").read_text()) == seen
    assert "secret-token" not in "".join(p.read_text() for p in (tmp_path / "code").iterdir())
    assert (tmp_path / "code/diff.patch").read_bytes() == b""


def test_the_recorded_patch_brings_edited_binary_and_new_files_back(folder, tmp_path):
    _write(folder / "train.py", "old\n")
    _write(folder / "gone.py")
    (folder / "logo.bin").write_bytes(os.urandom(500))
    _commit(folder)
    _write(folder / "train.py", "new\n")
    (folder / "gone.py").unlink()
    (folder / "logo.bin").write_bytes(os.urandom(500))
    _write(folder / "lib/fresh.py", "no newline at the end")
    _write(folder / "run.sh", "#!/bin/sh\n\nline\n")
    (folder / "run.sh").chmod(0o755)
    _write(folder / "weights.pt", "not code")
    before = subprocess.run([*GIT, "-C", folder, "status", "--porcelain"], capture_output=True, check=True).stdout
    seen = stage.record_code(folder, tmp_path / "code")
    assert seen["dirty"] is True
    assert subprocess.run([*GIT, "-C", folder, "status", "--porcelain"], capture_output=True, check=True).stdout == before
    _git(tmp_path, "clone", "-q", str(folder), str(tmp_path / "clone"))
    _git(tmp_path / "clone", "apply", str(tmp_path / "code/diff.patch"))
    clone = tmp_path / "clone"
    assert not (clone / "gone.py").exists() and not (clone / "weights.pt").exists()
    for name in ("train.py", "logo.bin", "lib/fresh.py", "run.sh"):
        assert (clone / name).read_bytes() == (folder / name).read_bytes()
    assert (clone / "run.sh").stat().st_mode & 0o100


def test_without_a_repository_the_patch_makes_the_code(folder, tmp_path):
    _write(folder / "train.py", "print(1)\n")
    _write(folder / "data.bin", "\0" * 100)
    seen = stage.record_code(folder, tmp_path / "code")
    assert (seen["commit"], seen["dirty"]) == (None, None)
    (tmp_path / "empty").mkdir()
    _git(tmp_path / "empty", "init", "-q")
    _git(tmp_path / "empty", "apply", str(tmp_path / "code/diff.patch"))
    assert (tmp_path / "empty/train.py").read_text() == "print(1)\n"


def test_a_repository_without_a_commit(folder, tmp_path):
    _write(folder / "train.py")
    _git(folder, "init", "-q")
    seen = stage.record_code(folder, tmp_path / "code")
    assert (seen["commit"], seen["dirty"]) == (None, True)
    assert b"train.py" in (tmp_path / "code/diff.patch").read_bytes()


def test_the_manifest_hashes_code_and_lists_the_rest(folder, tmp_path):
    for name in ("train.py", "conf/a.yaml", "data/x.bin", ".venv/lib/y.py", "__pycache__/z.pyc"):
        _write(folder / name)
    stage.record_code(folder, tmp_path / "code", ["data/x.bin"])
    found = _manifest(tmp_path / "code")
    assert sorted(found) == ["conf/a.yaml", "data/x.bin", "train.py"]
    assert all(len(f["sha256"]) == 64 for f in found.values())
    assert found["train.py"]["mtime_ns"] == (folder / "train.py").stat().st_mtime_ns


def test_bounds_are_kept_and_said(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(code_record, "MAX_FILES", 20)
    monkeypatch.setattr(code_record, "DIFF_BYTES", 3_000)
    _write(folder / "train.py", "old\n")
    _write(folder / "big.py", "old\n")
    _commit(folder)
    _write(folder / "big.py", "line\n" * 2_000)
    for n in range(50):
        _write(folder / f"d{n:02}/f.py")
    seen = stage.record_code(folder, tmp_path / "code")
    assert any("listed" in c for c in seen["cut"]) and any("diff" in c for c in seen["cut"])
    assert (tmp_path / "code/diff.patch").stat().st_size <= 3_000
    assert json.loads((tmp_path / "code/manifest.json").read_text())["complete"] is False


def test_new_and_changed_files(folder, tmp_path):
    for name in ("train.py", "same.txt", "ckpt.pt"):
        _write(folder / name)
    stage.record_code(folder, tmp_path / "code")
    since = time.time()
    assert stage.changed_files(folder, tmp_path / "code", since) == []
    _write(folder / "ckpt.pt", "longer than before")
    _write(folder / "out/model.pt", "weights")
    os.utime(folder / "out/model.pt", (1e9, 1e9))  # unpacked files keep old times
    _write(folder / "__pycache__/train.pyc")
    _write(folder / "last.pt.stoker-undo", "of a resume that was killed")
    found = {f["path"]: (f["kind"], f["size"]) for f in stage.changed_files(folder, tmp_path / "code", since)}
    assert found == {"ckpt.pt": ("changed", 18), "out/model.pt": ("new", 7)}
    assert len(stage.changed_files(folder, tmp_path / "code", since, limit=1)) == 1


def test_what_is_written_after_the_end_is_not_the_runs(folder, tmp_path):
    for name in ("train.py", "notes.txt"):
        _write(folder / name)
    stage.record_code(folder, tmp_path / "code")
    began = time.time()
    _write(folder / "model.pt", "weights")
    _write(folder / "later.pt", "weights of another")
    _write(folder / "notes.txt", "edited the day after")
    for name in ("later.pt", "notes.txt"):
        os.utime(folder / name, (began + 3600, began + 3600))
    assert [f["path"] for f in stage.changed_files(folder, tmp_path / "code", began, until=began + 60)] == ["model.pt"]


def test_new_files_in_a_frozen_copy(folder, tmp_path):
    for name in ("train.py", "conf/a.yaml"):
        _write(folder / name)
    stage.record_code(folder, tmp_path / "code")
    stage.freeze(folder, tmp_path / "work", 10**9)
    since = time.time()
    assert stage.changed_files(tmp_path / "work", tmp_path / "code", since) == []
    _write(tmp_path / "work/loss.csv")
    assert [f["path"] for f in stage.changed_files(tmp_path / "work", tmp_path / "code", since)] == ["loss.csv"]


def test_a_folder_the_record_does_not_cover_is_judged_by_time(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(code_record, "MAX_IN_FOLDER", 5)
    for n in range(30):
        _write(folder / f"data/{n}.txt")
    old = time.time() - 100
    for n in range(30):
        os.utime(folder / f"data/{n}.txt", (old, old))
    stage.record_code(folder, tmp_path / "code")
    since = time.time() + 5  # changing a time is a change of the inode, so all of these have just changed
    assert stage.changed_files(folder, tmp_path / "code", since) == []
    later = time.time() + 60
    _write(folder / "data/100.txt")
    os.utime(folder / "data/100.txt", (later, later))
    assert [f["path"] for f in stage.changed_files(folder, tmp_path / "code", since)] == ["data/100.txt"]


def test_nothing_recorded_and_nothing_there(tmp_path):
    assert stage.changed_files(tmp_path / "gone", tmp_path / "nothing", 0) == []
    stage.record_code(tmp_path, tmp_path / "state/code")
    assert stage.changed_files(tmp_path, tmp_path / "nothing", time.time() + 5) == []


def test_the_folder_itself_is_listed_however_little_time_there_is(folder, tmp_path, monkeypatch):
    _write(folder / "train.py")
    _write(folder / "deep/b.py")
    monkeypatch.setattr(code_record, "_WALK_TIME_S", 0.0)
    assert stage.record_code(folder, tmp_path / "code")["files"] == 1

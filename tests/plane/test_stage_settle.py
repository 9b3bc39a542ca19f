"""A frozen copy reaches the disk by itself; after a power cut on the way it is compared with its list, and made whole or refused."""

import json
import os
import shutil
import subprocess
import time

import pytest

from stoker.base import rundir
from stoker.base.errors import TargetError
from stoker.plane.staging import stage
from stoker.plane.staging.settling import LIST

BIG = 10**12


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "state"))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "lib" / "deep").mkdir(parents=True)
    for name, text in {"train.py": "import lib\n", "lib/a.py": "a = 1\n", "lib/deep/b.py": "b = 2\n", "data.bin": "x" * 300_000, "empty": ""}.items():
        (folder / name).write_text(text)
    (folder / "link").symlink_to("lib/a.py")
    return folder


def frozen(project, run):
    """A run folder as a submit leaves it."""
    run.mkdir()
    stage.write_list(run, project, stage.freeze(project, run / rundir.WORK, BIG))
    stage.record_code(project, run / rundir.CODE)
    return run


def contents(folder):
    found = {}
    for base, folders, files in os.walk(folder):
        for name in [*files, *(f for f in folders if os.path.islink(os.path.join(base, f)))]:
            path = os.path.join(base, name)
            info = os.lstat(path)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = (info.st_mode, info.st_mtime_ns, f.read())
    return found


def power_was_cut(run):
    """The list says that it was written before the machine was started."""
    path = run / rundir.CODE / LIST
    head, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(head), "boot_id": "another"}) + "\n" + rest)


def test_a_copy_is_written_down_by_itself_also_when_its_folder_moves(project, tmp_path):
    run = frozen(project, tmp_path / "run")
    assert (run / rundir.CODE / LIST).exists()
    stage.Settling().add(run)
    run.rename(tmp_path / "moved")
    deadline = time.monotonic() + 30
    while (tmp_path / "moved" / rundir.CODE / LIST).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert stage.assure(tmp_path / "moved") == []


def test_without_a_power_cut_nobody_looks_at_the_copy(project, tmp_path):
    run = frozen(project, tmp_path / "run")
    (run / "work/train.py").write_text("changed by its owner")
    assert stage.assure(run) == [] and (run / "work/train.py").read_text() == "changed by its owner"
    stage.Settling().add(tmp_path)  # no copy there


def test_what_a_power_cut_tore_is_taken_from_the_original(project, tmp_path):
    run = frozen(project, tmp_path / "run")
    before = contents(run / "work")
    power_was_cut(run)
    assert stage.assure(run) == []
    info = os.stat(run / "work/train.py")
    (run / "work/train.py").write_bytes(bytes(info.st_size))  # as long as it was, and empty blocks
    os.utime(run / "work/train.py", ns=(info.st_mtime_ns, info.st_mtime_ns))
    os.truncate(run / "work/data.bin", 0)
    shutil.rmtree(run / "work/lib/deep")
    os.unlink(run / "work/link")
    assert sorted(stage.assure(run)) == ["data.bin", "lib/deep", "lib/deep/b.py", "link", "train.py"]
    assert contents(run / "work") == before
    assert stage.assure(run) == []


def test_a_torn_copy_of_a_folder_that_was_edited_since_is_refused(project, tmp_path):
    run = frozen(project, tmp_path / "run")
    power_was_cut(run)
    os.truncate(run / "work/train.py", 3)
    (project / "train.py").write_text("import newer\n")
    with pytest.raises(TargetError, match=r"train\.py is lost") as wrong:
        stage.assure(run)
    assert not wrong.value.retry
    shutil.rmtree(project)
    with pytest.raises(TargetError, match="is lost"):
        stage.assure(run)


def test_what_a_run_has_written_into_its_copy_is_left_alone(project, tmp_path):
    run = frozen(project, tmp_path / "run")
    (run / rundir.ATTEMPTS / "1").mkdir(parents=True)
    (run / "work/train.py").write_text("the run wrote this")
    (run / "work/lib/a.py").unlink()
    info = os.stat(run / "work/data.bin")
    os.truncate(run / "work/data.bin", 7)
    os.utime(run / "work/data.bin", ns=(info.st_mtime_ns, info.st_mtime_ns))  # torn: nobody wrote to it since
    power_was_cut(run)
    assert stage.assure(run) == ["data.bin"]
    assert (run / "work/train.py").read_text() == "the run wrote this" and not (run / "work/lib/a.py").exists()
    assert (run / "work/data.bin").stat().st_size == 300_000


@pytest.mark.parametrize("journal", ["has_journal", "^has_journal"])
def test_a_real_disk_whose_power_is_cut(project, tmp_path, journal):
    """What the disk holds at that moment is what was written to it so far: a copy of the image, taken without any sync."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("mounting a disk of its own needs root and mkfs.ext4")
    image, disk = tmp_path / "image", tmp_path / "disk"
    image.touch()
    os.truncate(image, 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-O", journal, image], check=True)
    disk.mkdir()

    def mount(which):
        if subprocess.run(["mount", "-o", "loop", which, disk], capture_output=True, check=False).returncode:
            pytest.skip("no disk image can be mounted here")
    mount(image)
    try:
        run = frozen(project, disk / "run")
        before = contents(run / "work")
        for place in (run, disk):  # as the spool does
            fd = os.open(place, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        shutil.copyfile(image, tmp_path / "cut")
    finally:
        subprocess.run(["umount", disk], check=True)
    subprocess.run(["e2fsck", "-fy", tmp_path / "cut"], capture_output=True, check=False)  # as at every start of a machine
    mount(tmp_path / "cut")
    try:
        assert contents(run / "work") != before  # the cut came in time
        power_was_cut(run)
        assert stage.assure(run)
        assert contents(run / "work") == before
    finally:
        subprocess.run(["umount", disk], check=True)

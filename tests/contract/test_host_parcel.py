"""Code that travels to a machine: the content of each file once, laid out whole or not at all, also after a cut."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.sshd import Sshd, wait_for
from stoker.backends.core import LEAVE, _recorded
from stoker.base import rundir
from stoker.base.errors import TargetError
from stoker.hosts import parcel
from stoker.hosts.ssh import SshHost
from stoker.plane.staging import stage

pytestmark = pytest.mark.real("sshd")
MB = 1 << 20


class Journey:
    """A run folder with code in work/, and the far side of it."""

    def __init__(self, root: Path, host: SshHost, sshd: Sshd) -> None:
        self.root, self.host, self.sshd = root, host, sshd
        self.source, self.cache = root / "run", root / "cache"
        self.work = self.source / "work"
        (self.work / "空").mkdir(parents=True)
        (self.work / "空" / os.fsdecode(b"a\xff\nb")).write_bytes(os.urandom(3000))
        (self.work / "big").write_bytes(os.urandom(4 * MB))
        (self.work / "twice").write_bytes((self.work / "big").read_bytes())
        (self.work / "run.sh").write_text("#!/bin/sh\n")
        (self.work / "run.sh").chmod(0o755)
        (self.work / "link").symlink_to("空")
        (self.work / "empty").mkdir()
        (self.source / "env").write_text("SECRET=1")
        (self.source / "code").mkdir()
        self.sent: list[int] = []
        self.steps = 0

    def go(self, name: str, tell=None) -> Path:
        """Deliver it; `sent` gets the bytes of content that travelled."""
        self.sent.append(0)

        def note(sent: int, whole: int) -> None:
            self.sent[-1] = sent
            if tell:
                tell(sent)
        self.host.deliver(self.source, str(self.root / name), shared="work", cache=str(self.cache), tell=note)
        return self.root / name


@pytest.fixture
def journey(sshd: Sshd, short_tmp: Path) -> Iterator[Journey]:
    host = SshHost("127.0.0.1", options=sshd.options)
    yield Journey(short_tmp, host, sshd)
    host.close()


def picture(root: Path) -> dict[str, tuple]:
    """Path -> mode, time, content."""
    seen = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        content = os.readlink(path) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        seen[str(path.relative_to(root))] = (info.st_mode, 0 if path.is_dir() and not path.name else info.st_mtime_ns, content)
    return seen


def test_what_may_vanish_meanwhile_is_left_here(journey: Journey) -> None:
    """The list of a frozen copy is deleted as soon as the copy is on the disk, also in the middle of sending."""
    (journey.source / "code" / "copy.list").write_text("gone in a moment")
    (journey.source / "code" / "manifest.json").write_text("{}")
    journey.host.deliver(journey.source, str(journey.root / "one"), shared="work", cache=str(journey.cache), leave=LEAVE)
    assert sorted(p.name for p in (journey.root / "one" / "code").iterdir()) == ["manifest.json"]


def test_content_is_sent_once_and_copies_do_not_share_it(journey: Journey) -> None:
    first = journey.go("one")
    assert picture(first) == picture(journey.source) != {}
    assert 4 * MB <= journey.sent[0] < 5 * MB  # `twice` has the content of `big`
    second = journey.go("two")
    assert picture(second) == picture(first) and journey.sent[1] == 0
    assert not [path for path in (first / "work").rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_nlink > 1]
    (journey.work / "run.sh").write_text("#!/bin/sh\nexit 1\n")
    assert picture(journey.go("three")) == picture(journey.source)
    assert journey.sent[2] == len("#!/bin/sh\nexit 1\n")
    assert b"SECRET" not in b"".join(path.read_bytes() for path in journey.cache.rglob("*") if path.is_file())


def test_a_transfer_that_is_cut_goes_on_where_it_was(journey: Journey) -> None:
    def cut(sent: int) -> None:
        if sent >= 2 * MB:
            wait_for(lambda: sum(path.stat().st_size for path in journey.cache.rglob("*.part")) >= MB, 30, "the first bytes")
            journey.sshd.cut()

    with pytest.raises(TargetError) as raised:
        journey.go("one", cut)
    assert raised.value.retry
    wait_for(lambda: not list(journey.root.glob(".one*")), 30, "what was laid out in part")
    assert picture(journey.go("one")) == picture(journey.source)
    assert 0 < journey.sent[1] < 3.2 * MB


def test_an_error_of_the_teller_ends_it_and_leaves_nothing_half_done(journey: Journey) -> None:
    class Cancelled(Exception):
        pass

    def stop(sent: int) -> None:
        if sent:
            raise Cancelled

    with pytest.raises(Cancelled):
        journey.go("one", stop)
    wait_for(lambda: not list(journey.root.glob(".one*")), 30, "what was laid out in part")
    assert not (journey.root / "one").exists()


@pytest.mark.parametrize("harm", ["flipped", "cut", "gone", "list"])
def test_content_that_was_harmed_there_is_sent_again(journey: Journey, harm: str) -> None:
    journey.go("one")
    big = Cache(journey).path(parcel.hash_file(journey.work / "big"))
    if harm == "flipped":
        with open(big, "r+b") as f:
            f.write(b"\0harm")
    elif harm == "cut":
        os.truncate(big, MB)
    elif harm == "gone":
        shutil.rmtree(journey.cache / "objects")
    else:
        for path in (journey.cache / "parcels").iterdir():
            path.write_text("[]")
    assert picture(journey.go("two")) == picture(journey.source)


def Cache(journey: Journey) -> parcel.Cache:
    return parcel.Cache(str(journey.cache))


def test_what_no_run_has_used_for_long_is_deleted(journey: Journey) -> None:
    journey.go("one")
    objects = [path for path in (journey.cache / "objects").rglob("*") if path.is_file()]
    for path in objects[1:]:
        os.utime(path, (0, 0))
    os.utime(journey.cache / "swept", (0, 0))
    shutil.rmtree(journey.work)
    journey.work.mkdir()
    journey.go("two")
    assert [path for path in (journey.cache / "objects").rglob("*") if path.is_file()] == objects[:1]


def edited(path: Path, how: str) -> None:
    """Other content of the same size, in the ways that a look at size and times misses most easily."""
    info, text = path.stat(), bytes(b ^ 1 for b in path.read_bytes())
    if how == "replaced":
        path.with_name("new").write_bytes(text)
        path.with_name("new").rename(path)
    else:
        path.write_bytes(text)
    if how != "within a second":
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize("how", ["within a second", "with its old time", "replaced"])
def test_the_recorded_hashes_of_a_copy_are_those_of_its_content(journey: Journey, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """What is typed after an edit has the edit, and what was frozen before an edit has it not."""
    monkeypatch.setenv("STOKER_HOME", str(journey.root / "state"))
    project, reads = journey.root / "project", []
    journey.work.rename(project)
    os.truncate(project / "big", 200_000)

    def freeze(name: str) -> Path:
        run = journey.root / "spool" / name
        run.mkdir(parents=True)
        copied = stage.freeze(project, run / "work", 10**9)
        edited(project / "run.sh", how)
        stage.record_code(project, run / "code", None, copied)
        return run

    def read(path: bytes, _seen: object = None) -> str:
        reads.append(os.path.basename(path))
        return real(path)
    real = parcel.hash_file
    monkeypatch.setattr("stoker.backends.core.parcel.hash_file", read)
    for name in ("one", "two", "three"):
        run = freeze(name)
        journey.host.deliver(run, str(journey.root / name), shared="work", cache=str(journey.cache), hash_of=_recorded(run))
        assert picture(journey.root / name) == picture(run)
        assert sorted(reads) == [b"a\xff\nb", b"twice"]  # too large, or without a name in JSON
        reads.clear()
    assert (journey.root / "one" / "work" / "run.sh").read_bytes() != (journey.root / "two" / "work" / "run.sh").read_bytes()


def test_a_copy_that_was_touched_is_read_again(journey: Journey) -> None:
    (journey.source / "code" / "manifest.json").write_text(json.dumps({"files": [
        {"path": "run.sh", "size": 10, "mtime_ns": (journey.work / "run.sh").stat().st_mtime_ns, "sha256": "0" * 64}]}))
    hash_of = _recorded(journey.source)
    path = journey.work / "run.sh"
    assert hash_of(os.fsencode(path), path.stat()) == "0" * 64
    os.utime(path)
    assert hash_of(os.fsencode(path), path.stat()) == parcel.hash_file(path)


def test_a_recorded_name_that_stands_for_two_files_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    files = [{"path": "a\\xff", "size": 1, "mtime_ns": 2, "sha256": letter * 64} for letter in "ab"]
    (tmp_path / "code" / "manifest.json").write_text(json.dumps({"files": [*files, {**files[0], "path": "b"}, {"path": "c", "size": 1, "mtime_ns": 1}]}))
    assert rundir.code_hashes(tmp_path) == {("b", 1, 2): "a" * 64}


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/tmp/out", "missing/x", "a/."])
def test_no_entry_leads_out_of_the_folder(path: str, tmp_path: Path) -> None:
    entries = [["d", "a", 0o755, 0], ["f", path, 0o644, 0, 0, "x"]]
    with pytest.raises(parcel.tree.Torn):
        parcel.lay_out(entries, os.fsencode(tmp_path), lambda entry, out: None)


def test_a_second_writer_does_not_touch_what_the_first_one_is_writing(tmp_path: Path) -> None:
    entries = [["f", "x", 0o644, 0, 3, "ab" * 32]]
    first, second = parcel.Cache(str(tmp_path)), parcel.Cache(str(tmp_path))
    assert first.missing(entries) == [["ab" * 32, 0]]
    (tmp_path / "objects" / "ab").mkdir(parents=True)
    (tmp_path / "objects" / "ab" / ("ab" * 32 + ".part")).write_bytes(b"12")
    assert first.missing(entries) == [["ab" * 32, 2]] and second.missing(entries) == [["ab" * 32, 0]]

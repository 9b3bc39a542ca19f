"""What files of a run may replace on this machine, and how they arrive: whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.base.errors import NotFound, StateError, TargetError
from stoker.plane.homecoming import to_bring
from stoker.plane.staging.outputs import (
    COMING,
    HERE,
    KEEP,
    PUT,
    REPLACE,
    Ground,
    chosen,
    is_sound,
    offset_of,
    receive,
    room_for,
)

WHEN = 1_700_000_000_000_000_000


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    (tmp_path / "folder").mkdir()
    (tmp_path / "runs" / "ID").mkdir(parents=True)
    return Ground(tmp_path / "folder", tmp_path / "runs" / "ID")


def far(path: str, content: bytes, mtime_ns: int = WHEN, sent: dict | None = None) -> dict:
    return {"path": path, "size": len(content), "mtime_ns": mtime_ns, "kind": "changed" if sent else "new", "sent": sent}


def frames(*files: tuple[dict, bytes], whole: bool = True) -> bytes:
    """What the agent's `send` says of these files, each from the start."""
    said = b""
    for file, content in files:
        head = {"path": file["path"], "size": len(content), "offset": 0, "mode": 0o644, "mtime_ns": file["mtime_ns"]}
        end = {"sha256": hashlib.sha256(content).hexdigest(), "whole": whole}
        for kind, payload in ((b"h", json.dumps(head).encode()), (b"d", content), (b"e", json.dumps(end).encode())):
            said += struct.pack(">cI", kind, len(payload)) + payload
    return said


def in_pieces(data: bytes, size: int = 7) -> Iterator[bytes]:
    return (data[i:i + size] for i in range(0, len(data), size))


def settled(pieces, files: list[dict], ground: Ground) -> list[tuple]:
    """What `receive` says of each file when it is over."""
    return [told for told in receive(pieces, files, ground) if told[1] != COMING]


def bring(ground: Ground, file: dict, content: bytes) -> tuple[str, Path]:
    (_, verdict, where), = settled(in_pieces(frames((file, content))), [file], ground)
    return verdict, where


def edited(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(WHEN + 5, WHEN + 5))


def test_a_new_file_is_put_with_its_time_and_then_it_is_here(ground):
    file = far("logs/a.csv", b"1,2\n")
    assert ground.verdict(file) == PUT and bring(ground, file, b"1,2\n") == (PUT, ground.folder / "logs/a.csv")
    assert (ground.folder / "logs/a.csv").read_bytes() == b"1,2\n" and (ground.folder / "logs/a.csv").stat().st_mtime_ns == WHEN
    assert ground.verdict(file) == HERE and os.listdir(ground.folder / "logs") == ["a.csv"]


def test_what_was_sent_or_brought_is_replaced_and_what_was_edited_here_is_not(ground):
    home = ground.folder / "m.pt"
    home.write_text("sent")
    info = home.stat()
    sent = {"path": "m.pt", "size": info.st_size, "mtime_ns": info.st_mtime_ns}
    assert bring(ground, far("m.pt", b"step 1", WHEN, sent), b"step 1")[0] == REPLACE and home.read_text() == "step 1"
    os.utime(home)  # touched: its content is still what the run brought
    again = Ground(ground.folder, ground.outputs.parent)
    assert bring(again, far("m.pt", b"step 2", WHEN + 1, sent), b"step 2")[0] == REPLACE and home.read_text() == "step 2"
    edited(home, "mine!!")
    verdict, where = bring(again, far("m.pt", b"step 3", WHEN + 2, sent), b"step 3")
    assert (verdict, where) == (KEEP, ground.outputs / "m.pt") and home.read_text() == "mine!!" and where.read_bytes() == b"step 3"
    assert again.kept(far("m.pt", b"step 3", WHEN + 2)) == where and again.kept(far("m.pt", b"step 3", WHEN + 3)) is None


def test_a_file_that_was_sent_is_known_by_its_content_where_a_checkout_changed_its_time(ground):
    home = ground.folder / "a.py"
    home.write_text("code")
    sent = {"path": "a.py", "size": 4, "mtime_ns": 1, "sha256": hashlib.sha256(b"code").hexdigest()}
    assert ground.verdict(far("a.py", b"other", WHEN, sent)) == REPLACE
    home.write_text("Code")
    assert ground.verdict(far("a.py", b"other", WHEN, sent)) == KEEP


def test_the_same_content_is_here_whatever_its_time(ground):
    (ground.folder / "a").write_text("same")
    assert bring(ground, far("a", b"same"), b"same") == (HERE, ground.folder / "a")


def test_a_place_that_changes_during_the_transfer_is_not_replaced(ground):
    file, home = far("a", b"far"), ground.folder / "a"

    told = receive(in_pieces(frames((file, b"far"))), [file], ground)
    assert next(told)[1:] == (COMING, 3)
    edited(home, "mine")
    (_, verdict, where), = told
    assert (verdict, where.read_bytes(), home.read_text()) == (KEEP, b"far", "mine")


@pytest.mark.parametrize("way", ["link to a folder", "link", "file for a folder", "folder", "no folder"])
def test_nothing_is_written_through_a_link_or_over_something_else(ground, tmp_path, way):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("safe")
    if way == "link to a folder":
        (ground.folder / "d").symlink_to(tmp_path / "outside")
    elif way == "file for a folder":
        (ground.folder / "d").write_text("a file")
    elif way == "no folder":
        ground.folder.rmdir()
    else:
        (ground.folder / "d").mkdir()
        (ground.folder / "d" / "f").symlink_to(tmp_path / "outside" / "f") if way == "link" else (ground.folder / "d" / "f").mkdir()
    verdict, where = bring(ground, far("d/f", b"far"), b"far")
    assert (verdict, where.read_bytes()) == (KEEP, b"far") and (tmp_path / "outside" / "f").read_text() == "safe"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", "", ".git/hooks/post-commit", "a/.venv/x", "a\0b", 4, "./a", ".GIT/config", "a/.Venv/x"])
def test_paths_that_a_machine_may_not_name(path):
    assert not is_sound({**far("a", b""), "path": path}) and is_sound(far("a b/\udcff.pt", b""))
    assert not is_sound({**far("a", b""), "size": -1}) and not is_sound({**far("a", b""), "sent": []}) and not is_sound("a")


def test_a_cut_leaves_a_part_that_is_continued_and_nothing_else(ground):
    content = bytes(range(256)) * 40
    file, came = far("m.pt", content), []
    cut = frames((file, content))[:5000]
    with pytest.raises(TargetError):
        came.extend(receive(in_pieces(cut, 100), [file], ground))
    assert os.listdir(ground.folder) == [] and offset_of(file, ground) == 0  # a frame counts when it is whole
    half = {"path": "m.pt", "size": len(content), "offset": 0, "mode": 0o600, "mtime_ns": WHEN}
    begun = b"".join(struct.pack(">cI", kind, len(body)) + body for kind, body in ((b"h", json.dumps(half).encode()), (b"d", content[:5000])))
    with pytest.raises(TargetError):
        list(receive([begun], [file], ground))
    assert offset_of(file, ground) == 5000 and os.listdir(ground.folder) == []
    assert offset_of(far("m.pt", content, WHEN + 1), ground) == 0  # another version begins at its start
    rest = {**half, "offset": 5000}
    end = {"sha256": hashlib.sha256(content).hexdigest(), "whole": True}
    said = b"".join(struct.pack(">cI", kind, len(body)) + body for kind, body in (
        (b"h", json.dumps(rest).encode()), (b"d", content[5000:]), (b"e", json.dumps(end).encode())))
    assert [each[1] for each in settled(in_pieces(said, 999), [file], ground)] == [PUT]
    assert (ground.folder / "m.pt").read_bytes() == content and os.listdir(ground.folder) == ["m.pt"]


@pytest.mark.parametrize(("wrong", "why"), [({"whole": False}, "wrote to"), ({"sha256": "0"}, "checksum")])
def test_what_is_not_whole_does_not_come(ground, wrong, why):
    file, content = far("a", b"abc"), b"abc"
    said = frames((file, content))
    end = json.dumps({"sha256": hashlib.sha256(content).hexdigest(), "whole": True, **wrong}).encode()
    said = said[:said.rindex(b"e", 0, said.rindex(b"{"))] + struct.pack(">cI", b"e", len(end)) + end
    (_, verdict, told), = settled([said], [file], ground)
    assert verdict == "failed" and why in told and os.listdir(ground.folder) == [] and offset_of(file, ground) == 0


def test_a_file_that_could_not_be_read_and_one_after_it(ground):
    lost, good = far("lost", b"x"), far("good", b"y")
    error = json.dumps({"error": "No such file or directory"}).encode()
    said = struct.pack(">cI", b"e", len(error)) + error + frames((good, b"y"))
    assert [(f["path"], told) for f, told, _ in settled([said], [lost, good], ground)] == [("lost", "failed"), ("good", PUT)]


def test_more_than_was_announced_is_refused(ground):
    file = far("a", b"abc")
    with pytest.raises(TargetError):
        list(receive([frames(({**file}, b"abcdef"))], [file], ground))
    assert os.listdir(ground.folder) == []


@pytest.mark.parametrize("wrong", [
    struct.pack(">cI", b"h", 2) + b"[]", struct.pack(">cI", b"h", 1) + b"{", struct.pack(">cI", b"h", 2) + b"{}",
    struct.pack(">cI", b"d", 1 << 30), struct.pack(">cI", b"h", 34) + b'{"offset": 0, "mode": 420, "a": 0}' + struct.pack(">cI", b"x", 0),
    *(struct.pack(">cI", b"h", len(head)) + head for head in (
        b'{"offset": -1, "mode": 420}', b'{"offset": 9, "mode": 420}', b'{"offset": "0", "mode": 420}', b'{"offset": 0, "mode": null}'))])
def test_frames_that_no_agent_sends(ground, wrong):
    with pytest.raises(TargetError, match="not valid"):
        settled([wrong], [far("a", b"abc")], ground)
    assert os.listdir(ground.folder) == []


def test_where_a_version_is(ground):
    first, second = far("a", b"one"), far("a", b"two", WHEN + 1)
    assert ground.place(first) == "there"
    bring(ground, first, b"one")
    (ground.folder / "a").unlink()
    again = Ground(ground.folder, ground.outputs.parent)
    assert (again.place(first), again.place(second)) == ("here", "there")  # it has come, and was moved or removed since
    edited(ground.folder / "a", "mine")
    bring(again, second, b"two")
    assert (again.place(first), again.place(second)) == ("here", "outputs")


def test_what_has_come_of_older_versions_goes_and_a_long_record_is_shortened(ground):
    old, new = far("a", b"one"), far("a", b"two", WHEN + 1)
    for file in (old, new):
        ground.part(file).write_bytes(b"o")
    ground.tidy([new])
    assert not ground.part(old).exists() and ground.part(new).exists()
    line = {"path": "a", "size": 3, "sha256": "0"}
    record = ground.outputs.parent / "pulled.jsonl"
    record.write_text("".join(json.dumps({**line, "mtime_ns": n}) + "\n" for n in range(3000)))
    long = Ground(ground.folder, ground.outputs.parent)
    long.tidy([])
    assert [json.loads(each)["mtime_ns"] for each in record.read_text().splitlines()] == [2998, 2999]
    assert Ground(ground.folder, ground.outputs.parent).place({**line, "mtime_ns": 2999}) == "here"


def test_no_machine_makes_a_hidden_file_in_the_home_folder(ground, monkeypatch):
    monkeypatch.setenv("HOME", str(ground.folder))
    (ground.folder / ".ssh").mkdir()
    for path in (".bashrc", ".ssh/authorized_keys"):
        assert bring(ground, far(path, b"x"), b"x") == (KEEP, ground.outputs / path)
    assert bring(ground, far("a/.hydra/config.yaml", b"x"), b"x")[0] == PUT and os.listdir(ground.folder / ".ssh") == []


def test_what_comes_at_the_end_and_what_stays():
    files = [far(path, b"x" * size) for path, size in (("big.pt", 90), ("a.csv", 10), ("b.csv", 20), ("c.bin", 80), ("logs/x", 500))]

    def names(patterns: tuple[str, ...], limit: int) -> tuple[list[str], list[str]]:
        come, left = to_bring(files, patterns, limit)
        return sorted(f["path"] for f in come), sorted(f["path"] for f in left)
    assert names((), 110) == (["a.csv", "b.csv", "c.bin"], ["big.pt", "logs/x"])
    assert names(("logs/**", "*.pt"), 30) == (["a.csv", "b.csv", "big.pt", "logs/x"], ["c.bin"])
    assert names(("*.none",), 0) == ([], sorted(f["path"] for f in files))


def test_which_files_are_meant():
    files = [far(path, b"") for path in ("a.pt", "ckpt/b.pt", "logs/x/y.csv", "logs.txt")]

    def names(*patterns: str) -> list[str]:
        return [f["path"] for f in chosen(files, patterns, "base")]
    assert names() == names(".") == ["a.pt", "ckpt/b.pt", "logs/x/y.csv", "logs.txt"]
    assert names("*.pt") == ["a.pt", "ckpt/b.pt"] and names("logs") == names("logs/") == names("./logs/**") == ["logs/x/y.csv"]
    assert names("a.pt", "*.pt") == ["a.pt", "ckpt/b.pt"]
    with pytest.raises(NotFound, match=r"a file 'c\.pt'"):
        names("a.pt", "c.pt")


def test_two_at_once_and_no_room(ground):
    with ground.locked(), pytest.raises(StateError), ground.locked():
        pass
    with pytest.raises(TargetError, match="free"):
        room_for([{**far("a", b""), "size": 1 << 60}], ground)


def test_the_next_file_comes_while_a_slow_disk_takes_the_last_one_and_a_cut_loses_neither(ground, monkeypatch):
    files, content = [far("a.bin", b"first file"), far("b.bin", b"other file"), far("c.bin", b"third file")], [b"first file", b"other file", b"third file"]
    taken, sync = threading.Event(), os.fsync

    def slow_sync(descriptor: int) -> None:
        assert taken.wait(60)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_sync)
    wire = frames(*zip(files, content, strict=True))
    came: list[tuple[str, str]] = []
    with pytest.raises(TargetError):
        for file, word, _ in receive(in_pieces(wire[:-len(content[2])]), files, ground):
            came.append((file["path"], word))
            if file["path"] == "c.bin":  # it comes, and the first is not on disk yet
                taken.set()
    assert came.index(("b.bin", COMING)) < came.index(("a.bin", PUT)) < came.index(("b.bin", PUT))
    assert sorted(os.listdir(ground.folder)) == ["a.bin", "b.bin"] and (ground.folder / "b.bin").read_bytes() == content[1]
    assert offset_of(files[2], ground) > 0

"""The tar stream between two machines: any Python at either end, and whatever a broken or hostile one may send."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.hosts import tree

SUPPORTED = tuple(f"3.{minor}" for minor in range(8, 15))


def pythons() -> list[str]:
    """One interpreter of each version that lies around on this machine."""
    found = {sys.version_info[:2]: sys.executable}
    for path in [*sorted(Path.home().glob(".pyenv/versions/*/bin/python")), *(Path(f"/usr/bin/python{v}") for v in SUPPORTED)]:
        version = path.parts[-3] if "versions" in path.parts else path.name.removeprefix("python")
        key = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if path.exists() and f"{key[0]}.{key[-1]}" in SUPPORTED:
            found.setdefault(key, str(path))
    return list(found.values())


@pytest.mark.parametrize("python", pythons())
def test_any_python_at_the_far_end(python: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "空").mkdir(parents=True)
    (source / "空" / os.fsdecode(b"a\xff\nb")).write_bytes(os.urandom(3000))
    (source / "link").symlink_to("空")
    env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    far = [python, "-I", "-S", tree.__file__]
    sent = io.BytesIO()
    tree.pack(source, sent)
    subprocess.run([*far, "receive", tmp_path / "far"], input=sent.getvalue(), env=env, check=True)
    back = subprocess.run([*far, "send", tmp_path / "far"], env=env, check=True, stdout=subprocess.PIPE).stdout
    tree.unpack(io.BytesIO(back), tmp_path / "back")
    assert picture(tmp_path / "back") == picture(source) != {}


def picture(root: Path) -> dict[bytes, tuple]:
    """Path -> mode, time, content."""
    seen = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else b"" if os.path.isdir(path) else Path(os.fsdecode(path)).read_bytes()
            seen[os.path.relpath(path, os.fsencode(root))] = (info.st_mode, info.st_mtime_ns, content)
    return seen


def stream(*members: tuple[str, bytes, str | bytes], end: bool = True) -> io.BytesIO:
    """A tar of (name, type, link or content)."""
    out = io.BytesIO()
    with tarfile.open(mode="w", fileobj=out, format=tarfile.PAX_FORMAT) as tar:
        for name, kind, rest in (*members, *([("end", tarfile.REGTYPE, b"")] if end else [])):
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            content = rest if isinstance(rest, bytes) else b""
            info.linkname, info.size = rest if isinstance(rest, str) else "", len(content)
            tar.addfile(info, io.BytesIO(content))
    return io.BytesIO(out.getvalue())


D, F, L = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE
HOSTILE = {
    "a name that climbs": [("r", D, ""), ("r/../evil", F, b"x")],
    "a climb further down": [("r", D, ""), ("r/a", D, ""), ("r/a/../../evil", F, b"x")],
    "an absolute name": [("r", D, ""), ("/tmp/stoker-evil", F, b"x")],
    "another root": [("evil", D, "")],
    "through a link": [("r", D, ""), ("r/a", L, ".."), ("r/a/evil", F, b"x")],
    "a link in the place of a folder": [("r", D, ""), ("r/a", L, ".."), ("r/a", D, ""), ("r/a/evil", F, b"x")],
    "a file through a link": [("r", D, ""), ("r/a", L, "../evil"), ("r/a", F, b"x")],
    "a link as the root": [("r", L, "..")],
    "a device": [("r", D, ""), ("r/null", tarfile.CHRTYPE, "")],
    "a pipe": [("r", D, ""), ("r/pipe", tarfile.FIFOTYPE, "")],
    "a hard link": [("r", D, ""), ("r/a", tarfile.LNKTYPE, "/etc/passwd")],
    "below a file": [("r", F, b"x"), ("r/evil", F, b"x")],
    "an empty name": [("r", D, ""), ("r//evil", F, b"x")],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_nothing_leads_out(members: list, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises((tree.Torn, OSError)):
        tree.unpack(stream(*members), tmp_path / "in" / "to")
    assert os.listdir(tmp_path) == ["in"] and os.listdir(tmp_path / "in") == []
    assert not os.path.exists("/tmp/stoker-evil")


@pytest.mark.parametrize("spoil", [
    lambda data: b"",
    lambda data: b"ssh: hello\n" * 100,
    lambda data: data[:700],
    lambda data: data[:2000],
    lambda data: b"\0" * 20480,
    lambda data: data[:512] + os.urandom(512) + data[1024:],
])
def test_a_torn_stream_is_told_from_a_whole_one(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = stream(("r", D, ""), ("r/a", F, b"x" * 600), ("r/b", F, b"y" * 600)).getvalue()
    with pytest.raises(tree.Torn):
        tree.unpack(io.BytesIO(spoil(data)), tmp_path / "to")
    assert os.listdir(tmp_path) == []


def test_a_stream_that_ends_between_two_files_is_torn(tmp_path: Path) -> None:
    with pytest.raises(tree.Torn):
        tree.unpack(stream(("r", D, ""), ("r/a", F, b"x"), end=False), tmp_path / "to")
    assert os.listdir(tmp_path) == []


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    """Two at once to one target: the second does not sweep away what the first is writing."""
    (tmp_path / "source").write_text("x")
    with tree.beside(os.fsencode(tmp_path / "to"), False) as temp:
        Path(os.fsdecode(temp)).write_text("first")
        tree.copy(tmp_path / "source", tmp_path / "to")
        assert (tmp_path / "to").read_text() == "x"
    assert (tmp_path / "to").read_text() == "first" and sorted(os.listdir(tmp_path)) == ["source", "to"]


def test_files_that_lie_about_their_size(tmp_path: Path) -> None:
    tree.copy("/proc/self/status", tmp_path / "to")
    assert (tmp_path / "to").read_text().startswith("Name:")

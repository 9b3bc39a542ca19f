"""Images on disk: whole or absent, whatever happens while they are written; damaged ones are refused with a sentence."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoker.inside.resume.core import store

META = {"where": {}, "facts": {"a": 1.5, "b": None}, "nested": [(1, "x"), b"raw"]}
FACTS = {"step": 3, "events": 9, "at": 1.0}


def write(root, n=1, size=100_000):
    data = os.urandom(size)
    store.write(str(root), n, memoryview(data), META, FACTS)
    return data


def why(root, n=1):
    with pytest.raises(store.Damaged) as caught:
        store.verified(str(root), n)
    return str(caught.value)


def test_what_is_written_is_read(tmp_path):
    data = write(tmp_path)
    told, meta, read = store.verified(str(tmp_path), 1)
    assert bytes(read) == data
    assert meta["facts"] == META["facts"]
    assert (told["step"], told["events"], told["format"]) == (3, 9, store.FORMAT)
    assert os.stat(store.folder(str(tmp_path), 1)).st_mode & 0o777 == 0o700


def test_an_image_without_memory(tmp_path):
    store.write(str(tmp_path), 1, memoryview(b""), META, FACTS)
    assert bytes(store.verified(str(tmp_path), 1)[2]) == b""


@pytest.mark.parametrize("name", ["data", "meta", "manifest.json"])
@pytest.mark.parametrize("cut", [0, 1, 0.5, -1])
def test_truncated(tmp_path, name, cut):
    write(tmp_path)
    path = Path(store.folder(str(tmp_path), 1)) / name
    size = path.stat().st_size
    os.truncate(path, size - 1 if cut == -1 else int(cut if cut >= 1 else cut * size))
    assert "image 1" in why(tmp_path)


@pytest.mark.parametrize("name", ["data", "meta"])
@pytest.mark.parametrize("place", [0, 0.3, 0.999])
def test_one_bit(tmp_path, name, place):
    write(tmp_path)
    path = Path(store.folder(str(tmp_path), 1)) / name
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)
    assert f"{name} of image 1 is damaged" in why(tmp_path)


def test_every_bit_of_a_small_manifest_is_harmless(tmp_path):
    data = write(tmp_path, size=50)
    path = Path(store.folder(str(tmp_path), 1)) / "manifest.json"
    content = path.read_bytes()
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        try:
            _told, meta, read = store.verified(str(tmp_path), 1)
        except store.Damaged:
            continue
        assert bytes(read) == data
        assert meta == META


@pytest.mark.parametrize("change", [{"format": 99}, {"format": None}, {"files": None}, {"files": {}}, {"files": {"data": 3, "meta": [1]}}])
def test_foreign_manifests(tmp_path, change):
    write(tmp_path)
    path = Path(store.folder(str(tmp_path), 1)) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert "image 1" in why(tmp_path)
    path.write_text("[1, 2]")
    assert "image 1" in why(tmp_path)


def test_the_last_two_good_ones_are_kept(tmp_path):
    root = str(tmp_path)
    for n in (1, 2, 3, 4):
        write(root, n, 10)
    store.mark_bad(root, 4, "a reason")
    (tmp_path / "images" / "new-9").mkdir()
    (tmp_path / "images" / "new-9" / "data").write_bytes(b"x")
    store.prune(root)
    assert store.numbers(root) == [4, 3, 2]
    assert store.is_bad(root, 4)
    assert not (tmp_path / "images" / "new-9").exists()
    write(root, 5, 10)
    store.prune(root)
    assert store.numbers(root) == [5, 4, 3]


def test_no_room_is_told_before(tmp_path):
    assert not store.room(str(tmp_path), 10)
    assert "MiB" in store.room(str(tmp_path), 1 << 60)


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from stoker.inside.resume.core import store
root = sys.argv[1]
for n in range(1, 100000):
    store.write(root, n, memoryview(bytes([n % 256]) * 300_000), {"n": n, "facts": list(range(2000))}, {"step": n, "events": n, "at": 0.0})
    store.prune(root)
    print(n, flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_images(tmp_path):
    source = str(Path(store.__file__).parents[3])
    for trial in range(12):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), source], stdout=subprocess.PIPE)
        child.stdout.readline()
        if trial:
            child.stdout.readline()
        time.sleep(0.0007 * trial)  # somewhere within the writing of the next one
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for n in store.numbers(str(tmp_path)):
            told, meta, data = store.verified(str(tmp_path), n)
            assert told["n"] == meta["n"] == n
            assert bytes(data) == bytes([n % 256]) * 300_000
        assert store.numbers(str(tmp_path))


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from stoker.inside.resume.core import store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    store.write(sys.argv[1], 2, memoryview(bytes(400_000)), {}, {"step": 2, "events": 2, "at": 0.0})
except OSError as e:
    print("OSError", e.errno)
"""


def test_a_write_that_fails_leaves_the_older_image(tmp_path):
    assert resource
    data = write(tmp_path)
    source = str(Path(store.__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path), source], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("OSError"), done.stderr
    assert os.listdir(tmp_path / "images") == ["1"]
    assert bytes(store.verified(str(tmp_path), 1)[2]) == data


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        data = write(small, 1, 300_000)
        with pytest.raises(OSError, match="No space"):
            write(small, 2, 3_000_000)
        assert os.listdir(small / "images") == ["1"]
        assert bytes(store.verified(str(small), 1)[2]) == data
        assert "disk has" in store.room(str(small), 100)
    finally:
        subprocess.run(["umount", str(small)], check=True)

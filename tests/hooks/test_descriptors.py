"""Writes past Python's file objects: what they change after an image is put back, and what a ghost could not follow is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lives import live

SCRIPT = '''
import mmap, os, struct, sys
begin()
import torch
{open}
def bump():
    {bump}
for i in range(6):
    if i == 2: image()
    if i > 2: bump()
    if i == 4:
        print("then", struct.unpack("q", open("count", "rb").read(8))[0], os.path.getsize("count"), flush=True)
        if os.environ["STOKER_ATTEMPT"] == "1": os.kill(os.getpid(), 9)
print("end", struct.unpack("q", open("count", "rb").read(8))[0], os.path.getsize("count"))
'''
OPENED = 'f = open("count", "r+b", buffering=0); fd = f.fileno()'
NEW = "old = os.open('count', os.O_RDONLY); new = struct.pack('q', struct.unpack('q', os.pread(old, 8, 0))[0] + 1); os.close(old)"
WAYS = {  # what is written each time: the number that stands there plus one
    "pwrite": "os.pwrite(fd, new, 0)",
    "writev": "os.lseek(fd, 0, 0); os.writev(fd, [new[:3], new[3:]])",
    "mmap": "m = mmap.mmap(fd, 0); m[:8] = new; m.close()",
    "copy_file_range": "t = os.open('t', os.O_RDWR | os.O_CREAT); os.pwrite(t, new, 0); os.copy_file_range(t, fd, 8, 0, 0); os.close(t)",
    "ftruncate": "os.ftruncate(fd, 4); os.ftruncate(fd, 8); os.pwrite(fd, new, 0)",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_overwritten_past_a_file_object_is_put_back(tmp_path: Path, way: str) -> None:
    """Without the copy that is kept, the second life would count on from what the first one left."""
    script = SCRIPT.format(open=OPENED, bump=f"{NEW}; {WAYS[way]}")
    work = tmp_path / "run" / "work"
    work.mkdir(parents=True)
    (work / "count").write_bytes((7).to_bytes(8, "little") + b"rest")
    assert live(tmp_path / "run", script).returncode == -9
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert "count is open as a Python file object" in state["reason"], state
    done = live(tmp_path / "run", script, attempt=2)
    assert done.returncode == 0, done.stderr
    assert "then 9 " in done.stdout and "end 10 " in done.stdout, done.stdout


def test_a_descriptor_of_its_own_that_is_closed_again_is_followed(tmp_path: Path) -> None:
    """The usual way to write a file whole: a new one, and a rename."""
    script = SCRIPT.format(open="", bump="""fd = os.open("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, struct.pack("q", i)); os.close(fd); os.replace("new", "count")""")
    assert live(tmp_path / "run", script).returncode == -9
    state = tmp_path / "run" / "resume" / "state.json"
    assert not state.exists() or not json.loads(state.read_text()).get("reason")
    done = live(tmp_path / "run", script, attempt=2)
    assert done.returncode == 0 and "then 4 8" in done.stdout and "end 5 8" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("opened", "told"), [
    ('fd = os.open("count", os.O_RDWR | os.O_CREAT); os.pwrite(fd, b"x" * 8, 0)', "count is open for writing"),
    ('import numpy; m = numpy.memmap("count", "int64", "w+", shape=(1,))', "count is open for writing"),
])
def test_what_stays_open_is_no_place_for_an_image(tmp_path: Path, opened: str, told: str) -> None:
    script = f'''
import os
begin()
import torch
from stoker.inside.resume.world import files, journal
{opened}
try:
    image()
except journal.Impossible as e:
    print(e)
'''
    done = live(tmp_path / "run", script)
    assert told in done.stdout, done.stdout + done.stderr


def test_a_tensor_that_writes_into_a_file_ends_recording(tmp_path: Path) -> None:
    """It may be gone again by the next image, and what it wrote is not in the journal."""
    script = '''
begin()
import torch
t = torch.from_file("count", shared=True, size=8)
del t
'''
    done = live(tmp_path / "run", script)
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert state["reason"] == "count is a writable memory map, which exact resume does not support", (state, done.stderr)

"""Files of a run: those that its processes were seen to write. What nobody was seen to write is said to be uncertain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until

WRITER = "import sys, time\nopen(sys.argv[1], 'w').write('x')\nprint('written', flush=True)\ntime.sleep(600 if sys.argv[2:] else 0)\n"
WAYS = """
import os, pathlib, shutil, subprocess, sys, threading, time
open("open.txt", "w").write("x")
pathlib.Path("path.txt").write_text("x")
os.close(os.open("os.txt", os.O_WRONLY | os.O_CREAT))
open("before.tmp", "w").write("x")
os.replace("before.tmp", "replaced.txt")
shutil.copy("open.txt", "copied.txt")
thread = threading.Thread(target=lambda: open("thread.txt", "w").write("x"))
thread.start()
thread.join()
os.mkdir("deep")
os.chdir("deep")
open("below.txt", "w").write("x")
os.symlink("below.txt", "link.txt")
open("link.txt", "a").write("x")
subprocess.run([sys.executable, "-c", "open('child.txt', 'w').write('x')"], check=True)
if not os.fork():
    open("forked.txt", "w").write("x")
    os._exit(0)
os.wait()
print("written", flush=True)
time.sleep(600)
"""
MADE = {"open.txt", "path.txt", "os.txt", "replaced.txt", "copied.txt", "thread.txt", "deep/below.txt", "deep/child.txt", "deep/forked.txt"}


def told(ground: Ground, name: str) -> dict[str, bool]:
    """Path -> whether it is uncertain."""
    return {f["path"]: f["uncertain"] for f in ground.show(name)["files"]}


def test_files_of_two_runs_in_one_folder(ground: Ground):
    ground.script("ways.py", WAYS)
    ground.script("write.py", WRITER)
    first = ground.detach("--name", "first", "ways.py")
    ground.until_log(first["id"], b"written")
    ground.stoker("run", "--name", "second", "write.py", "second.txt").ok()
    assert told(ground, "second") == {"second.txt": False}
    assert told(ground, "first") == dict.fromkeys(MADE, False)
    (ground.work / "edited.txt").write_text("by a person")
    assert told(ground, "first") == {**dict.fromkeys(MADE, False), "edited.txt": True}
    assert "uncertain: Stoker did not see which program wrote the file" in ground.stoker("show", "first").ok().out


def test_both_write_one_file(ground: Ground):
    ground.script("write.py", WRITER)
    first = ground.detach("--name", "first", "write.py", "both.txt", "stay")
    ground.until_log(first["id"], b"written")
    ground.stoker("run", "--name", "second", "write.py", "both.txt").ok()
    assert told(ground, "first") == told(ground, "second") == {"both.txt": False}


def test_a_file_that_a_program_keeps_open_is_its_own(ground: Ground):
    """No hooks look into a shell; the agent does, as long as the file is open."""
    shell = ground.detach("--name", "shell", "--", "sh", "-c", "exec 3>kept.txt; echo x >&3; echo x > short.txt; echo written; sleep 600")
    ground.until_log(shell["id"], b"written")
    until(lambda: told(ground, "shell").get("short.txt"), 30, "a look of the agent")
    assert told(ground, "shell") == {"kept.txt": False, "short.txt": True}
    ground.script("write.py", WRITER)
    ground.stoker("run", "--name", "second", "write.py", "second.txt").ok()
    assert told(ground, "second") == {"second.txt": False, "short.txt": True} or "short.txt" not in told(ground, "second")


def test_a_program_alone_in_its_folder_has_what_it_wrote(ground: Ground):
    ground.stoker("run", "--name", "alone", "--", "sh", "-c", "echo x > short.txt").ok()
    assert told(ground, "alone") == {"short.txt": False}


@pytest.mark.parametrize("name", ["a b\n.txt", os.fsdecode(b"\xff.txt")])
def test_odd_names(ground: Ground, name: str):
    ground.script("odd.py", f"open({os.fsencode(name)!r}, 'w').write('x')\nopen('plain.txt', 'w').write('x')\n")
    ground.stoker("run", "--name", "odd", "odd.py").ok()
    assert list(told(ground, "odd").values()) == [False, False]
    assert Path(ground.work, name).exists()

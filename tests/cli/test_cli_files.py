"""Files of a run: what was written while another run worked in the same folder is said to be uncertain."""

from __future__ import annotations

import os

from benchmarks.ground import Ground

WRITER = "import sys, time\nopen(sys.argv[1], 'w').write('x')\nprint('written', flush=True)\ntime.sleep(600 if sys.argv[2:] else 0)\n"


def test_files_of_two_runs_in_one_folder(ground: Ground):
    ground.script("write.py", WRITER)
    alone = ground.stoker("run", "--name", "alone", "write.py", "alone.txt").ok()
    early = os.stat(ground.work / "alone.txt").st_mtime - 3600
    assert alone.code == 0 and [f["uncertain"] for f in ground.show("alone")["files"]] == [False]
    first = ground.detach("--name", "first", "write.py", "first.txt", "stay")
    ground.until_log(first["id"], b"written")
    ground.stoker("run", "--name", "second", "write.py", "second.txt").ok()
    told = {f["path"]: f["uncertain"] for f in ground.show("second")["files"]}
    assert told["second.txt"] is True and "uncertain: another run used this folder then" in ground.stoker("show", "second").ok().out
    os.utime(ground.work / "first.txt", (early, early))
    assert {f["path"]: f["uncertain"] for f in ground.show("first")["files"]}["first.txt"] is False

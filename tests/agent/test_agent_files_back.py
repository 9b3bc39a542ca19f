"""A script was killed on its way to an image, when its files stood as they were at that image: the end of the attempt gives them back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from agentkit import Running, kill, wait_for

from stoker.base import vendor

# The hooks' own code on the way back: as in a life that is killed in its tail.
PUTS_BACK = '''
import os, sys, time
hooks, work = sys.argv[1:]
sys.path.insert(0, hooks)
from stoker_hooks.resume.core import phases; from stoker_hooks.resume.world import as_found, journal
phases.folder, phases.attempt = os.environ["STOKER_RUN_DIR"] + "/resume", int(os.environ["STOKER_ATTEMPT"])
os.makedirs(phases.folder)
path = work + "/last.pt"

def change(text):
    journal.touch(path, journal.OVERWRITE)
    with open(path, "w") as f: f.write(text)

change("at the image")
journal.begin(1)
journal.sync()
change("at the kill")
as_found.put_back(1, {})
open(path + ".stoker-undo", "w").close()
print("older", open(path).read(), flush=True)
time.sleep(600)
'''


def put_back(new_run, tmp_path: Path) -> tuple[Running, Path]:
    hooks, work = vendor.lay_out(tmp_path / "agent"), tmp_path / "work"
    work.mkdir()
    run = new_run([sys.executable, "-c", PUTS_BACK, str(hooks), str(work)])
    (tmp_path / "root" / "runs" / run.id / "hooks").symlink_to(hooks)
    run.start()
    run.wait_out(b"older at the image")
    return run, work


@pytest.mark.parametrize("all_at_once", [False, True])
def test_the_end_of_an_attempt_gives_the_files_back(new_run, tmp_path, all_at_once):
    run, work = put_back(new_run, tmp_path)
    if all_at_once:
        run.kill_caretakers()
    kill(run.run_pid())
    if all_at_once:
        run.stop()
    run.end()
    assert {path.name: path.read_text() for path in work.iterdir()} == {"last.pt": "at the kill"}
    resume = tmp_path / "root" / "runs" / run.id / "resume"
    assert not (resume / "put_back").exists()
    assert json.loads((resume / "state.json").read_text())["given_back"] == [{"attempt": 1, "aside": 1}]
    assert [path.read_text() for path in (resume / "aside" / "1").rglob("last.pt")] == ["at the image"]


def test_the_only_copy_of_a_file_is_not_deleted(new_run, tmp_path):
    run, work = put_back(new_run, tmp_path)
    folder = tmp_path / "root" / "runs" / run.id
    hooks = os.readlink(folder / "hooks")
    (folder / "hooks").unlink()
    kill(run.run_pid())
    run.end()
    wait_for(lambda: not run.processes(), "the caretakers leave")
    (refused,) = run.call("rm", folder, check=False)
    assert refused["error"] == "state" and "a resume was interrupted" in refused["detail"] and folder.is_dir()
    (folder / "hooks").symlink_to(hooks)
    assert run.call("rm", folder) == [{"removed": True}] and not folder.exists()
    assert (work / "last.pt").read_text() == "at the kill"

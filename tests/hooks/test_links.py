"""What links in a run's resume folder lead to is neither deleted nor written, whatever of Stoker's they stand in the place of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

# A process in a run: one image, its journal, and all that is written beside them; between the two halves somebody plants links.
CHILD = '''
import os, sys
sys.path.insert(0, {src!r})
from stoker.inside.resume.audit import requests; from stoker.inside.resume.compute import graphs; from stoker.inside.resume.core import early_log, log, outcome, own, pace, phases; from stoker.inside.resume.core import store; from stoker.inside.resume.world import as_found, effects, files, journal, rng, undo
phases.folder = os.environ["STOKER_RESUME_DIR"]
phases.attempt = 1
own.make(phases.folder)
phases.depth = 1


def all_that_is_written(n):
    outcome.write_state(state="recording", step=n)
    phases.log = log.Log(os.path.join(phases.folder, "log"))
    phases.log.open()
    phases.log.close()
    rng.keep_start()
    pace._losses()
    graphs._mark("token")
    early_log.early = early_log.RECORD
    early_log.end()
    journal.begin(n)
    journal.keep(sys.argv[1], journal.OVERWRITE)
    journal.sync_notes()
    as_found._write_mark(n)
    as_found.accept()
    undo.place_aside(sys.argv[1])
    as_found._forget_old_asides()
    store.write(phases.folder, n, memoryview(b"data"), {{"where": 1}}, {{}})
    store.prune(phases.folder)
    journal.forget(n)
    outcome.refuse_for_all("why")


all_that_is_written(3)
print("planted?", flush=True)
sys.stdin.readline()
all_that_is_written(int(sys.argv[2]))
assert outcome.refused() == "why", outcome.refused()
assert journal.epochs() == [int(sys.argv[2])], journal.epochs()
assert int(sys.argv[2]) in store.numbers(phases.folder)
store.verified(phases.folder, int(sys.argv[2]))
'''


@pytest.fixture
def victim(tmp_path):
    """A folder of the user's, with the names in it that Stoker uses."""
    folder = tmp_path / "victim"
    for name in ("1/photo", "2/keep/1", "7/journal", "2024/photo", "new-9/x", "old-1/x", "images/1/data", "undo/1/journal", "audit/1/x",
                 "aside/1/x", "aside/2/x", "aside/3/x", "aside/4/x", "graphs/x", "log", "start", "lives", "owner", "state.json", "refused",
                 "put_back"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine\n")
    return folder


def picture(folder) -> dict:
    return {path.relative_to(folder).as_posix(): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("what", ["undo", "images", "aside", "graphs", "files", "inner", "resume", "beside"])
def test_what_a_link_leads_to_stays(tmp_path, victim, what):
    run = tmp_path / "home" / "runs" / "r-1"
    run.mkdir(parents=True)
    resume, own = run / "resume", tmp_path / "own.txt"
    own.write_text("text\n")
    env = {**os.environ, "STOKER_RUN_DIR": str(run), "STOKER_RESUME_DIR": str(resume)}
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(src=str(REPO / "src")), str(own), "4"], env=env, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "planted?\n"
        plant(resume, victim, what)
        before = picture(victim)
        child.communicate("yes\n", timeout=60)
    finally:
        child.kill()
        child.wait()
    assert picture(victim) == before
    assert child.returncode == 0


def plant(resume, victim, what) -> None:
    if what == "resume":
        resume.rename(resume.with_name("real"))
        resume.symlink_to(victim)
    elif what == "files":
        for path in [each for each in resume.iterdir() if each.is_file()] + [resume / "put_back", resume / "owner"]:
            path.unlink(missing_ok=True)
            (victim / path.name).touch()
            path.symlink_to(victim / path.name)
    elif what == "inner":  # of each kind of folder, one below
        for name in ("undo/4", "images/4", "aside/1", "undo/3/keep"):
            if (resume / name).is_dir():
                (resume / name).rename(resume / (name.replace("/", "-") + ".real"))
            (resume / name).symlink_to(victim)
    elif what == "beside":  # names that are written first
        for name in ("undo/new-4", "undo/old-3", "images/new-4", "images/old-3", "state.json.2", "state.json.3", "put_back.new"):
            (resume / name).unlink(missing_ok=True)
            (resume / name).symlink_to(victim / "log" if "." in name else victim)
    else:
        (resume / what).rename(resume / (what + ".real"))
        (resume / what).symlink_to(victim)

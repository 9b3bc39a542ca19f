"""Whatever a run writes into its own folder: it is seen, stopped and removed as ever, and so are the others; nothing that a link leads to is
touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import agentkit
import pytest
from agentkit import wait_for

from stoker.agent.reading import TIME, Broken, misfit, parse_json
from stoker.agent.writing import remove

PY = sys.executable


@pytest.fixture
def victim(tmp_path):
    """A folder of the user's, with names in it that Stoker deletes elsewhere."""
    folder = tmp_path / "victim"
    for name in ("images/1/data", "1/data", "log", "audit/room/order.json", "own.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    folder.chmod(0o755)
    return folder


def picture(folder) -> dict:
    return {path.relative_to(folder).as_posix(): path.lstat().st_mode for path in [folder, *folder.rglob("*")]}


def test_what_links_in_resume_lead_to_stays(new_run, victim):
    before = picture(victim)
    head = "import os; r = os.environ['STOKER_RUN_DIR'] + '/resume'; v = " + repr(str(victim))
    whole = new_run([PY, "-c", head + "; os.path.isdir(r) and os.rmdir(r); os.symlink(v, r)"], audit=True)
    parts = new_run([PY, "-c", head + "; os.makedirs(r, exist_ok=True)\n"
                     "for name in ('images', 'audit', 'log', 'log.old', 'ended-1'): os.symlink(v, r + '/' + name)"], audit=True)
    for run in (whole, parts):
        run.start()
    for run in (whole, parts):
        assert run.end()["reason"] == "exited"
        wait_for(lambda run=run: not run.processes(), "the caretakers leave")
    assert picture(victim) == before
    for run in (whole, parts):
        assert run.call("rm", run.dir) == [{"removed": True}]
    assert picture(victim) == before and os.listdir(whole.root / "runs") == []


def test_what_a_link_in_the_place_of_the_run_folder_leads_to_stays(new_run, victim):
    run = new_run(["true"])
    run.start()
    run.wait_phase("ended")
    wait_for(lambda: not run.processes(), "the caretakers leave")
    before = picture(victim)
    shutil.rmtree(run.dir)
    run.dir.symlink_to(victim)
    (run.root / "runs" / f".rm-{run.id}-1").symlink_to(victim)
    assert run.phase() == "absent"
    assert run.call("rm", run.dir) == [{"removed": True}]
    assert picture(victim) == before and os.listdir(run.root / "runs") == []


def test_what_a_link_in_the_place_of_a_live_runs_folder_leads_to_stays(new_run, victim):
    """The run goes on; its caretakers write in the folder that they began in, wherever it is now."""
    run = new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(1000)"])
    run.start()
    run.wait_out(b"up")
    wait_for((run.dir / "attempts/1/heartbeat").exists, "the first heartbeat")
    real, pid = run.dir.with_name("real"), run.run_pid()
    shutil.copytree(run.dir, victim / "copy", ignore=lambda folder, names: [n for n in names if n == "sock"])
    before = content(victim / "copy")
    os.rename(run.dir, real)
    run.dir.symlink_to(victim / "copy")
    beats = (real / "attempts/1/heartbeat").read_bytes()
    wait_for(lambda: (real / "attempts/1/heartbeat").read_bytes() != beats, "a heartbeat in the moved folder")
    os.kill(pid, 15)
    wait_for((real / "attempts/1/exit.json").exists, "the end in the moved folder")
    wait_for(lambda: not run.processes(), "the caretakers leave")
    assert content(victim / "copy") == before
    run.dir.unlink()
    os.rename(real, run.dir)
    assert run.end()["signal_name"] == "SIGTERM"


def content(folder) -> dict:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_deleted_through_a_linked_folder_of_runs(new_run, tmp_path):
    run = new_run(["true"])
    elsewhere = tmp_path / "elsewhere"
    os.rename(run.root / "runs", elsewhere)
    (run.root / "runs").symlink_to(elsewhere)
    assert run.call("rm", run.dir, check=False)[0]["error"] == "system"
    assert (elsewhere / run.id / "spec.json").exists()


def test_a_folder_deeper_than_any_stack_is_removed(tmp_path, victim):
    before, here = picture(victim), os.getcwd()
    try:
        for name in ["top"] + ["d"] * 1100:
            os.mkdir(tmp_path / name) if name == "top" else os.mkdir(name)
            os.chdir(tmp_path / name if name == "top" else name)
        os.symlink(victim, "end")
        for name in (".1", ".2"):  # names that the removal itself gives
            (tmp_path / "top" / name / "inner").mkdir(parents=True)
    finally:
        os.chdir(here)
    (tmp_path / "top" / "d").chmod(0)
    try:
        remove(str(tmp_path), "top")
        assert not (tmp_path / "top").exists() and picture(victim) == before
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "top")], check=False)  # what is left would be too deep for pytest


PIPE, FOLDER = object(), object()


POISONS = [
    ("agent.json", '{"run": 5}'), ("agent.json", "[" * 100_000), ("agent.json", '{"started_at": "x"}'), ("agent.json", PIPE),
    ("exit.json", FOLDER), ("exit.json", '{"code": "x", "reason": []}'), ("stop.json", FOLDER), ("status.json", PIPE),
    ("heartbeat", '{"mono": "x", "used_s": []}'), ("telemetry.jsonl", PIPE), ("out.log", PIPE), ("../../keep.json", "/dev/zero"),
    ("../../limits.json", PIPE), ("../../spec.json", PIPE), ("../²/x", "")]


def test_spoilt_files_hide_no_other_run_and_their_runs_can_be_ended(new_run):
    good, bad = new_run(["true"]), [new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(100)"]) for _ in POISONS]
    for run in (good, *bad):
        run.start()
    good.wait_phase("ended")
    for run, (name, content) in zip(bad, POISONS, strict=True):
        run.wait_out(b"up")
        wait_for(lambda run=run: run.record().get("run"), "the record of the run")
        spoil(run.attempt() / name, content)
    seen = {each["id"]: each for each in good.call("poll", good.root, timeout=30)}
    assert seen[good.id]["phase"] == "ended" and {run.id for run in bad} <= seen.keys()
    for run in bad:
        run.stop("--grace", 0, 0)
    for run, poison in zip(bad, POISONS, strict=True):
        wait_for(lambda run=run: run.phase() == "ended", f"the end of {poison}")
        wait_for(lambda run=run: not run.processes(), f"the caretakers of {poison} leave")
        assert run.call("rm", run.dir) == [{"removed": True}]


def spoil(path, content) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.is_file():
        path.unlink()
    if content is PIPE:
        os.mkfifo(path)
    elif content is FOLDER:
        (path / "inner").mkdir(parents=True)
    elif content.startswith("/"):
        path.symlink_to(content)
    else:
        path.write_text(content)


def test_a_spoilt_record_is_named_and_made_again(new_run):
    run = new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(100)"])
    run.start()
    run.wait_out(b"up")
    wait_for((run.attempt() / "heartbeat").exists, "the first heartbeat")
    holder = run.holder()
    spoil(run.attempt() / "agent.json", '{"run": 5}')
    seen = run.poll()
    assert (seen["phase"], seen["broken"]) in (("running", {"attempts/1/agent.json": "run has the wrong type"}), ("running", {}))
    wait_for(lambda: run.poll()["broken"] == {}, "agent.json as it was")
    assert run.holder() == holder and run.phase() == "running"
    run.stop("--grace", 0, 0)
    assert run.end()["reason"] == "stopped_by_user"


def test_kinds():
    parse, broken = parse_json, Broken
    assert misfit({"run": {"pid": True}}, {"run": {"pid": int}}) == "run.pid"
    assert misfit({"a": [1, "x"]}, {"a": [int]}) == "a.1"
    assert misfit({"a": None, "b": 5, "c": 1.5}, {"a": str, "b": float, "*": float}) is None
    for text, why in ((b"[", "not JSON"), (b"5", "object"), (b'{"x": ' + b"[" * 30 + b"]" * 30 + b"}", "nested"), (b'{"at": 1e12}', "at")):
        with pytest.raises(broken, match=why):
            parse(text, {"at": TIME})
    assert parse(json.dumps({"x": "[" * 99}).encode(), {}) == {"x": "[" * 99}


def test_caretakers_leave_when_the_home_of_an_ended_run_is_gone(new_run, tmp_path, monkeypatch):
    monkeypatch.setattr(agentkit, "AGENT", agentkit.changed_agent(tmp_path, ("GONE_S = 30.0 ", "GONE_S = 1.0 ")))
    run = new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(1000)"])
    run.start()
    run.wait_out(b"up")
    caretakers, pid = (run.holder(), run.agent()), run.run_pid()
    moved = run.root.with_name("moved")
    os.rename(run.root, moved)
    try:
        awake = wakings(caretakers[1])
        wait_for(lambda: wakings(caretakers[1]) >= awake + 2, "the agent to look twice")
        assert all(map(alive, (*caretakers, pid))), "a moved home has ended a run"
    finally:
        os.kill(pid, 9)
    wait_for(lambda: not any(map(alive, caretakers)), "the caretakers leave", timeout=60)
    assert not run.root.exists()
    shutil.rmtree(moved)


def wakings(pid: int) -> int:
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches"))


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False

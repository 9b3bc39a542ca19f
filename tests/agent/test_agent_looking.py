"""`look`: what is asked about run folders, answered in one go."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import zlib

from agentkit import Running


def look(run: Running, *questions: list, code: int = 0) -> dict:
    done = subprocess.run(run.argv("look", run.root), env=run.env, input=json.dumps({run.id: questions}).encode(), capture_output=True, check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout)


def unpacked(answer: dict) -> bytes:
    return zlib.decompress(base64.b64decode(answer["data"]))


def test_files_whole_their_ends_and_those_that_cannot_be_read(new_run):
    run = new_run(["sh", "-c", "printf 'one\\ntwo\\n'"])
    run.start()
    run.end()
    os.mkfifo(run.dir / "pipe")
    (run.dir / "large").write_bytes(b"x" * 100)
    told = look(run, ["read", "attempts/1/exit.json", 1 << 20], ["tail", "attempts/1/out.log", 4], ["read", "no/such", 9], ["read", "pipe", 9],
                ["read", "large", 99], ["has", "large"], ["has", "pipe"], ["tail", "pipe", 9])
    assert told["seen"]["phase"] == "ended" and told["id"] == run.id
    exit_, end, missing, pipe, large, has, no, empty = told["answers"]
    assert json.loads(unpacked(exit_))["reason"] == "exited" and unpacked(end) == b"two\n" and missing == {}
    assert pipe == {"broken": "not a regular file"} and large == {"broken": "larger than 99 bytes"}
    assert has["has"] and not no["has"] and unpacked(empty) == b""


def test_names_of_variables_and_never_their_values(new_run):
    run = new_run(["true"], env={"KEY": "hunter2"})
    told = look(run, ["env"])
    assert "KEY" in told["answers"][0]["names"] and "hunter2" not in json.dumps(told)


def test_what_a_run_wrote_and_what_it_costs(new_run):
    run = new_run(["sh", "-c", "printf abc > new.txt; mkdir .git; touch .git/x"], copy=True)
    (run.dir / "work").mkdir()
    (run.dir / "work" / "old.txt").write_text("old")
    (run.dir / "code").mkdir()
    info = os.stat(run.dir / "work" / "old.txt")
    listed = [{"path": "old.txt", "size": info.st_size, "mtime_ns": info.st_mtime_ns}]
    (run.dir / "code" / "manifest.json").write_text(json.dumps({"complete": True, "bulk": [], "files": listed}))
    run.start()
    run.end()
    changed, cost, wrote = look(run, ["changed", "", 0.0, None, 10], ["cost"], ["written", [run.id, "../.."]])["answers"]
    assert changed["top"] == str(run.dir / "work") and [(f["path"], f["size"], f["kind"]) for f in changed["files"]] == [("new.txt", 3, "new")]
    assert cost["bytes"] > 0 and cost["inodes"] > 10 and isinstance(wrote["paths"], list)


def test_a_run_that_is_gone_and_a_question_that_is_none(new_run):
    run = new_run(["true"])
    assert look(run, ["weather"], code=2)["error"] == look(run, ["read"], code=2)["error"] == "usage"
    run.id = "gone"
    assert look(run, ["env"])["seen"]["phase"] == "absent" and look(run, ["env"])["answers"] == []

"""`stoker run --audit`: the agent starts a child that lives the time between two images once more, and `show` tells what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.ground import Ground, alive, until
from parts import refused
from training import PAUSE, TRAIN, made, python_with_torch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def torch_is_there() -> None:
    python_with_torch()


def begin(ground: Ground, epochs: int, *options: str) -> dict:
    (ground.work / "train.py").write_text(TRAIN.replace(PAUSE, "time.sleep(0.02)"))
    return ground.detach("--audit", "--env", "STOKER_IMAGE_EVERY=3s", "--env", "OMP_NUM_THREADS=1", *options, "--",
                         sys.executable, "train.py", str(epochs))


def audited(ground: Ground, run: dict, at_least: int = 1) -> list[dict]:
    def look() -> list[dict] | None:
        found = (ground.show(run["id"])["resume"] or {}).get("audited") or []
        return found if len(found) >= at_least else None
    return until(look, 120, "an audit")


def child_of_an_audit(run: dict) -> int:
    """The process id of the audit that is at work in it."""
    def look() -> int:
        for path in Path(run["folder"]).glob("resume/audit/*/hooks/processes.jsonl"):
            try:
                return json.loads(path.read_text().splitlines()[0])["pid"]
            except (OSError, ValueError, IndexError):
                continue
        return 0
    return until(look, 60, "an audit at work")


def test_audits_beside_a_training_that_notices_nothing(ground: Ground):
    plain = ground.root / "plain"
    plain.mkdir()
    (plain / "train.py").write_text(TRAIN.replace(PAUSE, "pass"))
    straight = subprocess.run([sys.executable, "train.py", "35"], cwd=plain, env={**ground.env, "OMP_NUM_THREADS": "1"}, capture_output=True,
                              timeout=120, check=True)
    run = begin(ground, 35)
    pid = child_of_an_audit(run)
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE
    assert b"CUDA_VISIBLE_DEVICES=\0" in Path(f"/proc/{pid}/environ").read_bytes()
    told = audited(ground, run, 2)
    print(told)
    assert [each["verdict"] for each in told] == ["bit-exact"] * len(told), told
    assert told[0]["from_step"] < told[0]["step"] < told[1]["step"]
    steps = " and ".join(f"{each['step']:,}" for each in told)
    text = ground.stoker("show", run["id"]).ok().out
    assert f"audited at steps {steps}: bit-exact" in text, text
    assert ground.wait_state(run["id"], timeout_s=120)["state"] == "done"
    assert made(ground.work) == made(plain)
    assert ground.stoker("logs", run["id"]).ok().stdout == straight.stdout
    assert not list(Path(run["folder"]).glob("resume/audit/*"))
    assert not ground.show(run["id"])["attempts_detail"][0].get("leftovers", {}).get("found")


def test_a_wrong_resume_is_found_while_the_run_is_young(ground: Ground):
    """The running statistics of the BatchNorm are left out of each restore, which no printed value would ever tell."""
    run = begin(ground, 60, "--env", "STOKER_RESUME_DROP=buffers")
    told = audited(ground, run)[0]
    assert told["verdict"] == "different" and "running_mean" in told["why"], told
    shown = ground.show(run["id"])["resume"]
    assert shown["sentence"].startswith(f"not resumable: an audit of steps {told['from_step']:,} to {told['step']:,} ended in a different state"), shown
    until(lambda: ground.show(run["id"])["resume"]["state"] == "not resumable", 20, "the run's own word")
    os.kill(ground.run_pid(run["id"]), signal.SIGKILL)
    ground.wait_state(run["id"])
    ground.stoker("start", run["id"]).ok()
    ground.until_log(run["id"], b"epoch 0 ", attempt=2, timeout_s=60)
    again = ground.show(run["id"])["resume"]
    assert not again["resumed"] and again["sentence"].startswith("not resumable: an audit"), again
    ground.stoker("stop", "--force", run["id"]).ok()


def test_a_run_that_is_told_to_end_does_not_wait_for_its_audit(ground: Ground):
    run = begin(ground, 100)
    pid = child_of_an_audit(run)
    began = time.monotonic()
    ground.stoker("stop", run["id"]).ok()
    ground.wait_state(run["id"], timeout_s=30)
    print(f"stopped after {time.monotonic() - began:.1f} s")
    assert not alive(pid)
    shown = ground.show(run["id"])
    assert not shown["resume"]["audited"] and not list(Path(run["folder"]).glob("resume/audit/*"))
    assert shown["reason"] == "stopped_by_user"


def test_an_audit_dies_with_its_agent_and_the_next_agent_goes_on(ground: Ground):
    run = begin(ground, 60)
    pid = child_of_an_audit(run)
    os.kill(ground.caretakers(run["id"])[1], signal.SIGKILL)
    until(lambda: not alive(pid), 10, "the end of the audit")
    assert audited(ground, run)[0]["verdict"] == "bit-exact"
    ground.stoker("stop", "--force", run["id"]).ok()


def test_without_a_recording_there_is_nothing_to_audit(ground: Ground):
    for off in (["--resume", "off"], ["--no-hooks"]):
        refused(ground.stoker("run", "--audit", *off, "--", "true"), 125, "--audit", "exact resume")

"""Looking at runs: poll, watch, probe, rm, heartbeat and telemetry; and what the caretakers cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from agentkit import pythons, wait_for

PY = sys.executable


def test_an_absent_run_is_an_observation(new_run):
    run = new_run(["true"])
    seen = run.call("poll", run.root, "nobody", "../runs", "")
    assert [s["phase"] for s in seen] == ["absent"] * 3 and seen[0]["exit"] is None


def test_runs_on_a_disk_that_is_away_are_not_absent(new_run):
    run = new_run(["true"])
    disk = run.root.rename(run.root.parent / "away")
    try:
        assert [line["error"] for line in run.call("poll", run.root, run.id, check=False)] == ["away"]
        assert run.call("poll", run.root, check=False) == []
        assert run.call("watch", run.root, check=False)[-1]["error"] and not run.root.exists()
    finally:
        disk.rename(run.root)
    assert run.poll()["phase"] == "staged"


def test_heartbeat_and_telemetry(new_run):
    run = new_run([PY, "-c", "x = bytearray(50_000_000)\nwhile True: pass"])
    run.start()
    samples = run.attempt() / "telemetry.jsonl"
    wait_for(lambda: samples.exists() and len(samples.read_text().splitlines()) >= 3, "three samples")
    seen = run.poll()
    last = seen["telemetry"]
    assert last["cpu_percent"] > 20 and last["rss_bytes"] > 50_000_000 and last["processes"] == 1
    assert last["disk_free_bytes"] > 0 and last["inodes_free"] > 0 and isinstance(last["gpus"], list)
    assert seen["heartbeat_age_s"] < 15 and seen["phase"] == "running" and seen["run_pid"] == run.run_pid()
    assert seen["used_s"] > 2


def test_telemetry_counts_the_whole_tree(new_run):
    run = new_run(["sh", "-c", "setsid sleep 100 & sleep 100 & wait"])
    run.start()
    wait_for(lambda: (run.poll()["telemetry"] or {}).get("processes") == 3, "three processes")


def test_poll_of_all_reads_every_run_and_skips_odd_names(new_run):
    runs = [new_run(["true"]) for _ in range(3)]
    (runs[0].root / "runs" / ".rm-x-1").mkdir()
    (runs[0].root / "runs" / "file").write_text("")
    assert [s["id"] for s in runs[0].call("poll", runs[0].root)] == [r.id for r in runs]


class Watching:
    def __init__(self, run) -> None:
        self.process = subprocess.Popen(run.argv("watch", run.root), env=run.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def until(self, run_id: str, *phases: str) -> dict:
        while True:
            line = self.process.stdout.readline()
            assert line, "the stream ended"
            seen = json.loads(line)
            if seen["id"] == run_id and seen["phase"] in phases:
                return seen

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()


def test_watch_tells_each_change_and_ends_with_its_stdin(new_run):
    first, second = new_run(["sleep", "100"]), new_run(["sh", "-c", "sleep 0.5; exit 3"])
    first.start()
    watching = Watching(first)
    watching.until(first.id, "running")
    began = time.monotonic()
    second.start()
    watching.until(second.id, "running", "claimed")
    assert watching.until(second.id, "ended")["exit"]["code"] == 3
    first.stop()
    assert watching.until(first.id, "ended")["exit"]["reason"] == "stopped_by_user"
    assert time.monotonic() - began < 9, "changes come by themselves, not by the ten-second round"
    watching.end()
    assert list((first.root / "watch").iterdir()) == []


def test_a_dead_watcher_is_forgotten(new_run):
    run = new_run(["sh", "-c", "sleep 0.5"])
    watching = Watching(run)
    wait_for(lambda: list((run.root / "watch").iterdir()) if (run.root / "watch").exists() else None, "its socket")
    watching.process.kill()
    watching.process.wait()
    watching.process.stdin.close()
    watching.process.stdout.close()
    run.start()
    run.end()
    wait_for(lambda: not list((run.root / "watch").iterdir()), "the socket is unlinked")


def test_watch_among_a_thousand_ended_runs_is_quick(new_run):
    run = new_run(["sleep", "100"])
    spec = (run.dir / "spec.json").read_text()
    for i in range(1000):
        folder = run.root / "runs" / f"old-{i}" / "attempts" / "1"
        folder.mkdir(parents=True)
        (folder.parent.parent / "spec.json").write_text(spec)
        (folder / "exit.json").write_text(json.dumps({"attempt": 1, "code": 0, "reason": "exited", "used_s": 1.0, "restart": None}))
    run.start()
    watching = Watching(run)
    watching.until(run.id, "running")
    with open(f"/proc/{watching.process.pid}/stat") as f:
        before = sum(int(x) for x in f.read().rpartition(")")[2].split()[11:13])
    watching.until(run.id, "running")  # the next round
    with open(f"/proc/{watching.process.pid}/stat") as f:
        spent = sum(int(x) for x in f.read().rpartition(")")[2].split()[11:13]) - before
    watching.end()
    assert spent <= 20, f"{spent} ticks for one round over a thousand ended runs"
    assert len(run.call("poll", run.root)) == 1001


def test_rm_refuses_the_living_and_removes_the_ended(new_run, tmp_path):
    run = new_run(["sleep", "100"])
    run.start()
    assert run.call("rm", run.dir, check=False)[0]["error"] == "state"
    run.stop("--grace", 0, 0)
    run.end()
    run.wait_phase("ended")
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "precious").write_text("x")
    (run.dir / "work" / "locked").mkdir(parents=True)
    (run.dir / "work" / "link").symlink_to(keep)
    (run.dir / "work" / "locked" / "f").write_text("x")
    (run.dir / "work" / "locked").chmod(0o500)
    assert run.call("rm", run.dir) == [{"removed": True}]
    assert not run.dir.exists() and list((run.root / "runs").iterdir()) == [] and (keep / "precious").exists()
    assert run.call("rm", run.dir) == [{"removed": False}]
    assert run.call("rm", keep, check=False)[0]["error"] == "not_a_run" and keep.exists()


@pytest.mark.parametrize("python", pythons())
def test_probe_knows_the_machine(new_run, python):
    run = new_run(["true"], python=python)
    facts = run.call("probe", run.root)[0]
    assert 0 < facts["cpus"] <= facts["cpus_total"] == os.cpu_count() and facts["memory_bytes"] >= facts["memory_free_bytes"] > 0
    assert facts["disk_free_bytes"] > 0 and facts["inodes"] >= facts["inodes_free"] > 0 and facts["identity"]["boot_id"]
    assert facts["python"]["version"].startswith("3.") and isinstance(facts["gpus"], list) and facts["path"] == str(run.root)
    assert run.call("probe", "/no/such/place")[0]["disk_bytes"] > 0
    one_cpu = subprocess.run(["taskset", "-c", "0", *run.argv("probe")], capture_output=True, check=True)
    assert json.loads(one_cpu.stdout)["cpus"] == 1


@pytest.mark.parametrize("python", pythons())
def test_the_caretakers_are_small(new_run, python):
    run = new_run(["sleep", "100"], python=python)
    run.start()
    samples = run.attempt() / "telemetry.jsonl"
    wait_for(lambda: samples.exists() and len(samples.read_text().splitlines()) >= 2, "two samples")
    total = 0
    for pid in (run.holder(), run.agent()):
        with open(f"/proc/{pid}/status") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    assert total < 30 * 1024, f"{total} kB"


def test_a_path_too_long_for_a_socket_is_no_obstacle(new_run, tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    run = new_run([PY, "-c", "print(input())"], stdin="attached", root=deep)
    watching = Watching(run)
    run.start()
    attached = run.attach()
    attached.send(b"i", b"through a long path\n")
    attached.until(b"through a long path\n")
    attached.leave()
    watching.until(run.id, "ended")
    watching.end()

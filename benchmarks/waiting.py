"""Claim: a thousand waiting runs are nothing special:
quick to submit, quick to list, small in memory, all end right."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

from benchmarks.ground import STOKER, Ground, memory_bytes, until
from benchmarks.measure import Row, seconds

# One client that submits argv[1] runs, one after another, through the library that the command line uses.
SUBMITTER = """
import json, os, sys, time
from stoker.client import connect
client = connect()
env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
began = time.monotonic()
ids = [client.submit({"command": ["sh", "-c", f"echo run {i}"], "name": f"q{i}", "folder": os.getcwd(), "slots": 1}, {}, env, None)["id"]
       for i in range(int(sys.argv[1]))]
print(json.dumps({"took": time.monotonic() - began, "ids": ids}))
"""  # noqa: E501


def thousand(ground: Ground, short: bool) -> list[Row]:
    """1,000 (short: 60) runs that wait for one of 20 slots, while a blocker holds them all."""
    count = 40 if short else 1000
    ground.home.mkdir(mode=0o700, exist_ok=True)
    (ground.home / "config.toml").write_text("slots = 20\n")
    ground.stoker("server", "stop")
    blocker = ground.detach("--slots", "20", "--grace", "1s", "--", "sleep", "600")
    ground.wait_state(blocker["id"], "running")
    made = subprocess.run(
        [sys.executable, "-c", SUBMITTER, str(count)],
        cwd=ground.work,
        env=ground.env,
        capture_output=True,
        check=True,
    )
    body = json.loads(made.stdout)
    server = ground.server_pid()

    def ps() -> None:
        subprocess.run([STOKER, "ps"], env=ground.env, stdout=subprocess.DEVNULL, check=True)
    listing = [seconds(ps) for _ in range(5 if short else 15)]
    peak = memory_bytes(server)
    began = time.monotonic()
    ground.stoker("stop", blocker["id"]).ok()
    most = 0

    def ended() -> bool:
        nonlocal peak, most
        peak = max(peak, memory_bytes(server))
        runs = ground.runs()
        most = max(
            most,
            sum(
                r["state"] in ("staging", "starting", "running", "stopping")
                for r in runs
                if r["id"] != blocker["id"]
            ),
        )
        return sum(r["state"] in ("done", "failed", "stopped") for r in runs) >= count + 1
    until(ended, 60 + 2 * count, "the end of all runs")
    took = time.monotonic() - began
    peak = max(peak, memory_bytes(server, "VmHWM"))
    states = {r["id"]: r for r in ground.runs()}
    wrong = sum(
        1
        for i, run_id in enumerate(body["ids"])
        if states[run_id]["state"] != "done"
        or states[run_id]["attempts"] != 1
        or ground.log(run_id) != f"run {i}\n".encode()
    )
    scale = count / 1000
    rows = [
        Row(
            name=f"submit {count} runs through one client",
            value=body["took"],
            target=30 * scale,
            unit="s",
            detail=f"{1000 * body['took'] / count:.1f} ms each",
        ),
        Row(
            name=f"stoker ps with {count} waiting",
            value=1000 * statistics.median(listing),
            target=400,
            unit="ms",
            n=len(listing),
        ),
        Row(name=f"server RSS with {count} runs, highest", value=peak / 1e6, target=250, unit="MB"),
        Row(
            name=f"of {count} runs, those that did not end right",
            value=wrong,
            target=0,
            unit="",
            n=count,
            detail=(
                f"all ended {took:.0f} s after the slots were free, {1000 * took / count:.0f} ms each, on "
                f"{os.cpu_count()} cores"
            ),
        ),
        Row(name="most at a time, with 20 slots", value=most, target=20, unit="", n=count),
    ]
    return rows

"""What may befall a machine that is far away: its reason is the right one, and nothing that was written is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from benchmarks import far
from benchmarks.ground import Ground, alive, until
from parts import root_only, tmpfs

pytestmark = [pytest.mark.real("sshd", "ip", "tc", "gcc"), root_only]

PLAIN, SHIFTED, SMALL = 0, 1, 2  # the machines
HOUR_S = 3600
LONG_S = 120.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Prints lines until a file tells it to end; keeps one file that comes home. argv: a folder that the test sees too.
LINES = """
import os, sys, time
with open(sys.argv[1] + "/starts", "a") as f: f.write("started\\n")
with open("kept.txt", "w") as f: f.write("kept\\n")
i = 0
while not os.path.exists(sys.argv[1] + "/enough"):
    print("line", i, flush=True)
    i += 1
    time.sleep(0.05)
print("end", flush=True)
"""
SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, t);
    if (code == 0 && id == CLOCK_REALTIME) t->tv_sec -= 3600;
    return code;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return code;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""


class Box:
    """One machine of the ground, and a run on it."""

    def __init__(self, ground: Ground, machines: list[far.Far], number: int, name: str, text: str = LINES) -> None:
        self.ground, self.machine, self.number, self.name = ground, machines[number], number, name
        self.folder, self.marks = ground.work / name, ground.root / "marks" / name
        self.folder.mkdir()
        self.marks.mkdir(parents=True)
        (self.folder / "train.py").write_text(text)

    def start(self, *words: str) -> None:
        """Start the run, and wait until it has printed a line."""
        run = self.ground.detach("--on", f"far{self.number}", "--name", self.name, *words, "train.py", str(self.marks), cwd=self.folder)
        self.id = run["id"]
        self.attempt = far.far_root(self.ground, self.number) / "runs" / self.id / "attempts" / "1"
        until(lambda: self.printed().count(b"\n") > 3, LONG_S, "lines of the run")

    def printed(self) -> bytes:
        try:
            return (self.attempt / "out.log").read_bytes()
        except OSError:
            return b""

    def record(self) -> dict:
        return json.loads((self.attempt / "agent.json").read_bytes())

    def enough(self) -> None:
        (self.marks / "enough").touch()

    def ended(self) -> dict:
        """The run as `show` has it, once it has ended; its log is whole, and its file at home."""
        run = self.ground.wait_state(self.id, timeout_s=LONG_S)
        assert self.ground.stoker("logs", self.id).ok().stdout == self.printed() and b"line 3\n" in self.printed()
        until((self.folder / "kept.txt").exists, LONG_S, f"the file of {self.name}")
        assert (self.folder / "kept.txt").read_text() == "kept\n" and (self.marks / "starts").read_text() == "started\n"
        return run


@pytest.fixture(scope="module")
def machines(common: Ground) -> Iterator[list[far.Far]]:
    source, shim = common.root / "shift.c", common.root / "shift.so"
    source.write_text(SHIFT)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    with tmpfs(far.far_root(common, SMALL), "size=16m"), \
            far.machines(common, 3, {SHIFTED: {"variables": (f"LD_PRELOAD={shim}",)}}) as made:
        yield made


def test_the_server_is_killed_while_the_cable_is_out(common: Ground, machines: list[far.Far]):
    box = Box(common, machines, PLAIN, "both")
    box.start()
    box.machine.pull_out()
    common.kill_server()
    before = box.printed().count(b"\n")
    assert common.stoker("ps", "--json").json()[0]["state"] == "running"  # by a new server, which cannot see the machine
    until(lambda: box.printed().count(b"\n") > before + 5, LONG_S, "lines that nobody reads")
    box.machine.plug_in()
    box.enough()
    run = box.ended()
    assert (run["state"], run["reason"]) == ("done", "exited") and box.printed().endswith(b"end\n")


def test_the_far_agent_is_killed_and_the_run_goes_on(common: Ground, machines: list[far.Far]):
    box = Box(common, machines, PLAIN, "agent")
    box.start()
    killed = box.record()["agent"]["pid"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: box.record()["agent"]["pid"] != killed, LONG_S, "another agent")
    box.enough()
    run = box.ended()
    assert (run["state"], run["reason"]) == ("done", "exited") and box.printed().endswith(b"end\n")


def test_both_far_caretakers_are_killed(common: Ground, machines: list[far.Far]):
    """Nobody is left there who could say how the run ended: it is ended, and said to be so."""
    box = Box(common, machines, PLAIN, "caretakers")
    box.start()
    record = box.record()
    os.kill(record["agent"]["pid"], signal.SIGSTOP)  # it would take over from a holder that dies first
    for each in ("holder", "agent"):
        os.kill(record[each]["pid"], signal.SIGKILL)
    run = box.ended()
    assert (run["state"], run["reason"]) == ("failed", "agent_lost")
    until(lambda: not alive(record["run"]["pid"]), LONG_S, "the end of the script")


def test_the_far_disk_is_full(common: Ground, machines: list[far.Far]):
    """The disk that holds the run folder itself: what was written before is there, and comes home."""
    text = LINES + "with open('big.bin', 'wb') as f:\n    while True: f.write(b'x' * 1_000_000); f.flush()\n"
    box = Box(common, machines, SMALL, "full", text)
    box.start()
    box.enough()
    run = box.ended()
    assert (run["state"], run["reason"]) == ("failed", "disk_full") and b"end\n" in box.printed()
    assert run["evidence"]["exception"]["type"] == "OSError"


def test_the_far_clock_is_an_hour_behind(common: Ground, machines: list[far.Far]):
    """The times of its runs are told by the clock here; limits, files and the log do not depend on either."""
    old = "import os, time\nos.utime('kept.txt', (time.time(), time.time()))\n"  # a clock that is behind would write this time
    box = Box(common, machines, SHIFTED, "clock", LINES.replace("i = 0\n", f"i = 0\n{old}"))
    facts = common.stoker("machine", "check", f"far{SHIFTED}", "--json").json()
    assert abs(facts["clock_offset_s"] + HOUR_S) < LONG_S
    box.start("--time", "4s", "--grace", "5s")
    run = box.ended()
    assert (run["state"], run["reason"]) == ("stopped", "limit_time")
    shown = common.stoker("show", "clock", "--json").json()["attempts_detail"][0]
    assert time.time() - HOUR_S - LONG_S < (box.folder / "kept.txt").stat().st_mtime < time.time() + 1
    for told in (run, shown):
        started, ended = (datetime.fromisoformat(told[name]).timestamp() for name in ("started_at", "ended_at"))
        assert 3 < ended - started < LONG_S and abs(ended - time.time()) < LONG_S


def test_the_far_machine_restarts(common: Ground, machines: list[far.Far]):
    box = Box(common, machines, PLAIN, "boot")
    box.start()
    printed = box.printed()
    box.machine.power_off()
    boot_id = common.root / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    box.machine.boot(f"mount --bind {boot_id} {BOOT_ID}")
    run = box.ended()
    assert (run["state"], run["reason"]) == ("failed", "rebooted") and box.printed().startswith(printed)
    assert Path(BOOT_ID).read_text() != boot_id.read_text()  # the mount is the machine's own

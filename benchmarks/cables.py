"""Claim: whenever the cable of a machine is pulled out, and for however long,
its runs end right and nothing is lost.

Each machine is a network namespace with an sshd.
A journey is one run whose cable is pulled out in named phases.
The test of the same name has a dozen cuts; this has a hundred.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import far
from benchmarks.ground import Ground, until
from benchmarks.measure import Row

LONGEST_S = 240.0  # for anything to happen, outages included
PAYLOAD = 1_500_000  # bytes that travel there, at RATE
RESULT = 1_000_000  # bytes of each of RESULTS files that travel back
RESULTS = 2
RATE = 8.0  # megabits a second: a transfer lasts long enough to be cut
PHASES = ("staging in", "start", "run", "log", "staging out")
STOP_PHASES = ("run", "log", "stop")
# Prints lines until it is told that they are enough, or to stop; then writes its results. argv: a folder that
# the test sees too.
TRAIN = f"""
import hashlib, os, signal, sys, time
marks = sys.argv[1]
def mark(name, text=""):
    with open(os.path.join(marks, name), "ab", 0) as f: f.write(text.encode() + b"\\n")
def stop(number, frame):
    if not os.path.exists(os.path.join(marks, "stopping")): mark("stopping")
signal.signal(signal.SIGINT, stop)
mark("starts", str(os.getpid()))
with open("payload.bin", "rb") as f: print("payload", hashlib.sha256(f.read()).hexdigest(), flush=True)
i = 0
while not any(os.path.exists(os.path.join(marks, each)) for each in ("enough", "stopping")):
    print("line", i, flush=True)
    i += 1
    time.sleep(0.02)
for n in range({RESULTS}):
    with open("result%d.bin" % n, "wb") as f: f.write(hashlib.sha256(b"%d" % n).digest() * ({RESULT} // 32))
if os.path.exists(os.path.join(marks, "stopping")): time.sleep(1.0)
print("end", flush=True)
mark("ended", str(i))
"""


@dataclass
class Journey:
    """One run on a machine, with its cable out in each of `cuts`: (phase, seconds).
    `wrong` tells what was not right."""

    ground: Ground
    machine: far.Far
    number: int
    cuts: Sequence[tuple[str, float]]
    name: str = ""
    wrong: list[str] = field(default_factory=list)
    # from the cable in until the next thing was seen to happen
    back_s: list[float] = field(default_factory=list)
    run_id: str = ""

    def go(self) -> None:
        """From `stoker run` until all is home; a failure is one of the wrongs."""
        try:
            self._go()
        except (AssertionError, subprocess.TimeoutExpired) as e:
            self.wrong.append(f"{self.name}: {str(e)[:1500]}")
        finally:
            self.machine.plug_in()

    def _go(self) -> None:
        self._lay_out()
        planned = dict(self.cuts)
        if "staging in" in planned or "staging out" in planned:
            self.machine.slow(RATE)
        cache = far.far_root(self.ground, self.number) / "cache"
        before = _bytes_in(cache)
        words = ("--on", f"far{self.number}", "--name", self.name, "train.py", str(self.marks))
        self.run_id = self.ground.detach(*words, cwd=self.folder, timeout_s=LONGEST_S)["id"]
        there = far.far_root(self.ground, self.number) / "runs"
        log = there / self.run_id / "attempts" / "1" / "out.log"
        with open(self.marks / "followed", "wb") as out:
            following = self.ground.start_stoker(
                "logs", "-f", self.run_id, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
            )
        self._cut(planned, "staging in", lambda: _bytes_in(cache) > before + 50_000)
        self._cut(planned, "start", log.parent.exists)
        self._cut(planned, "run", lambda: _size(log) > 500)
        self._cut(planned, "log", lambda: _size(self.marks / "followed") > 500)
        stopping = None
        if "stop" in planned:
            stopping = self.ground.start_stoker(
                "stop", self.run_id, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            self._cut(planned, "stop", (self.marks / "stopping").exists)
        else:
            (self.marks / "enough").touch()
        partial = self.ground.home / "runs" / self.run_id / "partial"
        self._cut(planned, "staging out", lambda: any(map(_size, partial.glob("*"))))
        self._judge(log, following, stopping)

    def _lay_out(self) -> None:
        self.name = self.name or f"r{self.number}-{len(list(self.ground.work.iterdir()))}"
        self.folder, self.marks = self.ground.work / self.name, self.ground.root / "marks" / self.name
        self.folder.mkdir(parents=True)
        self.marks.mkdir(parents=True)
        (self.folder / "train.py").write_text(TRAIN)
        self.payload = random.Random(self.name).randbytes(PAYLOAD)
        (self.folder / "payload.bin").write_bytes(self.payload)

    def _cut(self, planned: dict[str, float], phase: str, ready: Callable[[], object]) -> None:
        """The cable is out in this phase, if that is planned."""
        if phase not in planned:
            return
        until(ready, LONGEST_S, f"{phase} of {self.name}")
        self.machine.pull_out()
        time.sleep(planned[phase])
        self._look_for_torn(f"{phase}, cable out")
        self.machine.plug_in()

    def _look_for_torn(self, when: str) -> None:
        for n in range(RESULTS):
            path = self.folder / f"result{n}.bin"
            if path.exists() and path.read_bytes() != result(n):
                self.wrong.append(f"{self.name}: {path.name} is torn ({when})")

    def _judge(self, log: Path, following: subprocess.Popen, stopping: subprocess.Popen | None) -> None:
        began = time.monotonic()
        ended = self.ground.stoker("wait", self.run_id, timeout_s=LONGEST_S).code
        shown = self.ground.show(self.run_id)
        wanted = "stopped" if stopping else "done"
        if shown["state"] != wanted or (not stopping and ended != 0):
            self.wrong.append(
                f"{self.name}: {shown['state']} ({shown['reason']}), exit code {ended}, instead of {wanted}"
            )
        if stopping is not None and stopping.wait(LONGEST_S) != 0:
            self.wrong.append(f"{self.name}: stoker stop said {stopping.stderr.read()!r}")
        if (code := following.wait(LONGEST_S)) != 0:
            self.wrong.append(f"{self.name}: stoker logs -f ended with {code}: {following.stderr.read()!r}")
        lines = int((self.marks / "ended").read_text())
        digest = hashlib.sha256(self.payload).hexdigest()
        expected = f"payload {digest}\n" + "".join(f"line {i}\n" for i in range(lines)) + "end\n"
        for what, text in (
            ("the log there", log.read_bytes()),
            ("stoker logs", self.ground.stoker("logs", self.run_id).ok().stdout),
            ("stoker logs -f", (self.marks / "followed").read_bytes()),
        ):
            if text != expected.encode():
                self.wrong.append(
                    f"{self.name}: {what} is not what was printed: {_difference(text, expected.encode())}"
                )
        if (starts := (self.marks / "starts").read_text().split()) and len(starts) != 1:
            self.wrong.append(f"{self.name}: started {len(starts)} times")
        if len(list(log.parent.parent.iterdir())) != 1:
            self.wrong.append(f"{self.name}: more than one attempt")
        home = [self.folder / f"result{n}.bin" for n in range(RESULTS)]
        until(
            lambda: all(path.exists() for path in home),
            LONGEST_S,
            f"the results of {self.name}: {shown['outputs']}",
        )
        self._look_for_torn("at the end")
        self.back_s.append(time.monotonic() - began)


def result(number: int) -> bytes:
    """What the script writes."""
    return hashlib.sha256(b"%d" % number).digest() * (RESULT // 32)


def side_by_side(journeys: Sequence[Sequence[Journey]]) -> None:
    """Each list one after the other, the lists side by side."""
    def each(mine: Sequence[Journey]) -> None:
        for journey in mine:
            journey.go()
    threads = [threading.Thread(target=each, args=(mine,)) for mine in journeys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def planned(cuts: int, machines: int, longest_s: float, seed: int = 1) -> list[list[list[tuple[str, float]]]]:
    """For each machine its journeys, for each journey its cuts:
    all phases alike, outages from 1 s to the longest."""
    chance = random.Random(seed)
    plans: list[list[list[tuple[str, float]]]] = [[] for _ in range(machines)]
    left, turn = cuts, 0
    while left > 0:
        phases = (PHASES, STOP_PHASES)[turn // machines % 2][:left]
        plans[turn % machines].append([(phase, round(chance.uniform(1, longest_s), 1)) for phase in phases])
        left, turn = left - len(phases), turn + 1
    return plans


def rows(ground: Ground, short: bool) -> list[Row]:
    """100 cuts of 1 to 60 s over 10 machines; in the short form one of 1 s while a run runs."""
    return measured(ground, [[[("run", 1.0)]]] if short else planned(100, 10, 60.0), short)


def measured(ground: Ground, plans: list[list[list[tuple[str, float]]]], short: bool) -> list[Row]:
    """One row: what was wrong after all cuts. short: keep-alive of 2 s instead of Stoker's own."""
    count, longest_s = len(plans), max(seconds for mine in plans for cuts in mine for _, seconds in cuts)
    began = time.monotonic()
    with far.machines(ground, count, short=short) as machines:
        lists = [
            [Journey(ground, machines[n], n, cuts, f"m{n}-{i}") for i, cuts in enumerate(mine)]
            for n, mine in enumerate(plans)
        ]
        side_by_side(lists)
    journeys = [each for mine in lists for each in mine]
    wrong = [text for each in journeys for text in each.wrong]
    total = sum(len(each.cuts) for each in journeys)
    back = [seconds for each in journeys for seconds in each.back_s]
    worst = (
        f"; all home {statistics.median(back):.1f} s after the last event, at most {max(back):.1f} s"
        if back
        else ""
    )
    detail = (
        f"{len(journeys)} runs on {count} machines in {time.monotonic() - began:.0f} s, outages of 1 to "
        f"{longest_s:g} s{worst}; "
        f"first: {(wrong or ['none'])[0][:300]}"
    )
    name = f"cable out {total} times: what was wrong afterwards"
    return [Row(name=name, value=len(wrong), target=0, unit="", n=total, detail=detail)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _bytes_in(folder: Path) -> int:
    return sum(_size(path) for path in folder.rglob("*") if path.is_file())


def _difference(text: bytes, expected: bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(text, expected, strict=False)) if a != b),
        min(len(text), len(expected)),
    )
    return json.dumps(
        {"bytes": [len(text), len(expected)], "differ_at": at, "there": repr(text[at - 20 : at + 40])}
    )

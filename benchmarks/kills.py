"""The kill matrix: SIGKILL to the server, to the agent, to both caretakers, to everything;
then look whether anything was lost.

Each campaign gives a Tally: how often was killed, how many runs took part, and every single thing that was
not as promised. tests/e2e runs short campaigns, the benchmarks the full ones.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from benchmarks.ground import FINAL, NUMBERED, Ground, alive, children, cmdline, kill, numbered, until

SERVER_POINTS = (
    "submit.spooled",
    "submit.committed",
    "stage.before",
    "stage.after",
    "start.before",
    "start.after",
    "apply.before",
    "apply.after",
    "stop.before",
    "stop.after",
)
AGENT_POINTS = (
    "claimed",
    "spawned",
    "status_written",
    "ladder_done",
    "before_exit",
    "exit_written",
    "restart_claimed",
)
PAUSE_S = 0.05
SLEEPER = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("begun", flush=True)
time.sleep(600)
"""
TREE = """
import os, subprocess, sys, time
if os.environ["STOKER_ATTEMPT"] != "1":
    print("again", flush=True)
    sys.exit(0)
child = subprocess.Popen(["setsid", "sleep", "600"])
with open(sys.argv[1], "w") as f: f.write(str(child.pid))
print("begun", flush=True)
time.sleep(600)
"""
TWICE = """
import os, time
print("attempt", os.environ["STOKER_ATTEMPT"], flush=True)
if os.environ["STOKER_ATTEMPT"] == "1": time.sleep(600)
"""


@dataclass
class Tally:
    """The result of a campaign. `wrong` is empty when every promise was kept."""

    moments: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0  # where a time is promised: the longest that was seen

    def expect(self, holds: bool, text: str) -> None:
        if not holds:
            self.wrong.append(text)


@dataclass
class Wished:
    """What was asked of one run, and whether Stoker had said yes."""

    name: str
    run_id: str | None = None  # None: the answer to `run` never came
    stops: int = 0
    starts: int = 0
    maybe_stops: int = 0  # asked, but the answer never came
    maybe_starts: int = 0


class Traffic(threading.Thread):
    """Somebody who submits, stops and restarts runs all the time, through the command line."""

    def __init__(self, ground: Ground, live: int, *, seed: int = 1, lines: int = 120) -> None:
        super().__init__(daemon=True)
        self.ground, self.live, self.random, self.lines = ground, live, random.Random(seed), lines
        self.wished: dict[str, Wished] = {}
        self.tracebacks: list[str] = []
        self.commands = 0
        self._enough = threading.Event()
        ground.script("count.py", NUMBERED)

    def run(self) -> None:
        while not self._enough.is_set():
            self._step()

    def finish(self) -> None:
        self._enough.set()
        self.join()

    def submit(self) -> None:
        wish = Wished(f"r{len(self.wished)}")
        self.wished[wish.name] = wish
        done = self._do(
            "run",
            "-d",
            "--json",
            "--new",
            "--grace",
            "2s",
            "--name",
            wish.name,
            "--",
            sys.executable,
            "-I",
            "-S",
            "count.py",
            str(self.lines),
            str(PAUSE_S),
            str(self.side(wish.name)),
        )
        wish.run_id = json.loads(done.stdout)["id"] if done.code == 0 else None

    def side(self, name: str) -> os.PathLike:
        return self.ground.root / f"starts-{name}"

    def _do(self, *args: str):
        self.commands += 1
        done = self.ground.stoker(*args, timeout_s=90)
        if "Traceback" in done.err:
            self.tracebacks.append(f"{args}: {done.err[-500:]}")
        return done

    def _step(self) -> None:
        listed = self._do("ps", "-a", "--json")
        if listed.code != 0:
            return
        states = {r["name"]: r["state"] for r in json.loads(listed.stdout)}
        living = [n for n, s in states.items() if s not in FINAL]
        if len(living) < self.live:
            return self.submit()
        name = self.random.choice(living)
        if self.random.random() < 0.6:
            done = self._do("stop", name)
            self.wished[name].stops += done.code == 0
            self.wished[name].maybe_stops += done.code not in (0, 6)
        ended = [n for n, s in states.items() if s == "stopped"]
        if ended and self.random.random() < 0.4:
            name = self.random.choice(ended)
            done = self._do("start", name)
            self.wished[name].starts += done.code == 0
            self.wished[name].maybe_starts += done.code not in (0, 6)
        return None


def server_at_random(
    ground: Ground, moments: int, *, live: int = 20, lines: int = 120, seed: int = 1
) -> Tally:
    """SIGKILL the server at random moments while `live` runs print and others are submitted,
    stopped and restarted."""
    tally = Tally()
    chance = random.Random(seed)
    traffic = Traffic(ground, live, seed=seed, lines=lines)
    for _ in range(live):
        traffic.submit()
    traffic.start()
    while tally.moments < moments:
        pids = ground.server_pids()
        tally.expect(
            len(pids) <= 1 or bool(until(lambda: len(ground.server_pids()) <= 1, 10, "one server")),
            f"several servers: {pids}",
        )
        if not pids:
            time.sleep(0.02)
            continue
        time.sleep(chance.uniform(0, 1.5))
        kill(pids[0])
        until(lambda p=pids[0]: not alive(p), 10, "the death of the server")
        tally.moments += 1
    traffic.finish()
    judge(ground, traffic, tally)
    return tally


def judge(ground: Ground, traffic: Traffic, tally: Tally) -> None:
    """Wait until all have ended, then compare what is with what was wished."""
    def all_final() -> bool:
        listed = ground.stoker("ps", "-a", "--json", timeout_s=60)
        return listed.code == 0 and all(r["state"] in FINAL for r in json.loads(listed.stdout))
    try:
        until(all_final, traffic.lines * PAUSE_S * 3 + 90, "the end of all runs")
    except AssertionError:
        living = [f"{r['name']} {r['state']}" for r in ground.runs() if r["state"] not in FINAL]
        tally.wrong.append("some runs never ended: " + ", ".join(living))
    found: dict[str, list[dict]] = {}
    for run in ground.runs():
        found.setdefault(run["name"], []).append(run)
    tally.runs = sum(len(v) for v in found.values())
    tally.wrong += traffic.tracebacks
    for name in found:
        tally.expect(name in traffic.wished, f"a run that nobody asked for: {name}")
    for wish in traffic.wished.values():
        same = found.get(wish.name, [])
        tally.expect(len(same) <= 1, f"{wish.name}: submitted once, found {len(same)} times")
        tally.expect(bool(same) or wish.run_id is None, f"{wish.name}: acknowledged and lost")
        for run in same:
            _judge_run(ground, traffic, wish, run, tally)
    _judge_leftovers(ground, tally)
    with sqlite3.connect(ground.home / "server" / "stoker.db") as database:
        tally.expect(
            database.execute("pragma integrity_check").fetchone() == ("ok",), "the database is damaged"
        )


def _judge_run(ground: Ground, traffic: Traffic, wish: Wished, run: dict, tally: Tally) -> None:
    name, whole = wish.name, numbered(traffic.lines)
    attempts = sorted(int(p.name) for p in (ground.folder(run["id"]) / "attempts").glob("*"))
    tally.expect(
        attempts == list(range(1, run["attempts"] + 1)),
        f"{name}: attempts {attempts} on the disk, {run['attempts']} in the list",
    )
    least, most = 1 + wish.starts, 1 + wish.starts + wish.maybe_starts
    early = wish.stops + wish.maybe_stops > 0  # a run stopped before its first start has one attempt less
    tally.expect((least - early) <= len(attempts) <= most,
                 f"{name}: {len(attempts)} attempts, {wish.starts} (+{wish.maybe_starts}) restarts asked")
    try:
        starts = traffic.side(name).read_bytes().count(b"\n")
    except FileNotFoundError:
        starts = 0
    tally.expect(starts <= len(attempts), f"{name}: {starts} processes started in {len(attempts)} attempts")
    for n in attempts:
        log, last = ground.log(run["id"], n), ground.json_file(run["id"], n, "exit.json")
        tally.expect(
            whole.startswith(log), f"{name}: the log of attempt {n} is not what was printed ({log[:60]!r}...)"
        )
        tally.expect(last is not None, f"{name}: attempt {n} has no last words")
        if last:
            tally.expect(
                last["out_bytes"] == len(log),
                f"{name}: attempt {n} counts {last['out_bytes']} bytes, the log has {len(log)}",
            )
            tally.expect(
                last["reason"] in ("exited", "stopped_by_user"),
                f"{name}: attempt {n} ended as {last['reason']}",
            )
            tally.expect(last["leftovers"]["survivors"] == [], f"{name}: survivors {last['leftovers']}")
            if last["reason"] == "exited":
                tally.expect(
                    log == whole,
                    f"{name}: attempt {n} ended well, but its log has {len(log)} of {len(whole)} bytes",
                )
    if run["state"] == "stopped":
        tally.expect(wish.stops + wish.maybe_stops > 0, f"{name}: stopped, though nobody asked")
        tally.expect(run["reason"] == "stopped_by_user", f"{name}: stopped because of {run['reason']}")
    elif run["state"] == "done":
        tally.expect(
            run["exit_code"] == 0 and attempts != [],
            f"{name}: done with {run['exit_code']} and attempts {attempts}",
        )
    else:
        tally.wrong.append(f"{name}: {run['state']}, {run['reason']}: {run['sentence']}")
    if wish.stops and not wish.starts and not wish.maybe_starts and attempts:
        log = ground.log(run["id"], attempts[-1])
        tally.expect(
            run["state"] == "stopped" or log == whole, f"{name}: the acknowledged wish to stop was lost"
        )


def _judge_leftovers(ground: Ground, tally: Tally) -> None:
    def rest() -> list[int]:
        server = set(ground.server_pids())
        server |= {child for pid in server for child in children(pid)}
        return [p for p in ground.processes() if alive(p) and p not in server]
    try:
        until(lambda: not rest(), 15, "the end of all processes")
    except AssertionError:
        tally.wrong.append("orphans: " + "; ".join(cmdline(p) for p in rest()))


# ---- named points

def start_server(ground: Ground, **env: str) -> subprocess.Popen:
    """A server that is our own child, so that its death can be seen.
    The environment holds the point at which it dies."""
    with open(ground.root / "server.out", "ab") as out:
        proc = subprocess.Popen(
            [sys.executable, "-m", "stoker.server"],
            env={**ground.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=ground.root,
        )
    ground.keep(proc)
    return proc


def server_at_point(ground: Ground, point: str) -> Tally:
    """The server dies at a named point while one run is submitted and another one stopped."""
    tally = Tally(moments=1)
    ground.home.mkdir(mode=0o700, exist_ok=True)
    doomed = start_server(ground, STOKER_CRASH_AT=point)
    until(lambda: (ground.home / "server" / "sock").exists() or doomed.poll() is not None, 20, "the server")
    traffic = Traffic(ground, 0, lines=40)
    traffic.submit()
    again = traffic.wished["r0"].run_id is None
    ground.script("sleeper.py", SLEEPER)
    for _ in range(3):
        second = ground.stoker("run", "-d", "--json", "--name", "sleeper", "--grace", "1s", "sleeper.py")
        if second.code == 0:
            break
    ground.wait_state("sleeper", "running")
    stop = ground.stoker("stop", "sleeper")
    if stop.code != 0:
        ground.stoker("stop", "sleeper").ok()
    try:
        tally.expect(
            doomed.wait(20) == -signal.SIGKILL, f"{point}: the server ended with {doomed.returncode}"
        )
    except subprocess.TimeoutExpired:
        tally.wrong.append(f"{point}: the server never passed it")
        doomed.kill()
        doomed.wait()
    if again and not [r for r in ground.runs() if r["name"] == "r0"]:
        del traffic.wished["r0"]
        traffic.submit()
    ended = ground.wait_state("sleeper", timeout_s=60)
    tally.expect((ended["state"], ended["reason"], ended["attempts"]) == ("stopped", "stopped_by_user", 1),
                 f"{point}: the stopped run is {ended['state']}, {ended['reason']}")
    ground.stoker("rm", "--yes", "sleeper").ok()
    judge(ground, traffic, tally)
    tally.runs += 1
    known = {r["id"] for r in ground.runs()}
    # what was never promised is swept after a minute
    spooled = [name for name in os.listdir(ground.home / "spool") if name in known]
    tally.expect(spooled == [], f"{point}: the spool still holds {spooled}")
    return tally


def agent_at_point(ground: Ground, point: str) -> Tally:
    """A caretaker dies at a named point. The run, which may be restarted once, still reaches its end, and
    nothing is left."""
    tally = Tally(moments=1, runs=1)
    ground.home.mkdir(mode=0o700, exist_ok=True)
    ground.script("count.py", NUMBERED)
    fails_first = "import os, sys; sys.exit(os.environ['STOKER_ATTEMPT'] == '1')\n"
    ground.script("count2.py", NUMBERED + (fails_first if point == "restart_claimed" else ""))
    server = start_server(ground, STOKER_CRASH_AT=point)
    until((ground.home / "server" / "sock").exists, 20, "the server")
    side = ground.root / "starts"
    run = ground.detach("--restarts", "2", "--grace", "2s", "--name", "counted", "--",
                        sys.executable, "-I", "-S", "count2.py", "40", "0.05", str(side))
    until((ground.folder(run["id"]) / "attempts" / "1").exists, 20, "the first attempt")
    if point == "restart_claimed":
        until((ground.folder(run["id"]) / "attempts" / "2").exists, 30, "the second attempt")
    else:
        time.sleep(0.2)
    server.kill()
    server.wait()
    ended = ground.wait_state("counted", timeout_s=90)
    tally.expect(ended["state"] == "done", f"{point}: {ended['state']}, {ended['reason']}")
    last = ended["attempts"]
    tally.expect(ground.log(run["id"], last) == numbered(40), f"{point}: the last log is not whole")
    try:
        starts = side.read_bytes().count(b"\n")
    except FileNotFoundError:
        starts = 0
    tally.expect(starts <= last, f"{point}: {starts} processes in {last} attempts")
    for n in range(1, last + 1):
        tally.expect(
            numbered(40).startswith(ground.log(run["id"], n)),
            f"{point}: the log of attempt {n} is not what was printed",
        )
        tally.expect(
            ground.json_file(run["id"], n, "exit.json") is not None, f"{point}: attempt {n} has no last words"
        )
    first = ground.json_file(run["id"], 1, "exit.json") or {}
    try:
        events = ground.attempt_file(run["id"], 1, "events.jsonl").read_text()
    except FileNotFoundError:
        events = ""
    lost = first.get("reason") == "agent_lost"
    again = "agent_restarted" in events
    traces = {
        "claimed": lost,
        "spawned": lost,
        "status_written": "holder_lost" in events,
        "ladder_done": again,
        "before_exit": again,
    }
    tally.expect(traces.get(point, True), f"{point}: no trace of a death there")
    _judge_leftovers(ground, tally)
    return tally


# ---- the caretakers

def agent_at_random(ground: Ground, moments: int, seed: int = 1) -> Tally:
    """SIGKILL the agent at random moments, with pipes and with a terminal:
    the run goes on, its limit still holds."""
    tally = Tally()
    chance = random.Random(seed)
    ground.script("count.py", NUMBERED)
    ground.script("sleeper.py", SLEEPER)
    while tally.moments < moments:
        batch = []
        for i in range(min(4, moments - tally.moments)):
            counted = i % 2 == 0
            args = ["--tty"] if chance.random() < 0.5 else []
            words = (
                ["count.py", "60", "0.05", str(ground.root / f"s{tally.moments}-{i}")]
                if counted
                else ["sleeper.py"]
            )
            limit = [] if counted else ["--time", "4s"]
            run = ground.detach(
                "--new", *args, *limit, "--grace", "1s", "--", sys.executable, "-I", "-S", *words
            )
            batch.append((run["id"], counted, ground.run_pid(run["id"])))
        for run_id, _, _ in batch:
            time.sleep(chance.uniform(0, 0.7))
            body = ground.json_file(run_id, 1, "agent.json") or {}
            if body.get("agent"):
                kill(body["agent"]["pid"])
        tally.moments += len(batch)
        tally.runs += len(batch)
        for run_id, counted, pid in batch:
            ended = ground.wait_state(run_id, timeout_s=40)
            what = f"{run_id} ({'counted' if counted else 'limited'})"
            wanted = ("done", "exited") if counted else ("stopped", "limit_time")
            tally.expect(
                (ended["state"], ended["reason"]) == wanted, f"{what}: {ended['state']}, {ended['reason']}"
            )
            tally.expect(ended["attempts"] == 1, f"{what}: {ended['attempts']} attempts")
            tally.expect(not alive(pid), f"{what}: its process still lives")
            log = ground.log(run_id)
            tally.expect(
                log == (numbered(60) if counted else b"begun\n"), f"{what}: the log is {log[-80:]!r}"
            )
            if not counted:
                tally.expect(ended["used_s"] < 12, f"{what}: a limit of 4 s held after {ended['used_s']} s")
    _judge_leftovers(ground, tally)
    return tally


def caretakers_killed(ground: Ground, moments: int, seed: int = 1) -> Tally:
    """SIGKILL holder and agent together: tree gone within 10 s of contact, reason agent_lost, the restart
    policy followed."""
    tally = Tally()
    chance = random.Random(seed)
    ground.script("tree.py", TREE)
    for n in range(moments):
        restarted, tty = n % 2 == 1, n % 4 >= 2
        side = ground.root / f"child-{n}"
        run = ground.detach(
            "--new", "--restarts", str(int(restarted)), *(["--tty"] if tty else []), "tree.py", str(side)
        )
        ground.until_log(run["id"], b"begun")
        child = until(
            lambda s=side: s.exists() and s.read_text().isdigit() and int(s.read_text()), 10, "the child"
        )
        pid = ground.run_pid(run["id"])
        holder, agent = ground.caretakers(run["id"])
        time.sleep(chance.uniform(0, 1.0))
        kill(holder, signal.SIGSTOP)
        kill(agent)
        kill(holder)
        began = time.monotonic()
        what = f"run {n}{' on a terminal' if tty else ''}"
        try:
            until(lambda p=pid, c=child: not alive(p) and not alive(c), 20, "the end of the tree")
        except AssertionError:
            tally.wrong.append(f"{what}: processes still live 20 s after both caretakers were killed")
        took = time.monotonic() - began
        tally.slowest_s = max(tally.slowest_s, took)
        tally.expect(took <= 10, f"{what}: the tree was gone after {took:.1f} s")
        first = until(lambda r=run: ground.json_file(r["id"], 1, "exit.json"), 20, "the last words")
        tally.expect(first["reason"] == "agent_lost", f"{what}: the first attempt ended as {first['reason']}")
        wanted = ("done", "exited", 2) if restarted else ("failed", "agent_lost", 1)
        _expect_end(ground, run["id"], wanted, what, tally)
        tally.moments += 1
        tally.runs += 1
    _judge_leftovers(ground, tally)
    return tally


def rebooted(ground: Ground, moments: int, seed: int = 1) -> Tally:
    """SIGKILL everything at once and change the machine's identity:
    `rebooted`, restarted where that was asked, the database opens."""
    tally = Tally()
    chance = random.Random(seed)
    ground.script("twice.py", TWICE)
    env: dict[str, str] = {}
    for n in range(moments):
        plain = ground.stoker("run", "-d", "--json", "--new", "twice.py", env=env).json()
        asked = ground.stoker("run", "-d", "--json", "--new", "--restarts", "1", "twice.py", env=env).json()
        for run in (plain, asked):
            ground.until_log(run["id"], b"attempt 1\n")
        time.sleep(chance.uniform(0, 0.5))
        everyone = ground.processes()
        for pid in everyone:
            kill(pid, signal.SIGSTOP)
        for pid in everyone:
            kill(pid)
        until(lambda e=everyone: not any(alive(p) for p in e), 10, "the death of all")
        env = identity(n)
        what = f"reboot {n}"

        for run, wanted in ((plain, ("failed", "rebooted", 1)), (asked, ("done", "exited", 2))):
            _expect_end(ground, run["id"], wanted, what, tally, env=env)
            last = ground.json_file(run["id"], 1, "exit.json") or {}
            tally.expect(
                last.get("reason") == "rebooted",
                f"{what}: attempt 1 of {run['name']} ended as {last.get('reason')}",
            )
        tally.moments += 1
        tally.runs += 2
    _judge_leftovers(ground, tally)
    return tally


def _expect_end(
    ground: Ground, run_id: str, wanted: tuple, what: str, tally: Tally, *, env: dict[str, str] | None = None
) -> None:
    """The run must come to this (state, reason, attempts) within a minute."""
    seen: tuple = ()

    def look() -> bool:
        nonlocal seen
        run = ground.stoker("show", run_id, "--json", env=env).json()
        seen = (run["state"], run["reason"], run["attempts"])
        return seen == wanted
    try:
        until(look, 60, str(wanted))
    except AssertionError:
        tally.wrong.append(f"{what}: (state, reason, attempts) is {seen} instead of {wanted}")


def identity(n: int) -> dict[str, str]:
    """The environment under which the agent believes to be on a machine that was restarted n + 1 times."""
    return {
        "STOKER_IDENTITY": json.dumps(
            {"hostname": "elsewhere", "boot_id": f"boot-{n}", "init_start": 1000 + n}
        )
    }

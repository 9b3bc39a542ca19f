"""Attacks on the processes: kills, starts, children that hide, frozen caretakers, the clock.
ssh and HTTP are in attacks_wires.py."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from benchmarks import attacks_wires, kills, wall_clock
from benchmarks.attacks import Attack, Skipped, attack
from benchmarks.ground import NUMBERED, Ground, alive, kill, memory_bytes, numbered, until

ATTACKS: list[Attack] = [*attacks_wires.ATTACKS]
HOLD = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
for pid in map(int, sys.argv[1:]):
    if libc.ptrace(0x4206, pid, None, None) or libc.ptrace(0x4207, pid, None, None):  # seize, interrupt
        sys.exit(os.strerror(ctypes.get_errno()))
print("held", flush=True)
sys.stdin.read()
"""
FROM_INSIDE = """
import json, os, signal, sys, time
path = os.environ["STOKER_RUN_DIR"] + "/attempts/1/agent.json"
def caretaker(name):
    while True:
        try:
            return json.load(open(path))[name]["pid"]
        except (OSError, ValueError, TypeError, KeyError):
            time.sleep(0.05)
print("begun", flush=True)
"""
AGAIN_AND_AGAIN = """
while True:
    try:
        os.kill(caretaker("{0}"), signal.SIG{1})
    except OSError:
        pass
    time.sleep({2})
"""


# -- kills


def _held(tally: kills.Tally) -> None:
    assert not tally.wrong, f"{len(tally.wrong)} wrong of {tally.moments} kills: {tally.wrong[0]}"


@attack(ATTACKS, "kills", "the server at random moments, with traffic")
def server(ground: Ground) -> None:
    _held(kills.server_at_random(ground, 20, live=8))


@attack(ATTACKS, "kills", "the server inside its steps")
def server_points(_ground: Ground) -> None:
    for point in kills.SERVER_POINTS[::3]:  # kill_matrix.py has them all
        _alone(lambda ground, point=point: kills.server_at_point(ground, point))


@attack(ATTACKS, "kills", "the agent at random moments")
def agent(ground: Ground) -> None:
    _held(kills.agent_at_random(ground, 20))


@attack(ATTACKS, "kills", "the agent inside its steps")
def agent_points(_ground: Ground) -> None:
    for point in kills.AGENT_POINTS[::3]:
        _alone(lambda ground, point=point: kills.agent_at_point(ground, point))


@attack(ATTACKS, "kills", "both caretakers at once")
def caretakers(ground: Ground) -> None:
    _held(kills.caretakers_killed(ground, 10))


@attack(ATTACKS, "kills", "the holder", quick=True)
def holder(ground: Ground) -> None:
    run = ground.detach(
        "--grace", "1s", "--", "sh", "-c", "env -i setsid sleep 600 & echo begun; exec sleep 600"
    )
    ground.until_log(run["id"], b"begun")
    inside = [ground.run_pid(run["id"]), *_descendants(ground, run["id"])]
    kill(ground.caretakers(run["id"])[0])
    ended = ground.wait_state(run["id"])
    assert ended["reason"] == "agent_lost", ended["reason"]
    assert not any(map(alive, inside)), "its processes live on"


def _alone(campaign: Callable[[Ground], kills.Tally]) -> None:
    """A campaign that needs a server of its own."""
    ground = Ground()
    try:
        _held(campaign(ground))
    finally:
        left = ground.close()
    assert not left, f"left behind: {left[0]}"


# -- starts


@attack(ATTACKS, "starts", "twelve clients and eight servers at once, the lock deleted")
def starts(ground: Ground) -> None:
    for turn in range(5):
        ground.kill_server()
        (ground.home / "server").mkdir(parents=True, exist_ok=True)
        if turn:
            (ground.home / "server" / "lock").unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "stoker.server", "--detach"]
        servers = [
            subprocess.Popen(command, env=ground.env, cwd="/", stdout=subprocess.DEVNULL) for _ in range(8)
        ]
        clients = [
            ground.start_stoker("ps", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(12)
        ]
        for client in clients:
            said = client.communicate(timeout=60)[1]
            assert client.returncode == 0, said.decode()
        for each in servers:
            each.wait(60)
        until(lambda: len(ground.server_pids()) == 1, 20, "one server")


# -- processes


def _descendants(ground: Ground, run_id: str) -> list[int]:
    """All below the holder but the agent, the run's own process included."""
    holder, agent_ = ground.caretakers(run_id)
    below: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [holder]
    while todo:
        for pid in below.get(todo.pop(), ()):
            if pid != agent_:
                found.append(pid)
                todo.append(pid)
    return found


HIDING = {
    "201 children": "for i in $(seq 200); do sleep 600 & done; echo begun; exec sleep 600",
    "a child that forks twice and leaves the session": "(setsid setsid sleep 600 &) ; sleep 0.3; echo begun; exec sleep 600",  # noqa: E501
    "a child without an environment": "env -i setsid sleep 600 & sleep 0.3; echo begun; exec sleep 600",
    "a child with STOKER_DAEMON=1": "STOKER_DAEMON=1 setsid sleep 600 & sleep 0.3; echo begun; exec sleep 600",  # noqa: E501
    "a child that names the run's own record": (
        "STOKER_DAEMON=$STOKER_RUN_DIR/attempts/1/agent.json setsid sleep 600 & sleep 0.3; echo begun; "
        "exec sleep 600"
    ),
    "a child named tmux: server": "setsid python -c \"import time; open('/proc/self/comm', 'w').write('tmux: server'); "  # noqa: E501
    'time.sleep(600)" & '
    "sleep 0.5; echo begun; exec sleep 600",
    "a program called tmux": "cp /bin/sleep ./tmux; setsid ./tmux 600 & sleep 0.3; echo begun; exec sleep 600",  # noqa: E501
    "a run named screen": "exec python -c \"import time; open('/proc/self/comm', 'w').write('SCREEN'); "
    "print('begun', flush=True); "
    'time.sleep(600)"',
    "a run that closes everything": "exec 0<&- 1>&- 2>&-; exec sleep 600",
    "a tree that ignores INT and TERM": "trap '' INT TERM HUP; (sleep 600; sleep 600) & echo begun; sleep 600; sleep 600",  # noqa: E501
    "a run that is suspended": "setsid sleep 600 & echo begun; kill -STOP $$",
    "a subreaper": 'exec python -c "import ctypes, subprocess, time; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); '  # noqa: E501
    "subprocess.Popen('setsid sleep 600 &', shell=True); time.sleep(0.3); print('begun', flush=True); "
    'time.sleep(600)"',
}


def _hides(name: str, body: str) -> Callable[[Ground], None]:
    def act(ground: Ground) -> None:
        run = ground.detach("--grace", "1s", "--", "bash", "-c", body)
        if "begun" in body:
            ground.until_log(run["id"], b"begun")
        inside = {ground.run_pid(run["id"]), *_descendants(ground, run["id"])}
        ground.stoker("stop", run["id"]).ok()
        ended = ground.wait_state(run["id"])
        assert ended["reason"] == "stopped_by_user", ended["reason"]
        assert not any(map(alive, inside)), f"{sum(map(alive, inside))} of {len(inside)} processes escaped"
    act.__name__ = name
    return act


for _name, _body in HIDING.items():
    attack(ATTACKS, "processes", _name, quick=_name.startswith("a child"))(_hides(_name, _body))


@attack(ATTACKS, "processes", "a run that kills its own agent again and again")
def agent_killer(ground: Ground) -> None:
    ground.script("killer.py", FROM_INSIDE + AGAIN_AND_AGAIN.format("agent", "KILL", 0.2))
    run = ground.detach("--time", "4s", "--grace", "1s", "killer.py")
    assert ground.wait_state(run["id"], timeout_s=60)["reason"] == "limit_time"


@attack(ATTACKS, "processes", "a run that kills its own holder", quick=True)
def holder_killer(ground: Ground) -> None:
    ground.script("killer.py", FROM_INSIDE + "os.kill(caretaker('holder'), 9)\ntime.sleep(600)\n")
    run = ground.detach("--grace", "1s", "killer.py")
    assert ground.wait_state(run["id"])["reason"] == "agent_lost"


def _frozen_from_inside(who: str) -> Callable[[Ground], None]:
    def act(ground: Ground) -> None:
        ground.script("freezer.py", FROM_INSIDE + AGAIN_AND_AGAIN.format(who, "STOP", 1))
        run = ground.detach("--time", "5s", "--grace", "1s", "freezer.py")
        assert ground.wait_state(run["id"], timeout_s=60)["reason"] == "limit_time"
    return act


for _who in ("agent", "holder"):
    attack(ATTACKS, "processes", f"a run that stops its {_who} each second")(_frozen_from_inside(_who))


def _traced(ground: Ground, *pids: int) -> None:
    """They stand still in the hands of a debugger until the ground is closed."""
    debugger = subprocess.Popen([sys.executable, "-c", HOLD, *map(str, pids)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ground.keep(debugger)
    if debugger.stdout.readline() != b"held\n":
        raise Skipped(f"nobody may trace here: {debugger.stderr.read().decode().strip()}")


@attack(ATTACKS, "processes", "a traced agent")
def traced_agent(ground: Ground) -> None:
    run = ground.detach("--time", "4s", "--grace", "1s", "--", "sleep", "600")
    _traced(ground, ground.caretakers(run["id"])[1])
    assert ground.wait_state(run["id"], timeout_s=60)["reason"] == "limit_time"


@attack(ATTACKS, "processes", "a traced holder")
def traced_holder(ground: Ground) -> None:
    run = ground.detach("--grace", "1s", "--", "sleep", "600")
    ground.run_pid(run["id"])
    _traced(ground, ground.caretakers(run["id"])[0])
    ground.stoker("stop", run["id"], timeout_s=90).ok()
    assert ground.wait_state(run["id"])["reason"] == "stopped_by_user"


@attack(ATTACKS, "processes", "both caretakers frozen, stop --force")
def both_frozen(ground: Ground) -> None:
    run = ground.detach("--", "sleep", "600")
    pids = [*ground.caretakers(run["id"]), ground.run_pid(run["id"])]
    for pid in pids[:2]:
        kill(pid, signal.SIGSTOP)
    told = until(lambda: r if (r := ground.show(run["id"]))["still_s"] else None, 60, "the stillness is told")
    assert "has been silent" in told["sentence"]
    ground.stoker("stop", "--force", run["id"]).ok()
    assert ground.wait_state(run["id"])["reason"] == "stopped_by_user"
    assert not any(map(alive, pids)), "processes are left"


@attack(ATTACKS, "processes", "a tmux server that outlives its run is told")
def spared(ground: Ground) -> None:
    if not shutil.which("tmux"):
        raise Skipped("tmux is not installed")
    socket = ground.root / "t"
    run = ground.detach(
        "--", "sh", "-c", f"tmux -f /dev/null -S {socket} new-session -d 'sleep 600'; sleep 0.5"
    )
    try:
        assert ground.wait_state(run["id"])["state"] == "done"
        assert "tmux: server" in ground.stoker("show", run["id"]).ok().out
    finally:
        subprocess.run(
            ["tmux", "-S", str(socket), "kill-server"], env=ground.env, capture_output=True, check=False
        )


@attack(ATTACKS, "processes", "a log that fills memory is not kept there")
def flood(ground: Ground) -> None:
    run = ground.detach("--", "sh", "-c", "head -c 300000000 /dev/zero; echo end")
    pids = [*ground.caretakers(run["id"]), ground.server_pid()]
    peak: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            peak.append(max(memory_bytes(pid) for pid in pids))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ground.wait_state(run["id"], timeout_s=90)
    finally:
        over.set()
        watcher.join()
    assert len(ground.log(run["id"])) == 300_000_004
    assert not peak or max(peak) < 400 << 20, f"{max(peak) >> 20} MB"


# -- clock


@attack(ATTACKS, "clock", "-3 d, +400 d, -30 d on the server and its children")
def clock(_ground: Ground) -> None:
    if not shutil.which("gcc"):
        raise Skipped("gcc is not installed")
    ground = Ground()
    try:
        set_clock = wall_clock.settable(ground)
        bell = ground.root / "bell"
        run = ground.detach("--time", "60s", "--", "python", "-c", NUMBERED, "80", "0.1", str(bell))
        limited = ground.detach("--time", "12s", "--grace", "1s", "--", "sleep", "600")
        for days in (-3, 400, -30):
            set_clock(days * 86400)
            ground.kill_server()
            assert ground.show(run["id"])["state"] in ("running", "starting", "done")
            assert ground.show(limited["id"])["state"] in ("running", "starting", "stopped")
        assert ground.wait_state(run["id"])["state"] == "done" and ground.log(run["id"]) == numbered(80)
        ended = ground.wait_state(limited["id"], timeout_s=60)
        assert ended["reason"] == "limit_time" and 12 <= ended["used_s"] < 40, (
            ended["reason"],
            ended["used_s"],
        )
        set_clock(0)
    finally:
        left = ground.close()
    assert not left, f"left behind: {left[0]}"

"""The watchman: runs one command when nobody works on the machine,
with every server and laptop above it dead.

One a user and machine; it looks after all state folders that it can read.
A run that lives holds a lock that all users of the machine see;
the kernel lets go of it with the last caretaker.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

from .claiming import AGENT_FOLDER
from .machinewide import lock, machine_file, registered, this_boot
from .orders import OFF, OFF_LOG, ORDER, STATE, Look, off_files, orders
from .processes import close_inherited, lower_oom_score, name_process, who
from .reading import read_json
from .words import DAEMON_MARK, number
from .writing import append_line, unlink, write_json

TICK_S = 1.0
AWAY_S = 60.0  # after a command that succeeded nothing starts for so long: the machine is on its way down
COMMAND_S = 300.0
AGAIN_FIRST_S, AGAIN_MAX_S = 60.0, 600.0  # after a command that failed
MORE_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class Watchman:
    """Waits until nobody works here and nothing is missing at home, or for too long;
    then runs the command, once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.alive = machine_file("alive")
        before = read_json(os.path.join(root, OFF, STATE)) or {}
        before = before if before.get("boot") == this_boot() else {}  # of a watchman that was killed
        self.quiet = before.get("quiet")  # what was there when it fell quiet
        self.since = number(before.get("since"))  # by the clock that goes on while the machine sleeps
        self.drained_since = 0.0
        self.done = before.get("done")  # what was there when the command succeeded
        self.ran = [each for each in before.get("ran") or () if isinstance(each, dict)]
        self.fails, self.again_at = 0, 0.0
        self.told: dict = {}

    def live(self) -> None:
        """Until every order is withdrawn."""
        self.tell({"state": "begins"})
        while True:
            roots = registered(self.root)
            if not orders(roots):
                self.tell({"state": "withdrawn"})
                return
            if not os.path.isdir(os.path.join(self.root, OFF)):
                return
            self.turn(roots)
            time.sleep(TICK_S)

    def turn(self, roots: list[str]) -> None:
        """One look; the command if it is time."""
        if self.alive >= 0 and not lock(self.alive, fcntl.LOCK_EX):
            self.quiet = None
            self.tell({"state": "working"})
            return
        try:
            look = Look(roots)
            if look.working or not look.orders:  # runs of an earlier version hold no lock
                self.quiet = None
                self.tell({"state": "working"})
                return
            self.decide(look, roots)
        finally:
            if self.alive >= 0:
                fcntl.flock(self.alive, fcntl.LOCK_UN)

    def decide(self, look: Look, roots: list[str]) -> None:
        """Nobody works here: how long has it been so, and may it be switched off?"""
        now, key = clock(), look.key()
        if self.quiet != key:
            self.quiet, self.since, self.drained_since = key, now, 0.0
        if self.done == key and not look.now:
            self.tell({"state": "ran"})
            return
        waits = bool(look.queues or look.staged)
        free = look.drained() and not waits
        self.drained_since = (self.drained_since or now) if free else 0.0
        latest = self.since + look.wait_s("latest_s")
        due = min(latest, self.drained_since + look.wait_s("after_s")) if free else latest
        if look.now and not waits:
            due = now
        if now >= max(due, self.again_at):
            self.switch_off(look, roots, key)
            return
        why = "queued" if waits else "drained" if free else "owed"
        self.tell(
            {
                "state": "waiting",
                "why": why,
                "owed": look.owed[:20],
                "off_at": time.time() + max(due, self.again_at) - now,
                "latest_at": time.time() + latest - now,
            }
        )

    def switch_off(self, look: Look, roots: list[str], key: str) -> None:
        """Run the command; nothing starts here meanwhile, since we hold the lock."""
        command = look.orders[-1]["command"]
        self.ran = [*self.ran[-9:], {"at": time.time(), "command": command, "code": None}]
        self.tell({"state": "off"})
        for path in look.now:
            unlink(path)
        code = run_command(command, os.path.join(self.root, OFF, OFF_LOG))
        self.ran[-1]["code"] = code
        if code != 0:
            self.fails += 1
            self.again_at = clock() + min(AGAIN_MAX_S, AGAIN_FIRST_S * 2 ** min(self.fails - 1, 10))
            self.tell({"state": "failed"})
            return
        self.done, self.fails = key, 0
        self.tell({"state": "off"})
        until = clock() + AWAY_S
        while clock() < until and orders(roots):
            time.sleep(TICK_S / 2)

    def tell(self, body: dict) -> None:
        """Write down where it stands, if that is news."""
        body = dict(body, ran=self.ran, quiet=self.quiet, since=self.since, done=self.done, boot=this_boot())
        if near(body, self.told):
            return
        self.told = body
        try:
            write_json(
                os.path.join(self.root, OFF, STATE),
                dict(body, watchman=who(os.getpid()), at=time.time()),
                sync=True,
            )
        except OSError:
            pass  # a full disk keeps no machine on


def near(one: dict, other: dict) -> bool:
    """The same, but for moments that are computed each time."""
    def coarse(body: dict) -> dict:
        return {k: round(v / 10) if isinstance(v, float) else v for k, v in body.items()}
    return coarse(one) == coarse(other)


def clock() -> float:
    """Seconds that no change of the time moves, and that a sleeping machine counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def run_command(words: list[str], log: str) -> int:
    """Its exit code; 127 where it cannot be started, 124 where it takes too long.
    No shell reads the words."""
    import subprocess  # here, since each start reads this file
    env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER")}
    env["PATH"] = (env.get("PATH") or "") + ":" + MORE_PATH
    try:
        with open(log, "ab") as said:
            said.write(("--- %s\n" % json.dumps(words)).encode())
            said.flush()
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=env,
                cwd="/",
                timeout=COMMAND_S,
                start_new_session=True,
                check=False,
            )
        return done.returncode
    except subprocess.TimeoutExpired:
        return 124
    except OSError as e:
        append_line(log, {"error": str(e)})
        return 127


def ensure_watchman(root: str) -> None:
    """See that there is a watchman, if somebody has asked for one."""
    if not off_files(root, ORDER):
        return
    fd = machine_file("off-%d" % os.getuid())
    if fd < 0:
        return
    free = lock(fd, fcntl.LOCK_EX)
    if free and os.fork() == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                exec_watchman(root, fd)
        finally:
            os._exit(1)
    os.close(fd)


def exec_watchman(root: str, fd: int) -> None:
    """In the detached grandchild, which has the lock."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER") or k == "STOKER_IDENTITY"}
    env[DAEMON_MARK] = os.path.join(root, OFF, STATE)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(os.path.join(root, OFF, OFF_LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    close_inherited({fd})
    os.set_inheritable(fd, True)
    entry = os.path.join(AGENT_FOLDER, "__main__.py")
    os.execve(sys.executable, [sys.executable, "-I", "-S", entry, "_watch_off", root, str(fd)], env)


def verb_watch_off(args: list[str]) -> None:
    """_watch_off ROOT FD: what `ensure_watchman` detaches. FD is its lock."""
    root, fd = args
    os.set_inheritable(int(fd), False)
    name_process("stoker-off")
    lower_oom_score()
    Watchman(root).live()

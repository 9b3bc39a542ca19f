"""An attempt is claimed once, with the GPUs it may use (their leases),
and given to a holder that stands by itself."""

from __future__ import annotations

import json
import os
import select
import sys
import time

from .attempts import agent_record, drop_spares
from .machine import user_name
from .processes import become_subreaper, close_inherited, who
from .words import (
    AGENT, CARETAKER_LOG, DAEMON_MARK, EXIT_SPARE, FULL, KEPT_ENV, STATUS_SPARE, STOP_SPARE, Problem,
    crash_is_ahead,
)
from .writing import WRITE, reserve, write_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt


def claim(att: Attempt) -> bool:
    """Make the attempt's folder; False when somebody has. Raises Problem when it cannot be made."""
    try:
        try:
            # never what is above it: that may have been moved or deleted
            os.mkdir(os.path.dirname(att.folder))
        except FileExistsError:
            pass
        os.mkdir(att.folder)
    except FileExistsError:
        return False
    except OSError as e:
        raise Problem(
            "disk_full" if e.errno in FULL else "cannot_write",
            "%s cannot be created: %s" % (att.folder, e.strerror),
        ) from None
    try:
        reserve(att.path(STATUS_SPARE), 4096)
        reserve(att.path(STOP_SPARE), 4096)
        reserve(att.path(EXIT_SPARE), 65536)
    except OSError as e:
        drop_spares(att)
        os.rmdir(att.folder)  # nothing was started: the number is free again
        raise Problem(
            "disk_full" if e.errno in FULL else "cannot_write",
            "%s cannot be written: %s" % (att.folder, e.strerror),
        ) from None
    return True


def launch(att: Attempt, gpus: str, wait_s: float) -> str:
    """Detach a holder for a claimed attempt. Gives what it said within wait_s:
    "spawned", "failed ..." or "" (still at it)."""
    ready, tell = os.pipe()
    try:
        child = os.fork()
    except OSError as e:
        os.close(ready)
        os.close(tell)
        return "no holder: " + (e.strerror or str(e))
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                exec_holder(att, gpus, tell)
            os._exit(0)
        except BaseException as e:
            os.write(tell, ("no holder: %s" % e).encode())
        finally:
            os._exit(1)
    os.close(tell)
    os.waitpid(child, 0)
    said = b""
    deadline = time.monotonic() + wait_s
    poller = select.poll()
    poller.register(ready, select.POLLIN)
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(ready, 4096)
        if not data:
            break
        said += data
    os.close(ready)
    return said.decode("utf-8", "replace")


# Leases of GPUs: a lock on a file that all users of the machine see. The kernel lets go of it when the last
# caretaker is dead.

# descriptors that hold a lock; they go from start to the holder, to the agent proper,
# and to the next attempt's
held_leases: list[int] = []
LEASE_WAIT_S = 1.0  # somebody who only looks has the lock for a moment


def lease_folder() -> str:
    """The same for all users: where anybody may make files and nobody may remove those of others."""
    for folder in ("/run/lock", "/tmp"):
        try:
            mode = os.stat(folder).st_mode
        except OSError:
            continue
        if mode & 0o1002 == 0o1002:
            return folder
    return "/tmp"


def lease_file(uuid: str, make: bool) -> int:
    """A descriptor of the lock file of a GPU; -1 where there is none.
    What somebody planted in its place (a link, a folder, a pipe) is passed over:
    all users take the next name then."""
    import re
    name = "stoker-gpu-" + re.sub(r"[^A-Za-z0-9-]", "_", uuid)
    for suffix in ("", ".1", ".2", ".3"):
        path = os.path.join(lease_folder(), name + suffix)
        fd = open_lease(path, make)
        if fd >= 0 or not os.path.lexists(path):
            return fd
    return -1


def open_lease(path: str, make: bool) -> int:
    """A descriptor of this very file, a plain one with one name; -1 for anything else."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = -1
    for way in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        if way & os.O_CREAT and not make:
            continue
        try:
            fd = os.open(path, flags | way, 0o666)
        except OSError:
            continue
        if way & os.O_CREAT:
            os.fchmod(fd, 0o666)
        break
    if fd < 0:
        return -1
    s = os.fstat(fd)
    if s.st_mode & 0o170000 == 0o100000 and s.st_nlink == 1:
        return fd
    os.close(fd)
    return -1


def take_leases(att: Attempt, uuids: list[str], needed: bool) -> None:
    """Lock these GPUs for the caretakers of this attempt.
    Raises Problem where another state folder, or another user, holds one.

    The lock (`flock`) is on a file stoker-gpu-UUID in /run/lock, else in /tmp. The caretakers keep it. The
    error is `gpu_taken`; then the run waits again.
    """
    import fcntl
    for uuid in uuids:
        fd = lease_file(uuid, make=True)
        if fd < 0:
            continue  # no file can be made that all users see
        deadline = time.monotonic() + LEASE_WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    owner = lease_owner(fd)
                    os.close(fd)
                    if not needed:
                        return
                    raise Problem("gpu_taken", "the GPU %s is in use by %s" % (uuid, owner)) from None
                time.sleep(0.05)
        note = json.dumps({"run": att.id, "user": user_name(), "root": att.root, "at": time.time()}).encode()
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, note, 0)
        except OSError:
            pass  # another user's file: the lock holds without the note
        held_leases.append(fd)


def lease_owner(fd: int) -> str:
    """Who says to hold it; any user may have written that, so it is for people only."""
    try:
        said = json.loads(os.pread(fd, 2000, 0).decode("utf-8", "replace"))
        words = ["%s" % said.get(k) for k in ("run", "user")]
    except (OSError, ValueError, AttributeError):
        return "another user of Stoker"
    shown = ["".join(c for c in word if c.isprintable())[:40] for word in words]
    return "the run %s of %s" % (shown[0], shown[1])


def leased(uuid: str) -> str | None:
    """Who holds this GPU by a lease; None where nobody does."""
    import fcntl
    fd = lease_file(uuid, make=False)
    if fd < 0:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return lease_owner(fd)
    finally:
        os.close(fd)


def exec_holder(att: Attempt, gpus: str, tell: int) -> None:
    """In the detached grandchild: say who we are, let go of the caller,
    begin afresh with an environment of our own."""
    if not write_once(att.path(AGENT), agent_record(att, holder=who(os.getpid())), sync=False):
        raise Problem("state", "another agent already supervises the attempt")
    keep_compiled()
    mask = os.umask(0o022)
    env = {k: v for k, v in os.environ.items() if k in KEPT_ENV or k.startswith("LC_")}
    env[DAEMON_MARK] = att.path(AGENT)
    if not crash_is_ahead():
        env.pop("STOKER_CRASH_AT", None)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(att.path(CARETAKER_LOG), WRITE | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    close_inherited({tell, *held_leases})
    for fd in (tell, *held_leases):
        os.set_inheritable(fd, True)
    env["STOKER_LEASES"] = ",".join(map(str, held_leases))
    become_subreaper()
    entry = os.path.join(AGENT_FOLDER, "__main__.py")
    command = [
        sys.executable,
        "-I",
        "-S",
        entry,
        "_hold",
        att.run_dir,
        str(att.n),
        str(tell),
        str(mask),
        gpus,
    ]
    os.execve(sys.executable, command, env)


AGENT_FOLDER = os.path.dirname(os.path.abspath(__file__))


def keep_compiled() -> None:
    """Have the files of the agent compiled where Python itself keeps them:
    a holder that compiles them holds 8 MB more and starts later."""
    try:
        kept = set(os.listdir(os.path.join(AGENT_FOLDER, "__pycache__")))
    except OSError:
        kept = set()
    missing = [name for name in os.listdir(AGENT_FOLDER) if name.endswith(".py") and not name.startswith("__")
               and "%s.%s.pyc" % (name[:-3], sys.implementation.cache_tag) not in kept]
    try:
        if missing:
            import py_compile
            for name in missing:
                py_compile.compile(os.path.join(AGENT_FOLDER, name), quiet=2)
    except (ImportError, OSError):
        pass  # each holder compiles them for itself

"""The verbs `poll`, `look` and `watch`: what runs are doing now, asked once or followed.

- `poll` prints one observation a line (observing.glance), for these ids or for all runs. An id without a
  folder has the phase `absent`. It changes nothing.
- `watch` prints all active runs at once and again every 10 s, the others when they change. It ends when
  stdin ends.
- `look` prints a line `{"id", "seen": observation, "answers": [...]}` for each id. The questions are in
  looking.QUESTIONS.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time

from .attempts import run_ids
from .looking import QUESTIONS
from .observing import glance, observe
from .reading import parse_json, stamp_of
from .words import ATTEMPTS, Problem, arguments, valid_id
from .writing import say, unlink


def verb_poll(args: list[str]) -> None:
    """poll ROOT [ID...]"""
    if not args:
        raise Problem("usage", verb_poll.__doc__ or "")
    root = os.path.abspath(args[0])
    looks = [glance(root, run_id) for run_id in args[1:] or run_ids(root)]
    # the times that `observe` waits began above: for all of them together it waits as long as for one
    for look in looks:
        seen = observe(root, look["id"]) if look["phase"] == "unseen" else look
        if seen["phase"] == "absent" and not os.path.isdir(os.path.join(root, "runs")):
            # a disk that is not mounted: its runs are not lost
            raise Problem("away", "the folder %s does not exist" % root)
        say(seen)


def verb_look(args: list[str]) -> None:
    """look ROOT, with {ID: [[QUESTION, ARGUMENT...], ...], ...} on stdin; QUESTION is a name in QUESTIONS"""
    (root,), _ = arguments(args, 1, {})
    root = os.path.abspath(root)
    try:
        asked = parse_json(sys.stdin.buffer.read(), {"*": [list]})
        for run_id, questions in asked.items():
            run_dir = os.path.join(root, "runs", run_id)
            seen = observe(root, run_id)
            there = (
                []
                if seen["phase"] == "absent"
                else [QUESTIONS[what](run_dir, *words) for what, *words in questions]
            )
            say({"id": run_id, "seen": seen, "answers": there})
    except (ValueError, KeyError, TypeError) as e:
        raise Problem("usage", "%s (%r)" % (verb_look.__doc__, e)) from None


def verb_watch(args: list[str]) -> None:
    """watch ROOT"""
    (root,), _ = arguments(args, 1, {})
    root = os.path.abspath(root)
    folder = os.path.join(root, "watch")
    try:
        os.mkdir(folder, 0o700)  # never the root itself: it may lie on a disk that is away
    except FileExistsError:
        pass
    name = "%d.sock" % os.getpid()
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.setblocking(False)
    unlink(os.path.join(folder, name))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    ear.bind("/proc/self/fd/%d/%s" % (fd, name))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        watch_loop(root, ear)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        unlink(os.path.join(folder, name))


def watch_loop(root: str, ear: socket.socket) -> None:
    """All live runs at once and each 10 s, the others when they change.
    Runs that have ended cost one stat each round."""
    live: set[str] = set()
    ended: dict[str, tuple | None] = {}  # id -> stamp of its attempts folder when it had ended
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(1, 0)
    poller.register(ear.fileno(), select.POLLIN)
    next_round = 0.0

    def tell(run_id: str, always: bool) -> None:
        stamp = stamp_of(os.path.join(root, "runs", run_id, ATTEMPTS))
        seen = glance(root, run_id)
        over = seen["phase"] in ("ended", "absent", "staged")
        if always or not over or run_id in live:
            say(seen)
        if over:
            live.discard(run_id)
            ended[run_id] = stamp
        else:
            live.add(run_id)
            ended.pop(run_id, None)

    while True:
        now = time.monotonic()
        if now >= next_round:
            next_round = now + 10.0
            present = set(run_ids(root))
            for run_id in sorted(present | live):
                if run_id not in ended or ended[run_id] != stamp_of(
                    os.path.join(root, "runs", run_id, ATTEMPTS)
                ):
                    tell(run_id, False)
            for run_id in set(ended) - present:
                del ended[run_id]
        changed: list[str] = []
        for ready, events in poller.poll(max(0, int((next_round - time.monotonic()) * 1000) + 1)):
            if ready == 0 and not os.read(0, 65536):
                return
            if ready == 1 and events & (select.POLLERR | select.POLLHUP):
                return
            if ready == ear.fileno():
                changed += heard(ear)
        for run_id in dict.fromkeys(changed):
            if valid_id(run_id):
                tell(run_id, True)


def heard(ear: socket.socket) -> list[str]:
    """The ids of the runs that were told of since the last look."""
    ids = []
    while True:
        try:
            ids.append(ear.recv(4096).decode("utf-8", "surrogateescape"))
        except OSError:
            return ids

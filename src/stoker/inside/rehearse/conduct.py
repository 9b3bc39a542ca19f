"""The conductor of a rehearsal: starts the ranks, listens to what they tell, sees who waits for whom, ends
them and reports.

It is the first hooked process, and never runs the script itself. Each process appends to <pid>.jsonl in the
folder STOKER_REHEARSE_ROOM. At the end the conductor writes rehearsal.json to the folder of STOKER_HOOKS.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from . import report, style

STUCK_S = 6.0  # so long all ranks wait, and no processor works
SILENT_S = 300.0  # so long nobody tells anything and no processor works
OTHERS_S = 3.0  # so long the other ranks may tell their own end, once one has failed


def conduct(words: list) -> None:
    """Rehearse the command that this process was started with, and leave with the exit code of the rehearsal.
    Never returns."""
    room = tempfile.mkdtemp(prefix="stoker-rehearsal-")
    code = 125
    try:
        code = _Conductor(words, room).run()
    except Exception as e:
        os.write(2, f"stoker: an internal error of the rehearsal ({type(e).__name__}: {e})\n".encode())
    finally:
        shutil.rmtree(room, ignore_errors=True)
    os._exit(code)


class _Conductor:
    def __init__(self, words: list, room: str) -> None:
        self._room, self._words = room, words
        self._ranks = max(1, int(os.environ.get("STOKER_REHEARSE") or 1))
        self._plan = style.plan(words, self._ranks)
        self._children: list = []
        self._ends: dict = {}  # rank or number of the child -> exit code
        self._heard: dict = {}  # pid -> [events]
        self._read: dict = {}
        self._stopped = 0
        self._last = time.monotonic()
        self._idle_since = time.monotonic()
        self._cpu = 0.0

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signal)
        began = time.monotonic()
        self._start()
        found = self._watch()
        self._end_all()
        self._listen()
        outcome = report.judge(
            self._heard,
            self._ends,
            found,
            plan=self._plan,
            ranks=self._ranks,
            seconds=time.monotonic() - began,
        )
        if self._stopped:
            outcome["code"], outcome["verdict"] = 128 + self._stopped, "the rehearsal was stopped"
        if outcome["lines"] is not None:
            text = report.as_text(outcome)
            os.write(2, text.encode("utf-8", "replace"))
            self._keep(outcome)
        return outcome["code"]

    def _start(self) -> None:
        port = _free_port()
        number = 1 if self._plan.style == style.ALONE else self._ranks
        for rank in range(number):
            env = style.environment(dict(os.environ), self._plan, rank, self._ranks, port)
            env["STOKER_REHEARSE_ROOM"] = self._room
            env.setdefault("STOKER_REHEARSE_FOLDER", os.getcwd())
            words = self._plan.words
            if self._plan.flag:
                words = _with_flag(words, f"{self._plan.flag}={rank}")
            if sys.executable and self._plan.style != style.ALONE:
                env.setdefault("PYTHONUNBUFFERED", "1")
            self._children.append(
                subprocess.Popen(
                    [sys.executable, *words], env=env, stdin=None if rank == 0 else subprocess.DEVNULL
                )
            )

    def _watch(self) -> dict:
        """Until all have ended, or there is no more to wait for. What was found by watching, or {}."""
        failed_at = 0.0
        while True:
            self._listen()
            for rank, child in enumerate(self._children):
                if rank not in self._ends and child.poll() is not None:
                    self._ends[rank] = child.returncode
            if len(self._ends) == len(self._children) or self._stopped:
                return {}
            if any(self._ends.values()):
                failed_at = failed_at or time.monotonic()
                if time.monotonic() > failed_at + OTHERS_S:
                    return {}
            live = self._live()
            same = report.same_gpu(self._heard)
            if same:
                return {"same_gpu": same}
            if live and all(report.done(self._heard[pid]) for pid in live):
                open(os.path.join(self._room, "release"), "w").close()
            stuck = self._stuck(live)
            if stuck:
                return stuck
            time.sleep(0.05)

    def _live(self) -> list:
        """The processes that train, and have not ended."""
        return [
            pid
            for pid, events in self._heard.items()
            if any(e["e"] in ("dist", "step", "done") for e in events) and _alive(pid)
        ]

    def _stuck(self, live: list) -> dict:
        now, cpu = time.monotonic(), sum(_cpu_seconds(pid) for pid in live)
        if (
            cpu > self._cpu + 0.02 * (now - self._idle_since) + 0.05
            or now - self._last < 0.5
            or cpu < self._cpu
        ):
            self._cpu, self._idle_since = cpu, now
        quiet = now - max(self._last, self._idle_since)
        waiting = [pid for pid in live if report.waits(self._heard[pid])]
        rest = [pid for pid in live if pid not in waiting and not report.done(self._heard[pid])]
        gone = [rank for rank, code in self._ends.items() if code == 0]
        if waiting and not rest and quiet > STUCK_S:
            return {"stuck": {pid: report.where(self._heard[pid]) for pid in live}, "gone": gone}
        if quiet > SILENT_S and live:
            return {"silent": {pid: report.where(self._heard[pid]) for pid in live}}
        return {}

    def _listen(self) -> None:
        try:
            names = [name for name in os.listdir(self._room) if name.endswith(".jsonl")]
        except OSError:
            return
        for name in names:
            pid, path = int(name.partition(".")[0]), os.path.join(self._room, name)
            with open(path, "rb") as f:
                f.seek(self._read.get(pid, 0))
                text = f.read()
            whole, _, _ = text.rpartition(b"\n")
            if not whole:
                continue
            self._read[pid] = self._read.get(pid, 0) + len(whole) + 1
            self._heard.setdefault(pid, []).extend(json.loads(line) for line in whole.split(b"\n"))
            self._last = time.monotonic()

    def _end_all(self) -> None:
        """End what was started here: the ranks, and the processes that told something."""
        pids = [pid for pid in self._heard if _alive(pid) and _is_ours(pid, self._room)]
        for child in self._children:
            if child.poll() is None:
                child.terminate()
        for pid in pids:
            _kill(pid, signal.SIGTERM)
        until = time.monotonic() + 2.0
        while time.monotonic() < until and (
            any(c.poll() is None for c in self._children) or any(_alive(pid) for pid in pids)
        ):
            time.sleep(0.05)
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()
        for pid in pids:
            if _alive(pid):
                _kill(pid, signal.SIGKILL)

    def _signal(self, number: int, frame: object) -> None:
        self._stopped = number

    def _keep(self, outcome: dict) -> None:
        folder = os.environ.get("STOKER_HOOKS")
        try:
            with open(os.path.join(folder, "rehearsal.json"), "w", encoding="utf-8") as f:
                json.dump(outcome, f, indent=1)
        except (OSError, TypeError):
            pass


def _with_flag(words: list, flag: str) -> list:
    """The script's words with the launcher's own as the first."""
    options, rest = style._interpreter_options(words)
    return [*options, rest[0], flag, *rest[1:]] if rest else words


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _stat(pid: int) -> list:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _alive(pid: int) -> bool:
    said = _stat(pid)
    return bool(said) and said[0] not in (b"Z", b"X")


def _cpu_seconds(pid: int) -> float:
    said = _stat(pid)
    return (int(said[11]) + int(said[12])) / os.sysconf("SC_CLK_TCK") if said else 0.0


def _is_ours(pid: int, room: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return room.encode() in f.read()
    except OSError:
        return False


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass

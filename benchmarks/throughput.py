"""Claim: Stoker does not slow down a run that prints as fast as it can, stays small meanwhile,
and keeps every byte."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import threading
import time

from benchmarks.ground import STOKER, Ground, Terminal, alive, memory_bytes, until
from benchmarks.measure import Row, abba, ratio

# Writes argv[1] bytes in 64 kB pieces,
# says in the file argv[2] how many seconds that took and what was written.
WRITER = """
import hashlib, os, sys, time
block = b"".join(b"epoch %06d loss 0.12345\\n" % i for i in range(2700))[:65536]
left, began = int(sys.argv[1]), time.monotonic()
while left:
    left -= os.write(1, block[:left])
took = time.monotonic() - began
with open(sys.argv[2] + ".tmp", "w") as f: f.write(repr(took))
os.replace(sys.argv[2] + ".tmp", sys.argv[2])
"""


def fingerprint(count: int) -> str:
    """SHA-256 of what WRITER writes."""
    block = b"".join(b"epoch %06d loss 0.12345\n" % i for i in range(2700))[:65536]
    digest = hashlib.sha256()
    left = count
    while left:
        digest.update(block[:left])
        left -= min(left, len(block))
    return digest.hexdigest()


def of_file(path: os.PathLike) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


class Caretakers(threading.Thread):
    """Watches the memory of holder and agent of the newest run that appears, until told to end."""

    def __init__(self, ground: Ground, known: set[str]) -> None:
        super().__init__(daemon=True)
        self.ground, self.known, self.peak, self.over = ground, known, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for run_id in set(os.listdir(self.ground.home / "runs")) - self.known:
                body = self.ground.json_file(run_id, 1, "agent.json") or {}
                pids = [(body.get(who) or {}).get("pid") for who in ("holder", "agent")]
                self.peak = max(self.peak, sum(memory_bytes(p) for p in pids if p and alive(p)))


def output(ground: Ground, short: bool) -> list[Row]:
    """1 GB (short: 100 MB) to a file, a pipe, a pty under Stoker, against `> file`; memory; identity."""
    count = 50_000_000 if short else 1_000_000_000
    ground.script("writer.py", WRITER)
    command = [sys.executable, "-S", "writer.py", str(count)]
    want = fingerprint(count)
    state = {"n": 0, "peak": 0, "wrong": 0, "checked": 0}

    def side() -> str:
        state["n"] += 1
        return str(ground.root / f"took-{state['n']}")

    def took(path: str) -> float:
        return float(until(lambda: os.path.exists(path) and open(path).read(), 120, "the writer's time"))

    def plain() -> float:
        target, path = ground.root / "plain.out", side()
        with open(target, "wb") as out:
            subprocess.run([*command, path], cwd=ground.work, env=ground.env, stdout=out, check=True)
        target.unlink()
        return count / took(path)

    def under(start) -> float:
        known = set(os.listdir(ground.home / "runs"))
        watch, path = Caretakers(ground, known), side()
        watch.start()
        begun = time.monotonic()
        received = start(path)
        whole = time.monotonic() - begun
        watch.over.set()
        watch.join()
        state["peak"] = max(state["peak"], watch.peak)
        new, = set(os.listdir(ground.home / "runs")) - known
        ground.wait_state(new, timeout_s=60)
        state["checked"] += 1
        state["wrong"] += of_file(ground.attempt_file(new, 1, "out.log")) != want
        if received is not None:
            state["wrong"] += received != want
        ground.stoker("rm", "--yes", new).ok()
        state.setdefault("delivered", []).append(count / whole)
        return count / took(path)

    def detached(path: str) -> None:
        run = ground.detach("--", *command, path)
        assert ground.stoker("wait", run["id"], timeout_s=120).code == 0

    def piped(path: str) -> str:
        digest = hashlib.sha256()
        with subprocess.Popen(
            [STOKER, "run", "--new", "--", *command, path],
            cwd=ground.work,
            env=ground.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as proc:
            while block := proc.stdout.read(1 << 20):
                digest.update(block)
        assert proc.returncode == 0
        return digest.hexdigest()

    def on_terminal(path: str) -> None:
        term = Terminal([STOKER, "run", "--new", "--", *command, path], ground.work, ground.env)
        ground.keep(term.proc)
        try:
            until(lambda: drain(term) or term.proc.poll() is not None, 600, "the end of a terminal run")
        finally:
            term.close()
        assert term.proc.returncode == 0

    def in_background(path: str) -> None:
        run = ground.detach("--tty", "--new", "--", *command, path)
        assert ground.stoker("wait", run["id"], timeout_s=600).code == 0

    def bare() -> float:
        """The writer on a pseudo-terminal whose other end is only read and written to a file:
        more is not to be had."""
        master, slave = os.openpty()
        path = side()
        words = [sys.executable, "-S", "writer.py", str(min(count, 200_000_000)), path]
        with (
            subprocess.Popen(words, cwd=ground.work, env=ground.env, stdout=slave) as proc,
            open(ground.root / "bare.out", "wb", 0) as out,
        ):
            os.close(slave)
            try:
                while data := os.read(master, 65536):
                    out.write(data)
            except OSError:  # the other side is closed
                pass
            os.close(master)
        assert proc.returncode == 0
        return min(count, 200_000_000) / took(path)

    def drain(term: Terminal) -> bool:
        term.pump(0.02)
        term.seen.clear()
        return False

    rows = []
    ground.stoker("ps").ok()
    for name, start, target, pairs in (
        ("file", detached, 0.9, 2 if short else 7),
        ("pipe", piped, 0.9, 2 if short else 7),
        ("pty", in_background, 0.08, 1 if short else 3),
        ("pty watched on a terminal", on_terminal, 0.08, 1 if short else 3),
    ):
        state["delivered"] = []
        ours, files = abba(lambda s=start: under(s), plain, pairs)
        value, low, high = ratio(ours, files)
        detail = (
            f"{statistics.median(ours) / 1e6:.0f} / {statistics.median(files) / 1e6:.0f} MB/s at the writer"
        )
        if name == "pty":
            detail += (
                f"; {statistics.median(bare() for _ in range(1 if short else 5)) / 1e6:.0f} MB/s to a bare "
                "reader of a pty"
            )
        elif name != "file":
            detail += (
                f"; {statistics.median(state['delivered']) / 1e6:.0f} MB/s from the command to its last "
                "byte at the reader"
            )
        rows.append(
            Row(
                name=f"{count // 1_000_000} MB of output, {name} / > file",
                value=value,
                low=low,
                high=high,
                target=target,
                unit="x",
                best="high",
                n=pairs,
                detail=detail,
            )
        )
    peak = state["peak"] / 1e6
    rows.append(
        Row(
            name="holder + agent RSS while it prints, highest",
            value=peak,
            target=40,
            unit="MB",
            n=state["checked"],
        )
    )
    rows.append(
        Row(
            name="logs and streams that differ from what was printed",
            value=state["wrong"],
            target=0,
            unit="",
            n=state["checked"],
        )
    )
    return rows

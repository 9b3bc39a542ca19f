"""The far figures that take their time: following logs, files that come home through cuts, twenty machines
with two hundred runs."""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks import far
from benchmarks.ground import STOKER, Ground, cmdline, cpu_seconds, until
from benchmarks.measure import Row, seconds

CUTS = (1 / 3, 2 / 3)  # of the bytes are there when the connection is cut
LONG_S = 600.0
STAMPS = "import sys, time\nfor i in range(int(sys.argv[1])): print(time.time(), flush=True); time.sleep(1)"
FLOOD = """
import sys, time
whole, seconds, line = int(sys.argv[1]), float(sys.argv[2]), b"x" * 99 + b"\\n"
began, sent = time.time(), 0
while sent < whole:
    sys.stdout.buffer.write(line * 100)
    sys.stdout.flush()
    sent += 10000
    time.sleep(max(0, began + seconds * sent / whole - time.time()))
"""
RESULTS = """
import os, sys
os.mkdir("results")
for i in range(int(sys.argv[1])):
    with open("results/%d.bin" % i, "wb") as f: f.write(os.urandom(int(sys.argv[2])))
"""


def logs(ground: Ground, lines: int, flood_s: float, flood_bytes: int) -> list[Row]:
    """How late a line is, at a line a second; and what is missing of so many bytes in so many seconds.
    Machine: far0."""
    argv = [STOKER, "run", "--new", "--no-hooks", "--on", "far0", "--"]
    late = []
    with subprocess.Popen(
        [*argv, "python3", "-c", STAMPS, str(lines)],
        env=ground.env,
        cwd=ground.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as proc:
        for line in proc.stdout:
            late.append(time.time() - float(line))
    rows = [
        Row(
            name="a line of a followed log, one a second: late, at most",
            value=max(late[1:]),
            target=1.0,
            unit="s",
            n=len(late),
            detail=f"median {statistics.median(late) * 1000:.0f} ms, the first {late[0] * 1000:.0f} ms",
        )
    ]
    began = time.perf_counter()
    words = ["python3", "-c", FLOOD, str(flood_bytes), str(flood_s)]
    with subprocess.Popen(
        [*argv, *words], env=ground.env, cwd=ground.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as proc:
        digest, count = hashlib.sha256(), 0
        while data := proc.stdout.read(1 << 16):
            digest.update(data)
            count += len(data)
    took = time.perf_counter() - began
    whole = (flood_bytes + 9999) // 10000 * 10000
    right = digest.digest() == hashlib.sha256((b"x" * 99 + b"\n") * (whole // 100)).digest()
    rows.append(
        Row(
            name=f"following {flood_bytes / 1e6:.0f} MB in {flood_s:g} s: bytes that are missing or wrong",
            value=0 if right else max(1, whole - count),
            target=0,
            unit="",
            detail=f"{count / 1e6:.1f} MB in {took:.1f} s",
        )
    )
    return rows


def many_followers(ground: Ground, count: int, watched_s: float) -> list[Row]:
    """So many runs on far0, each followed: channels of ssh that carry their logs, and how late a line is."""
    command = ["--new", "--no-hooks", "--on", "far0", "--", "python3", "-c", STAMPS, "3000"]
    ids = [ground.detach(*command)["id"] for _ in range(count)]
    for each in ids:
        ground.wait_state(each, "running", timeout_s=LONG_S)
    before = channels(ground)
    late: list[list[float]] = [[] for _ in ids]
    followers = [
        ground.start_stoker("logs", "-f", "--tail", "0", each, stdout=subprocess.PIPE) for each in ids
    ]

    def read(follower: subprocess.Popen, mine: list[float]) -> None:
        for line in follower.stdout:
            mine.append(time.time() - float(line))

    threads = [
        threading.Thread(target=read, args=pair, daemon=True) for pair in zip(followers, late, strict=True)
    ]
    for thread in threads:
        thread.start()
    until(lambda: all(late), LONG_S, "a line in each log")
    time.sleep(watched_s)
    most = channels(ground)
    worst = [max(mine[1:] or [0.0]) for mine in late]
    for each in ids:
        ground.stoker("stop", "--force", each, timeout_s=LONG_S).ok()
    for follower in followers:
        follower.wait(LONG_S)
    for thread in threads:
        thread.join(LONG_S)
    return [
        Row(
            name=f"{count} followed runs on one machine: channels for their logs",
            value=most - before,
            target=1,
            unit="",
            n=count,
            detail=f"{before} before; a line is {max(worst) * 1000:.0f} ms late at most",
        )
    ]


def channels(ground: Ground) -> int:
    """The ssh clients of the ground's server, beside its masters."""
    lines = [cmdline(pid).split() for pid in ground.processes()]
    return sum(words[:1] == ["ssh"] and "ControlMaster=no" in words for words in lines)


def outputs(ground: Ground, machine: far.Far, files: int, size: int) -> list[Row]:
    """So many new files of a run come home, with the connection cut twice;
    against rsync that is begun again after each cut."""
    folder = ground.work / "outputs"
    folder.mkdir()
    run = ground.detach(
        "--new",
        "--no-hooks",
        "--on",
        "far0",
        "--",
        "python3",
        "-c",
        RESULTS,
        str(files),
        str(size),
        cwd=folder,
    )
    there = far.far_root(ground, 0) / "runs" / run["id"]
    until((there / "attempts" / "1" / "exit.json").exists, LONG_S, "the end of the run")
    home, partial, whole = folder / "results", ground.home / "runs" / run["id"] / "partial", files * size

    def came(*places: Path) -> int:
        return sum(size_of(path) for place in places for path in place.glob("*"))
    began = time.perf_counter()
    for share in CUTS:
        until(lambda share=share: came(home, partial) >= whole * share, LONG_S, "the files")
        machine.sshd.cut()
    until(lambda: came(home) == whole and len(list(home.iterdir())) == files, LONG_S, "all files")
    ours = time.perf_counter() - began
    wrong = [
        path.name for path in home.iterdir() if digest(path) != digest(there / "work" / "results" / path.name)
    ]
    rival = ground.root / "rsync"
    plain = _rsync(machine, there / "work" / "results", rival, whole)
    ground.stoker("rm", "--yes", run["id"], timeout_s=LONG_S).ok()
    name = f"{whole / 1e9:g} GB in {files} files, cut twice"
    sides = f"{ours:.1f} s / {plain:.1f} s"
    return [
        Row(
            name=f"{name}: rate / rsync", value=plain / ours, target=0.5, unit="x", best="high", detail=sides
        ),
        Row(name=f"{name}: files that differ", value=len(wrong), target=0, unit="", n=files),
    ]


def _rsync(machine: far.Far, source: Path, target: Path, whole: int) -> float:
    """How long rsync takes, begun again at once after each cut."""
    ssh = subprocess.list2cmdline(["ssh", *far.settings(machine, far.NORMAL)[:-1]])
    argv = ["rsync", "-a", "--partial", "-e", ssh, f"box:{source}/", f"{target}/"]
    shares = list(CUTS)
    began = time.perf_counter()
    code = None
    while code != 0:
        proc = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        while (code := proc.poll()) is None:
            if shares and sum(size_of(path) for path in target.glob("*")) >= whole * shares[0]:
                shares.pop(0)
                machine.sshd.cut()
            time.sleep(0.01)
    return time.perf_counter() - began


def fleet(ground: Ground, machines: int, runs: int, watched_s: float = 30.0) -> list[Row]:
    """So many runs on so many machines at rest: the server's share of a core, and `stoker ps`."""
    # the folder of the other claims holds a gigabyte, which each run would copy
    folder = ground.root / "fleet"
    folder.mkdir()
    with far.machines(ground, machines, short=False):
        client = [sys.executable, "-c", SUBMITTER, str(runs), str(machines)]
        subprocess.run(client, env=ground.env, cwd=folder, check=True, timeout=LONG_S)
        until(
            lambda: sum(each["state"] == "running" for each in ground.runs()) >= runs,
            LONG_S + runs,
            "all runs",
        )
        time.sleep(min(10.0, watched_s))
        server = ground.server_pid()
        before, began = cpu_seconds(server), time.monotonic()
        time.sleep(watched_s)
        share = 100 * (cpu_seconds(server) - before) / (time.monotonic() - began)
        listing = [seconds(lambda: ground.stoker("ps").ok()) for _ in range(11)]
        ground.end_runs()
    where = f"{machines} machines, {runs} runs"
    return [
        Row(
            name=f"{where}: the server's share of a core",
            value=share,
            target=30,
            unit="%",
            detail=f"over {watched_s:g} s",
        ),
        Row(
            name=f"{where}: stoker ps",
            value=statistics.median(listing) * 1000,
            target=400,
            unit="ms",
            n=len(listing),
        ),
    ]


# One client that submits argv[1] runs on argv[2] machines, one after another.
SUBMITTER = """
import os, sys
from stoker.client import connect
client = connect()
env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
for i in range(int(sys.argv[1])):
    spec = {"command": ["sleep", "3000"], "name": f"f{i}", "folder": os.getcwd(), "target": f"far{i % int(sys.argv[2])}", "hooks": False}
    client.submit(spec, {}, env, None)
"""  # noqa: E501


def size_of(path: Path) -> int:
    """Bytes; 0 where there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()

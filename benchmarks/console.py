"""What the console costs with thousands of runs:
first page, a run with 20 curves, lateness, ten open pages; TensorBoard beside it."""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

from benchmarks.ground import BIN, Ground, children, cpu_seconds, memory_bytes, until
from benchmarks.many_runs import copies
from benchmarks.measure import Row, seconds

CURVES = 20
STARTED_AT_ONCE = 3  # runs
TRAIN = """
import sys
for step in range(int(sys.argv[1])):
    print(f"step {step} " + " ".join(f"metric{n}: {1 / (step + n + 1):.5f}" for n in range(20)))
"""
LIVE = """
import itertools, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
for step in itertools.count():
    print(f"step {step} loss: {1 / (step + 1):.5f}", flush=True)
    time.sleep(2)
"""
PAGES = ("/runs",) * 4 + ("/runs/many",) * 2 + ("/runs/live-0",) * 2 + ("/sweeps", "/machines")
OPTIONS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync".split()  # noqa: E501


def rows(ground: Ground, short: bool) -> list[Row]:
    """All of them. Needs Chromium and playwright for the ten pages."""
    count, live, points = (400, 4, 100_000) if short else (5000, 200, 10_000_000)
    ground.script("train.py", TRAIN)
    ground.script("live.py", LIVE)
    model = ground.detach("--name", "many", "--", sys.executable, "train.py", "500" if short else "20000")
    ground.wait_state("many", "done", timeout_s=300)
    beside = side_by_side(ground, captured(ground, "same", 10_000 if short else 400_000)["id"])
    large = captured(ground, "huge", points)
    small = ground.detach("--name", "small", "--", sys.executable, "train.py", "5")
    ground.wait_state("small", "done", timeout_s=120)
    copies(ground, small["id"], count - live - 4, folders=True)
    with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
        list(
            pool.map(
                lambda n: ground.detach(
                    "--name", f"live-{n}", "--no-hooks", "--", sys.executable, "live.py", timeout_s=300
                ),
                range(live),
            )
        )
    console = ground.start_stoker("ui", "--json", stdout=subprocess.PIPE)
    link = json.loads(console.stdout.readline())["url"]
    ask = asker(link)
    about = f"{count} runs, {live} live"
    first = seconds(lambda: ask("/runs"))
    again = statistics.median(seconds(lambda: ask("/runs")) for _ in range(5))
    numbers = statistics.median(
        seconds(lambda: (ask("/runs/many"), ask(f"/curves.json?run={model['id']}&points=600&all=1")))
        for _ in range(5)
    )
    opened, reopened = opened_again(ground, ask, large["id"], 1 if short else 3)
    pids = [console.pid, ground.server_pid()]
    used, memory = ten_pages(ground, link.split("/enter")[0], pids, 6 if short else 30)
    return [
        Row(
            name="console: the list of runs",
            value=1000 * again,
            target=300,
            unit="ms",
            detail=f"{about}; the first time {1000 * first:.0f} ms",
        ),
        Row(
            name=f"console: a run with {CURVES} curves",
            value=1000 * numbers,
            target=500,
            unit="ms",
            detail="page and curves",
        ),
        Row(
            name=f"console: a run of {points:,} points, after a restart of the server",
            value=1000 * statistics.median(reopened),
            target=500,
            unit="ms",
            detail=f"page and curves; the first time ever {opened:.1f} s",
        ),
        Row(
            name="console: lateness of a change",
            value=lateness(ground, ask, f"live-{live - 1}"),
            target=1,
            unit="s",
            detail="a tag that the CLI adds",
        ),
        Row(
            name="console: CPU of ten open pages, of one core",
            value=sum(used),
            target=25,
            unit="%",
            detail=f"{about}; console {used[0]:.0f} %, server {used[1]:.0f} %",
        ),
        Row(
            name="console: memory of ten open pages",
            value=memory[0] / 1e6,
            target=250,
            unit="MB",
            detail=f"console; server {memory[1] / 1e6:.0f} MB",
        ),
        *beside,
    ]


def captured(ground: Ground, name: str, points: int) -> dict:
    """A run that has ended, with so many points in CURVES curves, as its hooks would have written them."""
    run = ground.detach("--name", name, "--", sys.executable, "train.py", "2")
    ground.wait_state(name, "done", timeout_s=120)
    folder = ground.attempt_file(run["id"], 1, "hooks")
    folder.mkdir(exist_ok=True)
    with open(folder / "numbers.jsonl", "w", encoding="ascii") as f:
        f.write(json.dumps({"begin": 1.0, "pid": 7}) + "\n")
        for step in range(points // CURVES):
            values = ", ".join(f'"metric{n}": {1 / (step + n + 1):.5f}' for n in range(CURVES))
            f.write(
                f'{{"step": {step}, "at": {step / 100:.2f}, "from": "tensorboard", "pid": 7, "values": '
                f'{{{values}}}}}\n'
            )
    return run


def opened_again(
    ground: Ground, ask: Callable[[str], bytes], run_id: str, restarts: int
) -> tuple[float, list[float]]:
    """Seconds until a run of very many points is on the page:
    the first time ever, and then after restarts of the server."""
    def ask_both() -> float:
        return seconds(lambda: (ask(f"/runs/{run_id}"), ask(f"/curves.json?run={run_id}&points=600&all=1")))
    first, again = ask_both(), []
    for _ in range(restarts):
        ground.stoker("server", "stop").ok()
        ground.stoker("ps", timeout_s=120).ok()
        time.sleep(2)  # what the console holds for a moment
        again.append(ask_both())
    return first, again


def asker(link: str) -> Callable[[str], bytes]:
    """Asks the console as a browser does."""
    host = link.split("/")[2]

    def get(path: str, cookie: str) -> tuple[bytes, str]:
        connection = HTTPConnection(host, timeout=600)
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        assert answer.status in (200, 303), f"{path}: {answer.status}"
        return answer.read(), (answer.headers["Set-Cookie"] or "").split(";")[0]
    _, cookie = get(link[link.index("/enter"):], "")
    return lambda path: get(path, cookie)[0]


def lateness(ground: Ground, ask: Callable[[str], bytes], run: str) -> float:
    """Seconds from the end of `stoker tag` until the first page of the list shows the tag;
    the median of three."""
    found = []
    for n in range(3):
        time.sleep(0.7)
        ground.stoker("tag", run, f"late-{n}").ok()
        began = time.monotonic()
        until(lambda n=n: f"late-{n}".encode() in ask("/runs"), 60)
        found.append(time.monotonic() - began)
    return statistics.median(found)


def ten_pages(
    ground: Ground, address: str, pids: list[int], window_s: float
) -> tuple[list[float], list[int]]:
    """CPU (percent of a core) and memory of the processes while ten pages are open in Chromium,
    all in sight."""
    from playwright.sync_api import sync_playwright

    link = ground.stoker("ui", "--json").json()["url"]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        context = browser.new_context()
        context.new_page().goto(link)
        for path in PAGES[1:]:
            context.new_page().goto(address + path)
        time.sleep(min(5, window_s / 3))
        before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
        time.sleep(window_s)
        took = time.monotonic() - began
        used = [100 * (cpu_seconds(pid) - was) / took for pid, was in zip(pids, before, strict=True)]
        memory = [memory_bytes(pid) for pid in pids]
        browser.close()
    return used, memory


def side_by_side(ground: Ground, run_id: str) -> list[Row]:
    """The console and TensorBoard, each started anew: seconds until it has answered with a curve of the run,
    and memory then. The same events: what the hooks captured of a SummaryWriter, and event files of that."""
    points = sum(each["count"] for each in ground.stoker("plot", run_id, "--json").json()["series"])
    folder = ground.root / "events"
    ground.stoker("board", run_id, "--export", str(folder), timeout_s=300).ok()
    rows = []
    about = f"one run of {points:,} points"
    both = (("console", own, run_id), ("TensorBoard", tensorboard, folder))
    for name, measure, what in both:
        took, memory = measure(ground, what)
        rows += [
            Row(
                name=f"{name}: from its start to the first curve",
                value=took,
                target=None,
                unit="s",
                detail=about,
            ),
            Row(name=f"{name}: memory then", value=memory / 1e6, target=None, unit="MB", detail=about),
        ]
    return rows


def own(ground: Ground, run_id: str) -> tuple[float, int]:
    """Of the console: it and the server are started, and read the run for the first time."""
    ground.stoker("server", "stop").ok()
    shutil.rmtree(ground.folder(run_id) / "index", ignore_errors=True)
    began = time.monotonic()
    console = ground.start_stoker("ui", "--json", stdout=subprocess.PIPE)
    ask = asker(json.loads(console.stdout.readline())["url"])
    assert json.loads(ask(f"/curves.json?run={run_id}&points=600"))["charts"][0]["curves"][0]["points"]
    took = time.monotonic() - began
    memory = sum(memory_bytes(pid) for pid in (console.pid, ground.server_pid()))
    console.kill()
    console.wait()
    return took, memory


def tensorboard(ground: Ground, folder: Path) -> tuple[float, int]:
    """Of TensorBoard, on the same events as files."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    began = time.monotonic()
    process = subprocess.Popen(
        [Path(BIN, "tensorboard"), "--logdir", folder, "--port", str(port), "--host", "127.0.0.1"],
        env=ground.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ground.keep(process)

    def answered(path: str) -> object:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/data/plugin/scalars/{path}")
        return json.loads(connection.getresponse().read())

    def drawn() -> bool:
        try:
            tags = {run: list(found) for run, found in answered("tags").items() if found}
            wanted = [f"scalars?run={quote(run)}&tag={quote(found[0])}" for run, found in tags.items()]
            return any(map(answered, wanted))
        except (OSError, ValueError):
            return False
    until(drawn, 300, "a curve in TensorBoard")
    took = time.monotonic() - began
    memory = sum(memory_bytes(pid) for pid in (process.pid, *children(process.pid)))
    process.kill()
    process.wait()
    return took, memory

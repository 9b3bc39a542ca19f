"""`stoker board`: TensorBoard over the numbers of runs, on this machine only."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from stoker.base.errors import InvalidSpec, NotFound, StokerError
from stoker.base.state import State
from stoker.cli import output
from stoker.cli.event_files import Events
from stoker.cli.options import Ref, json_option, plane, say_which, spread

HOST = "127.0.0.1"
PORT = 6006  # of TensorBoard
POINTS = 100_000  # of one curve
UPDATE_S = 5.0
QUIET = 20  # reading takes at most one part in so many of the time
START_S = 120.0
LOG_END = 2000  # bytes


@click.command("board")
@click.argument("refs", type=Ref(), metavar="[RUN...]", nargs=-1)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N",
              help="Listen on this port.  [default: 6006, or a free port if 6006 is in use]")
@click.option(
    "--export",
    metavar="FOLDER",
    help="Do not start TensorBoard; write the event files FOLDER/RUN/events.out.tfevents.*",
)
@json_option('Print {"url": LINK, "runs": [NAME, ...]} as the first line.')
def board(refs: tuple[str, ...], port: int | None, export: str | None, as_json: bool) -> None:
    """Show runs in TensorBoard on 127.0.0.1, until Ctrl-C. Without RUN: the runs that `stoker ps` lists.

    Shows the same metrics as `stoker plot`, also for scripts that do not use TensorBoard. Updates
    active runs every few seconds.
    """
    runs = _named(refs) if refs else plane().runs()
    if not runs:
        raise NotFound("There are no runs.", hint="stoker run train.py")
    if export:
        _exported(runs, export, as_json)
        return
    with tempfile.TemporaryDirectory(prefix="stoker-board-") as folder:
        free = _free(port)
        written = Written(Path(folder) / "runs", runs)
        with output.slow("reading the metrics of the runs"):
            written.update(say=not as_json)
        _serve(written, Path(folder), free, as_json)


def _named(refs: Sequence[str]) -> list[dict]:
    found: dict[str, dict] = {}
    for ref in spread(refs):
        run = plane().run(ref)
        say_which(ref, run)
        found[run["id"]] = run
    return list(found.values())


def _exported(runs: Sequence[dict], folder: str, as_json: bool) -> None:
    at = Path(folder)
    if at.exists() and (not at.is_dir() or any(at.rglob("events.out.tfevents.*"))):
        raise InvalidSpec(
            f"{output.shown(folder)} already contains event files, or is not a folder.",
            hint="Name a new folder.",
        )
    written = Written(at, runs)
    written.update(say=True)
    written.close()
    if as_json:
        output.print_json({"folder": str(at), "runs": [run["name"] for run in runs]})
    else:
        output.say(f"wrote event files of {len(runs)} runs into {output.shown(folder)}")


class Written:
    """The event files of runs, one folder per run."""

    def __init__(self, folder: Path, runs: Sequence[dict]) -> None:
        self.folder, self.runs = folder, list(runs)
        names = [run["name"] for run in runs]
        self._events = {
            run["id"]: Events(folder / (run["name"] if names.count(run["name"]) == 1 else run["id"]))
            for run in runs
        }
        self._active = {run["id"] for run in runs}

    def update(self, say: bool = False) -> None:
        """Write new points of runs that were active at the last update."""
        for run in self.runs:
            if run["id"] not in self._active:
                continue
            now = plane().run(run["id"])
            told = plane().numbers(run["id"], (), POINTS)
            broken = self._events[run["id"]].update(told["series"])
            if State(now["state"]).final:
                self._active.discard(run["id"])
            if say and broken:
                output.say(
                    f"{run['name']}: TensorBoard accepts only whole numbers as steps. Stoker uses the "
                    "order of the points as steps (1, 2, 3, ...) in these curves: "
                    f"{output.cut(', '.join(broken), 200)}"
                )

    def close(self) -> None:
        for events in self._events.values():
            events.close()


def _free(port: int | None) -> int:
    """A port that nobody listens on."""
    for each in (port,) if port else (PORT, 0):
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, each))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise InvalidSpec(f"Port {port} is in use.", hint="Without --port, Stoker uses a free port.")


def _serve(written: Written, folder: Path, port: int, as_json: bool) -> None:
    log = folder / "log"
    argv = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(written.folder),
        "--host",
        HOST,
        "--port",
        str(port),
        "--reload_interval",
        str(UPDATE_S),
        "--reload_multifile",
        "true",
        "--window_title",
        "stoker board",
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with open(log, "wb") as out:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        _wait_for(server, port, log)
        url = f"http://{HOST}:{port}/"
        if as_json:
            output.print_json({"url": url, "runs": [run["name"] for run in written.runs]})
            sys.stdout.flush()
        else:
            output.say(f"TensorBoard with {len(written.runs)} runs: {url}   Ctrl-C ends it.")
        _follow(written, server)
        raise StokerError(
            f"TensorBoard ended: {_end(log)}",
            hint="To start TensorBoard yourself: stoker board --export FOLDER   then: "
                 "tensorboard --logdir FOLDER",
        )
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        written.close()


def _wait_for(server: subprocess.Popen, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise StokerError(
        f"TensorBoard did not start: {_end(log)}", hint="Use another port: stoker board --port N"
    )


def _end(log: Path) -> str:
    text = log.read_bytes()[-LOG_END:].decode(errors="replace").strip()
    return output.shown(text.splitlines()[-1]) if text else "it printed nothing"


def _follow(written: Written, server: subprocess.Popen) -> None:
    """Read again what is active, until TensorBoard ends."""
    took = 0.0
    while server.poll() is None:
        try:
            server.wait(max(UPDATE_S, QUIET * took))
        except subprocess.TimeoutExpired:
            begun = time.monotonic()
            try:
                written.update()
            except StokerError:  # the server is away, or a run was removed: what is written stays
                continue
            took = time.monotonic() - begun

"""The last values of runs that have ended, for lists:
they never change, so each is asked for once, by one thread in the background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from stoker.base.errors import StokerError
from stoker.base.state import State

KEPT = 5000  # runs
SHOWN = 3  # values


class Lasts:
    """Last values for the list of runs. `ask` returns the numbers of a run (as `Client.numbers`). Any
    thread may call any method."""

    def __init__(self, ask: Callable[[dict], dict]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple, dict | None] = OrderedDict()
        self._active: OrderedDict[tuple, dict] = OrderedDict()  # until those of the ended run are known
        self._wanted: list[dict] = []
        self._busy = False

    def told(self, run: dict) -> dict:
        """The run with its last values, if known."""
        attempt = run["id"], run["attempts"]
        with self._lock:
            if not State(run["state"]).final:
                if run.get("numbers"):
                    self._active[attempt] = run["numbers"]
                    while len(self._active) > KEPT:
                        self._active.popitem(last=False)
                return run
            found = self._found.get(_key(run)) or self._active.get(attempt)
        return {**run, "numbers": found} if found else run

    def want(self, runs: Sequence[dict]) -> None:
        """Fetch the values of these runs, instead of those requested before."""
        with self._lock:
            self._wanted = [
                run
                for run in runs
                if State(run["state"]).final and run["target"] == "local" and _key(run) not in self._found
            ]
            if not self._wanted or self._busy:
                return
            self._busy = True
        threading.Thread(target=self._work, name="last values", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._busy = False
                    return
                run = self._wanted.pop(0)
            try:
                values = last_values(self._ask(run)["series"])
            except StokerError as e:
                if e.code == "server_error":
                    with self._lock:
                        self._wanted, self._busy = [], False
                    return
                values = None
            with self._lock:
                self._found[_key(run)] = values
                while len(self._found) > KEPT:
                    self._found.popitem(last=False)


def _key(run: dict) -> tuple:
    return run["id"], run["attempts"], run["state"]


def last_values(series: Sequence[dict]) -> dict | None:
    """As `numbers` of an active run in a list: the last values of the most important metrics."""
    known = sorted((each for each in series if each["count"] and each["better"] and " #" not in each["name"]
                    and not each["name"].endswith((".mean", ".2"))),
                   key=lambda each: (each["split"] not in (None, "train"), "loss" not in each["metric"]))
    values: dict[str, list] = {}
    seen: set[str] = set()
    for each in known:
        if each["metric"] not in seen and len(values) < SHOWN:
            seen.add(each["metric"])
            values[each["name"]] = [each["last"][1], each["unit"]]
    return {"epoch": None, "epochs": None, "values": values} if values else None


def main_curve(series: list[dict]) -> dict | None:
    """The curve that represents a run in a list: a training loss, else a known metric, else the first
    curve."""
    def rank(each: dict) -> tuple:
        return (
            each["name"].endswith((".mean", ".2")),
            each["better"] is None,
            each["split"] not in (None, "train"),
            "loss" not in each["metric"],
        )
    return min((each for each in series if each["count"] > 1), key=rank, default=None)

"""What the pages show, asked of the server: each answer is shared by all pages that ask within a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from stoker.base.config import load_config
from stoker.base.errors import NotFound
from stoker.base.state import State
from stoker.client import Client

FRESH_S = 0.9
HELD = 64  # answers
NEWEST = 100  # runs of the first page, beside all active ones
ALL_RUNS = 1_000_000
RUNS_COMPARED = 50


class Source:
    """The server behind the console. Any thread may ask. Raises ServerError while the server is away: the console never starts it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._held: dict[tuple, tuple[threading.Lock, list]] = {}

    def _fresh(self, key: tuple, ask: Callable[[], Any]) -> Any:
        """What `ask` gave less than FRESH_S ago, else gives now. Two who want the same wait for one answer."""
        with self._lock:
            lock, held = self._held.setdefault(key, (threading.Lock(), []))
            if len(self._held) > HELD:
                self._held = {key: (lock, held)}
        with lock:
            if not held or time.monotonic() - held[0] > FRESH_S:
                held[:] = [time.monotonic(), ask()]
                held[0] = time.monotonic()
            return held[1]

    def forget(self) -> None:
        """After a change: what was asked before is asked again."""
        with self._lock:
            self._held.clear()

    # --- runs ------------------------------------------------------------------------------------------------------------

    def runs(self, wanted: Mapping[str, str]) -> dict:
        """`{"runs", "hidden", "counts"}`: without a wish the active runs and the newest others; `wanted`: state, tag, grep, all."""
        everything = any(wanted.get(name) for name in ("state", "tag", "grep", "all"))
        known = self._all() if everything else self._newest()
        shown = [run for run in known if (wanted.get("all") or not run.get("purpose")) and _matches(run, wanted)]
        counts = self._fresh(("info",), self.client.info)["runs"]
        return {"runs": shown, "hidden": max(0, sum(counts.values()) - len(shown)), "counts": counts}

    def _all(self) -> list[dict]:
        return self._fresh(("runs", "all"), lambda: self.client.runs(all=True, limit=ALL_RUNS))

    def _newest(self) -> list[dict]:
        newest = self._fresh(("runs", "newest"), lambda: self.client.runs(all=True, limit=NEWEST))
        if len(newest) < NEWEST:
            return newest
        seen = {run["id"] for run in newest}
        active = self._fresh(("runs", "active"), lambda: self.client.runs(limit=ALL_RUNS))
        both = [*newest, *(run for run in active if run["id"] not in seen)]
        return sorted(both, key=lambda run: run["created_at"], reverse=True)

    def run(self, ref: str) -> dict:
        """All that is known of a run."""
        return self._fresh(("show", ref), lambda: self.client.show(ref))

    def numbers(self, ref: str, names: tuple[str, ...], points: int) -> dict:
        """The curves of a run."""
        return self._fresh(("numbers", ref, names, points), lambda: self.client.numbers(ref, names, points))

    def recorded(self, ref: str, kind: str) -> dict:
        """What was recorded of a run: its "usage" over time, or its "code"."""
        return self._fresh(("recorded", ref, kind), lambda: self.client.recorded(ref, kind))

    def compare(self, refs: tuple[str, ...]) -> dict:
        """A comparison; `@TAG` stands for the runs with this tag. At most RUNS_COMPARED of them."""
        ids: list[str] = []
        for ref in refs:
            ids += [run["id"] for run in self._all() if ref[1:] in run["tags"]] if ref.startswith("@") else [ref]
        ids = list(dict.fromkeys(ids))
        if not ids:
            raise NotFound("No run was chosen, or no run has this tag.", hint="All runs and their tags: stoker ps --all")
        found = self._fresh(("compare", *ids[:RUNS_COMPARED]), lambda: self.client.compare(ids[:RUNS_COMPARED]))
        return {**found, "left_out": max(0, len(ids) - RUNS_COMPARED)}

    def sweeps(self) -> dict:
        """`{"sweeps": [{"name", "runs", "counts"}]}`, the newest first: runs that `stoker sweep` named and tagged."""
        found: dict[str, list[dict]] = {}
        for run in self._all():
            for tag in run["tags"]:
                if run["name"].startswith(f"{tag}-") and run["name"][len(tag) + 1:].split("-")[0].isdigit():
                    found.setdefault(tag, []).append(run)
        return {"sweeps": [{"name": name, "runs": runs, "counts": _counts(runs)} for name, runs in found.items()]}

    # --- machines --------------------------------------------------------------------------------------------------------

    def machines(self) -> dict:
        """`{"machines": [...], "here": ...}`: those of config.toml with their runs, and what this one has and does."""
        runs = self._all()
        found = [{"name": each.name, "address": each.host, "gpus": each.gpus, "slots": each.slots,
                  "active": [run for run in runs if run["target"] == each.name and not State(run["state"]).final],
                  "ended": sum(run["target"] == each.name and State(run["state"]).final for run in runs)}
                 for each in load_config(self.client.home).targets.values()]
        return {"machines": found, "here": self._fresh(("top",), self.client.top),
                "capacity": self._fresh(("capacity", "local"), lambda: self.client.capacity("local"))}

    def capacity(self, name: str) -> dict:
        """What a machine has. Raises TargetError where it does not answer."""
        return self._fresh(("capacity", name), lambda: self.client.capacity(name))


def _matches(run: dict, wanted: Mapping[str, str]) -> bool:
    text = " ".join([run["name"], *run["command"], *run["tags"], run["note"] or ""])
    return (not wanted.get("state") or run["state"] == wanted["state"]) and (not wanted.get("tag") or wanted["tag"] in run["tags"]) and (
        not wanted.get("grep") or wanted["grep"].casefold() in text.casefold())


def _counts(runs: list[dict]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in runs:
        counts[run["state"]] = counts.get(run["state"], 0) + 1
    return counts


def main_curve(series: list[dict]) -> dict | None:
    """The curve that stands for a run in a list: a loss of the training, else what is known as a metric, else the first."""
    def rank(each: dict) -> tuple:
        return (each["name"].endswith((".mean", ".2")), each["better"] is None, each["split"] not in (None, "train"),
                "loss" not in each["metric"])
    return min((each for each in series if each["count"] > 1), key=rank, default=None)

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
from stoker.console import verbs
from stoker.console.cores import Watch
from stoker.console.lasts import Lasts
from stoker.console.table import Table

# an answer is shared for so long, and for COST times as long as the server needed for it
FRESH_S, COST = 0.5, 4
SHARED_MAX_S = 2.0
SHORT_POINTS = 48
HELD = 64  # answers
ENDED_S = 5.0  # then the details of an ended run are asked for again, although the run has not changed
PAGE = 100  # runs of a page
RUNS_COMPARED = 50
RECENT = 5  # ended runs of a machine
FETCHES = 2  # pictures that are fetched from other machines at once: an sshd takes few channels


class Source:
    """The connection to the server. Any thread may use it. Raises ServerError while the server is not
    available: the console never starts it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._held: dict[tuple, tuple[threading.Lock, list]] = {}
        # ref -> when its details were asked for, the run before that, the details
        self._ended: dict[str, tuple[float, dict | None, dict]] = {}
        self._table = Table(client)
        self.lasts = Lasts(lambda run: client.numbers(run["id"], (), SHORT_POINTS))
        self._watch = Watch()
        self._fetches = threading.Semaphore(FETCHES)

    def _fresh(self, key: tuple, ask: Callable[[], Any]) -> Any:
        """What `ask` gave a moment ago, else gives now. Two who want the same wait for one answer."""
        with self._lock:
            lock, held = self._held.setdefault(key, (threading.Lock(), []))
            self._held[key] = self._held.pop(key)
            while len(self._held) > HELD:
                del self._held[next(iter(self._held))]
        with lock:
            if not held or time.monotonic() > held[0]:
                began = time.monotonic()
                told = ask()
                ended = time.monotonic()
                held[:] = [ended + max(FRESH_S, min(COST * (ended - began), SHARED_MAX_S)), told]
            return held[1]

    def forget(self) -> None:
        """After a change: discard cached answers."""
        with self._lock:
            self._held.clear()
            self._ended.clear()
        self._table.forget()

    # --- runs
    # --------------------------------------------------------------------------------------------------------

    def runs(self, wanted: Mapping[str, str]) -> dict:
        """`{"runs", "hidden", "any", "counts", "page", "pages", "found", "first"}`: one page of the runs that
        match `wanted` (state, tag, grep, all), active runs first. `all`: also rehearsals and verifications.
        hidden: how many runs match, but are rehearsals or verifications. The last values of ended runs come
        a moment later."""
        known = self._all()
        matching = [run for run in known if _matches(run, wanted)]
        found = [run for run in matching if wanted.get("all") or not run.get("purpose")]
        pages = max(1, -(-len(found) // PAGE))
        page = min(max(1, int(text) if (text := wanted.get("page") or "1").isdecimal() else 1), pages)
        shown = [self.lasts.told(run) for run in found[(page - 1) * PAGE:page * PAGE]]
        self.lasts.want(shown)
        return {
            "runs": shown,
            "hidden": len(matching) - len(found),
            "any": bool(known),
            "counts": _counts(known),
            "page": page,
            "pages": pages,
            "found": len(found),
            "first": (page - 1) * PAGE + 1,
        }

    def _all(self) -> list[dict]:
        return self._fresh(("runs",), self._table.look)

    def run(self, ref: str) -> dict:
        """All details of a run."""
        return self._fresh(("show", ref), lambda: self._show(ref))

    def _show(self, ref: str) -> dict:
        """The details of an ended run hold while the run stays as it was."""
        with self._lock:
            asked_at, then, told = self._ended.pop(ref, (0.0, None, None))
        now = self.client.run(ref) if told else None  # before the details: what changes meanwhile is news
        if told is None or now != then or time.monotonic() - asked_at > ENDED_S:
            asked_at, told = time.monotonic(), self.client.show(ref)
        if State(told["state"]).final:
            with self._lock:
                self._ended[ref] = asked_at, now, told
                while len(self._ended) > HELD:
                    del self._ended[next(iter(self._ended))]
        return told

    def numbers(self, ref: str, names: tuple[str, ...], points: int) -> dict:
        """The curves of a run."""
        return self._fresh(("numbers", ref, names, points), lambda: self.client.numbers(ref, names, points))

    def recorded(self, ref: str, kind: str) -> dict:
        """Recorded data of a run: its "usage" over time, or its "code"."""
        return self._fresh(("recorded", ref, kind), lambda: self.client.recorded(ref, kind))

    def picture(self, ref: str, path: str) -> bytes:
        """A captured picture, wherever the run is."""
        with self._fetches:
            return self.client.picture(ref, path)

    def compare(self, refs: tuple[str, ...]) -> dict:
        """A comparison; `@TAG` means the runs with this tag. At most RUNS_COMPARED runs."""
        ids: list[str] = []
        for ref in refs:
            ids += (
                [run["id"] for run in self._all() if ref[1:] in run["tags"]] if ref.startswith("@") else [ref]
            )
        ids = list(dict.fromkeys(ids))
        if not ids:
            raise NotFound(
                "No run was chosen, or no run has this tag.", hint="All runs and their tags: stoker ps --all"
            )
        found = self._fresh(
            ("compare", *ids[:RUNS_COMPARED]), lambda: self.client.compare(ids[:RUNS_COMPARED])
        )
        return {**found, "left_out": max(0, len(ids) - RUNS_COMPARED)}

    def sweeps(self) -> dict:
        """`{"sweeps": [{"name", "runs", "counts"}]}`, newest first: runs that `stoker sweep` named and
        tagged."""
        found: dict[str, list[dict]] = {}
        for run in self._all():
            for tag in run["tags"]:
                if run["name"].startswith(f"{tag}-") and run["name"][len(tag) + 1:].split("-")[0].isdigit():
                    found.setdefault(tag, []).append(run)
        return {
            "sweeps": [{"name": name, "runs": runs, "counts": _counts(runs)} for name, runs in found.items()]
        }

    # --- machines
    # --------------------------------------------------------------------------------------------------------

    def machines(self) -> dict:
        """`{"machines": [...], "here": ...}`: machines of config.toml with their runs; resources and use
        of this machine."""
        runs = self._all()
        by_name = {run["name"]: {"id": run["id"], "name": run["name"]} for run in reversed(runs)}
        found = [
            {
                "name": each.name,
                "address": each.host,
                "gpus": each.gpus,
                "slots": each.slots,
                "active": [
                    run for run in runs if run["target"] == each.name and not State(run["state"]).final
                ],
                "recent": [run for run in runs if run["target"] == each.name and State(run["state"]).final][
                    :RECENT
                ],
                "ended": sum(run["target"] == each.name and State(run["state"]).final for run in runs),
            }
            for each in load_config(self.client.home).targets.values()
        ]
        here = self._fresh(("top",), self.client.top)
        capacity = self._fresh(("capacity", "local"), lambda: self.client.capacity("local"))
        users = _of_gpus(here["runs"])
        names = {gpu["uuid"]: f"GPU {gpu['index']}" for gpu in here["machine"]["gpus"] if gpu.get("uuid")}
        busy = {
            name: sum(each["busy_percent"] or 0 for each in users.get(uuid, [])[:1])
            for uuid, name in names.items()
        }
        held = {
            names[uuid]: [by_name[who]] if who in by_name else []
            for uuid, who in capacity["gpus_used"].items()
            if uuid in names
        }
        seen = {
            names[uuid]: [each["run"] for each in found] for uuid, found in users.items() if uuid in names
        }
        return {
            "machines": found,
            "here": here,
            "capacity": capacity,
            "parts_now": self._watch.look(busy),
            "users": {**seen, **held},
        }

    def reports(self) -> dict:
        """The reports of doctor and tune about this machine."""
        return self._fresh(("reports",), lambda: verbs.reports(self.client.home))

    def capacity(self, name: str) -> dict:
        """The resources of a machine. Raises TargetError if it does not answer."""
        return self._fresh(("capacity", name), lambda: self.client.capacity(name))


def _matches(run: dict, wanted: Mapping[str, str]) -> bool:
    text = " ".join([run["name"], *run["command"], *run["tags"], run["note"] or ""])
    return (
        (not wanted.get("state") or run["state"] == wanted["state"])
        and (not wanted.get("tag") or wanted["tag"] in run["tags"])
        and (not wanted.get("grep") or wanted["grep"].casefold() in text.casefold())
    )


def _of_gpus(runs: list[dict]) -> dict[str, list[dict]]:
    """GPU (UUID) -> the runs that use it, as their processes were seen."""
    found: dict[str, list[dict]] = {}
    for run in runs:
        for gpu in (run.get("telemetry") or {}).get("gpus") or ():
            found.setdefault(str(gpu.get("uuid")), []).append(
                {**gpu, "run": {"id": run["id"], "name": run["name"]}}
            )
    return found


def _counts(runs: list[dict]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in runs:
        counts[run["state"]] = counts.get(run["state"], 0) + 1
    return counts

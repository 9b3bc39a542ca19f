"""What a machine has, what is handed out of it, and who gets what next:
`admit` for one run that waits for its turn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stoker.plane.record import Holding, Run


@dataclass(frozen=True)
class Room:
    """Resources of a machine. `gpus` None: not known yet. `slots` None: CPU slots are not counted there."""

    gpus: tuple[str, ...] | None = ()
    slots: int | None = None
    # GPU -> what uses it that Stoker did not hand it to, in words
    busy: dict[str, str] = field(default_factory=dict)
    # GPU -> who holds it by a lease, here or in another state folder
    leased: dict[str, str] = field(default_factory=dict)
    index: dict[str, str] = field(default_factory=dict)  # GPU -> its number on this machine

    def named(self, ids: Sequence[str]) -> list[str]:
        """Return the existing GPUs with these numbers or UUIDs (or beginnings of a UUID)."""
        return [
            uuid
            for each in ids
            for uuid in self.gpus or ()
            if each == self.index.get(uuid) or (each and uuid.startswith(each))
        ]

    def used_by_others(self, ids: Sequence[str]) -> bool:
        """True if other programs use all these GPUs. A run that waits without naming GPUs then gets none
        of them."""
        named = self.named(ids)
        return bool(named) and all(uuid in self.busy for uuid in named)

    def call(self, uuid: str) -> str:
        """"GPU 0", or the UUID if the number is not known."""
        return f"GPU {self.index[uuid]}" if uuid in self.index else f"GPU {uuid}"


@dataclass(frozen=True)
class Usage:
    """Resources in use: GPU -> name of the run that holds it; names and number of the CPU slots in use."""

    gpus: dict[str, str] = field(default_factory=dict)
    slots: int = 0
    slot_holders: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()  # who holds GPUs of which it is not known yet which

    def plus(self, name: str, gpus: Sequence[str], slots: int) -> Usage:
        """The usage if `name` also holds these resources."""
        holders = (*self.slot_holders, *([name] if slots else []))
        return Usage({**self.gpus, **dict.fromkeys(gpus, name)}, self.slots + slots, holders, self.unclear)


@dataclass(frozen=True)
class Admission:
    """Whether a run may start: "yes" (with these GPUs), "wait" or "never" (`why` follows "waits for" or
    "wants" in a sentence)."""

    verdict: str
    why: str = ""
    gpus: tuple[str, ...] = ()


def usage_of(holders: Iterable[Run | Holding]) -> Usage:
    """Resources that these runs hold."""
    usage = Usage()
    for run in holders:
        usage = usage.plus(run.name, run.gpu_uuids, run.slots)
        if len(run.gpu_uuids) < run.gpus:
            usage = replace(usage, unclear=(*usage.unclear, run.name))
    return usage


def admit(gpus: int, slots: int, usage: Usage, room: Room, ids: Sequence[str] = ()) -> Admission:
    """Decide whether a run with these requests may start now. A GPU that another program uses goes only to
    a run that names it (`ids`); the only GPU of a machine is shared. Without `gpus`, `ids` are the GPUs in
    the run's environment: the run holds them, and does not wait."""
    if gpus and room.gpus is None:
        return Admission("wait", "an answer from its machine: the number of GPUs there is not known yet")
    have, named = len(room.gpus or ()), room.named(ids)
    if gpus > have:
        return Admission("never", f"{_gpus(gpus)}; the machine has {have or 'none'}")
    if gpus and ids and len(set(named)) != gpus:
        return Admission(
            "never", f"the GPUs {', '.join(ids)}; the machine has {', '.join(room.index.values()) or have}"
        )
    if room.slots is not None and slots > room.slots:
        return Admission("never", f"{_slots(slots)}; the machine has {room.slots}")
    if gpus and usage.unclear:
        return Admission(
            "wait", f"{_gpus(gpus)}: Stoker does not know yet which GPUs are used by {_names(usage.unclear)}"
        )
    wanted = named if ids else list(room.gpus or ())
    free = [
        uuid
        for uuid in wanted
        if uuid not in usage.gpus and uuid not in room.leased and (ids or have == 1 or uuid not in room.busy)
    ]
    whys = []
    if gpus > len(free):
        whys.append(f"{_gpus(gpus)}: {_why_not_free(wanted, usage, room, bool(ids))}")
    if room.slots is not None and slots and usage.slots + slots > room.slots:
        whys.append(
            f"{_slots(slots)}: {usage.slots} of {room.slots} {_are(usage.slots)} used by "
            f"{_names(usage.slot_holders)}"
        )
    if whys:
        return Admission("wait", " and ".join(whys))
    return Admission("yes", gpus=tuple(free[:gpus] if gpus else named))


def _why_not_free(wanted: Sequence[str], usage: Usage, room: Room, named: bool) -> str:
    """Who has the GPUs that a run waits for."""
    ours = [uuid for uuid in wanted if uuid in usage.gpus]
    parts = (
        [f"{len(ours)} of {len(wanted)} {_are(len(ours))} used by {_names(usage.gpus[u] for u in ours)}"]
        if ours
        else []
    )
    parts += [
        f"{room.call(u)} is used by {room.leased[u]}"
        for u in wanted
        if u in room.leased and u not in usage.gpus
    ]
    others = [
        u for u in wanted if u in room.busy and u not in usage.gpus and u not in room.leased and not named
    ]
    parts += [
        f"{room.call(u)} is used by {room.busy[u]} (to use this GPU anyway: `--gpus "
        f"id:{room.index.get(u, u)}`)"
        for u in others
    ]
    return ", ".join(parts)


def shared_gpus(gpus: Sequence[str], usage: Usage, room: Room) -> list[str]:
    """Notes for a run that gets GPUs which other programs also use."""
    others = [u for u in gpus if u in room.busy and u not in usage.gpus and u not in room.leased]
    return [f"{room.call(u)} is also used by {room.busy[u]}." for u in others]


def admit_queue(waiting: Iterable[Run], usage: Usage, room: Room) -> list[tuple[Run, tuple[str, ...]]]:
    """Decide which of these runs start now, and with which GPUs: highest priority first, then the oldest.
    A run never overtakes an earlier run that needs the same resource, so large runs do not starve."""
    started: list[tuple[Run, tuple[str, ...]]] = []
    blocked: set[str] = set()
    for run in sorted(waiting, key=lambda r: (-r.priority, r.queued_at, r.id)):
        gpus = 0 if room.used_by_others(run.spec.gpu_ids) else run.gpus
        wants = {
            what
            for what, count in (("gpus", gpus), ("slots", run.slots if room.slots is not None else 0))
            if count
        }
        if wants & blocked:
            blocked |= wants
            continue
        answer = admit(run.gpus, run.slots, usage, room, run.spec.gpu_ids)
        if answer.verdict == "yes":
            started.append((run, answer.gpus))
            usage = usage.plus(run.name, answer.gpus, run.slots)
        elif answer.verdict == "wait":
            blocked |= wants
    return started


def waits_after(others: Sequence[tuple[str, Run | None]], own_id: str) -> str:
    """The runs that a run with `--after` waits for: (id, run, or None if it was removed)."""
    parts = []
    for other_id, other in others:
        if other is None:
            parts.append(f"{other_id}, which was removed, so the wait never ends "
                         f"(to start this run anyway: `stoker start {own_id}`)")
        elif other.state.unfinished:
            parts.append(
                f"{other.name}, which ended as {other.state.value} (to retry that run: `stoker start "
                f"{other.id}`; "
                f"to start this run anyway: `stoker start {own_id}`)"
            )
        else:
            parts.append(f"{other.name} to end")
    return ", and for ".join(parts)


def _gpus(count: int) -> str:
    return f"{count} GPU" + ("s" if count != 1 else "")


def _slots(count: int) -> str:
    return f"{count} CPU slot" + ("s" if count != 1 else "")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _names(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:5]) + (f" and {len(unique) - 5} more" if len(unique) > 5 else "")

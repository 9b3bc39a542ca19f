"""What happens next, as pure functions: `decide` for one run that was looked at.

Nothing here reads a clock, a disk or a machine. States and reasons come from base/state.py.

`absent`, `staged` and `abandoned` count only if they were seen after the reconciler's last action on that
run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from stoker.base.spec import Limits
from stoker.base.state import REASONS, UNKNOWN, Reachability, State, known_reason
from stoker.plane.record import WISH_RM, WISH_RUN, Run

PHASES = ("absent", "staged", "claimed", "running", "stopping", "ended", "waiting", "abandoned", "unseen")
# phases that a step of ours ends; the others only go forward
UNSURE = frozenset({"absent", "staged", "abandoned"})
# nobody was left on the machine to follow the restart policy
SETTLED_REASONS = frozenset({"agent_lost", "rebooted"})
BACKOFF_MAX_S = 300.0


class Seen(Protocol):
    """The fields of an observation (backends/base.py) that `decide` reads."""

    @property
    def phase(self) -> str:
        """What it does: a phase of Observation."""

    @property
    def attempt(self) -> int | None:
        """Its newest attempt."""

    @property
    def started_at(self) -> float | None:
        """When that attempt began."""

    @property
    def used_s(self) -> float | None:
        """Running seconds over all attempts."""

    @property
    def exit(self) -> dict | None:
        """exit.json of the attempt."""

    @property
    def keep(self) -> dict | None:
        """The wish to keep it that was typed on the machine."""

    @property
    def telemetry(self) -> dict | None:
        """The newest sample."""


@dataclass(frozen=True)
class Assumed:
    """The expected result of Stoker's own step, so that no new observation is needed."""

    phase: str
    attempt: int | None = None
    started_at: float | None = None
    used_s: float | None = None
    exit: dict | None = None
    keep: dict | None = None
    telemetry: dict | None = None


@dataclass(frozen=True)
class Action:
    """One step. `do`: "set" (only write the facts) · "stage" · "start" · "limits" · "stop" · "remove" (folder
    and row).
    All steps can be repeated. `facts` are written to the row after the step succeeded."""

    do: str
    facts: dict = field(default_factory=dict)


def decide(run: Run, seen: Seen | None, now: float, mine: str = "") -> list[Action]:
    """Decide what to do about a run, given its newest observation (None: its machine could not be reached).
    `mine`: id of this state folder; a run that another state folder has taken over is observed, and not
    changed.
    An observation may be slightly old. So an older attempt never ends the run, and the state never goes
    back."""
    owner = getattr(seen, "owner", None) or {}
    if seen is not None and mine and owner.get("id", mine) != mine:
        return _taken_over(run, seen, now, str(owner.get("hint") or owner["id"]))
    if run.state.final:
        return _removal(run)
    if run.state is State.PENDING:
        return [] if run.wish == WISH_RUN else _never_begun(run, run.attempt - 1, now)
    if seen is None and run.state is State.STAGING and run.wish != WISH_RUN:
        # nobody was told to start it, so there is nothing to end on that machine
        return _never_begun(run, run.attempt - 1, now)
    if seen is None:
        return _set(run, reachability=Reachability.UNREACHABLE.value)
    facts = {"reachability": (Reachability.UNSEEN if seen.phase == "unseen" else Reachability.OK).value}
    if seen.phase == "absent":
        return _absent(run, now, facts)
    newest = seen.attempt or 0
    if newest < run.attempt:
        return _not_begun(run, seen, newest, now, facts)
    return _begun(run, seen, newest, now, facts)


def _taken_over(run: Run, seen: Seen, now: float, by: str) -> list[Action]:
    """Facts only; `rm` forgets it here."""
    if run.wish == WISH_RM:
        return [Action("remove")]
    actions = decide(run, seen, now)
    facts = {k: v for action in actions if action.do == "set" for k, v in action.facts.items()}
    facts["evidence"] = {**facts.get("evidence", run.evidence), "taken_over": by}
    return _set(run, **facts)


def overtaken(run: Run, seen: object) -> bool:
    """True if an observation that is older than Stoker's own last step may be outdated. That step may have
    started the attempt, and a run that wrongly counts as never started would continue unobserved."""
    phase, attempt = getattr(seen, "phase", None), getattr(seen, "attempt", None) or 0
    return (
        phase in UNSURE
        or (phase is not None and attempt < run.attempt)
        or (phase == "ended" and run.restart_at is not None)
    )


def stop_order(run: Run, seen: object) -> tuple:
    """Arguments of `Backend.stop` besides run and grace. If a user stops an unseen run by force, this
    states that its machine is gone."""
    if run.wish == WISH_RUN:
        return ("agent_lost",)
    return (
        "stopped_by_user",
        run.attempt,
        getattr(seen, "phase", None) == "unseen" and run.stop_grace == (0.0, 0.0),
    )


def _absent(run: Run, now: float, facts: dict) -> list[Action]:
    first = run.attempt == 1 and run.state is State.STAGING
    if first and run.wish != WISH_RUN:
        return _never_begun(run, 0, now)
    if first:
        return [*_set(run, **facts), Action("stage")]
    lost = _set(run, **facts, **_final("lost", {}, now), attempt=run.attempt - (run.state is State.STAGING))
    return [*lost, *_removal(run)]


def _not_begun(run: Run, seen: Seen, newest: int, now: float, facts: dict) -> list[Action]:
    """The machine has the folder, but not the attempt that is wanted."""
    at_rest = seen.phase in ("staged", "ended")
    if run.wish != WISH_RUN and at_rest and run.state is State.STAGING:
        return _never_begun(run, newest, now)  # nobody was told to start it
    if run.wish != WISH_RUN and at_rest:
        # a start may be on its way, sent by a server that was killed:
        # told again until the attempt is seen ended
        return [
            *_set(run, **{**facts, "state": State.STOPPING}),
            Action("stop", {"stop_sent": run.stop_asked}),
        ]
    if run.wish != WISH_RUN:
        return _stop(run, facts)
    if seen.phase == "abandoned":
        return [*_set(run, **facts), Action("stop")]
    if not at_rest:
        return _set(run, **facts)  # the attempt before is still being ended
    if seen.phase == "staged" and run.state in (State.RUNNING, State.STOPPING):
        return _set(run, **facts, **_final("lost", {}, now))
    limits = (
        [] if run.limits_written >= run.limits.seq else [Action("limits", {"limits_written": run.limits.seq})]
    )
    return [*_set(run, **facts, **_TOLD), *limits, Action("start", {"started_at": now})]


# Written down before the start: whoever stops the run after a crash knows that it may begin at any moment.
# When it has: `started_at`.
_TOLD = {"state": State.STARTING, "restart_at": None, "started_at": None}


def _begun(run: Run, seen: Seen, newest: int, now: float, facts: dict) -> list[Action]:
    """The wanted attempt, or a later one that the agent began by itself, is there."""
    later = newest > run.attempt
    facts["attempt"] = newest
    if seen.started_at and seen.phase != "claimed":
        facts["started_at"] = float(seen.started_at)
    if seen.phase == "ended":
        return _ended(run, seen, newest, now, facts)
    if seen.phase == "abandoned":
        # written down before the step:
        # whoever continues after a crash knows that nobody else follows the restart policy
        settling = _set(run, **facts, settled_attempt=newest, state=State.STOPPING)
        return [*settling, Action("stop", {"stop_sent": run.stop_asked})]
    facts |= _keep(run, seen) | _held(run, seen) | _stalled(run, seen)
    if seen.phase == "waiting":
        restart = (seen.exit or {}).get("restart") or {}
        facts |= {
            "state": State.STARTING,
            "restart_at": restart.get("at"),
            "used_s": seen.used_s or run.used_s,
        }
    elif seen.phase != "unseen":  # of which nothing is known but what was known before
        facts |= {"state": _forward(run.state, seen.phase, later), "restart_at": None}
    if run.wish != WISH_RUN and (run.stop_sent < run.stop_asked or seen.phase == "running"):
        # told already and still running: an automatic restart was quicker,
        # and nobody has told the new attempt
        return [
            *_set(run, **{**facts, "state": State.STOPPING}),
            Action("stop", {"stop_sent": run.stop_asked}),
        ]
    limits = facts.get("limits", run.limits)
    if run.limits_written < limits.seq:
        return [*_set(run, **facts), Action("limits", {"limits_written": limits.seq})]
    return _set(run, **facts)


def _stalled(run: Run, seen: Seen) -> dict:
    """That a living run stands still, among its evidence."""
    stalled = getattr(seen, "stalled", None)
    evidence = {k: v for k, v in run.evidence.items() if k != "stalled"} | (
        {"stalled": stalled} if stalled else {}
    )
    return {} if evidence == run.evidence else {"evidence": evidence}


def _forward(state: State, phase: str, later: bool) -> State:
    """The state of a living attempt; an old observation does not lead backwards."""
    order = (State.PENDING, State.STAGING, State.STARTING, State.RUNNING, State.STOPPING)
    told = {"claimed": State.STARTING, "running": State.RUNNING, "stopping": State.STOPPING}[phase]
    return told if later else max(state, told, key=order.index)


def _ended(run: Run, seen: Seen, newest: int, now: float, facts: dict) -> list[Action]:
    exit_ = seen.exit or {}
    reason = known_reason(exit_.get("reason"))
    used = seen.used_s or exit_.get("used_s") or run.used_s
    facts |= {"used_s": used, "evidence": evidence_of(exit_)}
    if _restarts(run, newest, reason, used):
        return _restart(run, newest, now, facts)
    facts |= _final(reason, facts["evidence"], exit_.get("ended_at") or now)
    facts["exit_code"] = exit_code(exit_)
    return [*_set(run, **facts), *_removal(run)]


def _restart(run: Run, newest: int, now: float, facts: dict) -> list[Action]:
    """Start it again in the place of the agent: once the pause is over."""
    planned = run.restart_at if run.state is State.STARTING and run.attempt == newest else None
    if planned is None:
        wait = min(BACKOFF_MAX_S, run.spec.backoff_s * 2 ** (newest - run.first_attempt))
        return _set(run, **facts, state=State.STARTING, restart_at=now + wait)
    if now < planned:
        return _set(run, **facts)
    return [*_set(run, **{**facts, **_TOLD, "attempt": newest + 1}), Action("start", {"started_at": now})]


def _restarts(run: Run, newest: int, reason: str, used: float) -> bool:
    """Whether the plane follows the restart policy: only where the agent could not do it itself."""
    alone = newest == run.settled_attempt or reason in SETTLED_REASONS
    known = REASONS.get(reason)
    if run.wish != WISH_RUN or not alone or known is None or not known.retry:
        return False
    time_left = run.limits.time_s is None or used < run.limits.time_s
    return time_left and newest - run.first_attempt < run.spec.restarts


def _never_begun(run: Run, newest: int, now: float) -> list[Action]:
    """Ended by a wish before its wanted attempt began."""
    facts = _final("stopped_by_user", {}, now) | {"attempt": newest}
    return [*_set(run, **facts), *_removal(run)]


def _stop(run: Run, facts: dict) -> list[Action]:
    if run.stop_sent >= run.stop_asked:
        return _set(run, **facts)
    return [*_set(run, **{**facts, "state": State.STOPPING}), Action("stop", {"stop_sent": run.stop_asked})]


def _removal(run: Run) -> list[Action]:
    return [Action("remove")] if run.wish == WISH_RM else []


def _final(reason: str, evidence: dict, now: float) -> dict:
    """Facts of a run that is final since `now`."""
    state = REASONS[reason].state if reason in REASONS else State.FAILED
    return {
        "state": state,
        "reason": reason,
        "ended_at": now,
        "exit_code": None,
        "evidence": evidence,
        "restart_at": None,
        "gpu_uuids": (),
    }


def _keep(run: Run, seen: Seen) -> dict:
    """A `keep` typed on the machine becomes the limits here, once, unless they were changed here since."""
    wish = seen.keep or {}
    at, seconds = wish.get("at") or 0.0, wish.get("time_s")
    if at <= run.kept_at or (wish.get("seq") or 0) < run.limits.seq:
        return {}
    return {
        "kept_at": float(at),
        "limits": Limits(seq=run.limits.seq + 1, time_s=None if seconds is None else float(seconds)),
    }


def _held(run: Run, seen: Seen) -> dict:
    """Which GPUs it has, where the row does not say (it was found again from its folder)."""
    found = tuple(g["uuid"] for g in (seen.telemetry or {}).get("gpus") or () if g.get("uuid"))
    return {"gpu_uuids": found} if run.gpus and not run.gpu_uuids and found else {}


def _set(run: Run, **facts: object) -> list[Action]:
    """Write those facts that are news."""
    news = {k: v for k, v in facts.items() if getattr(run, k) != v}
    return [Action("set", news)] if news else []


def evidence_of(exit_: dict) -> dict:
    """The evidence in an exit.json, as one dict."""
    extra = {k: exit_[k] for k in ("signal_name", "code", "leftovers", "gaps") if exit_.get(k)}
    if known_reason(exit_.get("reason")) == UNKNOWN:
        extra["reason_told"] = exit_["reason"]
    return {**extra, **(exit_.get("evidence") or {})}


def exit_code(exit_: dict) -> int | None:
    """The exit code as a shell reports it: 128 + signal number for a killed process."""
    if exit_.get("code") is not None:
        return int(exit_["code"])
    return 128 + int(exit_["signal"]) if exit_.get("signal") else None

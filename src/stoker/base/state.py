"""States and reasons as tables, with the sentence of each.
CLI, console, docs and the reconciler read them from here only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from stoker.base.units import format_size


class State(StrEnum):
    """State of a run. PENDING -> STAGING -> STARTING -> RUNNING -> STOPPING -> DONE | FAILED | STOPPED."""

    PENDING = "pending"
    STAGING = "staging"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def final(self) -> bool:
        """True if the run has ended and changes only when a user asks."""
        return self in FINAL

    @property
    def unfinished(self) -> bool:
        """True if the run ended without finishing, so `start` makes sense."""
        return self in (State.FAILED, State.STOPPED)


FINAL = frozenset({State.DONE, State.FAILED, State.STOPPED})
HOLDING = frozenset({State.STAGING, State.STARTING, State.RUNNING, State.STOPPING})  # these hold compute

STATE_SENTENCES = {
    State.PENDING: "waiting to start",
    State.STAGING: "preparing its files",
    State.STARTING: "starting, or waiting to restart",
    State.RUNNING: "running",
    State.STOPPING: "ending its processes and collecting its output",
    State.DONE: "finished with exit code 0",
    State.FAILED: "ended by an error, a signal or the machine",
    State.STOPPED: "ended by a user or a limit",
}


class Reachability(StrEnum):
    """Whether Stoker can reach the machine of the run. A machine that does not answer never changes the
    state of a run."""

    OK = "ok"
    UNREACHABLE = "unreachable"
    UNSEEN = "unseen"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reason:
    """Why a run is in its state.
    name: the word in JSON. state: the final state. sentence: the text for users; `{}` fields come from the
    evidence. retry: whether `--restarts` tries again. next: what to type next; `{id}` is the run."""

    name: str
    state: State
    sentence: str
    retry: bool
    next: str


REASONS: dict[str, Reason] = {
    r.name: r
    for r in (
        Reason("exited", State.DONE, "Finished successfully.", False, "stoker logs {id}"),
        Reason(
            "nonzero_exit",
            State.FAILED,
            "Failed with exit code {code}{error}.",
            True,
            "stoker logs --tail 40 {id}",
        ),
        Reason(
            "nothing_trained",
            State.FAILED,
            "Exited without an error, but trained nothing.",
            False,
            "stoker logs {id}",
        ),
        Reason(
            "host_oom",
            State.FAILED,
            "The machine ran out of memory; the kernel killed {who}.",
            False,
            "use less memory (smaller batch, fewer workers), then: stoker start {id}",
        ),
        Reason(
            "gpu_oom",
            State.FAILED,
            "The GPU ran out of memory.",
            False,
            "use a smaller batch, then: stoker start {id}",
        ),
        Reason("gpu_fault", State.FAILED, "The GPU or its driver failed.", True, "stoker doctor"),
        Reason("disk_full", State.FAILED, "The disk was full.", False, "stoker gc, then: stoker start {id}"),
        Reason(
            "killed",
            State.FAILED,
            "{killed} by {signal_name} (not sent by Stoker).",
            True,
            "stoker start {id}",
        ),
        Reason(
            "crashed",
            State.FAILED,
            "{crashed} with {signal_name}: a fault in compiled code, not a Python error.",
            True,
            "stoker logs --tail 40 {id}",
        ),
        Reason(
            "hangup", State.FAILED, "Killed by SIGHUP: its terminal was closed.", True, "stoker start {id}"
        ),
        Reason(
            "rebooted",
            State.FAILED,
            "The machine or its container restarted during the run.",
            True,
            "stoker start {id}",
        ),
        Reason(
            "preempted", State.FAILED, "The machine was reclaimed for other work.", True, "stoker start {id}"
        ),
        Reason(
            "stalled",
            State.FAILED,
            "Stalled: no step, output, read or write for {limit} (--stall): {place}.",
            False,
            "stoker logs --tail 40 {id}",
        ),
        Reason("stopped_by_user", State.STOPPED, "Stopped by you.", False, "stoker start {id}"),
        Reason(
            "limit_time",
            State.STOPPED,
            "Reached its time limit of {limit}.",
            False,
            "stoker keep {id} 2h, then: stoker start {id}",
        ),
        Reason("limit_idle", State.STOPPED, "Idle for longer than allowed.", False, "stoker start {id}"),
        Reason("limit_budget", State.STOPPED, "Reached its cost limit.", False, "stoker show {id}"),
        Reason("start_failed", State.FAILED, "Could not start: {detail}.", False, "stoker doctor"),
        Reason(
            "agent_lost",
            State.FAILED,
            "Stoker's processes for this run were killed, so the run ended too.",
            True,
            "stoker start {id}",
        ),
        Reason(
            "lost",
            State.FAILED,
            "The run folder is missing on the machine, so Stoker does not know why the run ended.",
            False,
            "stoker rm {id}",
        ),
    )
}

UNKNOWN = "unknown"  # what is told in the place of a reason that the table lacks
# (reason, kind in its evidence) -> sentence and what to type next, in place of the reason's own
KINDS: dict[tuple[str, str], tuple[str, str]] = {
    ("disk_full", "shm"): (
        "/dev/shm is full ({disk_size}).",
        "use fewer DataLoader workers or a larger --shm-size for the container, then: stoker start {id}",
    ),
    ("disk_full", "quota"): (
        "The disk quota is used up on {mount} ({path}).",
        "delete files there, then: stoker start {id}",
    ),
    ("disk_full", "inodes"): (
        "The file system {mount} has no free inodes ({inodes} in use): too many files.",
        "delete files on {mount}, then: stoker start {id}",
    ),
    ("disk_full", "disk"): (
        "The disk {mount} is full ({disk_free} of {disk_size} free).",
        "stoker gc, or delete files on {mount}, then: stoker start {id}",
    ),
    ("host_oom", "memory"): (
        "Used {used} of memory (limit: --memory {limit_size}); Stoker ended the run.",
        "use less memory (smaller batch, fewer workers), or run again with a larger --memory",
    ),
    ("host_oom", "cgroup"): (
        "Reached the memory limit of {limit_size} (cgroup); the kernel killed {who}.",
        "use less memory (smaller batch, fewer workers) or raise the limit, then: stoker start {id}",
    ),
}

SENTENCE_MESSAGE_MAX = 160
RETRY_REASONS = tuple(r.name for r in REASONS.values() if r.retry)
_PASSED_OVER = re.compile(  # lines that come after the one that matters
    r"(hint|help|note|usage|try|see|tip)\b|wandb:|.*resource_tracker|.*leaked "
    r"(semaphore|shared_memory)|\s*warnings\.warn\(|.*\d+%\|"
    r"|(make|ninja)(\[\d+\])?: (Leaving|\*\*\*)|\W*$",
    re.IGNORECASE,
)


def known_reason(told: object) -> str:
    """Return a reason from a file that the run may have written: a reason of the table, "agent_lost" if
    missing, else UNKNOWN."""
    if not told:
        return "agent_lost"
    return told if told in REASONS else UNKNOWN


def sentence(reason: str, evidence: dict) -> str:
    """The sentence for a reason, with the fields of its evidence; a missing field reads "unknown".

    Of the evidence it uses `code`, `signal_name`, `limit`, `detail` and `exception` (`{"type", "message",
    "file", "line", "rank"?}`); without an exception, the last meaningful line of `tail`. Others are
    optional: `oom_kill_before`, `oom_kill_after`, `disk_free_bytes`, `inodes_free`, `path`.
    """
    known = REASONS.get(reason)
    if known is None:
        return f"Ended for a reason that this version of Stoker does not know ({reason})."
    told, _ = KINDS.get((reason, str(evidence.get("kind"))), (known.sentence, ""))
    return told.format_map(_fields(evidence))


def what_next(reason: str, evidence: dict, run_id: str) -> str:
    """What to type next after a run ended with this reason."""
    known = REASONS.get(reason)
    if known is None:
        return f"stoker logs {run_id}"
    if reason == "start_failed" and evidence.get("hint"):
        return str(evidence["hint"])
    _, told = KINDS.get((reason, str(evidence.get("kind"))), ("", known.next))
    return told.format_map(_fields({**evidence, "id": run_id}))


def resuming(back: dict | None, attempt: int) -> str | None:
    """Progress of this attempt towards its image, from `back` in resume/state.json; None when it has
    reached the image."""
    if not back or back.get("attempt") != attempt or back.get("step") is None:
        return None
    if back.get("of") is None:
        return f"repeating the steps after the image, now at step {back['step']:,}"
    return f"resuming: step {back['step']:,} of {back['of']:,}"


def _fields(evidence: dict) -> dict:
    """The evidence, and what the sentences make of it: sizes for people, and which process is meant."""
    rank = evidence.get("rank")
    named = {"who": "a process of the run", "killed": "Killed", "crashed": "Crashed"}
    if rank is not None:
        named = {
            "who": f"rank {rank}",
            "killed": f"Rank {rank} was killed",
            "crashed": f"Rank {rank} crashed",
        }
    sizes = {
        name.replace("_bytes", "") + ("_size" if name in ("disk_bytes", "limit_bytes") else ""): format_size(
            value
        )
        for name, value in evidence.items()
        if name.endswith("_bytes") and isinstance(value, int | float)
    }
    told = {"error": _error(evidence), "place": "position not known", **named}
    return _Fields({**told, **sizes, **evidence})


def last_words(tail: object) -> str:
    """The most informative line at the end of a log: the last line that is not a hint, a progress bar or a
    rule. "" if there is none."""
    lines = tail if isinstance(tail, list) else str(tail or "").splitlines()
    said = [" ".join(str(line).split()) for line in lines]
    said = ["".join(c for c in line if c.isprintable()) for line in said if line]
    telling = [line for line in said if not _PASSED_OVER.match(line)]
    return (telling or [line for line in said if any(map(str.isalnum, line))] or [""])[-1]


def _error(evidence: dict) -> str:
    """The exception that ended a script in half a line, with the place to look at;
    else what was said last."""
    exception = evidence.get("exception")
    if not isinstance(exception, dict) or not exception.get("type"):
        return f"; {_said(evidence)}"
    message = " ".join(str(exception.get("message") or "").split())
    text = f"{exception['type']}: {message[:SENTENCE_MESSAGE_MAX]}".rstrip(": .")
    if exception.get("file"):
        text += f" ({str(exception['file']).rsplit('/', 1)[-1]}, line {exception.get('line')})"
    if exception.get("rank") is not None:
        text = f"rank {exception['rank']} failed with {text}"
    return f": {text}"


def _said(evidence: dict) -> str:
    """Without an exception. A log that is there and empty is told apart from one that nobody could read."""
    words = last_words(evidence.get("tail"))
    if words:
        cut = words if len(words) <= SENTENCE_MESSAGE_MAX else words[:SENTENCE_MESSAGE_MAX - 3] + "..."
        return f'last output: "{cut}"'
    return "no output" if "tail" in evidence else "last output not known"


class _Fields(dict):
    def __missing__(self, key: str) -> str:
        return "unknown"


EXIT_NOTHING_TRAINED, EXIT_LIMIT, EXIT_NOT_TUNED = 7, 8, 9
EXIT_CODES = {
    0: "done",
    1: "Stoker itself failed",
    2: "invalid request (a wrong option, value or file)",
    3: "no such run, machine or file",
    4: "not allowed",
    5: "the machine could not carry out the request",
    6: "the state of the run does not allow the command",
    7: "`stoker run --strict`: the run ended without an error, but trained nothing",
    8: "`stoker tune --fail-if`: the condition is true",
    9: "`stoker tune`: tuning was not possible; the message says why",
    125: "`stoker run`: Stoker failed before the run had an exit code",
    130: "you pressed Ctrl-C while Stoker was waiting",
}

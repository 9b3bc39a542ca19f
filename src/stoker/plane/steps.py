"""What the clock in a training tells: steps and samples a second, epochs, where the time goes, what is left.
And whether anything was trained at all. Pure, but for the reads."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

from stoker.base import reading, rundir

BYTES_READ = 4 << 20  # of the end of steps.jsonl, which grows by some 3 MB a week
LIST_BYTES_READ = 128 << 10  # of the same file, for a list of runs
RECENT_S = 60.0  # what "now" is
EPOCHS_KEPT = 5
# of a line: the part of its steps that take at most this
SPREAD = (("p50_ms", 0.5), ("p90_ms", 0.9), ("max_ms", 1.0))
HALVINGS = 60


def read(attempt_folder: Path, last_bytes: int = BYTES_READ) -> list[dict]:
    """The valid lines of steps.jsonl, from its last 4 MB."""
    return list(reading.read_lines(attempt_folder / rundir.STEPS, last_bytes))


def progress(attempt_folder: Path, before: int = 0) -> dict | None:
    """`{"step", "steps_s", "done", "eta_s"}` for a list of runs, from the end of steps.jsonl; None if no
    step was made. A run that makes no steps now has no rate and no remaining time."""
    told = summary(read(attempt_folder, LIST_BYTES_READ), before)
    if told and (attempt_folder / rundir.STILL).exists():
        told |= {"steps_s": None, "eta_s": None}
    return told and {name: told[name] for name in ("step", "steps_s", "done", "eta_s")}


def summary(lines: list[dict], before: int = 0) -> dict | None:
    """The training in `show`; None if no step was made. For several ranks: of the first rank.
    before: steps of earlier attempts that an exact resume continues; they count as steps.
    `{"step", "before", "ranks", "steps_s", "samples_s", "setup_s", "first_s", "p50_ms", "p90_ms", "max_ms",
    "split": {kind: share}, "seconds", "epochs", "epoch_s", "batch", "of", "eta_epoch_s", "done", "eta_s",
    "gpu": {kind: share}}`; unknown values are None."""
    by_process: dict[int, list[dict]] = {}
    for line in lines:
        by_process.setdefault(line.get("pid", 0), []).append(line)
    trained = {pid: own for pid, own in by_process.items() if own[-1].get("step")}
    if not trained:
        return None
    own = min(trained.values(), key=lambda each: (_rank(each), -each[-1]["step"]))
    first, steady = [x for x in own if x.get("first")], [x for x in own if not x.get("first")]
    now = _recent(steady)
    last, epochs = own[-1], [epoch for line in own for epoch in line.get("epochs") or ()]
    rate = _rate(now, "steps")
    known = statistics.median(epoch["s"] for epoch in epochs[-EPOCHS_KEPT:]) if epochs else None
    return {
        "step": last["step"] + before,
        "before": before,
        "ranks": len(trained),
        "at": last.get("at"),
        "steps_s": rate,
        "samples_s": _rate(now, "samples"),
        "setup_s": first[0].get("setup_s") if first else None,
        "first_s": first[0].get("s") if first else None,
        "p50_ms": _quantile(now, 0.5),
        "p90_ms": _quantile(now, 0.9),
        "max_ms": max((x["max_ms"] for x in now if x.get("max_ms") is not None), default=None),
        "seconds": round(sum(x.get("s", 0) for x in steady), 3),
        "split": shares(steady, "ms"),
        "gpu": shares(steady, "gpu_ms") or None,
        "epochs": len({epoch.get("step") for epoch in epochs}),
        "epoch_s": known,
        "batch": last.get("batch"),
        "of": last.get("of"),
        "eta_epoch_s": _left(last, now),
        **_whole(own),
    }


def shares(lines: list[dict], field: str) -> dict[str, float]:
    """Kind -> its share of the time, the largest first."""
    total: dict[str, float] = {}
    for line in lines:
        for kind, ms in (line.get(field) or {}).items():
            total[kind] = total.get(kind, 0.0) + ms
    whole = sum(total.values())
    return (
        {kind: round(ms / whole, 5) for kind, ms in sorted(total.items(), key=lambda each: -each[1])}
        if whole > 0
        else {}
    )


def trained_nothing(lines: list[dict], processes: list[dict]) -> str | None:
    """Why a successful run trained nothing, in half a sentence; None if it trained, was not meant to train,
    or this is not known.
    lines: of steps.jsonl; processes: of processes.jsonl. All processes are considered: a launcher of ranks
    has no optimizer, and a script that only evaluates is not a training."""
    if any(line.get("step") for line in lines):
        return None
    ended = [line for line in processes if "ended" in line]
    meant = [line for line in ended if line.get("optimizers") or line.get("loaders")]
    if not meant and any(line.get("no_ranks") for line in ended):
        return "the script started 0 ranks (torch.multiprocessing.spawn with nprocs=0; is there a GPU?)"
    if not meant or any(line["ended"] or line.get("evaluated") for line in ended):
        return None
    if any(line.get("backward") for line in meant):
        return "gradients were computed, but no optimizer made a step"
    if any(line.get("batches") for line in meant):
        return (
            "batches were read, but no optimizer made a step"
            if any(line.get("optimizers") for line in meant)
            else None
        )
    if any(line.get("optimizers") for line in meant):
        return "an optimizer was created, but made no step"
    return "a DataLoader was created, but no batch was read"


def _rank(lines: list[dict]) -> int:
    rank = lines[-1].get("rank")
    return rank if isinstance(rank, int) else 0


def _recent(lines: list[dict]) -> list[dict]:
    """The last minute of them, at least one."""
    seconds, chosen = 0.0, []
    for line in reversed(lines):
        chosen.append(line)
        seconds += line.get("s", 0)
        if seconds >= RECENT_S:
            break
    return chosen


def _training_s(lines: list[dict]) -> float:
    return sum(line.get("s", 0) - (line.get("ms") or {}).get("evaluation", 0) / 1000 for line in lines)


def _rate(lines: list[dict], field: str) -> float | None:
    """So many a second, evaluation left out."""
    seconds, count = _training_s(lines), sum(line.get(field) or 0 for line in lines)
    return round(count / seconds, 3) if seconds > 0 and count else None


def _quantile(lines: list[dict], share: float) -> float | None:
    """The time that `share` of all steps take at most.
    Each line tells it of its own steps, as p50, p90 and max;
    between these, steps are taken as evenly spread. A line counts as often as it has steps."""
    spreads = [((0.0, 0.0), *((line[name], part) for name, part in SPREAD), line["steps"]) for line in lines
               if line.get("steps") and all(line.get(name) is not None for name, _ in SPREAD)]
    if not spreads:
        return None
    wanted = share * sum(steps for *_, steps in spreads)
    low, high = 0.0, max(slowest for *_, (slowest, _), _ in spreads)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sum(steps * _below(points, middle) for *points, steps in spreads) < wanted:
            low = middle
        else:
            high = middle
    return round(high, 4)


def _below(points: list[tuple[float, float]], ms: float) -> float:
    """The part of a line's steps that take at most `ms`."""
    for (before, less), (after, more) in itertools.pairwise(points):
        if ms < after:
            return less + (more - less) * (ms - before) / (after - before)
    return 1.0


def _whole(lines: list[dict]) -> dict[str, float | None]:
    """The part of the training that is done, and seconds to its end at the pace it has had:
    an early end of the script's own would come sooner."""
    known: list[dict] = []
    for line in lines:
        if line.get("done") is None or line.get("at") is None:
            continue
        if known and line["done"] < known[-1]["done"]:
            known.clear()  # another training, one after the other
        known.append(line)
    if not known:
        return {"done": None, "eta_s": None}
    first, last = known[0], known[-1]
    gone, took = last["done"] - first["done"], last["at"] - first["at"]
    return {
        "done": last["done"],
        "eta_s": round((1 - last["done"]) * took / gone, 1) if gone > 0 and took > 0 else None,
    }


def _left(last: dict, now: list[dict]) -> float | None:
    """Seconds to the end of the pass that goes on, where its length is known."""
    rate = _rate(now, "batches")
    if not rate or not last.get("of") or last.get("batch") is None or last["batch"] >= last["of"]:
        return None
    return round((last["of"] - last["batch"]) / rate, 1)

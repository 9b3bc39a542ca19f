"""Why a step waits for its input: samples, collate, storage, workers;
and what is wrong with the data itself. Pure.

The whole stall is measured by differencing;
which part of the loader it belongs to comes from samples made one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker.tune.findings import Cause, Range
from stoker.tune.reading import Reading
from stoker.tune.view import View

WORTH_KEEPING_S = 3e-5  # a sample that is made faster than this is in memory already
_SLOW = 4.0  # a sample so many times slower than the middle one is slow
_WAITS = 0.6  # from this part on, a sample waits rather than works


def causes(view: View, reading: Reading) -> Iterator[Cause]:
    """Causes on the side of the data."""
    yield from _wrong(view, reading)
    stall = waited(view)
    if stall is None or stall.value <= 0 or view.loader is None:
        return
    yield from _of_workers(view, stall)
    starting = starts(view)
    rest = Range(
        max(0.0, stall.value - starting), max(0.0, stall.low - starting), max(0.0, stall.high - starting)
    )
    yield from _of_samples(view, reading, rest)


def waited(view: View) -> Range | None:
    """The part of the step that goes with the input: by differencing;
    where that was not measured, by the clock."""
    if view.stall is not None:
        return view.stall
    share = view.clock_share("data", "start")
    return Range(share, 0.8 * share, share) if view.clock else None


def starts(view: View) -> float:
    """The part of the step that goes with starting workers (and their first batch)."""
    return view.clock_share("start") if view.workers else 0.0


def _where(view: View) -> tuple[str, int]:
    """File and line of the training loader, out of its id "train.py:40#0"."""
    file, _, rest = str((view.loader or {}).get("id") or "").rpartition(":")
    number = rest.partition("#")[0]
    return (file, int(number)) if number.isdigit() else ("", 0)


# --- wrong data
# ------------------------------------------------------------------------------------------------------------

def _wrong(view: View, reading: Reading) -> Iterator[Cause]:
    loader = view.loader or {}
    if loader.get("duplicates"):
        n = view.workers
        yield Cause(
            "duplicates",
            f"Each of {n} workers returns the whole stream, so an epoch contains each sample {n} times.",
            None,
            "counted",
            *_where(view),
        )
    lint = reading.lint("unshuffled")
    in_order = str(loader.get("sampler") or "") == "SequentialSampler" and not view.dataset.get("iterable")
    place = (lint.file, lint.lines[0]) if lint else _where(view)
    if in_order and loader.get("labels_sorted"):
        yield Cause(
            "unshuffled", "The training data is unshuffled and sorted by class.", None, "counted", *place
        )
    elif in_order and lint and loader.get("labels_sorted") is None:
        yield Cause("unshuffled", "The sample order is the same in each epoch.", None, "read", *place)


# --- workers
# ------------------------------------------------------------------------------------------------------------

def _of_workers(view: View, stall: Range) -> Iterator[Cause]:
    n = view.workers
    if not n:
        return
    starting = starts(view)
    if _locked(view, n):
        by_workers = rates(view)
        one, many = by_workers.get(1), max((r for w, r in by_workers.items() if w > 1), default=None)
        seen = (
            f": {max(by_workers)} workers reach {many / one:.0%} of the rate of a single worker"
            if one and many
            else ""
        )
        yield Cause(
            "worker_lock", f"The workers wait for each other{seen}.", stall, "differencing", *_where(view)
        )
    elif n > view.cores and _crowded(view, n):
        yield Cause(
            "too_many_workers",
            f"{n} workers share {view.cores:g} cores: starting and switching the workers costs "
            f"{stall.value:.0%} of the step.",
            stall,
            "differencing",
            *_where(view),
        )
    elif starting and not (view.loader or {}).get("persistent"):
        took = (view.loader or {}).get("start_s")
        yield Cause(
            "worker_start",
            f"The {n} workers are restarted in each epoch{f' ({took:.2g} s per restart)' if took else ''}. "
            f"The restarts take {starting:.0%} of the time.",
            Range(starting, 0.8 * starting, min(1.0, stall.high)),
            "clock",
            *_where(view),
        )


def rates(view: View) -> dict[int, float]:
    """Samples/s of the loader alone, by workers."""
    return {int(d["workers"]): float(d["rate"]) for d in view.facts.get("alone") or [] if d.get("rate")}


def _crowded(view: View, n: int) -> bool:
    """More workers than cores, and they do not wait for storage (then they would be of use)."""
    work, wait = view.per_sample("cpu_s"), view.per_sample("wait_s")
    if work is None:
        return True
    if (wait or 0) >= _WAITS * (work + (wait or 0)) and (wait or 0) * (view.batch or 1) >= 1e-3:
        return False
    whole, compute, model = view.step_s("R0"), view.step_s("R1"), view.loader_model
    if not whole or not compute or model is None:
        return True
    measured = [
        r.value for p in view.phases if p.startswith("workers=") and int(p[8:]) < n and (r := view.ratio(p))
    ]
    fewer = (
        min(model.step_s(k, compute, view.per_step("R1", "cpu_s")) for k in range(round(view.cores) + 1))
        / whole
    )
    return min([fewer, *measured]) < 0.85


def _locked(view: View, n: int) -> bool:
    """Two at once take twice as long, or more workers bring nothing, though there are cores for them."""
    took = ((view.per_sample("cpu_s") or 0) + (view.per_sample("wait_s") or 0)) * (view.batch or 1)
    if n < 2 or took < 0.1 * (view.step_s("R0") or 0):
        return False
    alone, beside = view.samples.get("again_s"), view.samples.get("beside_s")
    work, wait = view.per_sample("cpu_s") or 0.0, view.per_sample("wait_s") or 0.0
    slower = alone and beside and beside >= 1.6 * alone
    waits = wait >= _WAITS * (work + wait)
    by_workers = rates(view)
    flat = (
        len(by_workers) > 1
        and 1 in by_workers
        and max(r for w, r in by_workers.items() if w > 1) < 1.25 * by_workers[1]
    )
    return bool(waits and (slower or flat)) or bool(slower and flat and view.cores >= 2)


# --- samples
# ------------------------------------------------------------------------------------------------------------

def _of_samples(view: View, reading: Reading, stall: Range) -> Iterator[Cause]:
    work, wait, collate = (view.per_sample(f) for f in ("cpu_s", "wait_s", "collate_s"))
    if work is None:
        yield from _by_window(view, stall)
        return
    wait, collate = wait or 0.0, collate or 0.0
    sample, batch = work + wait, view.batch or 1
    whole = max(sample + collate, 1e-12)
    if step := view.own_step_s:  # what was measured by itself bounds what may be said of it
        most = 2 * whole * batch / step
        stall = Range(min(stall.value, most), min(stall.low, most), min(stall.high, max(most, stall.value)))
    place = _where(view)
    if (slow := _slow_part(view)) > 0.5:
        p50, longest = view.samples.get("p50_s") or 0, view.samples.get("max_s") or 0
        text = (
            f"Most samples take {p50 * 1e3:.2g} ms, a few samples take up to {longest * 1e3:.3g} ms. The "
            "batch waits for these samples."
        )
        yield Cause("slow_sample", text, _part(stall, slow * sample / whole), "differencing", *place)
        return
    if collate > sample:
        text = (
            f"Collating a batch takes {collate * batch * 1e3:.3g} ms; preparing the samples of the batch "
            f"takes {sample * batch * 1e3:.3g} ms."
        )
        yield Cause("collate", text, _part(stall, collate / whole), "differencing", *place)
    if wait >= _WAITS * sample:
        yield Cause(
            "storage",
            (
                f"A sample takes {wait * 1e3:.3g} ms of waiting and {work * 1e3:.2g} ms of work: "
                "the storage is slow."
            ),
            _part(stall, sample / whole),
            "differencing",
            *place,
        )
        return
    share = _part(stall, sample / whole)
    each = f"{sample * 1e3:.3g} ms per sample, {sample * batch * 1e3:.3g} ms per batch"
    if sample >= WORTH_KEEPING_S and repeats(view, reading):
        text = f"Each epoch prepares the same samples again: {each}."
        yield Cause("repeated_work", text, share, "differencing", *place)
        return
    text = f"Preparing the samples takes {share.value:.0%} of the step: {each}."
    yield Cause("sample_work", text, share, "differencing", *place)


def _by_window(view: View, stall: Range) -> Iterator[Cause]:
    """Where no sample could be made by itself: did the main process work while it waited for the data?"""
    whole, cpu, stolen = (
        view.step_s("R0"),
        view.per_step("R0", "cpu_s"),
        view.per_step("R0", "stolen_s") or 0.0,
    )
    if view.workers or not whole or cpu is None or stall.value < 0.3:
        return
    busy = (cpu + stolen) / whole
    if busy < 1 - _WAITS * stall.value:
        yield Cause(
            "storage",
            f"Loading data takes {stall.value:.0%} of the step, but the process computes for only "
            f"{cpu / whole:.0%} "
            "of this time: the storage is slow.",
            stall,
            "differencing" if view.stall else "clock",
            *_where(view),
        )
    else:
        yield Cause("sample_work", f"Loading the batch takes {stall.value:.0%} of the step.", stall,
                    "differencing" if view.stall else "clock", *_where(view))


def _slow_part(view: View) -> float:
    """The part of the samples' time that a few slow ones take."""
    n, p50, p90, longest = (view.samples.get(k) for k in ("n", "p50_s", "p90_s", "max_s"))
    work, wait = view.per_sample("cpu_s"), view.per_sample("wait_s")
    if not n or p50 is None or longest is None or work is None or longest < _SLOW * max(p50, 1e-5):
        return 0.0
    mean = work + (wait or 0.0)
    if not view.workers and (mean - p50) * (view.batch or 1) < 0.05 * (view.step_s("R0") or 0):
        return 0.0  # one that was cold
    if p90 is not None and p90 > _SLOW * max(p50, 1e-5):
        return 0.0  # not a few
    return max(0.0, 1 - p50 / mean) if mean else 0.0


def repeats(view: View, reading: Reading) -> bool:
    """True where a sample is surely the same each time, and will be needed again."""
    same = view.samples.get("same")
    again, n = view.samples.get("again_s"), view.samples.get("n")
    first = (view.per_sample("cpu_s") or 0) + (view.per_sample("wait_s") or 0)
    kept = again is not None and n and first and again / n < 0.3 * first  # the data set keeps what it made
    return (
        bool(same)
        and not kept
        and (reading.epochs or ((view.loader or {}).get("passes") or 0) > 1)
        and not view.dataset.get("iterable")
    )


def _part(whole: Range, part: float) -> Range:
    return Range(whole.value * part, whole.low * part, whole.high * part)

"""What could be changed in a training while it runs: each can be turned on and off between any two steps."""

from __future__ import annotations

import math
import sys

from . import feed, look, order

WORKERS_MAX = 3  # numbers of workers that are tried


class Change:
    """One change. `on()` gives "" or why not, as `fits()` does before; `off()` puts back what it was."""

    def __init__(self, phase: str, on: object, off: object, against: str = "R0", fits: object = str) -> None:
        self.phase, self.on, self.off, self.against, self.fits = phase, on, off, against, fits


def wanted(word: str) -> bool:
    """Whether the order asks for it; without a list for everything."""
    words = order.order.get("try") or ()
    return not words or any(str(each).partition("=")[0] == word for each in words)


# ---- the input

def feeding(stall: float, compute_s: float) -> list:
    """Changes of what feeds the training: other numbers of workers, other ways to make a batch, and the
    loader at work unused."""
    line = feed.main()
    loader = line.loader() if line is not None else None
    if loader is None:
        return []
    found = []
    if wanted("batched"):
        found.append(_fed(line, "batched"))
    if wanted("workers") and order.facts.get("samples", {}).get("apart") is not False:
        found += [_workers(line, each) for each in counts(line, loader, compute_s)]
    if wanted("cache"):
        found.insert(min(2, len(found)), _fed(line, "cache"))
    if line.workers and line.ring.usable:
        found.append(Change("R4", lambda: _source(line, feed.BOTH), lambda: None))
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized() and line.ring.usable:
        found.insert(0, _on_device())
    return found


def counts(line: object, loader: object, compute_s: float) -> list:
    """Numbers of workers that are worth a try: the smallest that should be fast enough first."""
    cores, own = look.cores(), line.workers
    told = order.facts.get("samples", {})
    each = (told.get("cpu_s", 0.0) + told.get("wait_s", 0.0) + (told.get("collate_s") or 0.0)) / max(
        1, told.get("n", 1)
    )
    need = math.ceil(1.1 * each * (loader.batch_size or 1) / compute_s) if compute_s and each else 1
    waits = told.get("wait_s", 0.0) > told.get("cpu_s", 0.0)
    most = 4 * cores if waits else cores
    best = max(1, min(need, most))
    found = (
        [best, 0, min(most, 2 * best), max(1, best // 2), cores]
        if own
        else [best, min(most, 2 * best), max(1, best // 2), cores]
    )
    return [each for each in dict.fromkeys(found) if each != own][:WORKERS_MAX]


def _workers(line: object, workers: int) -> Change:
    def on() -> str:
        return _beside(line, workers=workers)
    return Change(f"workers={workers}", on, line.close_side)


def _fed(line: object, how: str) -> Change:
    def on() -> str:
        return _beside(line, workers=0, feed=how)
    return Change(how, on, line.close_side)


def _beside(line: object, **changes: object) -> str:
    """Feed this line from a sibling of its loader."""
    from ..settings import loaders
    loader = line.loader()
    if loader is None:
        return "the script no longer uses this loader"
    try:
        line.sibling = loaders.sibling(loader, **changes)
    except (loaders.Unfit, TypeError, ValueError, AttributeError) as e:
        return str(e) or type(e).__name__
    return _source(line, feed.SIDE)


def _source(line: object, source: str) -> str:
    for each in feed.training():
        each.source = source if each is line or source == feed.BOTH else feed.REAL
    return ""


def _on_device() -> Change:
    """R2: batches that lie on the device already, beside those from memory."""
    device = next(
        (
            p.device
            for each in _optimizers()
            for group in each.param_groups
            for p in group["params"]
            if p.is_cuda
        ),
        None,
    )

    def on() -> str:
        if device is None:
            return "Stoker could not find the device of the model"
        for line in feed.training():
            line.hosted = line.ring.batches
            line.ring.on(device)
            line.source = feed.RING
        return ""

    def off() -> None:
        for line in feed.training():
            line.ring.batches = getattr(line, "hosted", line.ring.batches)
    return Change("R2", on, off, against="R1")


def _optimizers() -> list:
    from ..settings import knobs
    return knobs.optimizers()


# ---- the computation

def computing(memory: bool) -> list:
    """Changes of how the training computes; with `memory` also twice the batch."""
    from ..settings import knobs
    torch = sys.modules["torch"]
    found = []
    if torch.is_anomaly_enabled():
        found.append(_calm(torch))
    threads, cores = torch.get_num_threads(), look.cores()
    if wanted("bf16"):
        found.append(_knob("bf16", knobs.precision, "bf16"))
    if wanted("channels_last"):
        found.append(_last(knobs.channels_last))
    if wanted("threads"):
        found += [
            _knob(f"threads={n}", knobs.threads, n)
            for n in dict.fromkeys((cores, max(1, cores // 2)))
            if n != threads
        ]
    if wanted("fused"):
        found.append(_knob("fused", knobs.fused, True))
    words = [str(each).partition("=")[0] for each in order.order.get("try") or ()]
    found.sort(
        key=lambda change: words.index(word) if (word := change.phase.partition("=")[0]) in words else -1
    )
    line = feed.main()
    if memory and line is not None and len(feed.training()) == 1:
        found.append(_twice(line))
    return found


def _knob(phase: str, knob: object, value: object) -> Change:
    return Change(phase, lambda: knob.on(value), knob.off, fits=lambda: knob.fits(value))


def _last(knob: object) -> Change:
    """channels_last. A script that uses channels_last already is left alone: turned off, the knob would leave
    the filters in the other format."""
    def fits() -> str:
        return knob.fits(True) or {
            True: "the model already uses channels_last",
            None: "the filters and inputs of the convolutions are the same in both memory formats",
        }.get(knob.by_script(), "")
    return Change("channels_last", lambda: knob.on(True), knob.off, fits=fits)


def _calm(torch: object) -> Change:
    def on() -> str:
        order.facts["anomaly_was"] = True
        torch._C._set_anomaly_enabled(False)
        return ""
    return Change("anomaly=off", on, lambda: torch._C._set_anomaly_enabled(True))


def _twice(line: object) -> Change:
    """Two batches from memory as one: what a step costs by its size."""
    one = line.ring

    def on() -> str:
        twice = one.doubled()
        if twice is None:
            return "two batches cannot be concatenated"
        line.ring, line.source = twice, feed.RING
        return ""

    def off() -> None:
        line.ring = one
    return Change("batch=2x", on, off, against="R1")

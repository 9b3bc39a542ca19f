"""Why a step takes as long as it does: one row a cause,
each with the share of the step that it explains. Pure.

A cause is named only where it explains a tenth of the step, by differencing, by the clock or by the sampler;
wrong data need no clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from stoker.tune import costs, feeding
from stoker.tune.findings import Cause, Range
from stoker.tune.reading import Reading
from stoker.tune.view import View

LEAST = 0.10  # of the step: what explains less is not named
LEAK = 64 << 10  # bytes a step
# elements a parameter, rows: from there on products are bound by arithmetic
LARGE_MATRIX, LARGE_BATCH = 2e5, 128
NOISY = 0.10  # of the step with others on the cores: a slope over time says nothing then
# so much of the step others may have the cores before it is called a cause; a little is everyday
CROWDED = 0.15

CAUSES = {
    "sample_work": "preparing the samples, in Python or a decoder, takes a large part of the step",
    "repeated_work": "the same sample is computed again in each epoch, although the sample is not random",
    "collate": "collating a batch takes longer than preparing its samples",
    "storage": "reading waits for the storage, not for the CPU",
    "slow_sample": "a few samples are much slower than the other samples, and the batch waits for these "
                   "samples",
    "worker_lock": "the workers wait for each other",
    "too_many_workers": "there are more workers than cores, which costs more time than the workers save",
    "worker_start": "the workers are restarted in each epoch",
    "duplicates": "every worker returns the whole stream, so an epoch contains each sample several times",
    "unshuffled": "one branch of the code trains on unshuffled data",
    "threads": "there are more threads than cores",
    "neighbour": "another process uses the cores",
    "sync": "the host waits for the device in each step",
    "ping_pong": "tensors are copied to the host and back within a step",
    "cleanup": "a call such as empty_cache() or gc.collect() runs in each step",
    "logging": "the script prints or logs too often",
    "checkpoint": "the script saves checkpoints too often",
    "validation": "validation runs too often inside the training loop",
    "tiny_batch": "the batch is so small that the fixed cost of a step dominates",
    "precision": "float32 is used where a shorter format is faster on this machine",
    "double": "float64 is used although float32 is enough",
    "memory_format": "convolutions use NCHW where channels_last is faster on this machine",
    "layout": "tensors are copied to another layout repeatedly",
    "graph_kept": "the autograd graphs of earlier steps are not released: memory use and step time grow",
    "per_parameter": "a Python loop runs over the parameters in each step",
    "optimizer": "the optimizer processes many small parameters one by one",
    "zero_grad": "gradients are filled with zeros instead of being released",
    "time_loop": "a Python loop runs over time steps instead of one call",
    "padding": "long and short samples share a batch, so a large part of the batch is padding",
    "replicas": "the model is copied and its outputs are gathered in each step",
    "anomaly": "a debugging mode is on",
    "memory_jump": "memory use jumps after the first backward, when the optimizer creates its state",
}
_WRONG_DATA = ("duplicates", "unshuffled")  # no clock shows them, and they come before all speed
# the cure changes what is learned: it counts for less beside one that does not
_OTHER_MATHS = {"precision": 0.25, "tiny_batch": 0.25}


def find(view: View, reading: Reading) -> tuple[Cause, ...]:
    """All causes, the first that to begin with:
    wrong data, then by the share that is to be won, less for other maths."""
    found = list(_all(view, reading))
    timed = [(c, c.share.value) for c in found if c.share is not None and c.share.value >= LEAST]
    others = [c for c in found if c.share is None]
    best: dict[str, tuple[Cause, float]] = {}
    for cause, share in timed:
        if cause.name not in best or share > best[cause.name][1]:
            best[cause.name] = cause, share
    largest = sorted(best.values(), key=lambda pair: -pair[1] * _OTHER_MATHS.get(pair[0].name, 1.0))
    ranked = [cause for cause, _ in largest]
    first = [c for c in others if c.name in _WRONG_DATA and c.measured == "counted"]
    # memory: before what only other maths would win
    counted = [c for c in others if c not in first and c.measured != "read"]
    split = next((i for i, c in enumerate(ranked) if c.name in _OTHER_MATHS), len(ranked))
    return (*first, *ranked[:split], *counted, *ranked[split:], *(c for c in others if c.measured == "read"))


def _all(view: View, reading: Reading) -> Iterator[Cause]:
    yield from feeding.causes(view, reading)
    yield from costs.causes(view, reading)
    yield from _machine(view)
    yield from _compute(view, reading)
    yield from _memory(view)


# --- the machine
# ------------------------------------------------------------------------------------------------------------

def _machine(view: View) -> Iterator[Cause]:
    if (foreign := view.foreign) >= CROWDED:
        who = view.card.get("now", {}).get("who") or []
        names = ", ".join(f"{name} ({cores:.1f} cores)" for name, cores in who[:3])
        yield Cause(
            "neighbour",
            f"Another process uses the cores for {foreign:.0%} of the step{': ' + names if names else ''}.",
            _about(foreign),
            "counted",
        )
    threads = int(view.facts.get("threads") or 0)
    if threads > view.cores:
        fewer = [
            (r, p)
            for p in view.phases
            if p.startswith("threads=") and int(p[8:]) < threads and (r := view.ratio(p))
        ]
        if fewer:
            ratio, phase = min(fewer, key=lambda f: f[0].value)
            yield Cause(
                "threads",
                f"torch computes with {threads} threads on {view.cores:g} cores; "
                f"with {phase[8:]} threads, a step "
                f"takes {ratio.value:.0%} of its current time.",
                gained(ratio),
                "differencing",
            )


# --- the computation
# ---------------------------------------------------------------------------------------------------------

def _compute(view: View, reading: Reading) -> Iterator[Cause]:
    yield from _format(view)
    yield from _anomaly(view, reading)
    yield from _graph(view, reading)
    yield from _padding(view)
    yield from _tiny(view)
    yield from _optimizer(view)


def _optimizer(view: View) -> Iterator[Cause]:
    fused, tensors = (
        view.computed("fused"),
        sum(int(o.get("tensors") or 0) for o in view.facts.get("optimizers") or []),
    )
    stepping = [
        line.own for line in view.lines if line.call.endswith(".step") and line.kind in ("optimizer", "other")
    ]
    share = sum(stepping) if view.sampled else view.clock_share("optimizer")
    known = all(o.get("fused") or o.get("foreach") for o in view.facts.get("optimizers") or [])
    if tensors >= costs.MANY_TENSORS and fused is None and not known and share >= LEAST:
        yield Cause(
            "optimizer",
            f"The optimizer processes {tensors} tensors one by one. This takes {share:.0%} of the step.",
            Range(0.7 * share, 0.3 * share, 0.9 * share),
            "sampler" if view.sampled else "clock",
        )
    if tensors >= costs.MANY_TENSORS and fused and share >= LEAST:
        won = min(1 - fused.value, share)
        yield Cause(
            "optimizer",
            f"The optimizer processes {tensors} tensors one by one. This takes {share:.0%} of the step; "
            "with a fused optimizer, a step takes "
            f"{fused.value:.0%} of its current time.",
            Range(won, min(won, 1 - fused.high), max(won, 1 - fused.low)),
            "differencing",
        )


def _format(view: View) -> Iterator[Cause]:
    dtype = str(view.model.get("dtype") or "")
    computing = view.clock_share("forward", "backward", "optimizer")
    if "float64" in dtype or "double" in dtype:
        won = computing * 0.4
        yield Cause(
            "double",
            (
                "The model computes in float64, which takes about twice as long as float32. Computing "
                f"takes {computing:.0%} of the step."
            ),
            _about(won),
            "counted",
        )
        return
    half = view.computed("bf16")
    if half and not _fails_in_half(view):
        yield Cause(
            "precision",
            f"In bfloat16, a step takes {half.value:.0%} of its current time on this machine.",
            gained(half),
            "differencing",
        )
    elif half is None and (forecast := shorter(view)) is not None:
        text = (
            "The model computes large matrix products in float32. In bfloat16, matrix products are "
            f"{matmul_gain(view):.1f} times as fast on this machine (forecast)."
        )
        yield Cause("precision", text, gained(forecast), "forecast")
    last = view.computed("channels_last")
    if last and view.model.get("conv2d") and not view.no_channels_last:
        yield Cause(
            "memory_format",
            f"With channels_last, a step takes {last.value:.0%} of its current time.",
            gained(last),
            "differencing",
        )


def shorter(view: View) -> Range | None:
    """Step time in bfloat16 over that in float32, forecast by the machine card for a model of large matrix
    products; None elsewhere."""
    gain, tensors = matmul_gain(view), int(view.model.get("tensors") or 0)
    large = (
        tensors
        and int(view.model.get("params") or 0) / tensors >= LARGE_MATRIX
        and (view.batch or 0) >= LARGE_BATCH
    )
    if (
        not gain
        or gain < 1.3
        or not large
        or str(view.model.get("dtype") or "") not in ("float32", "torch.float32")
    ):
        return None
    share = view.clock_share("forward", "backward")
    # formats are changed on the way, and not all is a product
    value = 1 - share + share / min(3.0, 1 + 0.6 * (gain - 1))
    return Range(value, max(0.3, value - 0.2), 1 - 0.5 * (1 - value))


def matmul_gain(view: View) -> float | None:
    """How much faster a product of matrices is in bfloat16, by the card."""
    card = view.card.get("gpu_matmul" if view.facts.get("cuda") else "matmul") or {}
    return card["bf16"] / card["float32"] if card.get("bf16") and card.get("float32") else None


def _fails_in_half(view: View) -> bool:
    half = view.facts.get("bf16") or {}
    return half.get("finite") is False or (half.get("cosine") is not None and half["cosine"] < 0.99)


def _anomaly(view: View, reading: Reading) -> Iterator[Cause]:
    if not view.flags.get("anomaly"):
        return
    without = view.ratio("anomaly=off")
    where = reading.debugs or ("", 0)
    text = (
        "torch.autograd.set_detect_anomaly is on, so torch keeps a traceback for each operation and "
        "checks each gradient"
    )
    if without:
        less = f"without set_detect_anomaly, a step takes {without.value:.0%} of its current time."
        yield Cause("anomaly", f"{text}; {less}", gained(without), "differencing", *where)
        return
    share = view.clock_share("forward", "backward")
    yield Cause(
        "anomaly",
        f"{text}. Forward and backward take {share:.0%} of the step, mostly because of set_detect_anomaly.",
        Range(0.6 * share, 0.2 * share, 0.9 * share),
        "clock",
        *where,
    )


def _graph(view: View, reading: Reading) -> Iterator[Cause]:
    lint = reading.lint("retain-graph", "loss-graph")
    where = (lint.file, lint.lines[0]) if lint else ("", 0)
    slope, share = _growth(view)
    kept = ", kept by retain_graph=True" if view.flags.get("retain_graph") else ""
    if share and view.foreign < NOISY:  # where others have the cores, steps become slower by themselves
        text = (
            f"Each step takes about {slope:.2g} ms more than the step before: "
            f"backward runs through the graph of all steps so far{kept}."
        )
        yield Cause("graph_kept", text, _about(share), "clock", *where)
    elif lint and (more := _memory_slope(view)) > LEAK:
        yield Cause(
            "graph_kept",
            (
                f"Memory grows by {more / 2**20:.2g} MiB per step: values that the script keeps from each "
                "step also keep the graph of that step."
            ),
            None,
            "counted",
            *where,
        )


def _growth(view: View) -> tuple[float, float]:
    """(ms that each step takes more than the one before, share of the step that this has come to).
    Graphs may be dropped now and then:
    so it is the slope within each window that counts, and that nearly all windows agree."""
    slope = float((view.facts.get("growth") or {}).get("backward") or 0)
    whole = 1e3 * (view.step_s("R0") or 0)
    if not whole:
        return 0.0, 0.0
    seen = int(view.facts.get("steps_seen") or 0)
    if slope * seen / 2 >= LEAST * whole:
        return slope, min(0.95, slope * seen / 2 / whole)
    series = [w["step_ms"] for w in view.windows("R0") if len(w.get("step_ms") or ()) >= 5]
    slopes = [statistics.linear_regression(range(len(s)), s).slope for s in series]
    if (
        not view.flags.get("retain_graph")
        or len(slopes) < 4
        or sum(s > 0 for s in slopes) < 0.75 * len(slopes)
    ):
        return 0.0, 0.0
    every = sorted(ms for s in series for ms in s)
    least, mean = every[len(every) // 20], statistics.fmean(every)
    slope = statistics.median(slopes)
    return (slope, 1 - least / mean) if slope * 50 >= LEAST * mean else (0.0, 0.0)


def _memory_slope(view: View) -> float:
    """Bytes a step that memory grows by, once the first steps are over."""
    dots = [(float(step), float(size)) for step, size in view.facts.get("memory") or [] if step >= 20]
    if len(dots) < 3 or dots[-1][1] <= dots[0][1]:
        return 0.0
    return statistics.linear_regression([s for s, _ in dots], [m for _, m in dots]).slope


def _padding(view: View) -> Iterator[Cause]:
    part = float((view.facts.get("batch") or {}).get("padding") or 0)
    share = part * view.clock_share("forward", "backward")
    if part >= 0.35:
        yield Cause(
            "padding",
            f"{part:.0%} of a batch is padding: short samples are padded to the longest sample in the batch.",
            Range(share, 0.5 * share, share),
            "counted",
        )


def _tiny(view: View) -> Iterator[Cause]:
    model, batch = view.step_model, view.batch
    if model is None or not batch or batch > 16:
        return
    computing = view.ratio("R1")
    fixed = model.fixed_share(batch) * min(1.0, computing.value if computing else 1.0)
    if fixed >= 0.5:
        yield Cause(
            "tiny_batch",
            f"A step takes {model.fixed_s * 1e3:.3g} ms + {model.sample_s * 1e3:.2g} ms per sample: "
            f"with {batch:g} "
            f"samples, {fixed:.0%} of the step time does not depend on the batch size.",
            _about(fixed),
            "differencing",
        )


# --- memory
# ------------------------------------------------------------------------------------------------------------

def _memory(view: View) -> Iterator[Cause]:
    dots = [(int(step), float(size)) for step, size in view.facts.get("memory") or []]
    first = [size for step, size in dots if step <= 0] or [size for step, size in dots[:1]]
    later = [size for step, size in dots if step >= 1]
    if not first or not later:
        return
    before, after = first[-1], max(later[:3])
    state = _state_bytes(view)
    grown = after - before if state is None else min(state, after - before)
    if grown >= 32 * 2**20 and grown >= 0.12 * before:
        yield Cause(
            "memory_jump",
            f"Memory jumps from {before / 2**20:,.0f} to {after / 2**20:,.0f} MiB within the first steps, "
            "when the optimizer creates its state. So the memory of the first forward pass does not show "
            "how large a batch can be.",
            None,
            "counted",
        )


def _state_bytes(view: View) -> float | None:
    """What the optimizers keep beside the parameters; None where that is not known."""
    params, kinds = (
        view.model.get("params"),
        [str(o.get("type") or "") for o in view.facts.get("optimizers") or []],
    )
    if not params or not kinds:
        return None
    copies = max(2 if any(word in k.lower() for word in ("adam", "lamb", "adadelta")) else 1 for k in kinds)
    return float(params) * 4 * copies


def gained(ratio: Range) -> Range:
    """The share of the step that a change takes away, from the ratio of the times."""
    return Range(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)


def _about(share: float) -> Range:
    return Range(share, 0.8 * share, min(1.0, 1.2 * share))

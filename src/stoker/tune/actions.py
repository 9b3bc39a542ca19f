"""What could be done about the causes: settings from outside, diffs, advice;
each with the step time that it is forecast to bring. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.tune import causes, diffs, feeding
from stoker.tune.findings import Action, Cause, Range, Refusal
from stoker.tune.reading import Reading
from stoker.tune.view import View

LEAST_GAIN = 0.03
# so much a first epoch without workers may take when its samples are kept:
# to hand them over costs in each further one
SLOWER_ONCE = 1.5
_FREE = 0.5  # of the free memory: what a cache may take
_GUESS = 0.15  # a forecast without a measurement is so far off, either way

_ADVICE = {
    "neighbour": "Stop the other process, or move it to another machine, or train later. Then measure again.",
    "storage": "Copy the data to a local disk, or pack the small files into one large file.",
    "worker_lock": "Open a reader in each worker. Workers that share one reader wait for its lock.",
    "slow_sample": "Prepare the few slow samples once, before the training.",
    "sample_work": "Prepare the samples once, or work on whole batches instead of single samples.",
    "repeated_work": "Prepare the samples once and save the result.",
    "collate": "Build the batch from whole rows of an array, not from single values.",
    "duplicates": "In __iter__, read only the share of this worker: torch.utils.data.get_worker_info().",
    "unshuffled": "Set shuffle=True for the training loader, in every branch of the code.",
    "sync": "Sum the values on the device, and fetch the sum every N steps.",
    "ping_pong": "Keep the values on the device.",
    "cleanup": (
        "Remove calls such as empty_cache() or gc.collect() from the loop. PyTorch reuses memory anyway."
    ),
    "logging": "Print or log less often, for example every 50 steps.",
    "checkpoint": "Save every N steps or minutes. A crash loses the work after the last save.",
    "validation": "Validate after an epoch, or every N steps.",
    "double": "Convert data and model to float32: numpy's default is float64.",
    "layout": "Use the same memory layout in the loader and in all later operations.",
    "graph_kept": "Use detach() on the values that the script carries from step to step, and remove "
                  "retain_graph=True.",
    "per_parameter": (
        "Use one call for all parameters: clip_grad_norm_(..., foreach=True), torch._foreach_*, or a fused "
        "optimizer."
    ),
    "optimizer": "Use a fused or foreach optimizer.",
    "zero_grad": "Release the gradients with zero_grad(set_to_none=True), the default of PyTorch.",
    "time_loop": "Use a module that processes the whole sequence (nn.LSTM instead of LSTMCell), or torch.compile.",  # noqa: E501
    "padding": "Use a sampler that puts samples of similar length into one batch, or pack the samples.",
    "replicas": "Use DistributedDataParallel, or one device.",
    "anomaly": "Turn set_detect_anomaly off.",
    "memory_jump": (
        "Find the largest batch that fits into memory together with the optimizer's state: stoker tune "
        "--batch."
    ),
    "tiny_batch": "Try a larger batch. This changes the training: choose the learning rate again.",
    "threads": "Use as many threads as cores.",
    "too_many_workers": "Use fewer workers.",
}
_OTHER_MATHS = (
    "tiny_batch",
    "double",
    "graph_kept",
    "unshuffled",
    "duplicates",
    "memory_jump",
    "per_parameter",
)
_OTHER_ROUNDING = ("time_loop", "padding", "replicas", "optimizer", "layout")
_WORLD = ("neighbour", "memory_jump", "storage")


def find(
    view: View, reading: Reading, named: tuple[Cause, ...], refusals: tuple[Refusal, ...]
) -> tuple[Action, ...]:
    """Actions that are not refused and bring something,
    the best first (gain times the chance that it works)."""
    refused = {r.knob for r in refusals}
    if "all" in refused:
        return ()
    found = [a for a in _settings(view, reading) if a.name not in refused and a.gain >= LEAST_GAIN]
    found += [
        a
        for c in named
        if (a := _change(reading, c, view)) is not None and (c.name != "tiny_batch" or "batch" not in refused)
    ]
    return tuple(sorted(found, key=lambda a: -a.gain * a.chance))


# --- changes of the script
# ---------------------------------------------------------------------------------------------------

def _change(reading: Reading, cause: Cause, view: View) -> Action | None:
    text = _ADVICE.get(cause.name)
    if text is None:
        return None
    share = cause.share or Range(0.0, 0.0, 0.0)
    ratio = Range(1 - share.value, 1 - share.high, 1 - share.low)
    if cause.name == "tiny_batch" and view.step_model and view.batch:
        larger = 8 * view.batch
        value = view.step_model.at(larger) / 8 / view.step_model.at(view.batch)
        ratio = Range(value, 0.8 * value, min(1.0, 1.3 * value))
        text = (
            f"Try a batch of about {min(larger, view.step_model.knee()):.0f}. This changes the training: "
            "choose the learning rate again."
        )
    risk = "C" if cause.name in _OTHER_MATHS else "B" if cause.name in _OTHER_ROUNDING else "A"
    diff = diffs.offer(reading, cause)
    name = "batch" if cause.name in ("tiny_batch", "memory_jump") else cause.name
    return Action(
        name,
        "advice" if cause.name in _WORLD else "diff",
        risk,
        text,
        ratio,
        0.9 if diff else 0.6,
        cause.name,
        {},
        cause.file,
        cause.line,
        diff,
    )


# --- settings
# ------------------------------------------------------------------------------------------------------------

def _settings(view: View, reading: Reading) -> Iterator[Action]:
    if view.loader is not None and not view.loader.get("own_iter") and not view.loader.get("framework"):
        yield from _feeding(view, reading)
    yield from _computing(view)


def _loader(view: View, **knobs: object) -> dict:
    return {"loaders": {str((view.loader or {}).get("id")): knobs}}


def _feeding(view: View, reading: Reading) -> Iterator[Action]:
    waits, whole = feeding.waited(view), view.step_s("R0")
    if waits is None or not whole:
        return
    yield from _workers(view, whole)
    n, loader = view.workers, view.loader or {}
    starting = view.clock_share("start")
    if n and not loader.get("persistent") and starting >= LEAST_GAIN:
        yield Action(
            "persistent_workers",
            "setting",
            _order_risk(view),
            "Use persistent workers: they start only once, not again in each epoch.",
            Range(1 - 0.9 * starting, 1 - starting, 1 - 0.5 * starting),
            0.9,
            "worker_start",
            _loader(view, persistent=True),
        )
    p50, longest = view.samples.get("p50_s"), view.samples.get("max_s")
    if n and p50 and longest and longest > 4 * p50 and waits.value > LEAST_GAIN:
        deeper = max(4, 2 * int(loader.get("prefetch") or 2))
        won = 0.3 * waits.value
        yield Action(
            "prefetch",
            "setting",
            "A",
            f"Prefetch {deeper} batches per worker, so that one slow sample does not delay a step.",
            Range(1 - won, 1 - waits.value, 1.0),
            0.5,
            "slow_sample",
            _loader(view, prefetch=deeper),
        )
    copy = view.copy
    if view.facts.get("cuda") and copy and copy.value > 0.02 and not loader.get("pin"):
        yield Action(
            "pin_memory",
            "setting",
            "A",
            "Copy the batches to the GPU from pinned memory.",
            Range(1 - 0.5 * copy.value, 1 - copy.value, 1.0),
            0.7,
            "",
            _loader(view, pin=True),
        )
    yield from _kept(view, reading, whole, waits)


def _workers(view: View, whole: float) -> Iterator[Action]:
    model, now = view.loader_model, view.workers
    compute = view.step_s("R1") or whole * (1 - view.clock_share("data", "start"))
    # with another number of workers each would read all of it, or another part
    if view.dataset.get("iterable"):
        return
    measured = {int(p[8:]): r for p in view.phases if p.startswith("workers=") and (r := view.ratio(p))}
    offered = dict(measured)
    if model is not None:
        busy = view.per_step("R1", "cpu_s")
        start = _start_s(view)
        best = model.advised(compute, busy, most=_most(view), start_s=start)
        if best != now and best not in offered:
            value = (model.step_s(best, compute, busy) + best * start) / whole
            offered[best] = Range(value, value * (1 - _GUESS), value * (1 + _GUESS))
    if model is None and now > view.cores:
        waits = feeding.waited(view)
        won = 0.7 * waits.value if waits else 0.0
        offered.setdefault(max(1, round(view.cores)), Range(1 - won, 1 - 1.3 * won, 1 - 0.3 * won))
    beside = _beside_fewer_threads(view, whole)
    best, ratio = min(
        offered.items(), key=lambda o: (round(o[1].value, 2), o[0]), default=(now, Range(1.0, 1.0, 1.0))
    )
    if beside and beside[2].value < ratio.value - 0.02:
        n, threads, ratio = beside
        text = (
            f"Load the batches in {n} worker{'' if n == 1 else 's'} instead of {now}, and compute with "
            f"{threads} thread{'' if threads == 1 else 's'} instead of {view.facts.get('threads')}. Idle "
            "threads of torch still use CPU time, which the workers need."
        )
        yield Action(
            "workers",
            "setting",
            "B",
            text,
            ratio,
            0.7,
            "sample_work",
            {**_loader(view, workers=n), "threads": threads},
        )
    elif best != now:
        many = f"in {best} worker{'' if best == 1 else 's'} instead of {now}" if best else "without workers"
        yield Action(
            "workers",
            "setting",
            _order_risk(view),
            f"Load the batches {many}.",
            ratio,
            0.9 if best in measured else 0.7,
            "sample_work",
            _loader(view, workers=best),
        )


def _start_s(view: View) -> float:
    """Seconds to start one worker, a step: in each epoch anew, unless they are kept."""
    loader = view.loader or {}
    if loader.get("persistent"):
        return 0.0
    each = float(loader.get("start_s") or 0.0) / max(1, view.workers) or 0.05
    return each / max(1, loader.get("pass_steps") or 100)


def _beside_fewer_threads(view: View, whole: float) -> tuple[int, int, Range] | None:
    """(workers, threads, forecast) of the best pair of both.
    Threads of torch that have nothing to do spin, so that with all of them no core is left for a worker:
    neither knob helps without the other."""
    model, found = view.loader_model, []
    if model is None or view.dataset.get("iterable"):
        return None
    for phase in view.phases:
        ratio, threads = (
            view.ratio(phase) if phase.startswith("threads=") else None,
            int(view.facts.get("threads") or 0),
        )
        fewer = int(phase[8:]) if ratio else 0
        if not ratio or not fewer < threads:
            continue
        # with batches from memory a step is no shorter, whatever the loader costs
        fed = min(1.0, ratio.value) * (view.step_s("R1") or 0.0)
        compute = max(0.1 * whole, fed, ratio.value * whole - (0 if view.workers else model.batch_s()))
        n = model.advised(compute, compute * fewer, most=_most(view), start_s=_start_s(view))
        if n:
            value = model.step_s(n, compute, compute * fewer) / whole
            found.append((n, fewer, Range(value, value * (1 - _GUESS), value * (1 + _GUESS))))
    return min(found, key=lambda each: each[2].value, default=None)


def _most(view: View) -> int:
    """Workers of use at most: as many as cores, and more only where samples wait."""
    work, wait = view.per_sample("cpu_s") or 0.0, view.per_sample("wait_s") or 0.0
    waiting = 1 + wait / max(work, 1e-6)
    limit = breaks_at(view)[0]
    return max(1, min(16, round(view.cores * min(waiting, 8)), (limit or 17) - 1))


def breaks_at(view: View) -> tuple[int | None, str]:
    """So many workers run into a limit of the machine, and which."""
    loader, card = view.loader or {}, view.card
    prefetch = int(loader.get("prefetch") or 2)
    size = (view.facts.get("batch") or {}).get("bytes")
    found = []
    if size and card.get("shm_bytes"):
        found.append((int(card["shm_bytes"] / (size * prefetch)) + 1, "shared memory is full"))
    if card.get("files_limit"):
        found.append((int((card["files_limit"] - 64) / (8 + 3 * prefetch)) + 1, "too many open files"))
    resident = [size for _, size in view.facts.get("memory") or []]
    if resident and card.get("memory_bytes"):
        own = 0.15 * max(resident)  # what a forked worker comes to write on
        found.append((int(max(0, card["memory_bytes"] - max(resident)) / max(own, 1)) + 1, "memory is full"))
    return min(found, default=(None, ""))


def _order_risk(view: View) -> str:
    """Workers draw random numbers of their own; where samples are the same each time, nobody sees it."""
    return "A" if view.samples.get("same") and not view.dataset.get("iterable") else "B"


def _kept(view: View, reading: Reading, whole: float, waits: Range) -> Iterator[Action]:
    proof = (view.loader or {}).get("proof") or {}
    compute = view.step_s("R1") or whole * (1 - waits.value)
    if proof.get("batched") is True:
        ratio = view.ratio("batched") or _forecast(compute + 0.15 * waits.value * whole, whole)
        yield Action(
            "batched",
            "setting",
            "A",
            "Fetch whole batches at once. Stoker compared these batches with samples that were read one by "
            "one, and found no difference.",
            ratio,
            0.95 if view.ratio("batched") else 0.8,
            "sample_work",
            _loader(view, feed="batched"),
        )
    size = (view.samples.get("bytes") or 0) * (view.dataset.get("len") or 0)
    free = view.card.get("memory_free") or view.card.get("memory_bytes")
    fits = bool(size and free and size <= _FREE * free)
    each = (view.per_sample("cpu_s") or 0) + (view.per_sample("wait_s") or 0)
    if (
        fits
        and each >= feeding.WORTH_KEEPING_S
        and feeding.repeats(view, reading)
        and proof.get("cache", True) is True
    ):
        together = (view.per_sample("collate_s") or 0) * (view.batch or 1)
        ratio = view.ratio("cache") or _forecast(compute + 0.05 * waits.value * whole + together, whole)
        text = (
            "Cache the samples in memory after the first epoch: the samples are not random, and take "
            f"{size / 2**20:,.0f} MiB."
        )
        alone = (
            {"workers": 0}
            if view.workers
            and together <= compute
            and each * (view.batch or 1) + compute <= SLOWER_ONCE * whole
            else {}
        )
        text += " No workers are needed." if alone else ""
        settings = {**_loader(view, feed="cache", **alone), "cache_bytes": int(size * 1.25)}
        yield Action("cache", "setting", "A", text, ratio, 0.9, "repeated_work", settings)


def _forecast(seconds: float, whole: float) -> Range:
    value = min(1.0, seconds / whole)
    return Range(value, value * (1 - _GUESS), min(1.0, value * (1 + _GUESS)))


_ALONE = (
    "Stoker compiles the model only with `stoker run --resume off`, because exact resume does not support "
    "compiled code."
)
_MEASURED: dict[str, tuple[str, str, dict, str]] = {  # name -> risk, text, settings, cause
    "bf16": (
        "C",
        "Compute in bfloat16 where autocast allows bfloat16. The model's outputs are converted to float32.",
        {"precision": "bf16"},
        "precision",
    ),
    "tf32": ("C", "Let matrix products use TF32.", {"precision": "tf32"}, "precision"),
    "channels_last": (
        "B",
        "Store the inputs and filters of convolutions in the memory format channels_last.",
        {"channels_last": True},
        "memory_format",
    ),
    "fused": ("B", "Run the optimizer in one call (fused).", {"fused": True}, "optimizer"),
    "compile": ("B", f"Compile the model (torch.compile). {_ALONE}", {"compile": True}, ""),
}


def _computing(view: View) -> Iterator[Action]:
    for name, (risk, text, settings, cause) in _MEASURED.items():
        if name == "channels_last" and view.no_channels_last:
            continue
        ratio = view.computed(name)
        if ratio is not None:
            yield Action(
                name, "setting", risk, text, ratio, 0.95 if ratio.high < 1 else 0.5, cause, dict(settings)
            )
    if view.ratio("bf16") is None and (forecast := causes.shorter(view)) is not None:
        risk, text, settings, cause = _MEASURED["bf16"]
        yield Action("bf16", "setting", risk, text, forecast, 0.4, cause, dict(settings))
    if (
        view.ratio("channels_last") is None
        and view.model.get("conv2d")
        and not view.no_channels_last
    ):
        won = 0.1 * view.clock_share("forward", "backward")
        risk, text, settings, cause = _MEASURED["channels_last"]
        yield Action(
            "channels_last",
            "setting",
            risk,
            text,
            Range(1 - won, 1 - 4 * won, 1 + won),
            0.4,
            cause,
            dict(settings),
        )
    threads = [(r, int(p[8:])) for p in view.phases if p.startswith("threads=") and (r := view.ratio(p))]
    if threads:
        ratio, n = min(threads, key=lambda t: t[0].value)
        text = f"Compute with {n} thread{'' if n == 1 else 's'} instead of {view.facts.get('threads')}."
        yield Action(
            "threads", "setting", "B", text, ratio, 0.95 if ratio.high < 1 else 0.5, "threads", {"threads": n}
        )
    computing = view.clock_share("forward", "backward")
    fixed = view.step_model.fixed_share(view.batch) if view.step_model and view.batch else 0.0
    if (
        view.ratio("compile") is None
        and view.facts.get("cuda")
        and not view.model.get("compiled")
        and fixed * computing > 0.3
    ):
        won = 0.4 * fixed * computing
        yield Action(
            "compile",
            "setting",
            "B",
            f"Compile the model (torch.compile): this merges many small operations. {_ALONE}",
            Range(1 - won, 1 - 2 * won, 1.0),
            0.5,
            "",
            {"compile": True},
        )

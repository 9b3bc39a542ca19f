"""What a rehearsal found, from what its processes told: a verdict, and lines that a person reads."""

from __future__ import annotations

from typing import NamedTuple

WELL, MISTAKE, NOT_REHEARSED = 0, 1, 3
NOT_CHECKED = [
    "memory of the GPU: whether model and batch fit",
    "kernels and rounding of the GPU: half precision, TF32, cuDNN",
    "speed, CUDA streams, and the overlap of copies and computing",
    "NCCL: its errors, and the network between machines",
]


class Case(NamedTuple):
    """All that a rehearsal heard: what each rule below is asked about."""

    heard: dict  # pid -> its events
    ends: dict  # rank -> exit code
    found: dict  # what the watch over the ranks saw
    trained: dict  # pid -> its events, of those that made an optimizer step
    errors: list  # events of errors, in the order of time
    bad: dict  # rank -> exit code that is not 0


def judge(heard: dict, ends: dict, found: dict, *, plan: object, ranks: int, seconds: float) -> dict:
    """{"code", "verdict", "lines", "warnings", "not_checked", ...}.
    The first rule of _RULES that applies decides.
    `lines` is None where there is nothing to say: no torch, no mistake.
    Ranks are reported in the order of their numbers: values of one process are those of rank 0."""
    heard = dict(sorted(heard.items(), key=_order))
    ends = dict(sorted(ends.items()))
    trained = {pid: events for pid, events in heard.items() if last(events, "step")}
    errors = sorted(
        (e for events in heard.values() for e in events if e["e"] == "error"), key=lambda e: e["t"]
    )
    bad = {rank: code for rank, code in ends.items() if code}
    outcome = {
        "code": WELL,
        "ranks": len(trained),
        "seconds": round(seconds, 1),
        "steps": [last(e, "step")["n"] for e in trained.values()],
        "lines": [],
        "warnings": warnings(heard, trained),
        "not_checked": not_checked(heard, plan),
    }
    if not heard and not bad:
        return {**outcome, "lines": None}
    case = Case(heard, ends, found, trained, errors, bad)
    code, verdict, lines = next(judged for rule in _RULES if (judged := rule(case)))
    ran = _ran(heard, trained, plan, ranks, seconds)
    return {**outcome, "code": code, "verdict": verdict, "lines": [*ran, *lines]}


def _same_gpu(case: Case) -> tuple | None:
    if not case.found.get("same_gpu"):
        return None
    gpu, who = case.found["same_gpu"]
    verdict = (
        f"ranks {' and '.join(map(str, who))} use the same GPU (cuda:{gpu}); "
        "NCCL does not support several ranks on one GPU (error: Duplicate GPU detected)"
    )
    hint = (
        "use one GPU per rank: torch.cuda.set_device(local_rank), .to(local_rank), "
        "device_ids=[local_rank]"
    )
    return MISTAKE, verdict, [hint]


def _deadlock(case: Case) -> tuple | None:
    if not case.found.get("stuck") or case.errors:
        return None
    lines = [
        *_all_stand(case, case.found["stuck"]),
        *(f"rank {rank} has ended" for rank in sorted(case.found["gone"])),
        "every rank must make the same collective calls, in the same order",
    ]
    return MISTAKE, "deadlock: the ranks wait for each other forever", lines


def _silent(case: Case) -> tuple | None:
    if not case.found.get("silent"):
        return None
    verdict = "the script made no progress, so Stoker stopped the rehearsal"
    return NOT_REHEARSED, verdict, _all_stand(case, case.found["silent"])


def _refused(case: Case) -> tuple | None:
    refused = next((e for e in case.errors if e["kind"] == "CannotRehearse"), None)
    return (NOT_REHEARSED, f"this script cannot be rehearsed: {refused['text']}", []) if refused else None


def _rank_left(case: Case) -> tuple | None:
    if not case.errors or not all(map(_was_left, case.errors)) or 0 not in case.ends.values():
        return None
    lines = [f"rank {rank} had ended" for rank, code in case.ends.items() if code == 0]
    lines += [
        _stands(events, last(events, "into"))
        for events in case.heard.values()
        if any(_was_left(e) for e in events) and last(events, "into")
    ]
    return (
        MISTAKE,
        "a rank waits for another rank that has ended; with NCCL, the waiting rank waits forever",
        lines,
    )


def _error(case: Case) -> tuple | None:
    if not case.errors:
        return None
    first = next((e for e in case.errors if not _was_left(e)), case.errors[0])
    who = f"rank {first['rank']}: " if first.get("rank") not in ("", None) else ""
    said = first["text"].splitlines()[0] if first["text"] else ""
    at = [f"at {first['at']}; the traceback is above"] if first["at"] else []
    return MISTAKE, f"the script failed: {who}{first['kind']}: {said}", [*at, *_hints(first)]


def _bad_end(case: Case) -> tuple | None:
    if not case.bad:
        return None
    rank, code = sorted(case.bad.items())[0]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    who = f"rank {rank}" if len(case.ends) > 1 else "the script"
    return MISTAKE, f"{who} {how}; the script's output is above", []


def _not_trained(case: Case) -> tuple | None:
    if case.trained:
        return None
    return NOT_REHEARSED, "nothing was trained: the script finished without an optimizer step", []


def _loss_not_finite(case: Case) -> tuple | None:
    where = _not_finite(case.trained)
    return (MISTAKE, f"the loss is not finite at {where}", []) if where else None


def _passed(_case: Case) -> tuple | None:
    return WELL, "rehearsal passed", []


# Each rule gives (code, verdict, lines) where it applies, else None. The order is that of what explains more.
_RULES = (
    _same_gpu,
    _deadlock,
    _silent,
    _refused,
    _rank_left,
    _error,
    _bad_end,
    _not_trained,
    _loss_not_finite,
    _passed,
)


def _was_left(event: dict) -> bool:
    """An error that only says that another rank is gone."""
    return event["e"] == "error" and (
        event["kind"] == "ChildFailedError" or any(said in event["text"] for said in _LEFT)
    )


_LEFT = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "recvValue failed",
)


def as_text(outcome: dict) -> str:
    """The report, as it is printed."""
    lines = [f"stoker: {outcome['verdict']}", *(f"  {line}" for line in outcome["lines"])]
    lines += [f"  warning: {line}" for line in outcome["warnings"]]
    lines += ["  not checked in this rehearsal:", *(f"    {line}" for line in outcome["not_checked"])]
    return "\n".join(lines) + "\n"


def _ran(heard: dict, trained: dict, plan: object, ranks: int, seconds: float) -> list:
    lines = []
    started = (
        f", as {plan.launcher} starts them"
        if plan.launcher
        else {"slurm": ", as srun starts them", "ranks": ", as torchrun starts them"}.get(plan.style, "")
    )
    processes = [events for events in heard.values() if last(events, "joined")] or list(trained.values())
    steps = sorted({last(events, "step")["n"] for events in trained.values()})
    made = (
        f"{steps[0]}{f' to {steps[-1]}' if len(steps) > 1 else ''} optimizer step{'s' * (steps != [1])}"
        if steps
        else "no optimizer step"
    )
    backend = next((e["backend"] for events in heard.values() for e in events if e["e"] == "dist"), "")
    number = len(processes) or ranks
    how = f"{number} rank{'s' * (number != 1)}{started}" if backend or plan.style != "alone" else "1 process"
    lines.append(
        f"ran: {how}, {made} each, {ranks} simulated GPU{'s' * (ranks != 1)}, {seconds:.0f} s on a CPU"
        if len(trained) > 1
        else f"ran: {how}, {made}, {ranks} simulated GPU{'s' * (ranks != 1)}, {seconds:.0f} s on a CPU"
    )
    if backend:
        lines.append(
            f"communication: gloo instead of {backend}"
            if backend != "gloo"
            else "communication: gloo, as in the script"
        )
    batch = next((e for events in heard.values() for e in events if e["e"] == "batch"), None)
    if batch:
        lines.append(f"first batch: {', '.join(batch['shapes'])}")
    losses = [
        e["value"]
        for events in list(trained.values())[:1]
        for e in events
        if e["e"] == "loss" and e["finite"]
    ]
    if losses:
        lines.append(f"loss: {losses[0]:.4g}{f' -> {losses[-1]:.4g}' if len(losses) > 1 else ''}, finite")
    written = sorted({e["path"] for events in heard.values() for e in events if e["e"] == "outside"})
    if written:
        lines.append(
            "files that the script wrote (Stoker put them into a scratch folder; the files at these paths "
            "are unchanged): "
            f"{', '.join(written[:5])}{' ...' if len(written) > 5 else ''}"
        )
    return lines


def warnings(heard: dict, trained: dict) -> list:
    """What is no failure, and looks like a mistake."""
    said = []
    for events in heard.values():
        said += [
            f"{e['text']}{' (' + e['at'] + ')' if e.get('at') else ''}" for e in events if e["e"] == "lint"
        ]
        said += [
            f"{e['count']} parameters get no gradient and stay unchanged, for example "
            f"{', '.join(e['names'][:3])}"
            for e in events
            if e["e"] == "no_grad"
        ]
    ranks = {rank_of(events): events for events in trained.values() if last(events, "joined")}
    if len(ranks) > 1:
        said += _between(ranks)
    return list(dict.fromkeys(said))


def _between(ranks: dict) -> list:
    said = []
    firsts = {rank: last(events, "batch") for rank, events in ranks.items()}
    digests = [b["digest"] for b in firsts.values() if b and b["digest"]]
    if len(digests) > 1 and len(set(digests)) == 1:
        said.append(
            "all ranks got the same first batch, so all ranks train on the same data; "
            "use a DistributedSampler, or one seed per rank"
        )
    lengths = {rank: last(events, "loader") for rank, events in ranks.items()}
    seen = {rank: e["length"] for rank, e in lengths.items() if e and e["length"] is not None}
    if len(set(seen.values())) > 1:
        told = ", ".join(f"rank {rank} has {n}" for rank, n in sorted(seen.items()))
        said.append(
            f"the ranks have different numbers of batches ({told}): at the end of the epoch some ranks "
            "wait forever"
        )
    steps = {rank: last(events, "step")["n"] for rank, events in ranks.items()}
    if len(set(steps.values())) > 1:
        said.append(
            "the ranks made different numbers of steps: "
            + ", ".join(f"rank {r}: {n}" for r, n in sorted(steps.items()))
        )
    meets = {
        rank: sum(e["e"] == "into" and e["op"] not in ("forward", "backward") for e in events)
        for rank, events in ranks.items()
        if last(events, "done")
    }
    if len(set(meets.values())) > 1:
        said.append(
            "the ranks made different numbers of collective calls: "
            + ", ".join(f"rank {r}: {n}" for r, n in sorted(meets.items()))
        )
    return said


def not_checked(heard: dict, plan: object) -> list:
    """What nobody can know from this rehearsal."""
    lines = list(NOT_CHECKED)
    kinds = {e["e"]: e for events in heard.values() for e in events}
    if "autocast" in kinds:
        lines.append(
            f"mixed precision ({kinds['autocast']['dtype'].replace('torch.', '')}) with the kernels of a "
            "GPU: the rehearsal used the kernels of the CPU"
        )
    if "syncbn" in kinds:
        lines.append("SyncBatchNorm: each rank used only its own statistics")
    if "compile" in kinds:
        lines.append("torch.compile: the model ran uncompiled")
    lines.append("code that runs after the first two epochs, because a rehearsal is shorter than a training")
    return lines


def same_gpu(heard: dict) -> object:
    """(gpu, ranks) when two ranks of NCCL do their work on the same one."""
    users: dict = {}
    for events in heard.values():
        if not last(events, "joined") or (last(events, "dist") or {}).get("backend") != "nccl":
            continue
        for e in events:
            if e["e"] == "device":
                users.setdefault(e["gpu"], set()).add(rank_of(events))
    for gpu, who in users.items():
        if len(who) > 1 and not any(other != gpu and who & them for other, them in users.items()):
            return gpu, sorted(who)
    return None


def rank_of(events: list) -> object:
    """Its rank, "" for a process that belongs to no group."""
    joined = last(events, "joined") or last(events, "dist")
    return joined["rank"] if joined else ""


def _order(process: tuple) -> tuple:
    """The key that sorts (pid, events) by rank. Processes without a rank come last, in the order of their
    start."""
    pid, events = process
    rank = rank_of(events)
    known = isinstance(rank, int) and rank >= 0
    return not known, rank if known else 0, events[0]["t"], pid


def last(events: list, kind: str) -> object:
    return next((e for e in reversed(events) if e["e"] == kind), None)


def done(events: list) -> bool:
    return last(events, "done") is not None


def waits(events: list) -> bool:
    """Is it inside a call that needs the others?"""
    into, out = last(events, "into"), last(events, "out")
    return into is not None and (out is None or out["n"] < into["n"]) and not done(events)


def where(events: list) -> dict:
    """The call it waits in, {"done": True}, or {}."""
    if done(events):
        return {"done": True}
    return last(events, "into") or {} if waits(events) else {}


def _all_stand(case: Case, places: dict) -> list:
    return [_stands(events, places[pid]) for pid, events in case.heard.items() if pid in places]


def _stands(events: list, at: dict) -> str:
    who = f"rank {rank_of(events)}"
    if at.get("done"):
        return f"{who} has finished its steps and makes no more collective calls"
    if not at:
        return f"{who} does not wait in a collective call"
    what = f" of {at['what']}" if at["what"] else ""
    return f"{who} waits in {at['op']}{what} at {at['at']} (collective call number {at['n']} of this rank)"


def _not_finite(trained: dict) -> str:
    return next(
        (
            e["at"] or "backward"
            for events in trained.values()
            for e in events
            if e["e"] == "loss" and not e["finite"]
        ),
        "",
    )


def _hints(error: dict) -> list:
    text = error["text"]
    if "same device" in text:
        return ["move the batch, and tensors created in forward, to the device of the model"]
    if "invalid device ordinal" in text:
        return ["simulate more GPUs with --rehearse N, or correct the device of the rank"]
    if "No backend type associated with device type cpu" in text:
        return ["NCCL needs GPU tensors: call .to(device) before the collective call"]
    if "unrecognized arguments: --local" in text:
        return [
            (
                "torch.distributed.launch passes --local-rank: accept this argument, or use torchrun and "
                "read "
                "os.environ['LOCAL_RANK']"
            )
        ]
    if error["kind"] in ("ImportError", "ModuleNotFoundError", "OSError") and any(
        w in text for w in ("libcuda", "libcudart", "flash_attn", "triton", "apex")
    ):
        return ["CUDA extensions need CUDA, so a rehearsal cannot load them"]
    return []

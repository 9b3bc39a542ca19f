"""What the script has built and switched on: model, optimizers, loaders, flags. Looked at, never changed."""

from __future__ import annotations

import sys

from ..clock import marks
from ..clock.wrapping import wrap
from . import feed, loader_facts, order, ring

BACKWARDS = 4000  # whose time is kept, for its growth
EVENTS = 64  # steps and backwards whose order is looked at
LOOK_STEPS = 12  # in which gradients are looked at before a backward

flags: dict = {}
_built: dict = {}
backwards = 0  # calls since the last step of the lead
_per_step: list = []
_growth: list = []  # (step, ms of backward)
_steppers: list = []  # the last optimizers that stepped, and what came between
_zeros: list = []  # of each look at gradients: whether they were there, and zero
_filled: list = []  # steps in which somebody asked for zeros
_autocast: list = []
_last_spent = 0
_memory_at = 1


def watch(torch: object) -> None:
    """Stand where flags pass by, within the clock's marks."""
    wrap(torch.autograd, "backward", _backward)
    wrap(torch.amp.autocast_mode.autocast, "__enter__", _enter)
    for kind in (torch.optim.Optimizer, torch.nn.Module):
        wrap(kind, "zero_grad", _zero_grad)
    order.collect.append(tell)


def _backward(real: object) -> object:
    def backward(*args: object, **kwargs: object) -> object:
        global backwards
        try:
            backwards += 1
            if kwargs.get("retain_graph") or (len(args) > 2 and args[2]):
                flags["retain_graph"] = True
            if kwargs.get("create_graph") or (len(args) > 3 and args[3]):
                flags["create_graph"] = True
            if backwards == 1 and 1 <= marks.steps <= LOOK_STEPS:
                _look_at_gradients()
            if _steppers and _steppers[-1] != 0:
                _steppers.append(0)
                del _steppers[:-EVENTS]
        except Exception as e:
            order.fault("a backward", e)
        return real(*args, **kwargs)
    return backward


def _enter(real: object) -> object:
    def __enter__(self: object) -> object:
        if not _autocast and getattr(self, "_enabled", False) and order.facts.get("trying", "R1") == "R1":
            _autocast.append(str(getattr(self, "fast_dtype", True)).replace("torch.", ""))
        return real(self)
    return __enter__


def _zero_grad(real: object) -> object:
    def zero_grad(self: object, set_to_none: bool = True) -> None:
        if not set_to_none and marks.steps <= LOOK_STEPS:
            _filled.append(marks.steps)
        real(self, set_to_none)
    return zero_grad


def _look_at_gradients() -> None:
    """Before the first backward of a step: gradients that are there and zero were filled."""
    several = _optimizers()
    for each in several if len(several) == 1 else ():
        for group in each.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.grad.layout is sys.modules["torch"].strided:
                    _zeros.append(not bool(p.grad.any()))
                    return
                if p.grad is None and p.requires_grad:
                    _zeros.append(False)
                    return


def stepped(optimizer: object) -> None:
    """Any optimizer made a step."""
    _steppers.append(id(optimizer))
    del _steppers[:-EVENTS]


def _turns() -> bool:
    """Whether a backward lies between every two steps of different optimizers:
    they are trained in turns, not together."""
    for one, other in zip(_steppers, _steppers[1:]):  # noqa: B905, RUF007
        if one and other and one != other:
            return False
    steps = [each for each in _steppers if each]
    found = [a != b for a, b in zip(steps, steps[1:])]  # noqa: B905, RUF007
    return sum(found) >= 2


def step_ends(total_backward: int) -> None:
    """A step of the lead is over; `total_backward`: ns of all backwards so far."""
    global backwards, _last_spent, _memory_at
    if len(_per_step) < 64:
        _per_step.append(backwards)
    backwards = 0
    if len(_growth) < BACKWARDS and marks.steps > 2:
        _growth.append((marks.steps, (total_backward - _last_spent) / 1e6))
    _last_spent = total_backward
    if marks.steps >= _memory_at:
        from . import look
        order.facts.setdefault("memory", []).append([marks.steps, look.resident()])
        _memory_at = max(marks.steps + 1, int(_memory_at * 1.6))


def _optimizers() -> list:
    from ..settings import knobs
    return knobs.optimizers()


# ---- what is told

def tell(facts: dict) -> None:
    """All of it, into the facts."""
    torch = sys.modules["torch"]
    facts.pop("trying", None)
    _loaders(facts)
    keep()
    facts.update(_built)
    _batch(facts, torch)
    distributed = getattr(torch, "distributed", None)
    per_step = sorted(_per_step[2:])
    told = {
        "anomaly": torch.is_anomaly_enabled() or bool(facts.get("anomaly_was")),
        "retain_graph": False,
        "zero_fill": _zeroed(),
        "accumulation": max(1, per_step[len(per_step) // 2]) if per_step else None,
        "autocast": _autocast[0] if _autocast else False,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "turns": _turns(),
        "distributed": bool(
            distributed is not None and distributed.is_available() and distributed.is_initialized()
        ),
        **flags,
    }
    facts.pop("anomaly_was", None)
    facts["flags"] = {name: value for name, value in told.items() if value is not None}
    slope = _slope()
    if slope is not None:
        facts["growth"] = {"backward": slope}


def keep() -> None:
    """Look at what is built; when it is gone, what was seen before is told."""
    living = _optimizers()
    if living or not _built:
        _built["optimizers"] = [_optimizer(each) for each in living]
        _model(_built, sys.modules["torch"])


def _zeroed() -> bool:
    return len(set(_filled)) > 2 or (len(_zeros) > 2 and sum(_zeros) >= 0.8 * len(_zeros))


def _slope() -> float | None:
    """ms that a backward takes longer than the one before; 0 where it does not grow all the time;
    None where too few were seen."""
    parts = 5
    n = len(_growth) // parts
    if n < 4:
        return None
    fifths = [_growth[at * n:(at + 1) * n] for at in range(parts)]
    # what others took of the core is in the upper ones
    low = [sorted(ms for _, ms in each)[n // 10] for each in fifths]
    if any(b < 1.02 * a for a, b in zip(low, low[1:])) or low[-1] < 1.3 * low[0]:  # noqa: B905, RUF007
        return 0.0
    return round((low[-1] - low[0]) / (fifths[-1][n // 2][0] - fifths[0][n // 2][0]), 6)


def _optimizer(each: object) -> dict:
    tensors = sum(len(group["params"]) for group in each.param_groups)
    first = each.param_groups[0] if each.param_groups else {}
    return {
        "type": type(each).__name__,
        "tensors": tensors,
        "fused": bool(first.get("fused")),
        "foreach": first.get("foreach"),
        "lr": first.get("lr") if isinstance(first.get("lr"), (int, float)) else None,
    }


def _model(facts: dict, torch: object) -> None:
    from ..settings import knobs
    facts["shapes"] = knobs.shapes()
    parameters = {id(p): p for each in _optimizers() for group in each.param_groups for p in group["params"]}
    if not parameters:
        return
    dtypes: dict = {}
    for p in parameters.values():
        dtypes[str(p.dtype).replace("torch.", "")] = (
            dtypes.get(str(p.dtype).replace("torch.", ""), 0) + p.numel()
        )
    told = {
        "tensors": len(parameters),
        "params": sum(p.numel() for p in parameters.values()),
        "dtype": max(dtypes, key=dtypes.get),
        "device": next(iter(parameters.values())).device.type,
    }
    root = knobs.root()
    if root is not None:
        modules = list(root.modules())
        kinds = torch.nn.Conv2d, torch.nn.ConvTranspose2d
        convs = [m for m in modules if isinstance(m, kinds) and getattr(m, "weight", None) is not None]
        parallel = [type(m).__name__ for m in modules if type(m).__module__.startswith("torch.nn.parallel")]
        told.update(
            type=type(root).__name__,
            conv2d=len(convs),
            channels_last=knobs.channels_last.by_script() if convs else False,
            parallel=parallel[0] if parallel else "",
            compiled=any("OptimizedModule" in type(m).__name__ for m in modules)
            or root._compiled_call_impl is not None,
        )
    facts["model"] = told


def _loaders(facts: dict) -> None:
    known = feed.known()
    told = [one for one in map(_loader, known) if one]
    told += _left_alone([each.loader() for each in known], not any(one["train"] for one in told))
    more = facts.pop("loaders_more", {})
    for one in told:
        one.update(more.get(one["id"], {}))
    facts["loaders"] = told


def _left_alone(seen: list, none_trains: bool) -> list:
    """Loaders whose batches their own class makes: nothing of them passes us by."""
    from ..settings import loaders, sites
    found = []
    for site in list(sites._sites.values()):
        loader = site.forget()
        if loader is None or any(loader is each for each in seen) or not loaders.own_methods(loader):
            continue
        found.append(
            {
                **loader_facts.about(loader),
                "train": none_trains and not found,
                "passes": None,
                "own_iter": True,
            }
        )
    return found


def _loader(line: object) -> dict:
    loader = line.loader()
    told = loader_facts.about(loader) if loader is not None else dict(line.about)
    if not told:
        return {}
    starts = sorted(line.starts)
    lengths = sorted(line.lengths)
    told.update(
        train=line.is_train(),
        passes=line.passes,
        batches=line.batches,
        pass_steps=line.length() or (lengths[len(lengths) // 2] if lengths else None),
        start_s=round(starts[len(starts) // 2], 4) if starts else None,
        rebuilt=bool(told.get("rebuilt") or line.rebuilt),
    )
    told["dataset"] = {**told["dataset"], "changed": sorted(line.changed)}
    return told


def _batch(facts: dict, torch: object) -> None:
    """How large a batch is, and how much of it is padding."""
    lines = [line for line in feed.known() if line.train and line.ring.batches]
    if not lines:
        return
    batches = lines[0].ring.batches
    tensors = [leaf for leaf in ring.leaves(batches[0]) if isinstance(leaf, torch.Tensor)]
    told = {"size": feed.size_of(batches[0]), "bytes": ring.nbytes(batches[0])}
    if tensors:
        told["dim"], told["shape"] = tensors[0].dim(), list(tensors[0].shape)
    part = _padding(batches, torch)
    if part is not None:
        told["padding"] = round(part, 4)
    facts["batch"] = told


def _padding(batches: list, torch: object) -> float | None:
    """The part of whole numbers in rows that is the same value up to the end (or from the beginning) of its
    row; None without rows."""
    same = whole = 0
    for batch in batches:
        rows, value = _rows(batch, torch)
        if rows is None:
            return None
        same, whole = same + max(_run(rows, value), _run(rows.flip(1), value)), whole + rows.numel()
    return same / whole if whole else None


def _rows(batch: object, torch: object) -> tuple:
    """(rows of whole numbers, what they are padded with: None where that is to be found out).
    Rows of vectors (batch, time, features) are told apart by whether all of a vector is zero."""
    tensors = [leaf for leaf in ring.leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.numel()]
    for leaf in tensors:
        if (
            leaf.dim() == 2
            and not leaf.is_floating_point()
            and leaf.dtype is not torch.bool
            and min(leaf.shape) > 1
        ):
            return leaf.long(), None
    for leaf in tensors:
        if leaf.dim() == 3 and leaf.is_floating_point():
            return leaf.abs().amax(2).ne(0).long(), 0
    return None, None


def _run(rows: object, value: int | None) -> int:
    """Values at the ends of rows that are the commonest last value, and nothing else up to the end.
    Single ones do not count, nor a value that stands in the middle of rows too."""
    torch = sys.modules["torch"]
    if value is None:
        value = int(torch.mode(rows[:, -1]).values)
    other = rows.ne(value).flip(1)
    lengths = torch.where(other.any(1), other.long().argmax(1), torch.full_like(rows[:, 0], rows.shape[1]))
    ends = int(lengths[lengths > 1].sum())
    inside = int(rows.eq(value).sum()) - int(lengths.sum())
    return ends if inside <= 0.02 * max(1, rows.numel() - ends) else 0

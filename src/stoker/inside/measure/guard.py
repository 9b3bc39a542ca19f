"""The accuracy guard inside a training script, for a setting that changes the maths.

With `try`: each of a few real batches is computed again and again, without the knob and with it, from the
same weights, buffers and random state; no step of an optimizer changes anything meanwhile. Without:
the training runs, and the loss of each step is noted before it was trained on.
In both, the loss is the root of backward.

gradients.jsonl, of each of four batches: `{"unit", "same", "cosine", "null" (twice without), "finite",
"loss", "loss_with", "norm", "norm_with"}`. losses.jsonl: `{"step", "loss", "finite", "samples"}`; `odd` in
the facts: why the loss cannot be used.
"""

from __future__ import annotations

import copy
import hashlib
import math
import sys
from typing import Any

from ..clock.passes import size_of
from ..clock.wrapping import wrap
from . import enough, seeds, telling

LOSSES, COSINES = "losses.jsonl", "gradients.jsonl"
WARM = 3  # steps before the first comparison
UNITS = 4  # real batches (with accumulation: steps' worth of batches) that are compared
TRIES = 3 * UNITS
HASHED = 1 << 18  # bytes of each input that are looked at
DENSE = 1 << 26  # elements: a larger sparse gradient is compared by its values alone


def begin(torch: object, order: dict, room: str) -> None:
    """torch has just been imported by a script that is to be guarded."""
    if order.get("seed") is not None:
        seeds.begin(torch, order["seed"])
    _watch(torch, order, room)


def _watch(torch: Any, order: dict, room: str) -> None:
    """Marks for either kind. The order is taken by the first process that makes an optimizer step."""
    from torch.optim import optimizer
    from torch.utils.data import dataloader
    watch = Gradients(torch, order) if order.get("try") else Losses(torch, order)
    fenced = _Fence(room, watch)

    def backward(real: Any) -> Any:
        def call(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if fenced.depth == 0:
                fenced.call(watch.root, tensors)
            fenced.depth += 1
            try:
                return real(tensors, *args, **kwargs)
            finally:
                fenced.depth -= 1
        return call

    def following(real: Any) -> Any:
        def __next__(self: Any) -> Any:
            again = fenced.again(self)
            if again:
                return again[0]
            data = real(self)
            fenced.call(watch.fetched, self, data)
            return data
        return __next__
    wrap(torch.autograd, "backward", backward)
    wrap(dataloader._BaseDataLoaderIter, "__next__", following)
    optimizer.register_optimizer_step_pre_hook(fenced.before)
    optimizer.register_optimizer_step_post_hook(lambda opt, args, kwargs: fenced.step(opt))
    _scaler(torch, watch)
    if order.get("try"):
        _modules(torch, fenced, watch)


class _Fence:
    """Whatever is asked of the watch, a fault of ours ends it, and not the script."""

    def __init__(self, room: str, watch: Any) -> None:
        self.room, self.watch, self.depth, self.on, self.taken = room, watch, 0, True, None

    def call(self, what: Any, *args: Any) -> None:
        if self.on and not enough.fenced("guard", self.watch.give_up, what, *args):
            self.on = False

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.taken is None and self.on:
            self.taken = self.on = telling.take(self.room)
            if self.taken:
                telling.begin(self.room, "guard")
        self.call(self.watch.before_step, optimizer, args, kwargs)

    def step(self, optimizer: Any) -> None:
        self.call(self.watch.after_step, optimizer)

    def again(self, iterator: Any) -> list:
        """A batch that the script is to get once more, or nothing."""
        given: list = []
        self.call(self.watch.give_again, iterator, given)
        return given if self.on else []


def _scaler(torch: Any, watch: Any) -> None:
    """A loss that a GradScaler has made larger is noted as it was."""
    made = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler

    def scale(real: Any) -> Any:
        def call(self: Any, outputs: Any) -> Any:
            out = real(self, outputs)
            if isinstance(out, torch.Tensor) and out is not outputs:
                watch.scaled = (out, outputs)
            return out
        return call
    wrap(made, "scale", scale)


def _modules(torch: Any, fenced: _Fence, watch: Any) -> None:
    """Which modules the script calls itself, and with what: whether two comparisons had the same input."""
    inside = [0]

    def call(real: Any) -> Any:
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if inside[0] or not torch.is_grad_enabled():
                return real(self, *args, **kwargs)
            fenced.call(watch.module, self, args, kwargs)
            inside[0] = 1
            try:
                return real(self, *args, **kwargs)
            finally:
                inside[0] = 0
        return __call__
    wrap(torch.nn.Module, "__call__", call)


class _Watch:
    """What both kinds see: the loss of the step that is being made, who steps."""

    def __init__(self, torch: Any, order: dict) -> None:
        self.torch, self.order = torch, order
        self.steps, self.samples = 0, 0
        self.loss: float | None = None  # of this step: the sum of its roots
        self.odd = ""  # why the loss says nothing
        self.scaled: tuple | None = None
        self.optimizers: list = []
        self.turns = False
        self._backward_since = False

    def root(self, tensors: Any) -> None:
        """The loss of this step, as backward begins with it."""
        root = tensors if isinstance(tensors, self.torch.Tensor) else next(iter(tensors), None)
        if self.scaled is not None:
            if self.scaled[0] is root:
                root = self.scaled[1]
            self.scaled = None
        self._backward_since = True
        if root is None or root.numel() != 1:
            self.odd = "backward() does not start from a scalar loss"
            return
        self.loss = (self.loss or 0.0) + float(root.detach().float())

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Whose step it is, and whether the loss means something."""
        if not any(each is optimizer for each in self.optimizers):
            self.optimizers.append(optimizer)
        self.turns |= self._backward_since and optimizer is not self.optimizers[0]
        self._backward_since = False
        if any(callable(each) for each in [*args, *kwargs.values()] if each is not optimizer):
            self.odd = "the optimizer computes the loss itself, several times a step (a closure)"

    def give_again(self, iterator: Any, given: list) -> None:
        """The script asks for a batch: what it is to get instead of a new one goes into `given`."""

    def fetched(self, iterator: Any, data: Any) -> None:
        """The script is about to get this batch from its loader."""
        if self.torch.is_grad_enabled():
            self.samples += size_of(data)

    def give_up(self) -> None:
        """Nothing of ours may stay."""


class Losses(_Watch):
    """A short training: the loss of each step, before that step was made."""

    def __init__(self, torch: Any, order: dict) -> None:
        super().__init__(torch, order)
        self._lines: list = []

    def after_step(self, optimizer: Any) -> None:
        """The step is made."""
        if optimizer is not self.optimizers[0]:
            return
        self.steps += 1
        loss, self.loss = self.loss, None
        if loss is not None:
            finite = math.isfinite(loss)
            telling.line(
                LOSSES, step=self.steps, loss=loss if finite else None, finite=finite, samples=self.samples
            )
        telling.step(self.steps)
        limit, most = self.order.get("steps") or 0, self.order.get("samples") or 0
        if (limit and self.steps >= limit) or (most and self.samples >= most):
            enough.reached(odd=self.odd, turns=self.turns, optimizers=len(self.optimizers))


class Gradients(_Watch):
    """The same batch without the knob, again without it, and with it."""

    def __init__(self, torch: Any, order: dict) -> None:
        super().__init__(torch, order)
        self._knob = order["try"][0]
        self._plan = ("off", "off", "on")
        self._at = -1  # place in the plan; -1: the script runs as it is
        self._unit = self._tried = 0
        self._batches: list = []  # (iterator, batch) of this unit, handed out again
        self._taken: dict = {}  # id of an iterator -> batches taken from it in this comparison
        self._inputs = hashlib.sha256()
        self._modules: dict = {}
        self._results: list = []
        self._saved: dict = {}
        self._grads: dict | None = None
        self._hidden: list = []  # (parameter, gradient) while the optimizer steps without them
        self._is_on = False

    # ---- what is seen

    def module(self, module: Any, args: Any, kwargs: Any) -> None:
        """The script calls a module itself."""
        if self._at < 0:
            if any(True for _ in module.parameters()):
                self._modules[id(module)] = module
            return
        for tensor in _tensors([args, kwargs], self.torch.Tensor, 0):
            if not tensor.requires_grad:
                self._inputs.update(_digest(tensor, self.torch))

    def give_again(self, iterator: Any, given: list) -> None:
        """The script asks for a batch: of one that was kept in this unit, it gets a copy."""
        if self._at < 0 or not self.torch.is_grad_enabled():
            return
        known = [batch for owner, batch in self._batches if owner is iterator]
        taken = self._taken.get(id(iterator), 0)
        self._taken[id(iterator)] = taken + 1
        if taken < len(known):
            given.append(copy.deepcopy(known[taken]))

    def fetched(self, iterator: Any, data: Any) -> None:
        """The script is about to get this batch from its loader: it is kept."""
        if self._at >= 0 and self.torch.is_grad_enabled():
            self._batches.append((iterator, copy.deepcopy(data)))

    # ---- the steps between which one comparison lies

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Whose step it is, and whether the loss means something."""
        super().before_step(optimizer, args, kwargs)
        if self.odd or len(self.optimizers) > 1:
            enough.reached(
                odd=self.odd or "the script uses several optimizers", optimizers=len(self.optimizers)
            )
        if self._at < 0:
            return
        shared = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._grads = {id(p): _copied(p.grad) for p in shared}
        self._hidden = [(p, p.grad) for p in shared]
        for p in shared:
            p.grad = None  # an optimizer passes over parameters without a gradient: nothing changes

    def after_step(self, optimizer: Any) -> None:
        """The step is made."""
        self._give_gradients_back()
        self.steps += 1
        telling.step(self.steps)
        loss, self.loss = self.loss, None
        if self._at < 0:
            if self.steps >= WARM:
                self._begin_unit()
            return
        self._results.append(
            {
                "grads": self._grads,
                "loss": loss,
                "inputs": self._inputs.hexdigest(),
                "fetched": sum(self._taken.values()),
            }
        )
        self._at += 1
        if self._at < len(self._plan):
            self._restore()
            self._switch(self._plan[self._at] == "on")
            return
        self._switch(False)
        self._compare()
        if self._unit >= UNITS or self._tried >= TRIES:
            enough.reached(odd=self.odd, optimizers=len(self.optimizers), units=self._unit)
        self._at = -1
        self._restore(buffers_only=True)

    def _begin_unit(self) -> None:
        self._at, self._results, self._batches = 0, [], []
        self._saved = {
            "rng": _rng(self.torch),
            "buffers": [(b, b.detach().clone()) for m in self._modules.values() for b in m.buffers()],
        }
        self._taken, self._inputs = {}, hashlib.sha256()

    def _restore(self, buffers_only: bool = False) -> None:
        with self.torch.no_grad():
            for buffer, was in self._saved["buffers"]:
                buffer.copy_(was)
        if not buffers_only:
            _set_rng(self.torch, self._saved["rng"])
        self._taken, self._inputs = {}, hashlib.sha256()

    def _compare(self) -> None:
        """Two results of the same batch.
        A script that draws its next batch ahead has it only in the second and third."""
        first, off, on = self._results
        self._tried += 1
        null = first["inputs"] == off["inputs"]
        same = off["inputs"] == on["inputs"] or (
            null and off["fetched"] > 0 and on["fetched"] == off["fetched"]
        )
        if not same:
            telling.line(COSINES, unit=self._unit, same=False)
            return
        self._unit += 1
        finite = all(math.isfinite(x["loss"]) for x in (off, on) if x["loss"] is not None) and _finite(
            on["grads"]
        )
        telling.line(
            COSINES,
            unit=self._unit,
            same=True,
            cosine=_cosine(off["grads"], on["grads"]),
            finite=finite,
            loss=_number(off["loss"]),
            loss_with=_number(on["loss"]),
            norm=_norm(off["grads"]),
            norm_with=_norm(on["grads"]),
            **({"null": _cosine(first["grads"], off["grads"])} if null else {}),
        )

    def _switch(self, on: bool) -> None:
        if on == self._is_on:
            return
        why = switch(self._knob, on)
        self._is_on = on
        if why:
            enough.reached(odd=why)

    def _give_gradients_back(self) -> None:
        for p, grad in self._hidden:
            p.grad = grad
        self._hidden = []

    def give_up(self) -> None:
        self._give_gradients_back()
        self._at = -1


def switch(knob: str, on: bool) -> str:
    """Turn one knob of `settings` between two steps; why it does not turn, or did not stay on. knob:
    "bf16", "tf32", or one of theirs."""
    from ..settings import knobs
    name, value = ("precision", knob) if knob in ("bf16", "tf32") else (knob, True)
    one = getattr(knobs, name)
    if on:
        return one.on(value)
    stayed = one.value == value
    one.off()
    return "" if stayed else f"the forward pass fails with the setting {knob}"


# ---- tensors and random states

def _tensors(value: Any, kind: type, depth: int) -> list:
    if isinstance(value, kind):
        return [value]
    if depth > 4:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for each in value for t in _tensors(each, kind, depth + 1)]
    return []


def _digest(tensor: Any, torch: Any) -> bytes:
    flat = tensor.detach().reshape(-1)
    part = flat[:HASHED // max(1, tensor.element_size())].contiguous().cpu()
    said = repr((tuple(tensor.shape), str(tensor.dtype))).encode()
    if flat.numel() > part.numel() and flat.dtype != torch.bool:
        said += repr(float(flat.double().sum())).encode()
    return said + bytes(part.view(torch.uint8).numpy().tobytes()) if part.numel() else said


def _copied(grad: Any) -> Any:
    """In float32, so that what is compared is not rounded once more."""
    if grad.is_sparse:
        grad = grad.coalesce()
        grad = grad.to_dense() if math.prod(grad.shape) <= DENSE else grad.values()
    grad = grad.detach()
    return grad.float().clone() if grad.dtype.is_floating_point else grad.clone()


def _dot(one: dict, other: dict) -> float:
    return sum(float((a.double().reshape(-1) * other[n].double().reshape(-1)).sum()) for n, a in one.items()
               if n in other and other[n].shape == a.shape)


def _norm(grads: dict) -> float | None:
    return _number(math.sqrt(max(0.0, _dot(grads, grads)))) if _finite(grads) else None


def _cosine(one: dict, other: dict) -> float | None:
    """None where it means nothing: a gradient that is not finite, that is zero, or other parameters."""
    if one.keys() != other.keys() or not _finite(one) or not _finite(other):
        return None
    long = math.sqrt(_dot(one, one) * _dot(other, other))
    return _number(_dot(one, other) / long) if long > 0 else None


def _finite(grads: dict) -> bool:
    return all(bool(g.isfinite().all()) for g in grads.values())


def _number(value: Any) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rng(torch: Any) -> dict:
    import random
    saved: dict = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        saved["cuda"] = torch.cuda.get_rng_state_all()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        saved["numpy"] = numpy.random.get_state()
    return saved


def _set_rng(torch: Any, saved: dict) -> None:
    import random
    random.setstate(saved["python"])
    torch.set_rng_state(saved["torch"])
    if "cuda" in saved:
        torch.cuda.set_rng_state_all(saved["cuda"])
    if "numpy" in saved:
        sys.modules["numpy"].random.set_state(saved["numpy"])

"""How far a rehearsal goes: a few optimizer steps, then the rest of a shortened epoch with what follows it
(validation, checkpoint), one step of the next; and what is noticed on the way."""

from __future__ import annotations

import dis
import hashlib
import math
import os
import sys
import threading
import time
import weakref

from . import pretend, ranks
from .tell import STEPS, is_main_of_its_own, once, place_in_script, tell

EVALUATED = 2  # batches of each loader that trains nothing
UNSTEPPED = 256  # batches without a step after which a loader trains nothing
RELEASE_S = 120.0
_seen = {
    "steps": 0,
    "shortened": False,
    "counts": {},
    "depth": 0,
    "losses": 0,
    "scaled": False,
    "module": None,
}
_loaders: dict = {}
_alive: weakref.WeakSet = weakref.WeakSet()  # iterators of loaders, whose workers end before we do


def install(torch: object) -> None:
    """Count steps, shorten loaders, watch losses and gradients."""
    if os.environ.get("STOKER_REHEARSE_STEPS"):
        _seen["limit"] = int(os.environ["STOKER_REHEARSE_STEPS"])
    _optimizers(torch)
    _modules(torch)
    _loops(torch)
    _scaler(torch)
    engine = getattr(torch.autograd, "_engine_run_backward", None)
    if engine is None:
        return

    def run_backward(tensors: object, *args: object, **kwargs: object) -> object:
        loss = next(iter(tensors), None)
        if kwargs.get("accumulate_grad") and loss is not None and not _seen["scaled"]:
            _note_loss(loss)

        def call() -> object:
            if torch._C._len_torch_function_stack():
                return engine(tensors, *args, **kwargs)
            with pretend.on():  # functions of the script's own run in there
                return engine(tensors, *args, **kwargs)

        return ranks.meet("backward", "gradients of DistributedDataParallel", call) if ranks.ddp() else call()

    torch.autograd._engine_run_backward = run_backward


def limit() -> int:
    return _seen.get("limit", STEPS)


def _note_loss(loss: object) -> None:
    if loss.numel() != 1 or _seen["losses"] > 20:
        return
    _seen["losses"] += 1
    with pretend.off():
        value = float(loss.detach().float())
    tell("loss", value=value, finite=math.isfinite(value), at=place_in_script())


def _scaler(torch: object) -> None:
    try:
        from torch.amp import GradScaler
    except ImportError:
        from torch.cuda.amp import GradScaler
    scale, step = GradScaler.scale, GradScaler.step

    def scaled(self: object, outputs: object) -> object:
        if isinstance(outputs, torch.Tensor) and self.is_enabled():
            _seen["scaled"] = True
            _note_loss(outputs)
        return scale(self, outputs)

    def stepped(self: object, optimizer: object, *args: object, **kwargs: object) -> object:
        before = _seen["steps"]
        out = step(self, optimizer, *args, **kwargs)
        if _seen["steps"] == before and self.is_enabled():
            once("skipped")
            _count(optimizer)  # the scaler looks for its scale: the first steps may be skipped on a GPU too
        return out

    GradScaler.scale, GradScaler.step = scaled, stepped


def _optimizers(torch: object) -> None:
    from torch.optim import optimizer

    pre = getattr(optimizer, "register_optimizer_step_pre_hook", None)
    post = getattr(optimizer, "register_optimizer_step_post_hook", None)
    if pre is None or post is None:
        return
    pre(lambda opt, args, kwargs: _before_step(opt))
    post(lambda opt, args, kwargs: _count(opt))


def _before_step(opt: object) -> None:
    if _seen["steps"] >= limit() + 8:
        finish()
    if _seen["steps"] or not is_main_of_its_own():
        return
    names = {id(p): n for n, p in _seen["module"].named_parameters()} if _seen["module"] is not None else {}
    without = [
        names.get(id(p), "a parameter")
        for group in opt.param_groups
        for p in group["params"]
        if p.requires_grad and p.grad is None
    ]
    if without:
        once("no_grad", id(opt), count=len(without), names=without[:5])


def _count(opt: object) -> None:
    counts = _seen["counts"]
    counts[id(opt)] = counts.get(id(opt), 0) + 1
    if counts[id(opt)] > _seen["steps"]:
        _seen["steps"] = counts[id(opt)]
        tell("step", n=_seen["steps"])
    current = _loaders.get("now")
    if current is not None and not current["stepped"]:
        current["stepped"] = True
        _note_epoch(current)


def _note_epoch(current: dict) -> None:
    """A DistributedSampler whose epoch is the one of the loop before gives the same order again."""
    sampler = current.get("sampled_by")
    epoch = getattr(sampler, "epoch", None)
    if epoch is None or not getattr(sampler, "shuffle", False) or not hasattr(sampler, "set_epoch"):
        return
    if getattr(sampler, "_rehearsed_epoch", None) == epoch:
        text = "sampler.set_epoch(epoch) is missing: the sample order is the same in each epoch"
        once("lint", "set_epoch", text=text, at=current.get("at", ""))
    sampler._rehearsed_epoch = epoch


def _modules(torch: object) -> None:
    real = torch.nn.Module.__call__

    def call(self: object, *args: object, **kwargs: object) -> object:
        if _seen["depth"] or threading.current_thread() is not threading.main_thread():
            return real(self, *args, **kwargs)
        if torch.is_grad_enabled() and self.training and _over():
            finish()
        if (
            isinstance(self, torch.nn.parallel.DistributedDataParallel)
            or _seen["module"] is None
            or _is_bigger(self)
        ):
            _seen["module"] = self
        if next(self.parameters(), None) is not None:  # no transform of a single sample
            _note_batch(args, kwargs)
        _seen["depth"] = 1
        try:
            if ranks.ddp() and isinstance(self, torch.nn.parallel.DistributedDataParallel):
                return ranks.meet(
                    "forward", "buffers of DistributedDataParallel", lambda: real(self, *args, **kwargs)
                )
            return real(self, *args, **kwargs)
        finally:
            _seen["depth"] = 0

    torch.nn.Module.__call__ = call


def _is_bigger(module: object) -> bool:
    known = _seen["module"]
    return module is not known and sum(1 for _ in module.parameters()) > sum(1 for _ in known.parameters())


def _over() -> bool:
    return _seen["steps"] >= limit() + bool(_seen["shortened"])


def _note_batch(args: tuple, kwargs: dict) -> None:
    if _seen["steps"] or _seen.get("noted"):
        return
    tensors = pretend.tensors_in(args) + pretend.tensors_in(kwargs)
    if not tensors:
        return
    _seen["noted"] = True
    with pretend.off():
        said = [f"{list(t.shape)} {str(t.dtype).replace('torch.', '')}" for t in tensors[:4]]
        sample = tensors[0].detach().reshape(-1)[:4096].float()
        digest = hashlib.sha256(repr(sample.tolist()).encode()).hexdigest()[:16]
    tell("batch", shapes=said, digest=digest if len(sample) > 8 and len(set(sample.tolist())) > 2 else "")


def _loops(torch: object) -> None:
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    following, begin = base.__next__, base.__init__

    def init(self: object, loader: object, *args: object, **kwargs: object) -> None:
        begin(self, loader, *args, **kwargs)
        self._pin_memory = False  # no thread for it: `after` calls it pinned
        self._num_workers = min(1, getattr(self, "_num_workers", 0))  # one shows what workers can get wrong
        _alive.add(self)
        sampled_by = getattr(loader, "sampler", None)
        self._rehearsed = {
            "yielded": 0,
            "stepped": False,
            "sampled_by": sampled_by,
            "pins": bool(getattr(loader, "pin_memory", False)),
            "length": _length(loader),
            "sampler": type(getattr(loader, "sampler", None)).__name__,
        }

    def after(self: object) -> object:
        mine = self.__dict__.setdefault(
            "_rehearsed", {"yielded": 0, "stepped": False, "length": None, "sampler": ""}
        )
        if _is_loop(sys._getframe(1)) and mine["yielded"] and _enough(mine, torch):
            if mine["stepped"]:
                _seen["shortened"] = True
                if _over():
                    finish()
            mine["yielded"] = 0
            raise StopIteration
        mine["yielded"] += 1
        if mine["yielded"] == 1:
            mine["at"], mine["stepped"] = place_in_script(), False
        _loaders["now"] = mine
        out = following(self)
        for tensor in pretend.tensors_in(out, 6):
            pretend.mark(tensor, pretend.CPU)
            if mine.get("pins"):
                pretend.pin(tensor)
        if mine["yielded"] == 1 and torch.is_grad_enabled():
            once(
                "loader",
                mine["sampler"] + str(mine["length"]),
                length=mine["length"],
                sampler=mine["sampler"],
                at=place_in_script(),
            )
        return out

    base.__init__, base.__next__ = init, after
    base.next = after


def _length(loader: object) -> object:
    try:
        return len(loader)
    except TypeError:
        return None


def _enough(mine: dict, torch: object) -> bool:
    if mine["stepped"]:
        return _seen["steps"] >= limit()
    return mine["yielded"] >= (EVALUATED if not torch.is_grad_enabled() else UNSTEPPED) or (
        _seen["shortened"] and mine["yielded"] >= EVALUATED
    )


def _is_loop(frame: object) -> bool:
    """Is the caller a `for`, which takes the end of a loader as the end
    of an epoch? A next() might not expect it."""
    code = frame.f_code.co_code
    return frame.f_lasti >= 0 and dis.opname[code[frame.f_lasti]].startswith(("FOR_ITER", "FOR_LOOP"))


def finish() -> None:
    """This rank has done what was asked of it.
    It waits for the others, so that nobody who still talks to it is disturbed."""
    tell("done", steps=_seen["steps"])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    for each in list(_alive):
        try:
            getattr(each, "_shutdown_workers", lambda: None)()
        except Exception:
            pass
    release = os.path.join(os.environ["STOKER_REHEARSE_ROOM"], "release")
    until = time.monotonic() + RELEASE_S
    while time.monotonic() < until and not os.path.exists(release):
        time.sleep(0.05)
    os._exit(0)

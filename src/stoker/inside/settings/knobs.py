"""Knobs of the computation: threads, precision, channels_last, fused, compile.
Each has `fits(value)` and `on(value)`, which say "" or why not and never raise, and `off()`;
they may be turned between any two steps of a living training.

What fails in a forward is taken out, and that forward is run again without, from the same random state.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading

from . import roots, told
from .fused import Fused
from .knob import Knob, failed, living, turned
from .outputs import as_float, as_read, is_last

_first = True  # nothing has gone through a changed forward yet


def root() -> object:
    return roots.root()


def optimizers() -> list:
    return roots.living()


def shapes() -> str:
    """A short hash of the parameters' shapes and kinds, in the order in which the first optimizer holds them;
    "" before there is one."""
    living = roots.living()
    if not living:
        return ""
    kinds = [[_shape(p), str(p.dtype)] for group in living[0].param_groups for p in group["params"]]
    return hashlib.sha256(json.dumps(kinds).encode()).hexdigest()[:16]


def _shape(parameter: object) -> object:
    try:
        return list(parameter.shape)
    except Exception:  # a lazy one has none yet
        return "lazy"


# ---- threads

class Threads(Knob):
    """Threads of one operation (intra-op)."""

    name = "threads"
    _was = 0

    def _fits(self, value: object) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1024
        return "" if fits else f"{value} is not a number of threads"

    def _on(self, value: int) -> None:
        torch = sys.modules["torch"]
        self._was = self._was or torch.get_num_threads()
        torch.set_num_threads(value)

    def _off(self) -> None:
        if self._was:
            sys.modules["torch"].set_num_threads(self._was)
            self._was = 0


# ---- what changes the root's forward

def _root_obstacle() -> str:
    """Why the root's forward is left as it is, or ""."""
    torch, module = sys.modules["torch"], roots.root()
    if module is None:
        several = ", ".join(roots.types)
        if several:
            return (
                f"the script calls these modules: {several}; none of these modules holds all trained "
                "parameters"
            )
        return "the script calls no module that holds the trained parameters"
    if isinstance(module, torch.jit.ScriptModule):
        return "the model is a TorchScript module"
    kind = type(module)
    if (
        kind.__module__.startswith("torch.nn.parallel")
        or "fsdp" in kind.__module__
        or kind.__name__.startswith("DeepSpeed")
    ):
        return f"the model is wrapped in {kind.__name__}"
    if (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    ):
        return "several ranks train together"
    if kind.__module__.startswith("torch._dynamo") or module._compiled_call_impl is not None:
        return "the script already compiles the model"
    return ""


def _dtypes() -> set:
    return {p.dtype for p in roots.root().parameters()}


class Precision(Knob):
    """"bf16": the root's forward under autocast, its outputs back in float32. "tf32":
    products of float32 in TF32, where the device can."""

    name = "precision"
    _was: tuple | None = None

    def _fits(self, value: object) -> str:
        torch = sys.modules["torch"]
        if value == "tf32":
            if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 8:
                return "no device here supports TF32"
            return ""
        if value != "bf16":
            return f"{value} is not a known precision"
        why = _root_obstacle()
        if why:
            return why
        if roots.autocast:
            return "the script already uses autocast"
        if any(each._enabled for each in living("torch.amp.grad_scaler.GradScaler")):
            return "the script already scales its gradients (GradScaler)"
        other = _dtypes() - {torch.float32}
        if other:
            types = ", ".join(sorted(str(each).removeprefix("torch.") for each in other))
            return f"the model has parameters of other types than float32: {types}"
        device = next(roots.root().parameters()).device.type
        if device == "cuda" and not torch.cuda.is_bf16_supported():
            return "the device does not support bfloat16"
        return "" if device in ("cpu", "cuda") else f"the model is on {device}, not on a CPU or a CUDA GPU"

    def _on(self, value: str) -> None:
        if value == "tf32":
            backends = sys.modules["torch"].backends
            self._was = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
            backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = True

    def _off(self) -> None:
        if self._was is not None:
            backends = sys.modules["torch"].backends
            backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = self._was
            self._was = None


class ChannelsLast(Knob):
    """Convolution weights, 4-D inputs of the root and what lies between in channels_last;
    4-D outputs as the script expects them."""

    name = "channels_last"
    _early = False

    def _fits(self, value: object) -> str:
        why = _root_obstacle()
        if why:
            return why
        return "" if _convolutions() else "the model has no 2-D convolutions"

    def by_script(self) -> bool | None:
        """Whether the script itself uses channels_last: by all filters that tell, or by the inputs.
        None where neither tells, so that this knob would change nothing."""
        if self.value or self._early:
            return False
        seen = is_last([getattr(each, "weight", None) for each in _convolutions()]), roots.last
        return True if True in seen else False if False in seen else None

    def _on(self, value: object) -> None:
        convert(_convolutions(), sys.modules["torch"].channels_last)

    def _off(self) -> None:
        if roots.root() is not None and (self.value or self._early):
            convert(_convolutions(), sys.modules["torch"].contiguous_format)
            self._early = False

    def early(self, optimizer: object) -> None:
        """The weights that this optimizer trains, already now:
        a life that goes to an image comes by here too, but by no forward."""
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        found = [
            each
            for each in living("torch.nn.Conv2d", "torch.nn.ConvTranspose2d")
            if id(getattr(each, "weight", None)) in trained
        ]
        convert(found, sys.modules["torch"].channels_last)
        self._early = True


def _convolutions() -> list:
    nn = sys.modules["torch"].nn
    return [each for each in roots.root().modules() if isinstance(each, (nn.Conv2d, nn.ConvTranspose2d))]


def convert(convolutions: list, layout: object) -> None:
    """Their weights in another layout: the same parameters, the same values."""
    torch = sys.modules["torch"]
    for each in convolutions:
        weight = getattr(each, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=layout)
            if weight.grad is not None:
                weight.grad = weight.grad.contiguous(memory_format=layout)


class Compile(Knob):
    """The root's forward through torch.compile. What cannot be compiled runs as it stands."""

    name = "compile"
    compiled = None
    _was: object = None

    def _fits(self, value: object) -> str:
        if os.environ.get("STOKER_RESUME") == "auto":
            return (
                "exact resume does not support a compiled model (to compile without exact resume: "
                "--resume off)"
            )
        why = _root_obstacle()
        if why:
            return why
        torch = sys.modules["torch"]
        device = next(roots.root().parameters()).device.type
        if device == "cpu" and not any(shutil.which(each) for each in ("g++", "clang++", "c++")):
            return "there is no C++ compiler"
        check = (
            getattr(torch._dynamo, "is_dynamo_supported", None) if "torch._dynamo" in sys.modules else None
        )
        return "" if check is None or check() else "torch.compile does not support this version of Python"

    def _on(self, value: object) -> None:
        from torch import _dynamo
        self._was = _dynamo.config.suppress_errors
        _dynamo.config.suppress_errors = True  # what cannot be compiled is run as it stands
        self.compiled = sys.modules["torch"].compile(roots.root()._call_impl)

    def _off(self) -> None:
        if self.compiled is not None:
            self.compiled = None
            sys.modules["torch"]._dynamo.config.suppress_errors = self._was


threads, precision, channels_last, fused, compile = Threads(), Precision(), ChannelsLast(), Fused(), Compile()
ALL = (threads, precision, channels_last, fused, compile)


# ---- the root's call

def set_run() -> None:
    """Whether the root's call goes a way of its own now."""
    roots.run = _run if precision.value == "bf16" or channels_last.value or compile.value else None


turned.append(set_run)


def _run(real: object, module: object, args: tuple, kwargs: dict) -> object:
    """The root's forward with what is turned on.
    What fails is taken out for good, and the forward is run again without."""
    global _first
    if precision.value == "bf16" and _casts_itself():
        told.left("precision", "the script already uses autocast")
        precision.off()
        return (roots.run or _plain)(real, module, args, kwargs)
    before = _before(module, _first)
    try:
        out = _changed(real, module, args, kwargs)
        _first = False
        return out
    except Exception as e:
        error = e
    names = [each.name for each in (precision, channels_last, compile) if each.value and each.value != "tf32"]
    _take_out(names, error)
    _restore(before)
    return real(module, *args, **kwargs)


def _plain(real: object, module: object, args: tuple, kwargs: dict) -> object:
    return real(module, *args, **kwargs)


def _casts_itself() -> bool:
    return roots.casts()


def _changed(real: object, module: object, args: tuple, kwargs: dict) -> object:
    torch = sys.modules["torch"]
    if channels_last.value:
        args, kwargs = as_read(args), as_read(kwargs)
    call = compile.compiled
    if precision.value != "bf16":
        out = real(module, *args, **kwargs) if call is None else call(*args, **kwargs)
    else:
        device = next(module.parameters()).device.type
        with torch.autocast(device, dtype=torch.bfloat16):
            out = real(module, *args, **kwargs) if call is None else call(*args, **kwargs)
        out = as_float(out)
    return as_read(out, back=True) if channels_last.value else out


def _take_out(names: list, error: Exception) -> None:
    for each in ALL:
        if each.name in names:
            each.off()
            failed[each.name] = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            told.left(
                each.name,
                (
                    f"the forward pass failed with this setting ({failed[each.name]}); "
                    "Stoker repeated the forward pass without the setting"
                ),
            )
    told.write()


def _before(module: object, first: bool) -> tuple:
    """What a forward changes: the random state, and in the first one the buffers."""
    torch = sys.modules["torch"]
    device = next(module.parameters()).device
    rngs = (
        torch.get_rng_state(),
        (torch.cuda.get_rng_state(device) if device.type == "cuda" else None),
        device,
    )
    return rngs, [(each, each.detach().clone()) for each in module.buffers()] if first else []


def _restore(before: tuple) -> None:
    torch = sys.modules["torch"]
    (host, there, device), buffers = before
    torch.set_rng_state(host)
    if there is not None:
        torch.cuda.set_rng_state(there, device)
    with torch.no_grad():
        for each, value in buffers:
            each.copy_(value)


# ---- settings of a run

_wanted: dict = {}


def want(settings: dict) -> None:
    """Turn what these settings name, at the moments when it can be decided;
    tell what was turned and what not."""
    _wanted.clear()
    _wanted.update(
        {each.name: settings[each.name] for each in ALL if settings.get(each.name) not in (None, False)}
    )
    if _wanted:
        _wanted["shapes"] = settings.get("shapes")
        roots.at_optimizer.append(_optimizer_made)
        roots.at_root.append(_root_found)
        roots.at_step.append(_step_made)


def _others() -> str:
    """Why these settings are for another model, or ""."""
    return (
        "the parameter shapes have changed since the measurement"
        if _wanted["shapes"] not in (None, shapes())
        else ""
    )


def _turn(knob: Knob) -> None:
    why = _others() or knob.on(_wanted[knob.name])
    name = (
        f"{knob.name}={str(_wanted[knob.name]).lower()}"
        if not isinstance(_wanted[knob.name], bool)
        else knob.name
    )
    told.left(name, why) if why else told.applied(name)


def _optimizer_made(optimizer: object) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    if "threads" in _wanted and threads.value is None:
        _turn(threads)
    if "fused" in _wanted:
        fused.also(optimizer) if fused.value else _turn(fused)
    if "channels_last" in _wanted and not _others():
        channels_last.early(optimizer)


def _root_found(module: object) -> None:
    for knob in (channels_last, precision, compile):
        if knob.name in _wanted and knob.name not in failed:
            if knob.value is not None:  # of an earlier training in this process
                knob.off()
            _turn(knob)
            if knob.value is None:
                knob.off()


def _step_made() -> None:
    for knob in (channels_last, precision, compile):
        if knob.name in _wanted and knob.value is None and knob.name not in failed:
            told.left(
                knob.name,
                _root_obstacle() or knob.fits(_wanted[knob.name]) or "the setting could not be applied",
            )
    told.write()

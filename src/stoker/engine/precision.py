"""The number format of forward and backward. `Precision` itself is fp32, so the loop needs no branch."""

from __future__ import annotations

import torch
from torch import nn


class Precision:
    """fp32: compute in the model's own formats."""

    name = "fp32"
    scales = False  # True where a gradient scaler skips steps by itself

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def prepare(self, model: nn.Module, compiled: bool) -> None:
        """Called once for each module given to `setup`."""

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss for the call of backward."""
        return loss

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling: gradients of the unscaled loss."""

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer."""
        optimizer.step()

    def after(self) -> None:
        """Called once at the end of an optimizer step."""

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned."""


class Tf32(Precision):
    """fp32 storage; matrix products of NVIDIA GPUs round to 10 bits of mantissa."""

    name = "tf32"

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True


class Mixed(Precision):
    """Autocast around each call of a model; its results are float32."""

    dtype = torch.bfloat16

    def prepare(self, model: nn.Module, compiled: bool) -> None:
        contexts: list[torch.autocast] = []

        def enter(*_: object) -> None:
            context = torch.autocast(self.device.type, self.dtype)
            context.__enter__()
            contexts.append(context)

        def leave(_module: nn.Module, _args: object, out: object) -> object:
            contexts.pop().__exit__(None, None, None)
            return _to_float(out)

        if compiled:  # the compiler would take the context apart, and cannot end it in another function
            enter, leave = torch.compiler.disable(enter), torch.compiler.disable(leave)
        model.register_forward_pre_hook(enter, prepend=True)
        model.register_forward_hook(leave, always_call=True)


class Bf16(Mixed):
    """bfloat16 where autocast allows it."""

    name = "bf16"


class Fp16(Mixed):
    """float16 where autocast allows it, with a gradient scaler."""

    name = "fp16"
    dtype = torch.float16
    scales = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.scaler = torch.amp.GradScaler(device.type)
        self.used = False

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.scaler.step(optimizer)
        self.used = True

    def after(self) -> None:
        if self.used:
            self.scaler.update()
        self.used = False

    def state_dict(self) -> dict:
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.scaler.load_state_dict(state)


_KINDS = {"fp32": Precision, "tf32": Tf32, "bf16": Bf16, "fp16": Fp16}


def precision(name: str, device: torch.device) -> Precision:
    """The precision of this name on this device."""
    return _KINDS[name](device)


def choose(device: torch.device) -> tuple[str, str]:
    """(name, why) for precision="auto"."""
    if device.type != "cuda":
        return "fp32", "the device is a CPU"
    if torch.cuda.get_device_capability(device) >= (8, 0):
        return "bf16", f"{torch.cuda.get_device_name(device)} supports bfloat16 natively"
    return "fp16", f"{torch.cuda.get_device_name(device)} has no native bfloat16"


def _to_float(out: object) -> object:
    if isinstance(out, torch.Tensor):
        return out.float() if out.dtype in (torch.bfloat16, torch.float16) else out
    if isinstance(out, tuple) and type(out) is tuple:
        return tuple(_to_float(each) for each in out)
    if isinstance(out, list):
        return [_to_float(each) for each in out]
    if isinstance(out, dict):
        for name in list(out):
            out[name] = _to_float(out[name])
    return out

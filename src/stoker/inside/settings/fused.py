"""The fused form of optimizers that have one, switched between two steps."""

from __future__ import annotations

import sys

from ..entry import unnumbered
from . import roots
from .knob import Knob, living


class Fused(Knob):
    """Of each optimizer of this era whose parameters allow it."""

    name = "fused"

    def __init__(self) -> None:
        self._changed: list = []  # (optimizer, [(group, what it said)], handles)

    def _fits(self, value: object) -> str:
        whys = [fused_obstacle(each) for each in roots.living()]
        return "there is no optimizer" if not whys else "" if "" in whys else whys[0]

    def _on(self, value: object) -> None:
        for each in roots.living():
            if not fused_obstacle(each):
                self._changed.append(fuse(each))

    def _off(self) -> None:
        while self._changed:
            unfuse(*self._changed.pop())

    def also(self, optimizer: object) -> None:
        """One that is made while the knob is on."""
        if not any(each[0] is optimizer for each in self._changed) and not fused_obstacle(optimizer):
            self._changed.append(fuse(optimizer))


def fused_obstacle(optimizer: object) -> str:
    """Why this one cannot be fused, or ""."""
    torch = sys.modules["torch"]
    from torch.utils._foreach_utils import _get_fused_kernels_supported_devices
    kind = type(optimizer)
    kinds = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
    if kind not in kinds:
        return f"Stoker can fuse only SGD, Adam, AdamW and Adagrad, not {kind.__name__}"
    if "fused" not in optimizer.defaults:
        return f"in this version of torch, {kind.__name__} has no option fused"
    if all(group.get("fused") for group in optimizer.param_groups):
        return "the optimizer is already fused"
    if any(group.get("differentiable") or group.get("capturable") for group in optimizer.param_groups):
        return "the optimizer has the option differentiable=True or capturable=True"
    if any(each._enabled for each in living("torch.amp.grad_scaler.GradScaler")):
        return "the script already scales its gradients (GradScaler)"
    devices = {"cpu"} if kind is torch.optim.Adagrad else set(_get_fused_kernels_supported_devices())
    for group in optimizer.param_groups:
        if any(isinstance(each, torch.Tensor) for each in group.values()):
            return "an option of the optimizer, such as the learning rate, is a tensor"
        for p in group["params"]:
            why = _parameter_obstacle(p, devices)
            if why:
                return why
    if any(isinstance(each, torch.nn.Embedding) and each.sparse for each in living("torch.nn.Embedding")):
        return "gradients are sparse"
    return ""


def _parameter_obstacle(p: object, devices: set) -> str:
    torch = sys.modules["torch"]
    if type(p) not in (torch.Tensor, torch.nn.Parameter):
        return f"a parameter has the type {type(p).__name__}"
    if not p.is_floating_point():
        return f"a parameter has the dtype {p.dtype}"
    if p.device.type not in devices:
        return f"a parameter is on {p.device.type}"
    if p.layout is not torch.strided:
        return f"a parameter has the layout {p.layout}"
    return "gradients are sparse" if p.grad is not None and p.grad.is_sparse else ""


def fuse(optimizer: object) -> tuple:
    """Switch it. What it tells of itself, and so what the script saves, stays as it was."""
    said = [
        (group, {word: group.get(word) for word in ("fused", "foreach")}) for group in optimizer.param_groups
    ]

    def as_it_was(_: object, state: dict) -> None:
        for group, (_, words) in zip(state["param_groups"], said):  # noqa: B905  # Python 3.9
            group.update(words)

    def again(_: object) -> None:
        said[:] = [
            (group, {word: group.get(word) for word in ("fused", "foreach")})
            for group in optimizer.param_groups
        ]
        _switch(optimizer, said)

    _switch(optimizer, said)
    handles = [unnumbered.register(optimizer.register_state_dict_post_hook, as_it_was),
               unnumbered.register(optimizer.register_load_state_dict_post_hook, again)]
    return optimizer, said, handles


def _switch(optimizer: object, said: list) -> None:
    torch = sys.modules["torch"]
    for group, _ in said:
        group.update(fused=True, foreach=False)
        for p in group["params"]:
            count = optimizer.state.get(p, {}).get("step")
            if isinstance(count, torch.Tensor) and (count.device != p.device or count.dtype != torch.float32):
                optimizer.state[p]["step"] = count.to(device=p.device, dtype=torch.float32)


def unfuse(optimizer: object, said: list, handles: list) -> None:
    """Undo `fuse`."""
    torch = sys.modules["torch"]
    for handle in handles:
        handle.remove()
    for group, words in said:
        group.update(words)
        if words["fused"]:
            continue
        for p in group["params"]:
            count = optimizer.state.get(p, {}).get("step")
            if isinstance(count, torch.Tensor) and count.device.type != "cpu":
                optimizer.state[p]["step"] = count.cpu()

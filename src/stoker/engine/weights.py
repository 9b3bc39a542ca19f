"""Initial weights of a new run, taken from another run by name."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from stoker.engine import checkpoint
from stoker.engine.errors import StateError

MOST_NAMED = 6


def start_from(path: Path, models: list[nn.Module]) -> str:
    """As `load`, but returns only the sentence."""
    return load(path, models)[0]


def load(path: Path, models: list[nn.Module]) -> tuple[str, list[str]]:
    """Copy tensors into the models if name and shape agree.
    Returns a sentence that lists the tensors loaded and not loaded, and the tensors that were not loaded.

    path: a .safetensors file (of `engine.export`, for the first model), a state_dict saved by torch.save,
        a checkpoint, or the folder of a run (its best checkpoint, or the newest if there is no best).
        Raises StateError if the file cannot be read or no tensor fits.
    """
    found = _read(path)
    several = any(name.startswith("model1.state.") for name in found)
    of_model = [_of(found, n) for n in range(1, len(models) + 1)] if several else [found]
    taken = 0
    left: list[str] = []
    with torch.no_grad():
        for model, tensors in zip(models, of_model, strict=False):
            own = model.state_dict()
            for name, tensor in own.items():
                other = tensors.get(name)
                if other is not None and other.shape == tensor.shape:
                    tensor.copy_(other)
                    taken += 1
                else:
                    left.append(
                        f"{name} "
                        f"({'not in the file' if other is None else f'shape {tuple(other.shape)} in the file, {tuple(tensor.shape)} in the model'})"  # noqa: E501
                    )
    if not taken:
        raise StateError(f"{path} has no tensor that fits the model. Tensors of the model: "
                         f"{', '.join(left[:MOST_NAMED])}.")
    more = f", and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    said = f"starts from {path}: {taken} tensors loaded"
    return (f"{said}; not loaded: {', '.join(left[:MOST_NAMED])}{more}", left) if left else (said, [])


def _of(tensors: dict[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
    prefix = f"model{number}.state."
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _read(path: Path) -> dict[str, torch.Tensor]:
    if path.is_dir():
        return _read_folder(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError, _unpickling()) as e:
        raise StateError(f"init_from: {path} cannot be read ({e}).") from None
    state = state.get("state_dict", state) if isinstance(state, dict) else {}
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _unpickling() -> type[Exception]:
    """What torch.load raises for a file that is none of its own."""
    return torch.serialization.pickle.UnpicklingError


def _read_folder(path: Path) -> dict[str, torch.Tensor]:
    if (path / checkpoint.MANIFEST).exists():
        why = checkpoint.fault(path)
        if why:
            raise StateError(f"init_from: {path} cannot be read: {why}.")
        return load_file(path / checkpoint.TENSORS)
    saved, _ = checkpoint.newest(path if not (path / "checkpoints").is_dir() else path / "checkpoints")
    if saved is None:
        raise StateError(f"init_from: {path} has no complete checkpoint.",
                         hint="Name a .safetensors file, a checkpoint, or the folder of a run.")
    best = saved.doc.get("best")
    folder = saved.path.with_name(f"step-{best['step']:09d}") if best else saved.path
    return load_file(folder / checkpoint.TENSORS) if checkpoint.fault(folder) is None else saved.tensors

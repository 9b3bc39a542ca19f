"""The content of a checkpoint, by name: the objects of `setup` and the values of `keep`.
Collected into one document and restored from it."""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from torch import nn
from torch.optim import Optimizer

from stoker.engine import data, safefile, tree
from stoker.engine.dist import World
from stoker.engine.errors import InvalidSpec, StateError
from stoker.engine.sched import Schedule
from stoker.engine.state import OTHER, KeptValue, ModelState, ObjectState, OptimizerState, kind_of

WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of a number
STATEFUL = (
    "Give the object a state_dict of plain values and tensors, or save values with engine.keep(name=value)."
)


class Objects:
    """The registry. Names count per kind: model1, optimizer1, optimizer2, ..."""

    def __init__(self, device: torch.device | None = None) -> None:
        """device: where tensors of objects and kept values go back to, if they were not on the CPU."""
        self.device = device
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.feeds: dict[int, data.Feed] = {}
        self.kept: dict[str, KeptValue] = {}
        self.parameter_names: dict[torch.Tensor, str] = {}
        self._states: dict[str, ModelState | OptimizerState | ObjectState] = {}
        self._known: dict[int, object] = {}  # by id; held, so that no id comes twice
        self._counts: dict[str, int] = {}

    def add(self, things: tuple[object, ...]) -> list[str]:
        """Register new objects, models first. Returns the new names.
        Raises InvalidSpec."""
        kinds = [kind_of(thing, n) for n, thing in enumerate(things, 1)]
        named = []
        for first in ("model", "optimizer", "loader", "object"):
            for thing, kind in zip(things, kinds, strict=True):
                if kind == first and id(thing) not in self._known:
                    self._known[id(thing)] = thing
                    number = self._counts[kind] = self._counts.get(kind, 0) + 1
                    named.append(f"{kind}{number}")
                    self._register(named[-1], kind, thing)
        return named

    def _register(self, name: str, kind: str, thing: Any) -> None:
        if kind == "model":
            self.models.append(thing)
            self.parameter_names.update(
                {p: f"{name}.{n}" for n, p in thing.named_parameters() if p not in self.parameter_names}
            )
            self._states[name] = ModelState(name, thing)
        elif kind == "optimizer":
            strangers = [
                p for group in thing.param_groups for p in group["params"] if p not in self.parameter_names
            ]
            if strangers:
                raise InvalidSpec(
                    (
                        f"{name} ({type(thing).__name__}) has {len(strangers)} parameters of models that "
                        "were not given to engine.setup."
                    ),
                    hint="Give all models of an optimizer to engine.setup.",
                )
            self.optimizers.append(thing)
            self._states[name] = OptimizerState(name, thing, self.parameter_names)
        elif kind == "loader":
            self.feeds[id(thing)] = data.feed(thing)
            self._states[name] = ObjectState(name, self.feeds[id(thing)])
        else:
            self._states[name] = ObjectState(name, thing)

    def measure_schedules(self, window: int) -> None:
        """Tell schedules with lengths in epochs or samples about the first loader. window:
        micro-batches in an optimizer step."""
        loader = next((feed.source for feed in self.feeds.values()), None)
        for thing in self._known.values():
            if isinstance(thing, Schedule) and not thing.bound and loader is not None:
                thing.bind(loader, window)

    def knows(self, thing: object) -> bool:
        """True if this object was given to `setup`."""
        return self._known.get(id(thing)) is thing and thing is not None

    def name_of(self, model: nn.Module) -> str:
        """The name of a model. Raises InvalidSpec if the model was not given to `setup`."""
        for name, state in self._states.items():
            if isinstance(state, ModelState) and state.model is model:
                return name
        raise InvalidSpec(f"This {type(model).__name__} was not given to engine.setup.")

    def _numbers(self) -> list[torch.Tensor]:
        """The parameters of all models that are not whole numbers."""
        return [
            p.detach()
            for model in self.models
            for p in model.parameters()
            if p.is_floating_point() and p.numel()
        ]

    def finite(self) -> bool:
        """True if all parameters are finite. Minimum and maximum of a tensor show this in one fast pass:
        both are NaN if one number is NaN."""
        edges = [edge.double() for p in self._numbers() for edge in torch.aminmax(p)]
        return not edges or bool(torch.stack(edges).isfinite().all())

    def checksum(self) -> bytes:
        """A checksum over the bits of all parameters."""
        return repr([int(p.view(WHOLE[p.element_size()]).sum()) for p in self._numbers()]).encode()

    def fingerprints(self) -> dict[str, dict]:
        """A description of each loader's data."""
        feeds = {name: getattr(state, "value", None) for name, state in self._states.items()}
        return {name: feed.fingerprint() for name, feed in feeds.items() if isinstance(feed, data.Feed)}

    def collect(self, world: World) -> tuple[dict, dict[str, torch.Tensor]]:
        """(document, tensors). The document has the kept values of every rank;
        everything else comes from rank 0, because it is equal on all ranks. Raises StateError."""
        tensors: dict[str, torch.Tensor] = {}
        try:
            body = {name: tree.encode(state.collect(), tensors, name) for name, state in self._states.items()}
            kept_tensors: dict[str, torch.Tensor] = {}
            kept = {
                name: tree.encode(value.collect(), kept_tensors, name) for name, value in self.kept.items()
            }
        except tree.Unsaveable as e:
            raise StateError(
                f"{e.args[0]} has the type {e.args[1]}, which a checkpoint cannot store.", hint=STATEFUL
            ) from None
        of_ranks = (
            [(kept, kept_tensors)]
            if world.size == 1
            else [_unpack(part) for part in world.gather(_pack(kept, kept_tensors))]
        )
        for rank, (_, own) in enumerate(of_ranks):
            tensors.update({f"kept{rank}/{name}": t for name, t in own.items()})
        for name, tensor in tensors.items():
            if not safefile.known(tensor):
                raise StateError(
                    (
                        f"{name} is a tensor of {tensor.dtype}, {tensor.layout}, which a checkpoint cannot "
                        "store."
                    ),
                    hint=STATEFUL,
                )
        return {"objects": body, "kept": [each for each, _ in of_ranks]}, tensors

    def restore(self, doc: dict, tensors: dict[str, torch.Tensor], names: list[str]) -> None:
        """Restore the objects with these names. Raises StateError if the checkpoint has different objects."""
        for name in names:
            if name not in doc["objects"]:
                raise StateError(
                    (
                        f"The checkpoint has no {name}: this script sets up different objects than at the "
                        "start of the run."
                    ),
                    hint=OTHER,
                )
            state = self._states[name]
            state.restore(
                tree.decode(
                    doc["objects"][name], tensors, self.device if isinstance(state, ObjectState) else None
                )
            )

    def restore_all(self, doc: dict, tensors: dict[str, torch.Tensor]) -> None:
        """Restore everything. Raises StateError if an object of the checkpoint was not given to `setup`."""
        for name in doc["objects"]:
            if name not in self._states:
                raise StateError(
                    f"The checkpoint has {name}, which this script does not set up before the loop.",
                    hint=OTHER,
                )
        self.restore(doc, tensors, list(self._states))

    def kept_of(self, doc: dict, tensors: dict[str, torch.Tensor], rank: int) -> dict[str, object]:
        """The kept values of a rank, by name.
        A rank that did not exist at the save gets the values of rank 0."""
        rank = rank if rank < len(doc["kept"]) else 0
        mine = {name.partition("/")[2]: t for name, t in tensors.items() if name.startswith(f"kept{rank}/")}
        return {name: tree.decode(body, mine, self.device) for name, body in doc["kept"][rank].items()}


def _pack(body: dict, tensors: dict[str, torch.Tensor]) -> bytes:
    text = json.dumps(body).encode()
    return (
        len(text).to_bytes(8, "little")
        + text
        + save_bytes({name: t.cpu().contiguous().clone() for name, t in tensors.items()})
    )


def _unpack(data: bytes) -> tuple[dict, dict[str, torch.Tensor]]:
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), load_bytes(data[end:])

"""Objects that tell each time they are asked something, wherever a script may hold them. Run by test_silent.py, with the hooks and without."""

from __future__ import annotations

import collections
import os
import sys
import types
import warnings
import weakref


def told(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def noisy(base: type, words: str, **own: object) -> type:
    """A class that tells of each of these methods."""
    def make(word: str) -> object:
        real = getattr(base, word, None)

        def method(self: object, *args: object, **kwargs: object) -> object:
            told(f"{base.__name__}.{word}")
            if word == "__getattr__":
                raise AttributeError(*args)
            if real is None:
                return {"__len__": 1, "__bool__": True, "__iter__": iter(())}[word]
            return real(self, *args, **kwargs)
        return method
    return type(f"Noisy{base.__name__}", (base,), {**{word: make(word) for word in words.split()}, **own})


def told_class(self: object) -> type:
    told("__class__")
    warnings.warn("this name is deprecated", FutureWarning, stacklevel=2)
    return dict


COMMON = "__eq__ __hash__ __bool__ __repr__ __str__ __getattribute__ __getattr__ __format__ "
NUMBER = COMMON.replace("__bool__ ", "__bool__ __lt__ ")
HOLDER = COMMON.replace("__bool__ ", "") + "__len__ __iter__ __contains__ __getitem__ "
Thing = noisy(object, COMMON + "__len__ __iter__ __setattr__ __dir__ __sizeof__", __class__=property(told_class))
Dict = noisy(dict, HOLDER + "__setitem__ keys values items get pop update copy")
List = noisy(list, HOLDER + "__setitem__ append copy index")
Set = noisy(set, HOLDER.replace("__getitem__ ", ""))
Tuple = noisy(tuple, HOLDER)
Str = noisy(str, HOLDER + "startswith encode")
Int = noisy(int, NUMBER + "__index__ __int__")
Float = noisy(float, NUMBER)
Deque = noisy(collections.deque, HOLDER)
Ordered = noisy(collections.OrderedDict, HOLDER + "keys items values")
Default = noisy(collections.defaultdict, HOLDER)


class Slots(Thing):
    __slots__ = ("slot",)


class Meta(type):
    def __instancecheck__(cls, thing: object) -> bool:
        told("Meta.__instancecheck__")
        return False

    def __subclasscheck__(cls, other: type) -> bool:
        told("Meta.__subclasscheck__")
        return False

    def __getattr__(cls, name: str) -> object:
        told(f"Meta.__getattr__ {name}")
        raise AttributeError(name)


class Odd(metaclass=Meta):
    held = 3


class Properties:
    @property
    def shape(self) -> tuple:
        told("shape")
        return (1,)

    @property
    def __wrapped__(self) -> object:
        told("__wrapped__")
        raise AttributeError

    def __getattr__(self, name: str) -> object:
        told(f"Properties.__getattr__ {name}")
        raise AttributeError(name)


class Call:
    def __call__(self, *args: object) -> object:
        return args[0] if args else None

    def __getattribute__(self, name: str) -> object:
        told(f"Call.__getattribute__ {name}")
        return object.__getattribute__(self, name)

    def __hash__(self) -> int:
        told("Call.__hash__")
        return 1

    def __eq__(self, other: object) -> bool:
        told("Call.__eq__")
        return self is other


class Lazy(types.ModuleType):
    def __getattribute__(self, name: str) -> object:
        told(f"Lazy.__getattribute__ {name}")
        return types.ModuleType.__getattribute__(self, name)

    def __getattr__(self, name: str) -> object:
        told(f"Lazy.__getattr__ {name}")
        raise AttributeError(name)


def of_module(name: str) -> object:
    """As a module does it for names that it has not (PEP 562)."""
    told(f"module.__getattr__ {name}")
    raise AttributeError(name)


class Del:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        told(f"Del {self.name}")


lazy = sys.modules["lazy_one"] = Lazy("lazy_one")
late = sys.modules["late_one"] = types.ModuleType("late_one")
late.__getattr__ = of_module

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset, Sampler  # noqa: E402


class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: object, kinds: tuple, args: tuple = (), kwargs: dict | None = None) -> object:
        told(f"__torch_function__ {func.__name__}")
        return super().__torch_function__(func, kinds, args, kwargs or {})


def things() -> list:
    thing = Thing()
    return [thing, Dict(a=Thing()), List([1, 2.5]), Set([1]), Tuple((1, 2)), Str("abc"), Int(4), Float(2.5), Deque([1]), Ordered(a=1), Default(int),
            Odd, Odd(), Properties(), Call(), lazy, late, weakref.ref(thing), weakref.proxy(thing), Slots(), {Str("k"): Int(3)},
            {Tuple((1,)): Thing()}, {Thing(): 1}, frozenset([Str("q")]), types.SimpleNamespace(a=Thing()), Tensor(torch.ones(2)),
            iter(List([1, 2])), (each for each in List([1])), zip(List([1])), map(Call(), [1, 2])]


for number, each in enumerate(things()):
    globals()[f"global_{number}"] = each
del each
deleted = Del("of the script")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.held = things()
        for n, part in enumerate(things()):
            if not isinstance(part, torch.Tensor):
                object.__setattr__(self, f"held_{n}", part)
        self.count = 0

    def forward(self, x: torch.Tensor, extra: object = None) -> torch.Tensor:
        self.count += 1
        self.seen = f"seen {self.count}"
        return self.linear(x)


class NoisyNet(Net):
    def __getattribute__(self, name: str) -> object:
        told(f"NoisyNet.__getattribute__ {name}")
        return super().__getattribute__(name)

    def __eq__(self, other: object) -> bool:
        told("NoisyNet.__eq__")
        return self is other

    def __hash__(self) -> int:
        told("NoisyNet.__hash__")
        return object.__hash__(self)

    def __len__(self) -> int:
        told("NoisyNet.__len__")
        return 0

    def __repr__(self) -> str:
        told("NoisyNet.__repr__")
        return "net"

    def parameters(self, recurse: bool = True) -> object:
        told("NoisyNet.parameters")
        return super().parameters(recurse)


class Data(Dataset):
    def __init__(self) -> None:
        self.held = things()

    def __len__(self) -> int:
        told("Data.__len__")
        return 4

    def __getitem__(self, i: int) -> torch.Tensor:
        told("Data.__getitem__")
        return torch.ones(2) * i

    def __getattribute__(self, name: str) -> object:
        told(f"Data.__getattribute__ {name}")
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        told("Data.__eq__")
        return self is other

    def __hash__(self) -> int:
        told("Data.__hash__")
        return 3

    def __bool__(self) -> bool:
        told("Data.__bool__")
        return True


class Order(Sampler):
    def __init__(self) -> None:
        pass

    def __iter__(self) -> object:
        yield from range(4)

    def __len__(self) -> int:
        return 4

    def __getattribute__(self, name: str) -> object:
        told(f"Order.__getattribute__ {name}")
        return object.__getattribute__(self, name)


class Collate(Call):
    def __call__(self, items: list) -> torch.Tensor:
        return torch.stack(items)


def main() -> None:
    net, noisy_net, data = Net(), NoisyNet(), Data()
    opt = torch.optim.SGD([*net.parameters(), *noisy_net.parameters()], lr=0.1)
    opt.held = things()
    extra, kept = things(), Del("of main")
    first, second, third = things()[:3]

    def closure(x: object) -> tuple:
        return extra, x, first
    held = closure
    held.attribute = things()
    for _ in range(4):
        for x in DataLoader(data, batch_size=2, collate_fn=Collate(), sampler=Order()):
            loss = net(x, extra=extra[0]).sum() + noisy_net(x).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss.item()
            loss = None
    told("the end of main")
    del kept, second, third


main()

"""One number more on every seed: the same script as another draw of the same experiment.
Who sets no seed gets one, so that two trainings can be compared batch by batch.
Seeds that ask for chance (`seed()`, `default_rng()`) get fixed ones too;
`random.Random()` stays as it is, since names of temporary files come from it."""

from __future__ import annotations

import itertools

from ..entry import imports

_WIDE = 1 << 32  # numpy takes no larger one
_more = 0
_counter = itertools.count(1)


def begin(torch: object, seed: int) -> None:
    """torch has just been imported: add `seed` to what the script will set."""
    global _more
    _more = int(seed)
    _python()
    imports.after("numpy", _numpy)
    _torch(torch)


def _or_one(seed: object) -> int:
    """A fixed number where chance is asked for; each time another."""
    return _more + 7919 * next(_counter) if seed is None else seed


def _shifted(seed: object) -> object:
    """`seed` as another draw. What is no whole number stays as it is."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        return seed
    return seed.__index__() + _more


def _python() -> None:
    import random
    own, method = random.seed, random.Random.seed

    def seed(a: object = None, version: int = 2) -> None:
        own(_more if a is None else _text(_shifted(a)), version)

    def seed_of(self: object, a: object = None, version: int = 2) -> None:
        method(self, a if a is None else _text(_shifted(a)), version)
    random.seed, random.Random.seed = seed, seed_of
    own(_more)


def _text(seed: object) -> object:
    return f"{seed}+{_more}" if isinstance(seed, str) and _more else seed


def _numpy(numpy: object) -> None:
    draws = getattr(numpy, "random", None)
    if draws is None:
        return
    own, new, state = draws.seed, draws.default_rng, draws.RandomState

    def fit(seed: object) -> object:
        seed = _shifted(seed)
        return seed % _WIDE if isinstance(seed, int) and not isinstance(seed, bool) else seed

    def seed(seed: object = None) -> None:
        own(fit(_or_one(seed)))

    def default_rng(seed: object = None) -> object:
        return new(_shifted(_or_one(seed)))

    class Meta(type):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, state)

    class RandomState(state, metaclass=Meta):
        def __init__(self, seed: object = None) -> None:
            state.__init__(self, fit(_or_one(seed)))

        def seed(self, seed: object = None) -> None:
            state.seed(self, fit(_or_one(seed)))
    draws.seed, draws.default_rng, draws.RandomState = seed, default_rng, RandomState
    own(_more % _WIDE)


def _torch(torch: object) -> None:
    own, generator = torch.manual_seed, torch.Generator

    def manual_seed(seed: object) -> object:
        return own(_shifted(seed))

    def seed() -> int:
        return own(_or_one(None)).initial_seed()

    class Meta(type(generator)):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, generator)

    class Generator(generator, metaclass=Meta):
        def __init__(self, *args: object, **kwargs: object) -> None:
            if _more:
                generator.manual_seed(self, self.initial_seed() + _more)

        def manual_seed(self, seed: object) -> object:
            return generator.manual_seed(self, _shifted(seed))

        def seed(self) -> int:
            return generator.manual_seed(self, _or_one(None)).initial_seed()

        def __reduce__(self) -> tuple:
            return _again, (str(self.device), self.get_state())
    torch.manual_seed = torch.random.manual_seed = manual_seed
    torch.seed = torch.random.seed = seed
    torch.Generator = Generator
    own(_more)


def _again(device: str, state: object) -> object:
    """A generator that was sent to another process."""
    import torch
    made = torch.Generator(device)
    made.set_state(state)
    return made

"""What an lru_cache of the script's own keeps comes back: entries, their order, and how often it was asked."""

from __future__ import annotations

import functools

import pytest

from stoker.inside.resume.core import caches


class Scale:
    def __init__(self) -> None:
        self.by = 2

    @functools.lru_cache(3)  # noqa: B019
    def of(self, i: object, *, to: int = 1) -> list:
        return [i, to, self.by, __class__]


def _typed() -> object:
    around = [1]

    @functools.lru_cache(None, typed=True)
    def of(a: object, b: int = 1) -> list:
        if a == "bad":
            raise ValueError(a)
        return [a, b, *around]

    return of


def _methods() -> object:
    scale = Scale()
    for i in (1, 2, 3, 4, 2, 2, (5,)):
        scale.of(i)
    scale.of(9, to=3)
    return Scale.of


def _kinds() -> object:
    of = _typed()
    for args in ((1,), (1.0,), ((1, 2), 3), (1,), ("s",), (None,)):
        of(*args)
    of(1, b=2)
    with pytest.raises(ValueError, match="bad"):
        of("bad")
    return of


def _nothing_kept() -> object:
    @functools.lru_cache(0)
    def of(a: int) -> int:
        return a

    of(1)
    return of


@pytest.mark.parametrize("make", [_methods, _kinds, _nothing_kept])
def test_filled_again(make) -> None:
    cache = make()
    kept, info, code = caches.entries(cache), tuple(cache.cache_info()), cache.__wrapped__.__code__
    cache.cache_clear()
    caches.fill(cache, kept, info)
    again = caches.entries(cache)
    assert tuple(cache.cache_info()) == info
    assert [entry[:2] for entry in again] == [entry[:2] for entry in kept]
    assert all(a[2] is b[2] for a, b in zip(again, kept))  # noqa: B905
    assert cache.__wrapped__.__code__ is code
    for args, kwargs, result in kept:
        assert cache(*args, **kwargs) is result


def test_one_that_cannot_be_filled_is_told() -> None:
    assert caches.entries(functools.lru_cache(2)(str)) is None


def test_what_an_lru_cache_keeps() -> None:
    asked, without = functools.lru_cache(2)(str), functools.lru_cache(None)(str)
    for number in (1, 2, 3, 2, (4,)):
        asked(number)
        without(number)
    every = [(1, "1"), (2, "2"), (3, "3"), (((4,),), "(4,)")]
    assert (caches.cached(asked), caches.cached(without)) == ([every[1], every[3]], every)

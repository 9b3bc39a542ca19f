"""The private parts of CPython, numpy and torch are where they are thought to be, and a version without them is told by a sentence."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
from stoker.hooks.ghost import private  # noqa: E402


def test_this_version_is_known() -> None:
    import numpy.random  # noqa: F401
    assert private.self_test() == ""


def test_a_part_that_is_gone_is_a_sentence(monkeypatch) -> None:
    monkeypatch.delattr(private.dataloader_module()._BaseDataLoaderIter, "_next_index")
    assert "_BaseDataLoaderIter._next_index" in private.self_test()
    assert torch.__version__ in private.self_test()


def test_generators_go_on_bit_for_bit_with_a_gaussian_kept_aside() -> None:
    import numpy.random

    def draw() -> tuple:
        return random.gauss(0, 1), random.random(), numpy.random.randn(), numpy.random.rand(), torch.randn(3).tolist()

    before = private.rngs()
    for _ in range(3):  # the second half of a pair of Gaussians is state as well
        state = private.rngs()
        given = draw()
        private.set_rngs(state)
        assert draw() == given
    private.set_rngs(before)
    assert private.rngs() == before

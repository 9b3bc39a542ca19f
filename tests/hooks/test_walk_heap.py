"""Long lists of numbers and words are passed over, since images of scripts that keep them would stop training for seconds; whatever holds an
array is not.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stoker.hooks.ghost import walk_heap

LONG = 3 * walk_heap._LONG


@pytest.fixture
def looked_into(monkeypatch):
    """ids of what was asked for its parts, when arrays were looked for."""
    seen: set = set()
    look = walk_heap._look_into
    monkeypatch.setattr(walk_heap, "_look_into", lambda level, found: (seen.update(map(id, level)), look(level, found))[1])
    return seen


def test_a_long_list_of_numbers_is_not_looked_into(looked_into):
    numbers, short = list(range(LONG)), [[1], 2]
    walk_heap.Heap().arrays()
    assert id(numbers) not in looked_into and id(short) in looked_into


@pytest.mark.parametrize("at", [0, LONG // 2, LONG - 1])
@pytest.mark.parametrize("wrap", [lambda array: array, lambda array: (array,), lambda array: {"x": array}])
def test_an_array_in_a_long_list_is_found(at, wrap):
    array, holder = np.arange(3.0), list(range(LONG))
    holder[at] = wrap(array)
    assert id(array) in map(id, walk_heap.Heap().arrays())  # no closure over it, which would be found by itself


@pytest.mark.parametrize("memory", [np.arange(3.0), torch.arange(3.0)])
def test_memory_behind_a_long_list_is_found(memory):
    heap, numbers = walk_heap.Heap(), list(range(LONG))
    assert not heap.holds_memory([numbers], {}, set())
    numbers[LONG // 2] = memory
    assert walk_heap.Heap().holds_memory([numbers], {}, set())
    assert not walk_heap.Heap().holds_memory([numbers], {id(memory): ""}, set())

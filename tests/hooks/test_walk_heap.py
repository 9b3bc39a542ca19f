"""Long lists of numbers and words are passed over, and what an import of torch's compiler leaves, since images would stop training for
them; whatever of the script's holds an array is not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from stoker.inside.resume.state import walk_heap

LONG = 3 * walk_heap._LONG
REPO = Path(__file__).resolve().parents[2]
FROZEN = """
import gc, sys, threading, weakref
sys.path[:0] = [{src!r}]
import torch
from stoker.inside.resume.state import walk_heap

class Thing:
    pass

def shown(thing):
    return any(each is thing for each in gc.get_objects())

def begin():
    things = [[n] for n in range(1000)]  # each in the middle of a script when its first optimizer is made
    ring = Thing()
    ring.me = ring
    torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
    assert "torch._dynamo" in sys.modules
    return things, ring, vars(sys.modules["torch._dynamo.utils"])

walk_heap.baseline()
stop = threading.Event()
if {beside}:
    threading.Thread(target=stop.wait).start()
things, ring, inside = begin()
stop.set()
heap = walk_heap.Heap()
order = {{id(each): n for n, each in enumerate(heap.objects)}}
assert all(id(each) in order for each in things), "hidden"
assert [order[id(each)] for each in things] == sorted(order[id(each)] for each in things), "in another order"
assert not heap.frozen(), "taken for a script that hides things"
assert shown(inside) is {beside} and (len(heap.objects) > 50_000) is {beside}, len(heap.objects)
heap.objects.clear()
gone = weakref.ref(ring)
del ring
gc.collect()
assert gone() is None, "never collected"
print("well")
"""


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


@pytest.mark.parametrize("beside", [False, True])
def test_what_the_import_of_a_compiler_leaves_is_passed_over(beside):
    """And nothing else is. Where another thread runs meanwhile, nothing is passed over."""
    done = subprocess.run([sys.executable, "-c", FROZEN.format(src=str(REPO / "src"), beside=beside)], capture_output=True, text=True,
                          timeout=100, check=False)
    assert done.stdout == "well\n", done.stderr[-2000:]


def test_what_is_left_out_of_a_freeze_is_as_it_was():
    program = f"""
import gc, sys
sys.path[:0] = [{str(REPO / "src")!r}]
from stoker.inside.resume.core import internals
things = [[n] for n in range(100)]
plain, other = (1, 2), [0]
gc.disable()
internals.freeze_all_but([*things, plain, *things])
found = [each for each in gc.get_objects() if any(each is thing for thing in things)]
assert all(a is b for a, b in zip(found, things)) and len(found) == 100
assert not any(each is other for each in gc.get_objects()) and not gc.is_tracked(plain) and not gc.isenabled()
gc.enable()
internals.freeze_all_but([])
assert gc.isenabled() and not any(each is things for each in gc.get_objects())
print("well")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "well\n", done.stderr[-2000:]

"""Which hooks and forwards are seen to write to what outlives their call."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from stoker.inside.resume.compute import call_writes

WRITING = {
    "statement": "def hook(m, a, out): kept['last'] = 1",
    "global": "def hook(m, a, out):\n    global count\n    count += 1",
    "append": "hook = lambda m, a, out: kept.append(1)",
    "setitem called": "hook = lambda m, a, out: kept.__setitem__('last', 1)",
    "setattr": "hook = lambda m, a, out: setattr(thing, 'last', 1)",
    "operator": "hook = lambda m, a, out: operator.setitem(kept, 'last', 1)",
    "heap": "hook = lambda m, a, out: heapq.heappush(kept, 1)",
    "heap by name": "hook = lambda m, a, out: heappush(kept, 1)",
    "sorted": "hook = lambda m, a, out: insort(kept, 1)",
    "shuffle": "hook = lambda m, a, out: random.shuffle(kept)",
    "rotate": "hook = lambda m, a, out: kept.rotate(1)",
    "counter": "hook = lambda m, a, out: kept.subtract(a=1)",
    "array copied": "hook = lambda m, a, out: np.copyto(kept, out)",
    "array at": "hook = lambda m, a, out: np.maximum.at(kept, [0], 1)",
    "array filled": "hook = lambda m, a, out: kept.fill(1)",
    "array put": "hook = lambda m, a, out: kept.put([0], 1)",
}
READING = {"nothing": "hook = lambda m, a, out: None", "reads": "hook = lambda m, a, out: kept.get('last')",
           "own variable": "def hook(m, a, out):\n    total = 1\n    total += len(kept)\n    return None"}


def hook_of(source: str) -> object:
    names: dict = {"kept": {}, "thing": None}
    exec(compile(source, "train.py", "exec"), names)
    return names["hook"]


@pytest.mark.parametrize("source", WRITING.values(), ids=WRITING)
def test_a_hook_that_writes_is_looked_at(source: str):
    writers = call_writes.Writers()
    writers.add("hook", hook_of(source))
    assert writers


@pytest.mark.parametrize("source", READING.values(), ids=READING)
def test_a_hook_that_only_reads_costs_nothing(source: str):
    writers = call_writes.Writers()
    writers.add("hook", hook_of(source))
    assert not writers

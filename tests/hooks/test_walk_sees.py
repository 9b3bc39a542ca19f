"""The walk sees every kind of state change that a ghost would not make: what it does not see would be silently wrong after a resume."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

# Two snapshots of a script's state, one call of its model and one step apart: each kind of state must show in their difference. Random
# generators of the process are not the walk's, they are kept by rng.py.
PROGRAM = """
import sys, types, warnings
sys.path[:0] = {paths!r}
import torch
from test_shield_state import KINDS, source
from stoker.inside.resume.state import reachability, walk, walk_library

def state(thing):
    for word in ("get_state", "getstate"):
        if hasattr(thing, word):
            found = getattr(thing, word)()
            return found.tolist() if hasattr(found, "tolist") else repr(found)
    return repr(getattr(thing, "bit_generator", thing).state)

def snapshot():
    w = walk.Walk().run(heap=False)
    found = {{p: repr(v) for p, v in w.facts.items()}}
    found.update({{"rng " + p: state(x) for p, x in w.rngs.items()}})
    found.update({{"tensor " + p: (tuple(x.shape), float(x.detach().double().sum()), x.requires_grad) for p, x in w.tensors.items()}})
    found.update({{"array " + p: x.tobytes() if x.dtype != object else repr(x.tolist()) for p, x in w.arrays.items()}})
    refused = reachability.strange(w)
    w.close()
    return found, refused

def look(name):
    module = sys.modules["subject"] = types.ModuleType("subject")
    exec(compile(source(name).split("for i in range(420)")[0], "subject.py", "exec"), vars(module))
    m, o, X, names = module.m, module.o, module.X, vars(module)  # `names` leads the walk to all of them

    def step():
        m(X[:16]).sum().backward()
        o.step()

    step(), step()
    before, refused = snapshot()
    step()
    after, _ = snapshot()
    ours = ("weight", "bias", ".o.state", "'o'", "main", "before", "refused", "test_shield")
    return refused or [p for p in before.keys() | after.keys() if before.get(p) != after.get(p) and not any(w in p for w in ours)]

warnings.simplefilter("ignore")
walk_library.remember_names()
for name in KINDS:
    if name not in {left_out!r}:
        found = look(name)
        print(name, found)
        if not found:
            print("NOT SEEN:", name)
print("looked at", len(KINDS))
"""
LEFT_OUT = ("random", "numpy random", "parameter group")  # kept by rng.py; changes only in the first step


def test_every_kind_of_change_is_seen():
    program = PROGRAM.format(paths=[str(REPO / "src"), str(REPO / "tests" / "resume")], left_out=LEFT_OUT)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert "NOT SEEN" not in done.stdout and "looked at" in done.stdout, done.stdout


def test_a_change_is_seen_in_an_array_of_any_order_in_memory():
    """`table[columns].values` of pandas has its columns one behind the other."""
    import numpy

    from stoker.inside.resume.state import watch_kinds
    whole = numpy.asfortranarray(numpy.arange(60.0).reshape(12, 5))
    for array in (whole, whole[::2], whole.reshape(3, 4, 5, order="F"), whole.T, whole[:, 2]):
        before = watch_kinds._crc(array)
        assert before == watch_kinds._crc(array)
        array[-1] += 1
        assert before != watch_kinds._crc(array)
    assert watch_kinds._crc(whole[:0]) == 0

"""A library may bring numpy as a lazy module, as W&B does: exact resume sees its random numbers all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stoker.base.vendor import SOURCE

pytest.importorskip("numpy")
SCRIPT = """
import importlib.util, os, sys, types
sys.path.insert(0, os.environ["SOURCE"])
from inside import resume
from inside.entry import imports
from inside.resume.world import rng
imports.after("numpy", resume._start_of_numpy)

class Lazy(types.ModuleType):
    def __getattribute__(self, name):
        object.__getattribute__(self, "bring_it")()
        return object.__getattribute__(self, name)

spec = importlib.util.find_spec("numpy")
module = importlib.util.module_from_spec(spec)
begun = []
def bring():
    if not begun:
        begun.append(True)
        spec.loader.exec_module(module)
        module.__class__ = types.ModuleType
module.bring_it = bring
module.__class__ = Lazy
sys.modules["numpy"] = module
import numpy
numpy.array([1])
before = rng._look()
numpy.random.rand()
assert rng._look() != before
"""


def test_a_lazy_numpy_is_seen():
    done = subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "SOURCE": str(SOURCE.parent)}, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")

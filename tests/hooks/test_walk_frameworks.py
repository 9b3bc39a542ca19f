"""What Lightning and fsspec leave on objects does not hide from the walk what they are, nor look like a change."""

from __future__ import annotations

import subprocess
import sys

from stoker.hooks.ghost import leaves

SAMPLER = """
from torch.utils.data import BatchSampler, SequentialSampler
from stoker.hooks.ghost import leaves, samplers
BatchSampler.__setattr__ = object.__setattr__  # as Lightning leaves it
sampler = BatchSampler(SequentialSampler(range(8)), 2, False)
print(leaves.solid(BatchSampler) is object, samplers.capture(sampler, None, None)[0][0])
"""


def test_a_borrowed_method_of_c_makes_no_class_one_of_c():
    told = subprocess.run([sys.executable, "-c", SAMPLER], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.split() == ["True", "object"]
    for kind in (dict, type(iter([])), range):
        assert not leaves.made_by_python(kind)

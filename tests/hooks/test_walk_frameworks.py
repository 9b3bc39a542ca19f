"""What Lightning and fsspec leave on objects does not hide from the walk what they are, nor look like a change."""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

from stoker.inside.resume.core import leaves
from stoker.inside.resume.state import walk_kinds

SAMPLER = """
from torch.utils.data import BatchSampler, SequentialSampler
from stoker.inside.resume.core import leaves; from stoker.inside.resume.data import samplers
BatchSampler.__setattr__ = object.__setattr__  # as Lightning leaves it
sampler = BatchSampler(SequentialSampler(range(8)), 2, False)
print(leaves.solid(BatchSampler) is object, samplers.capture(sampler, None, None)[0][0])
"""


def test_a_borrowed_method_of_c_makes_no_class_one_of_c():
    told = subprocess.run([sys.executable, "-c", SAMPLER], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.split() == ["True", "object"]
    for kind in (dict, type(iter([])), range):
        assert not leaves.made_by_python(kind)


def test_a_class_of_c_is_no_scripts_whatever_module_it_says_that_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """scipy's multimethods say `uarray`, and are of `scipy._lib._uarray._uarray`."""
    made = type("Made", (), {"__module__": "gone"})
    monkeypatch.delitem(sys.modules, "datetime")
    assert not walk_kinds.is_user_kind(datetime.timedelta)
    assert walk_kinds.is_user_kind(made)

"""The name `colossalai`, provided by `stoker run --compat colossalai`."""

from stoker.compat.check import lend
from stoker.compat.colossalai import initialize, launch_from_torch

LENT = lend("colossalai", __file__)
__all__ = ["initialize", "launch_from_torch"]

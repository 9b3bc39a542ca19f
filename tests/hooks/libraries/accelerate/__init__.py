"""Of Accelerate 1.15: `log` hands the values to each tracker as they are."""

from .accelerator import Accelerator  # noqa: F401

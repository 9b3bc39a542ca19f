"""What prints and logs, as far as Python code does it:
print, logging, tqdm's bars, TensorBoard's writer. Timed where it happens."""

from __future__ import annotations

import atexit
import builtins
import io
import sys

from ..entry import imports
from ..entry.methods import Of, replace
from . import marks
from .timed import timed

WRITER = (
    "add_scalar",
    "add_scalars",
    "add_histogram",
    "add_image",
    "add_images",
    "add_figure",
    "add_text",
    "flush",
)


def install() -> None:
    """Not beside exact resume, which has to see the very frames that print."""
    printed = timed(builtins.print, marks.LOG)
    replace(builtins, "print", lambda _of, *args, **kwargs: printed(*args, **kwargs), Of("builtins"))
    imports.after("logging", lambda module: _time(module.Handler, "handle"))
    imports.after("tqdm.std", lambda module: _time(module.tqdm, "refresh"))
    imports.after(
        "torch.utils.tensorboard.writer",
        lambda module: [_time(module.SummaryWriter, name) for name in WRITER],
    )


def install_beneath_resume() -> None:
    """Only what reaches the streams, below the hooks that exact resume will put on them.
    Those that it has put there already, in a life that comes back, are left alone."""
    for stream in (sys.stdout, sys.stderr):
        if type(stream) is io.TextIOWrapper and "write" not in vars(stream):
            stream.write, stream.flush = ours = timed(stream.write, marks.LOG), timed(stream.flush, marks.LOG)
            atexit.register(_let_go, stream, ours)


def _let_go(stream: object, ours: tuple) -> None:
    """Python flushes its streams once more when little of us is left."""
    for name, function in zip(("write", "flush"), ours):  # noqa: B905  # Python 3.9
        if vars(stream).get(name) is function:
            delattr(stream, name)


def _time(where: object, name: str) -> None:
    if hasattr(where, name):
        setattr(where, name, timed(getattr(where, name), marks.LOG))

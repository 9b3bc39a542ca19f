"""The clock: where the time of each step of an unmodified script goes, seen from a few calls of torch that
every training makes.

`install()` is all that the outside calls. marks.py: the calls, and what the time between them is;
timed.py, logs.py: what saves, prints and logs; passes.py, made.py: loaders, and who trains at all;
device.py: the same on a GPU, without waiting for it; book.py: steps.jsonl.

It is installed as torch is imported, before exact resume puts its hooks around the marks: a ghost never
comes to them. A process that was forked has it only if it makes an optimizer. If it fails, it says so in
processes.jsonl and measures no more. Calls of modules: all in the first three steps, then those of classes
that the script calls itself.
"""

from __future__ import annotations

import os


def install(process: object) -> None:
    """torch has just been imported by a script, or by a process that multiprocessing started:
    a loader's worker, which is left alone, or a rank, which makes an optimizer."""
    if process.role == "script":
        _install(process.resumes)
    else:
        from . import made
        made.watch(_install)
    process.clock = True


def _install(resume: bool = False) -> None:
    """With `resume`, this is called before exact resume puts its hooks around ours:
    a ghost calls nothing of what we see, and `begin()` comes when the real tensors are back."""
    from . import book, logs, made, marks, timed
    folder = os.environ.get("STOKER_HOOKS", "")
    if not folder or os.environ.get("STOKER_CLOCK") == "off" or not book.open_beside(folder):
        return
    if marks.install():
        timed.install()
        made.watch(None)
    if resume:
        logs.install_beneath_resume()
    else:
        logs.install()
        marks.begin()


def begin() -> None:
    """From here on this life is no replay."""
    from . import book, marks
    if book.opened():
        marks.begin()

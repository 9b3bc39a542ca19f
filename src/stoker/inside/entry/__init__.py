"""How hooks come into a Python process: what it is, a line that says so, and what waits for torch to be imported.

A script that never imports torch pays for this file and the two early parts of exact resume, less than 3 ms.
"""

from __future__ import annotations

import os
import sys
import time
from _json import encode_basestring_ascii as _text
from time import perf_counter_ns as now  # noqa: F401  # the real one: exact resume puts another into `time`

RECORD = "processes.jsonl"
OTHERS = ("tensorflow", "jax")  # frameworks that the hooks do not look into: it is said
RECORD_MAX = 1 << 20  # bytes; a run that starts a million processes does not fill the disk with lines about them
_START = time.monotonic()


def begin() -> None:
    """Hook this process: called once, by sitecustomize, before the script."""
    words = command_line()
    what = role(words)
    rehearsed = bool(os.environ.get("STOKER_REHEARSE")) and _rehearse(what, words)
    resume = what == "script" and not rehearsed and os.environ.get("STOKER_RESUME") == "auto" and bool(os.environ.get("STOKER_RESUME_DIR"))
    from .. import unseen
    from . import handlers, imports, uncaught
    unseen.leave_stacks()
    if os.environ.get("STOKER_AUDIT") == "child":
        from ..resume.audit import auditor
        auditor.begin(what)
    if resume:
        from ..resume.world import asked, files
        files.install_early()
        asked.install_early()
        imports.after("random", _start_of_random)
        imports.after("numpy", _start_of_numpy)
    if rehearsed:
        from .. import rehearse
        imports.after("torch", rehearse.torch_is_here)
    tuned = bool(os.environ.get("STOKER_TUNE")) and _tune(what)
    imports.after("torch", lambda torch: _torch_is_here(torch, "rehearsed" if rehearsed else what, resume, tuned))
    handlers.install()
    if what == "script":
        uncaught.install(record)
        _watch_numbers()
        for name in OTHERS:
            imports.after(name, lambda module, name=name: record(other=name))
    record(role=what, argv=words[:64], python=sys.version.split()[0])


def _rehearse(what: str, words: list[str]) -> bool:
    """Does this process pretend to have GPUs? The first of a rehearsal becomes its conductor, and does not come back from here."""
    from .. import rehearse
    return rehearse.begin(what, words)


def _tune(what: str) -> bool:
    """Is this a process of one of the tuner's trials?"""
    from .. import measure
    return measure.begin(what)


def command_line() -> list[str]:
    """The words this process was started with, the interpreter and its flags included."""
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]
    except OSError:
        return list(getattr(sys, "orig_argv", sys.argv))


def role(words: list[str]) -> str:
    """"script"; or "worker" for a process that multiprocessing started anew, "service" for one that only helps multiprocessing, and
    "tool" for Python's own ways to install and to ask."""
    if "--multiprocessing-fork" in words:
        return "worker"
    code = words[words.index("-c") + 1] if "-c" in words[:-1] else ""
    if "multiprocessing." in code and "import main" in code:
        return "service"
    module = words[words.index("-m") + 1] if "-m" in words[:4] and words[-1] != "-m" else ""
    return "tool" if module in ("pip", "venv", "ensurepip", "compileall", "site") else "script"


def record(**said: object) -> None:
    """One line about this process in this attempt's folder; what cannot be written is not worth a word."""
    said = {"pid": os.getpid(), "at": time.time(), **said}
    line = "{" + ", ".join(f"{_text(name)}: {_json(value)}" for name, value in said.items()) + "}\n"
    try:
        path = os.path.join(os.environ["STOKER_HOOKS"], RECORD)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        if os.fstat(fd).st_size < RECORD_MAX:
            os.write(fd, line.encode())  # O_APPEND: lines of processes side by side do not mix
    except OSError:
        pass
    finally:
        os.close(fd)


def _json(value: object) -> str:
    """JSON of text, numbers, lists and objects. The module json, with `re` behind it, would cost more than all the rest of a start."""
    if isinstance(value, list):
        return f"[{', '.join(_json(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(str(name))}: {_json(each)}' for name, each in value.items())}}}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _text(value) if isinstance(value, str) else repr(value)


def _watch_numbers() -> None:
    if os.environ.get("STOKER_AUDIT") != "child" and not os.environ.get("STOKER_TUNE"):
        from .. import numbers
        numbers.watch()


def _start_of_random(module: object) -> None:
    from ..resume.compute import values
    values.python_rng_begins(module)


def _start_of_numpy(module: object) -> None:
    import random  # noqa: F401  # it comes with what follows, and is seen to first

    import numpy.random  # noqa: F401  # a lazy module, as W&B makes of numpy, does not bring it by itself yet

    from ..resume.compute import values
    values.numpy_rng_begins(module)


def _torch_is_here(torch: object, what: str, resume: bool, tuned: bool = False) -> None:
    why = ""
    if what in ("script", "worker") and (os.environ.get("STOKER_SETTINGS") or os.environ.get("STOKER_TUNE")):
        _apply_settings()
    if tuned:
        _start_probe(torch, what)
    if what in ("script", "worker"):
        _open_stacks()
        _start_clock(what, resume)
    if resume:
        from .. import resume as exact
        why = exact.install()
        if "stoker_hooks.clock" in sys.modules:
            _clock_after_ghost()
    if what == "script" and os.environ.get("STOKER_DIGEST"):
        from ..resume.compute import digest
        digest.install()
    record(torch=str(getattr(torch, "__version__", "")), after_s=round(time.monotonic() - _START, 3), **({"why": why} if why else {}))


def _apply_settings() -> None:
    """First of all: for the clock and for exact resume what they change is as the script had it."""
    try:
        from .. import settings
        settings.install()
    except Exception as e:
        record(settings={"applied": [], "left": {"all": f"{type(e).__name__}: {e}"}})


def _start_probe(torch: object, what: str) -> None:
    """Within the clock: what is measured is what it hands out."""
    try:
        from .. import measure
        measure.torch_is_here(torch, what)
    except Exception as e:
        record(probe=f"not started: {type(e).__name__}: {e}")


def _open_stacks() -> None:
    try:
        from . import stacks
        stacks.install()
    except Exception as e:
        record(stacks={}, no_stacks=f"{type(e).__name__}: {e}")


def _start_clock(what: str, resume: bool) -> None:
    """Its marks go in first, so that exact resume stands around them and a ghost never comes to them."""
    try:
        from .. import clock
        clock.install(resume) if what == "script" else clock.install_late()
        _tell_of_children()
        if "stoker_hooks.measure.order" in sys.modules:
            from .. import measure
            measure.clock_is_here()
    except Exception as e:
        record(clock=f"not started: {type(e).__name__}: {e}")


def _tell_of_children() -> None:
    from ..clock import made
    from ..resume.world import spawned
    made.child_trains = spawned.trains


def _clock_after_ghost() -> None:
    """A life that goes to an image is measured from there on."""
    from .. import clock
    from ..clock import timed
    from ..resume.core import phases
    from ..resume.image import points
    points.taken = timed.image_taken
    if phases.target is not None:
        phases.on_tail_end.append(clock.begin)
    else:
        clock.begin()

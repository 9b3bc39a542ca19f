"""Programs that set-up runs to their end by `subprocess.run` and what is made of it:
run once, as their outcome says in each later life.
Those with a long output run again, as do those that it starts by `Popen`.
"""

from __future__ import annotations

import os

from ...looks import isinstance
from ..core import early_log, phases

LONG = 1 << 20  # characters or bytes of output
_getframe = early_log.frame


def install_early() -> None:
    """Before anybody can take these by name."""
    from ...entry import imports

    imports.after("subprocess", _patch)


def _patch(module: object) -> None:
    of = early_log.Of("subprocess")
    early_log.replace(module, "run", _run(module, module.run), of)
    early_log.replace(module, "call", _call(module, module.call), of)


def _run(module: object, old: object) -> object:
    def run(_of: object, *args: object, check: bool = False, **kwargs: object) -> object:
        failed = []

        def ended() -> tuple | list:
            try:
                done = old(*args, check=check, **kwargs)
                told = [done.returncode, done.stdout, done.stderr]
            except module.CalledProcessError as e:
                failed.append(e)
                told = [e.returncode, e.stdout, e.stderr]
            # a list stands in no log
            return tuple(told) if sum(map(len, filter(None, told[1:]))) <= LONG else told

        told = _asked(module, _getframe(1), args, kwargs)
        if told is None:
            return old(*args, check=check, **kwargs)
        completed = module.CompletedProcess(_command(args, kwargs), *_once("subprocess.run", told, ended))
        if failed:
            raise failed.pop()
        if check:
            completed.check_returncode()
        return completed
    return run


def _call(module: object, old: object) -> object:
    def call(_of: object, *args: object, **kwargs: object) -> int:
        told = _asked(module, _getframe(1), args, kwargs)
        return (
            old(*args, **kwargs)
            if told is None
            else _once("subprocess.call", told, lambda: old(*args, **kwargs))
        )
    return call


def _once(name: str, told: object, run: object) -> object:
    here = early_log.mode(name)
    if not here:
        return run()
    if here < early_log.GHOST:
        return early_log.done(name, told, run)
    value = early_log.how_ended(name, told)
    return run() if value is None else value


def _asked(module: object, frame: object, args: tuple, kwargs: dict) -> object:
    """The words of a program that the script, or a library of its own, wants to run here; None:
    none of our business."""
    if not (phases.phase or early_log.early):
        return None
    while frame is not None and frame.f_globals is vars(module):  # check_output, check_call and the like
        frame = frame.f_back
    if not early_log.asked(frame):
        return None
    command = _command(args, kwargs)
    try:
        return (
            tuple(map(os.fsdecode, command)) if isinstance(command, (list, tuple)) else os.fsdecode(command)
        )
    except TypeError:  # words that are read only once; or none, and then the error is Python's own
        return None


def _command(args: tuple, kwargs: dict) -> object:
    return args[0] if args else kwargs.get("args")

"""Exact resume of an unmodified script, by ghost replay:
record, kill, replay as a ghost, restore, check the tail.

`begin()` and `torch_is_here()` are all that the outside calls. Here the rooms are put together; each imports
only those that stand before it:
core (the phases of a life, its log, how it ends) · world (files, clocks, programs:
what the script asks and does) · state (what the script can reach, and what changes of it) · compute (modules,
autograd, optimizers) · data (loaders) · image (where one is taken, what it is, how it is put back) · audit
(is a resume what the run was). What a room has to say upward it says through lists that it owns (`on_...`).

Each part with state of its own has `save()`, whose result marshal can write (tensors and arrays go through
the given store), and `load(state, store)`. They are called in the order loader, files, values. What a part
does not support, it refuses with a sentence of core/words.py.

STOKER_RESUME_DROP names parts of the state that a resume leaves out, to test the checks: `rng`,
`optimizer`, `buffers`, `position`, `worker_rng`, `value`. `verify-resume --mutate` uses it.
"""

from __future__ import annotations

import atexit
import os

from .core import phases

OWNER = "owner"  # in phases.folder: the attempt and process that trains


def begin(process: object) -> bool:
    """The script begins: what it may take by name is watched before anything is imported. False:
    no exact resume in this process."""
    if process.rehearsed or not os.environ.get("STOKER_RESUME_DIR"):
        return False
    from ..entry import imports
    from .core import early_log
    from .world import asked, files
    early_log.on_put_back.append(_give_back)
    files.install_early()
    asked.install_early()
    imports.after("random", _start_of_random)
    imports.after("numpy", _start_of_numpy)
    process.resumes = True
    return True


def _give_back(folder: str) -> None:
    from .world import as_found
    as_found.begin(folder)


def _start_of_random(module: object) -> None:
    from .compute import values
    values.python_rng_begins(module)


def _start_of_numpy(module: object) -> None:
    import random  # noqa: F401  # it comes with what follows, and is seen to first

    import numpy.random  # noqa: F401  # a lazy module, as W&B makes of numpy, does not bring it by itself yet

    from .compute import values
    values.numpy_rng_begins(module)


def torch_is_here(process: object) -> None:
    """torch has just been imported: from here on this life is recorded, or goes to an image.
    What forbids it is said."""
    from .core import words
    why = _begin()
    if phases.audit and (why or not phases.phase):
        from .audit import auditor
        auditor.cannot(why or words.AUDIT_NOT_AGAIN)
    if why:
        process.said["why"] = why


def _begin() -> str:
    from .core import internals, outcome, words
    phases.folder = os.environ.get("STOKER_RESUME_DIR", "")
    phases.attempt = int(os.environ.get("STOKER_ATTEMPT", "1") or 1)
    why = internals.self_test()
    if why:
        outcome.write_state(state="not resumable", reason=why)
        return why
    try:
        return _install()
    except Exception as e:
        outcome.broke(e)
        return words.INTERNAL.format(error=f"{type(e).__name__}: {e}")


def _install() -> str:
    from .compute import lenient, shields, values
    from .core import log, outcome, own, resume_cost
    from .data import loader
    from .image import checks, ending, images, points, unsupported
    from .state import walk_heap, walk_library
    from .world import asked, bars, files
    atexit.register(_let_go)
    outcome.remember_start()
    checks.install()
    own.make(phases.folder)
    phases.log = log.Log(os.path.join(phases.audit or phases.folder, "log"))
    phases.target = _target()
    if phases.target is not None:
        phases.log.replay(phases.target.events)
    phases.on_error = outcome.broke
    phases.off_in_children()
    phases.phase = phases.SETUP
    why = asked.install()
    if why:
        if phases.target is not None:
            outcome.diverged(why)
        phases.turn_off()
        outcome.write_state(state="not resumable", reason=why)
        return why
    _join()
    files.install()
    values.install()
    points.install()
    shields.install()
    loader.install()
    ending.install()
    walk_heap.baseline()
    walk_library.remember_names()
    unsupported.install()
    bars.install()
    phases.on_setup_end += [_own, images.at_setup_end, points.begin, ending.listen, lenient.install]
    phases.on_ghost_end += [lenient.remove, shields.end_of_ghost, ending.end_of_ghost]
    phases.on_tail_end += [points.begin, _tell_resumed]
    if phases.target is not None and not phases.audit:
        resume_cost.announce()
    if outcome.refused():
        outcome.refuse(outcome.refused())
    return outcome.refused()


def _target() -> object:
    """The image that this life goes to, or None."""
    from .core import early_log, outcome
    from .image import checks, images
    if phases.audit:
        from .audit import auditor
        target = auditor.choose()
        for difference in checks.compare(target.where["path"]):
            auditor.cannot(difference)
        return target
    if early_log.early == early_log.GHOST and outcome.tries() < outcome.TRIES and not outcome.refused():
        return _same_path(images.choose())
    return None


def _join() -> None:
    """Who is told of what by a room below his own."""
    from .audit import requests
    from .compute import side_effects, values
    from .core import log, resume_cost
    from .data import loader
    from .image import foreseen, images
    from .state import warning_filters
    from .world import effects, files
    log.on_look += [resume_cost.look, requests.look]
    effects.on_saved.append(foreseen.saved)
    files.images_in_use.append(requests.images)
    images.obstacles.append(loader.obstacle)
    images.on_written.append(requests.image_written)
    images.parts += [
        ("loader", loader),
        ("files", files),
        ("values", values),
        ("leavings", side_effects),
        ("warned", warning_filters),
    ]
    if phases.audit:
        from .audit import auditor
        from .image import ending, points
        ending.on_script_error.append(auditor.script_failed)
        points.on_arrival.append(auditor.arrived)


def _let_go() -> None:
    """What runs last of all that we do at exit.
    Python takes the script's modules apart after it, and calls each `__del__`:
    what we still held would live on, or find its globals gone."""
    from .data import loader_state
    from .state import changed, library_held, walk_heap, walk_kinds
    phases.leaving = True
    phases.turn_off()
    for part in (changed, loader_state, library_held, walk_kinds, walk_heap):
        part.forget()


def _same_path(image: object) -> object:
    """The image, if this life is the one that was recorded as far as can be told now; what is not is told."""
    from .core import outcome
    from .image import checks
    differences = checks.compare(image.where["path"]) if image is not None else ()
    if not differences:
        return image
    for line in differences:
        outcome.say(line)
    outcome.write_state(
        tried=[*(outcome.state().get("tried") or ())[-9:], {"image": image.n, "why": differences[0]}]
    )
    return None


def _own() -> None:
    """This process trains. It is the only one of this run, or there is no exact resume."""
    import fcntl

    from ..entry.aside import aside
    from .core import outcome, own, words
    from .world import printed, rng
    path = os.path.join(phases.folder, OWNER)
    fd = aside(own.open_made(path, os.O_RDWR))  # before it is locked: to close one lets go
    before = os.read(fd, 100).split()
    try:
        # not inherited by children; let go with the process, or by exec
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        before = [str(phases.attempt).encode(), before[1] if len(before) > 1 else b"?"]
    me = [str(phases.attempt).encode(), str(os.getpid()).encode()]
    if len(before) == 2 and before[0] == me[0] and before[1] != me[1]:
        reason = words.TWO_PROCESSES.format(one=before[1].decode(), two=os.getpid())
        outcome.refuse_for_all(reason)
        return
    os.ftruncate(fd, 0)
    os.pwrite(fd, b" ".join(me), 0)
    _kept.append(fd)
    if phases.phase == phases.RECORD:
        _set_aside("images")
        phases.log.open()
        rng.keep_start()
        outcome.write_state(state="recording", reason="", image=None, step=0, resumed=None, back=None,
                            lives=printed.told(outcome.state().get("lives") or [], None))


def _set_aside(name: str) -> None:
    """What an earlier record left behind does not belong to the one that begins now;
    the last one is kept to be looked at."""
    from .core import own
    path = os.path.join(phases.folder, name)
    own.remove(path + ".old")
    with own.Folder(phases.folder) as here:
        if os.path.lexists(f"{here}/{name}"):
            os.rename(f"{here}/{name}", f"{here}/{name}.old")


_kept: list = []


def _tell_resumed() -> None:
    from .core import outcome
    from .image import points
    from .world import printed
    told = points.told()
    lives = printed.told(outcome.state().get("lives") or [], phases.resumed.where["printed"])
    lost, values = phases.log.compared, phases.log.values_compared
    outcome.write_state(state="resumable", reason="", lives=lives, back=None,
                        resumed={**told, "lost_events": lost, "values_equal": values, "grade": "bit-exact"})
    outcome.say(
        f"resumed at step {told['step']:,} in {told['seconds']:.1f} s; "
        f"{told['lost_steps']} lost steps repeated, "
        f"{values} values equal to the recording; grade: bit-exact"
    )

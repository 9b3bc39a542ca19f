"""Exact resume of an unmodified script, by ghost replay: record, kill, replay as a ghost, restore, check the tail.

`install()` is all that the outside calls. The order of the parts: life (the hub) · log · values, shields, loader, files, world (what is
an event) · points (where an image can be taken) · walk, image, restore (what an image is) · checks (what is not understood) · fate.
"""

from __future__ import annotations

import atexit
import os

from . import life

OWNER = "owner"  # in life.folder: the attempt and process that trains


def install() -> str:
    """torch has just been imported: from here on this life is recorded, or goes to an image. Says why not, or ""."""
    from . import fate, private, words
    why = _begin(fate, private, words)
    if life.audit and (why or not life.phase):
        from . import auditor
        auditor.cannot(why or words.AUDIT_NOT_AGAIN)
    return why


def _begin(fate: object, private: object, words: object) -> str:
    life.folder = os.environ.get("STOKER_RESUME_DIR", "")
    life.attempt = int(os.environ.get("STOKER_ATTEMPT", "1") or 1)
    why = private.self_test()
    if why:
        fate.write_state(state="not resumable", reason=why)
        return why
    try:
        return _install(fate, words)
    except Exception as e:
        fate.broke(e)
        return words.INTERNAL.format(error=f"{type(e).__name__}: {e}")


def _install(fate: object, words: object) -> str:
    from . import (
        allow,
        bars,
        checks,
        ending,
        files,
        image,
        lenient,
        loader,
        log,
        own,
        points,
        shields,
        tape,
        values,
        walk_heap,
        walk_library,
        way_back,
        world,
    )
    atexit.register(_let_go)
    fate.remember_start()
    checks.install()
    own.make(life.folder)
    life.log = log.Log(os.path.join(life.audit or life.folder, "log"))
    if life.audit:
        from . import auditor
        life.target = auditor.choose()
        for difference in checks.compare(life.target.where["path"]):
            auditor.cannot(difference)
        life.log.replay(life.target.events)
    elif tape.early == tape.GHOST and fate.tries() < fate.TRIES and not fate.refused():
        life.target = _same_path(image.choose(), checks, fate)
        if life.target is not None:
            life.log.replay(life.target.events)
    life.on_error = fate.broke
    life.off_in_children()
    life.phase = life.SETUP
    why = world.install()
    if why:
        if life.target is not None:
            fate.diverged(why)
        life.turn_off()
        fate.write_state(state="not resumable", reason=why)
        return why
    files.install()
    values.install()
    shields.install()
    loader.install()
    ending.install()
    walk_heap.baseline()
    walk_library.remember_names()
    allow.install()
    bars.install()
    life.on_setup_end += [_own, image.at_setup_end, points.begin, ending.listen, lenient.install]
    life.on_ghost_end += [lenient.remove, shields.end_of_ghost, ending.end_of_ghost]
    life.on_tail_end += [points.begin, _tell_resumed]
    if life.target is not None and not life.audit:
        way_back.announce()
    if fate.refused():
        fate.refuse(fate.refused())
    return fate.refused()


def _let_go() -> None:
    """What runs last of all that we do at exit. Python takes the script's modules apart after it, and calls each `__del__`: what we still
    held would live on, or find its globals gone."""
    from . import image, tracks, walk_heap, walk_kept, walk_kinds
    life.leaving = True
    life.turn_off()
    for part in (image, tracks, walk_kept, walk_kinds, walk_heap):
        part.forget()


def _same_path(image: object, checks: object, fate: object) -> object:
    """The image, if this life is the one that was recorded as far as can be told now; what is not is told."""
    differences = checks.compare(image.where["path"]) if image is not None else ()
    if not differences:
        return image
    for line in differences:
        fate.say(line)
    fate.write_state(tried=[*(fate.state().get("tried") or ())[-9:], {"image": image.n, "why": differences[0]}])
    return None


def _own() -> None:
    """This process trains. It is the only one of this run, or there is no exact resume."""
    import fcntl

    from ..entry.aside import aside
    from . import fate, own, printed, rng, words
    path = os.path.join(life.folder, OWNER)
    fd = aside(own.open_made(path, os.O_RDWR))  # before it is locked: to close one lets go
    before = os.read(fd, 100).split()
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not inherited by children; let go with the process, or by exec
    except OSError:
        before = [str(life.attempt).encode(), before[1] if len(before) > 1 else b"?"]
    me = [str(life.attempt).encode(), str(os.getpid()).encode()]
    if len(before) == 2 and before[0] == me[0] and before[1] != me[1]:
        reason = words.TWO_PROCESSES.format(one=before[1].decode(), two=os.getpid())
        fate.refuse_for_all(reason)
        return
    os.ftruncate(fd, 0)
    os.pwrite(fd, b" ".join(me), 0)
    _kept.append(fd)
    if life.phase == life.RECORD:
        _set_aside("images")
        life.log.open()
        rng.keep_start()
        fate.write_state(state="recording", reason="", image=None, step=0, resumed=None, back=None,
                         lives=printed.told(fate.state().get("lives") or [], None))


def _set_aside(name: str) -> None:
    """What an earlier record left behind does not belong to the one that begins now; the last one is kept to be looked at."""
    from . import own
    path = os.path.join(life.folder, name)
    own.remove(path + ".old")
    with own.Folder(life.folder) as here:
        if os.path.lexists(f"{here}/{name}"):
            os.rename(f"{here}/{name}", f"{here}/{name}.old")


_kept: list = []


def _tell_resumed() -> None:
    from . import fate, points, printed
    told = points.told()
    lives = printed.told(fate.state().get("lives") or [], life.resumed.where["printed"])
    lost, values = life.log.compared, life.log.values_compared
    fate.write_state(state="resumable", reason="", lives=lives, back=None,
                     resumed={**told, "lost_events": lost, "values_equal": values, "grade": "bit-exact"})
    fate.say(f"resumed at step {told['step']:,} in {told['seconds']:.1f} s; {told['lost_steps']} lost steps repeated, "
             f"{values} values equal to the recording; grade: bit-exact")

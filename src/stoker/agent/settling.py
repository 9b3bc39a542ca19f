"""What is left to do when an attempt is over: its files given back, its images forgotten; all of it where the
caretakers are dead."""

from __future__ import annotations

import os
import stat
import sys
import time

from .attempts import attempt_numbers, drop_spares
from .explaining import conclude
from .machine import leave_group
from .observing import notify_watchers
from .processes import machine_identity, same_place
from .reading import flaw
from .tree import Tree, end_tree, leftovers
from .words import (
    AGENT, ATTEMPTS, EXIT, EXIT_SPARE, GIVE_BACK_S, HEARTBEAT, HOOKS, LOGIN_ENV, PUT_BACK, RESUME,
    RUN_DIR_MARK, RUN_MARK, STATUS, Problem, number,
)
from .writing import log_exception, remove, remove_at, write_json, write_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt


def forget_images(att: Attempt) -> None:
    """It ended well, and begins anew should it be started again:
    what exact resume kept to come back goes, twice the training's state."""
    try:
        resume = att.open_folder(RESUME)
    except OSError:
        return
    aside = "ended-%d" % att.n
    try:
        remove_at(resume, aside)
        # at once: half an image is never found
        os.rename("images", aside, src_dir_fd=resume, dst_dir_fd=resume)
    except OSError:
        pass
    for name in (aside, "log", "log.old"):  # without images the log leads nowhere
        try:
            remove_at(resume, name)
        except OSError:
            log_exception()
    os.close(resume)


def files_stand_back(att: Attempt) -> bool:
    """Whether a life on its way to an image has put the user's files back, and was killed before it was
    certain of the image."""
    try:
        resume = att.open_folder(RESUME)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.stat(PUT_BACK, dir_fd=resume, follow_symlinks=False).st_mode)
    except OSError:
        return False
    finally:
        os.close(resume)


def give_files_back(att: Attempt) -> None:
    """The user's files are again as that life found them:
    by the run's own hooks, in a process that belongs to the run.
    Where that cannot be, the first process of the next attempt does it."""
    hooks = os.path.realpath(os.path.join(att.run_dir, HOOKS))
    if not files_stand_back(att) or not os.path.isdir(hooks):
        return
    import subprocess

    here = (
        "stoker_hooks.resume.world"
        if os.path.isdir(os.path.join(hooks, "stoker_hooks/resume"))
        else "stoker_hooks.ghost"
    )
    code = (
        (
            "import sys; sys.path.insert(0, sys.argv[1]); from %s import as_found; "
            "as_found.at_the_end(sys.argv[2])"
        )
        % here
    )
    env = {
        **{name: os.environ[name] for name in LOGIN_ENV if name in os.environ},
        RUN_MARK: att.id,
        RUN_DIR_MARK: att.run_dir,
        "STOKER_ATTEMPT": str(att.n),
    }
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", code, hooks, os.path.join(att.run_dir, RESUME)],
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=GIVE_BACK_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        log_exception()


def mind_files(att: Attempt) -> None:
    """Raises Problem where the run folder has the only copy of a file of the user's."""
    give_files_back(att)
    resume = os.path.join(att.run_dir, RESUME)
    if files_stand_back(att):
        raise Problem(
            "state",
            "a resume was interrupted after it replaced files of the working folder with files of an image. "
            "Your own files are in %s/undo; Stoker could not put these files back. To let Stoker try again, "
            "start the run again. To give up your own files, remove %s/%s"
            % (resume, resume, PUT_BACK),
        )
    for n in attempt_numbers(att.run_dir):
        kept = os.path.join(resume, "aside", str(n), "not-given-back")
        if os.path.isdir(kept):
            raise Problem(
                "state",
                "the only copy of some files is in %s; move these files back, or remove that folder"
                % kept,
            )


def settle(att: Attempt, reason: str = "", detail: str = "") -> None:
    """Kill what is left of the tree and write the last words. May be called by several at once, and again.

    The process tree gets TERM, 2 s, KILL. A restart is never planned here.
    """
    record = att.json(AGENT) or {}
    ended = att.json(EXIT)
    if ended is not None:
        if ended.get("restart") and not os.path.isdir(att.sibling(att.n + 1).folder):
            ended["restart"] = None
            write_json(att.path(EXIT), ended, sync=True, spare=att.path(EXIT_SPARE))
        drop_spares(att)
        notify_watchers(att)
        return
    here = machine_identity()
    run = record.get("run") if same_place(record.get("machine"), here) else None
    tree = Tree(att, None, 0, run if isinstance(run, dict) else None)
    survivors, found = end_tree(tree)
    give_files_back(att)
    status = att.json(STATUS)
    beat = att.json(HEARTBEAT) or {}
    used = number((status or beat).get("used_s"))
    if status is None and found and record.get("started_mono") is not None:
        # it ran on, unwatched, until now
        used = max(used, time.monotonic() - number(record.get("started_mono")))
    if status is None and not reason:
        restarted = record.get("machine") is not None and not same_place(record.get("machine"), here)
        reason = "rebooted" if restarted else "agent_lost"
    body = conclude(att, status, reason, used_s=used, leftovers=leftovers(found, survivors, tree.spared))
    leave_group(record.get("memory_group"))
    if detail:
        body["evidence"]["detail"] = detail
    if flaw(att.path(EXIT)):
        remove(*att.below(ATTEMPTS, str(att.n), EXIT))
    write_once(att.path(EXIT), body)
    drop_spares(att)
    notify_watchers(att)

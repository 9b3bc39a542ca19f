"""Takes one check at a time out of the hooks, and shows what then becomes of a script that it is for: silently wrong, or caught by another.

`python tests/resume/takeouts.py [NAME...] [--search SCRIPT...]` prints the table: check | script | with the check | without it.
A check is taken out by a few lines added to the end of its file in a copy of the hooks. `--search` tries other scripts for the named checks.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, Kill, Stage, Trial, one_text, read, vendored

NEAR = Kill("bare image", 0.25, 2)  # a short tail: what a difference does late is not yet in it


@dataclass(frozen=True)
class Takeout:
    """A check, what takes it out (file under ghost/ and lines added to it) and a script that tries to get past it."""

    check: str
    file: str
    lines: str
    script: str
    kill: Kill = NEAR
    again: tuple[tuple[str, str], ...] = ()  # environment of the second life, where the check is about it
    before: tuple[str, str] = ("", "")  # a file that lies there, and its text
    between: tuple[str, str] = ("", "")  # a file, and what somebody writes into it between the lives
    every: str = "40steps"


def passes(name: str, result: str) -> str:
    """Lines after which the function `name` of a file gives always the same."""
    return f"def {name}(*_, **__):\n    return {result}\n"


TAIL = """
def _uncompared(self, kind, value=NOTHING):
    reader = self._reader
    if reader is None or not reader.more():
        life.end_tail()
        return self.put(kind, value)
    entry, _ = reader.next()
    if entry & 1:
        reader.value()
    self.n += 1
    self._after_tail_event(bool(entry & 1))
Log._compare = _uncompared
"""

TAKEOUTS = (
    Takeout("the tail, value by value", "log.py", TAIL, "many_ways_out"),
    Takeout("no image inside an expression", "bytecode.py", passes("holds_values", "False"), "view_on_the_stack"),
    Takeout("no image while a graph is alive", "graphs.py", passes("alive", "''"), "graph_of_known_tensors"),
    Takeout("every living tensor and array is reached", "walk_closed.py", passes("unseen", "[]"), "tensor_in_a_future"),
    Takeout("unknown types of modules, data sets, optimizers", "walk_closed.py", passes("strange", "None"), "digest_in_a_module"),
    Takeout("variables, stack and aliases as at the image", "restore.py", "_Restore.differs = lambda *_: None\n", "forward_iterator"),
    Takeout("events come from the recorded place", "log.py", "Log._check_site = lambda *_: None\n", "swapped_parameters"),
    Takeout("same code", "checks.py", passes("compare", "[]"), "module_edited_late",
            between=("ending.py", "def ending(total):\n    return total + 1\n")),
    Takeout("same input", "checks.py", passes("_same_input", "True"), "held_out_set_changed", before=("test.txt", "0.25\n" * 64),
            between=("test.txt", "1.25\n" * 64)),
    Takeout("same number of threads", "checks.py", passes("compare_at_image", "[]"), "threads_at_the_end", again=(("CORES", "2"),)),
    Takeout("programs started beside it", "allow.py", passes("_process", "None") + passes("strangers", "[]"), "subprocess_value"),
    Takeout("sockets", "allow.py", passes("_socket", "None"), "socket_talk"),
    Takeout("libraries in C", "allow.py", passes("_library", "None"), "ctypes_memory"),
    Takeout("threads beside it", "allow.py", passes("_thread_starts", "None"), "thread_touches_tensors"),
    Takeout("databases", "allow.py", passes("_database", "None"), "sqlite_table"),
    Takeout("compiled and scripted models", "allow.py", passes("_watch_torch", "None"), "jit_batchnorm"),
)


def _fresh(stage: Stage, takeout: Takeout, clear) -> None:
    clear()
    if takeout.before[0]:
        (stage.home / takeout.before[0]).write_text(takeout.before[1])


def run(takeout: Takeout, base: Path, *, out: bool, script: str = "") -> Trial:
    """One run that is killed and started again, with the check in place or taken out."""
    path = next(p for p in (HERE / "adversaries" / f"{script or takeout.script}.py", Path(script or takeout.script)) if p.exists())
    hooks = vendored(base / ("without" if out else "with"))
    if out:
        target = hooks / "stoker_hooks" / "ghost" / takeout.file
        target.write_text(f"{target.read_text('utf-8')}\n\n{takeout.lines}", "utf-8")
    stage = Stage(read(path), base / "run", hooks=hooks, every=takeout.every)
    stage.fresh = functools.partial(_fresh, stage, takeout, stage.fresh)
    straight = stage.plain()
    stage.fresh()
    lives = [stage.live(1, takeout.kill)]
    if lives[0].rc is None:
        if takeout.between[0]:
            (stage.home / takeout.between[0]).write_text(takeout.between[1])
        again = Stage(stage.script, stage.base, hooks=hooks, every=takeout.every, env=dict(takeout.again))
        lives.append(again.live(2))
    text, last = one_text(lives)
    return stage._judge(straight, stage.final(lives[-1], text), lives, last)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help="words of the checks that are taken out")
    parser.add_argument("--search", nargs="*", default=[], metavar="SCRIPT")
    parser.add_argument("--only-without", action="store_true")
    args = parser.parse_args()
    for takeout in TAKEOUTS:
        if args.names and not any(name in takeout.check for name in args.names):
            continue
        for script in args.search or [takeout.script]:
            with tempfile.TemporaryDirectory(prefix="takeout-") as folder:
                held = None if args.only_without else run(takeout, Path(folder, "a"), out=False, script=script)
                without = run(takeout, Path(folder, "b"), out=True, script=script)
            print(f"{takeout.check:50s} {script:24s} with: {held.outcome if held else '-':8s} without: {without.outcome:8s} "
                  f"{(without.differs or [''])[0][:110]} {without.reason[:140]}", flush=True)
            if args.search and without.outcome == "WRONG":
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())

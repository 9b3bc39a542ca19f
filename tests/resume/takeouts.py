"""Takes one check at a time out of the hooks, and shows what then becomes of a script that only this check stands against: silently wrong.

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
    """A check, what takes it out (file under resume/ and lines added to it) and a script that tries to get past it."""

    check: str
    file: str
    lines: str
    script: str
    kill: Kill = NEAR
    again: tuple[tuple[str, str], ...] = ()  # environment of the second life, where the check is about it
    before: tuple[str, str] = ("", "")  # a file that lies there, and its text
    between: tuple[str, str] = ("", "")  # a file, and what somebody writes into it between the lives
    edit: tuple[str, str, str] = ("", "", "")  # a file, and what is replaced in it by what between the lives
    every: str = "40steps"


def passes(name: str, result: str) -> str:
    """Lines after which the function `name` of a file gives always the same."""
    return f"def {name}(*_, **__):\n    return {result}\n"


def forgets(field: str, value: str) -> str:
    """Lines after which `compare` of checks.py finds this field of what was recorded as it is now."""
    return f"_whole = compare\ndef compare(then):\n    return _whole({{**then, {field}: {value}}})\n"


def unasked(reason: str) -> str:
    """Lines after which `standing` of unsupported.py has nothing against what a sentence that ends so says."""
    return f"_whole = standing\ndef standing():\n    reason = _whole()\n    return '' if reason.endswith({reason}) else reason\n"


def allowed(reason: str) -> str:
    """Lines after which a call that unsupported.py forbids with this sentence is not followed."""
    return f"_whole = _forbid\ndef _forbid(owner, name, reason):\n    return None if reason == words.{reason} else _whole(owner, name, reason)\n"


ANYWHERE = """
class bytecode:  # the self test asks the real one
    holds_values, at_loop, call_at = staticmethod(lambda *_: False), staticmethod(bytecode.at_loop), staticmethod(bytecode.call_at)
"""
TAIL = """
def _uncompared(self, kind, value=NOTHING):
    reader = self._reader
    if reader is None or not reader.more():
        phases.end_tail()
        return self.put(kind, value)
    entry, _ = reader.next()
    if entry & 1:
        reader.value()
    self._before += 1
    self._after_tail_event(bool(entry & 1))
Log._compare = _uncompared
"""
AT_ONCE = """
_whole = swallowed
def swallowed(which, what, write):
    if phases.phase != phases.TAIL:
        return _whole(which, what, write)
    count[which] += len(what)
    if which == 0:
        _printed.append(what)
    __import__("_io").FileIO(which + 1, "w", closefd=False).write(what.encode() if isinstance(what, str) else what)  # flushes wait, too
    return True
"""
STACK = """
_whole = _Restore.compare
def _compare(self):
    self.meta["frames"] = self.now.frames
    _whole(self)
_Restore.compare = _compare
"""
ALIAS = """
_whole = _Restore._facts
_Restore._facts = lambda self, then, now, prefix="": None if prefix else _whole(self, then, now)
"""
PRINTS = """
_whole = load
def load(state, _store=None):
    return _whole({**state, "printed": streams.save()}, _store)
"""
IMPORTED = """
_at_image = compare_at_image
def compare_at_image(then):
    return _at_image({**then, "code": user_code()})
"""
CORES = """
_whole = library_roots
def library_roots():
    return [root for root in _whole() if root[0] != "L:torch.threads"]
"""
SCRIPT = "{path: seen for path, seen in then['code'].items() if path != then['script']}"
MODULES = "{path: seen for path, seen in then['code'].items() if path == then['script']}"
OTHER = "1.25\n" * 64
OPENED = ("test.txt", "0.25\n" * 64)

TAKEOUTS = (
    # the tail
    Takeout("the tail, value by value", "core/log.py", TAIL, "count_inside_c"),
    Takeout("the loss at each backward", "compute/shields.py", passes("_bits", "None"), "count_inside_c"),
    Takeout("prints wait for the tail", "world/streams.py", AT_ONCE, "count_inside_c"),
    Takeout("no image without a tail", "image/images.py", "TAIL_VALUES = 0\n", "slow_count_inside_c", kill=Kill("bare image", 0.0, 2)),
    # where an image can be taken
    Takeout("no image inside an expression", "image/points.py", ANYWHERE, "waits_for_the_block"),
    Takeout("no image while a graph is alive", "compute/graphs.py", passes("alive", "''"), "graph_of_known_tensors"),
    # the closed world
    Takeout("every living tensor and array is reached", "state/reachability.py", passes("unseen", "[]"), "tensor_in_a_future"),
    Takeout("what a comprehension has collected", "state/stack_values.py", passes("_collected", "None"), "collected_in_a_comprehension",
            kill=Kill("bare image", 0.2, 14)),
    Takeout("unknown types of modules, data sets, hooks", "state/reachability.py", passes("strange", "None"), "packed_in_a_module"),
    Takeout("gc.freeze", "state/walk_heap.py", "Heap.frozen = lambda self: False\n", "frozen_ring"),
    Takeout("what only a library holds", "state/library_held.py", passes("add", "None") + passes("add_known", "None"), "default_collate_map"),
    Takeout("what hangs on things of libraries", "state/walk_opaque.py", passes("add_foreign", "False"), "attribute_on_file"),
    Takeout("settings of a worker's process", "state/watch.py", passes("settings", "()"), "worker_environ"),
    # the same path
    Takeout("variables as at the image", "image/restore.py", "_Restore.differs = lambda *_: None\n", "changed_once"),
    Takeout("aliases as at the image", "image/restore.py", ALIAS, "one_of_two_closures"),
    Takeout("call stack as at the image", "image/restore.py", STACK, "another_way_in"),
    Takeout("printed text as at the image", "world/files.py", PRINTS, "printed_count"),
    Takeout("events come from the recorded place", "core/log.py", "Log._check_site = lambda *_: None\n", "another_branch"),
    Takeout("same script", "image/checks.py", forgets("'code'", SCRIPT), "module_edited_late", edit=("script.py", '"final", ', '"final", 1 + ')),
    Takeout("same imported files", "image/checks.py", forgets("'code'", MODULES), "module_edited_late",
            between=("ending.py", "def ending(total):\n    return total + 1\n")),
    Takeout("the same files are imported", "image/checks.py", IMPORTED, "imported_in_forward"),
    Takeout("same versions, machine and variables", "image/checks.py", forgets("**_fixed, 'code'", "then['code']"), "kernels_by_variable",
            again=(("ATEN_CPU_CAPABILITY", "default"), ("MKL_CBWR", "COMPATIBLE"))),
    Takeout("same number of threads", "state/walk_settings.py", CORES, "threads_at_the_end", again=(("CORES", "2"),)),
    Takeout("same input", "image/checks.py", passes("_same_input", "True"), "held_out_set_open", before=OPENED, between=("test.txt", OTHER)),
    Takeout("same input, opened in training", "world/handles.py", passes("_marks", "(0, 0)"), "read_line_by_line", before=("test.txt", "0.01\n" * 10 + "0.02\n" * 30),
            between=("test.txt", "0.01\n" * 10 + "0.03\n" * 30)),
    # what is not understood
    Takeout("programs started in training", "image/unsupported.py", passes("_process", "None"), "notes_by_a_program"),
    Takeout("programs beside it", "image/unsupported.py", passes("strangers", "[]"), "helper_that_counts"),
    Takeout("sockets used in training", "image/unsupported.py", passes("_socket", "None"), "bytes_in_a_socket"),
    Takeout("sockets that are open", "state/walk_library.py", passes("of_socket", "None"), "pair_of_sockets"),
    Takeout("process groups", "image/unsupported.py", unasked("words.DISTRIBUTED"), "store_of_the_group"),
    Takeout("libraries in C", "image/unsupported.py", passes("_library", "None"), "random_of_a_package"),
    Takeout("functions in C", "image/unsupported.py", passes("_function_in_c", "None"), "random_of_this_process"),
    Takeout("own extensions", "image/unsupported.py", unasked("'is an extension in C that is not known'"), "extension_that_counts"),
    Takeout("threads beside it", "image/unsupported.py", passes("_thread_starts", "None"), "thread_that_counts"),
    Takeout("databases", "image/unsupported.py", passes("_database", "None"), "database_now_and_then"),
    Takeout("files written past Python", "world/foreign_writers.py", passes("unknown_writers", "None"), "written_by_number"),
    Takeout("compiled models", "image/unsupported.py", allowed("COMPILE"), "compiler_that_declines"),
    Takeout("scripted models", "image/unsupported.py", allowed("JIT"), "scripted_method"),
    Takeout("signals", "image/unsupported.py", "_Heard.__call__ = lambda self, number, frame: self.handler(number, frame)\n", "signal_from_forward"),
)


def blind(base: Path) -> Path:
    """Hooks without the tail check, for those who want to know what stands behind it."""
    hooks = vendored(base)
    _add(hooks, "core/log.py", TAIL)
    _add(hooks, "image/images.py", "TAIL_VALUES = 0\n")
    return hooks


def _add(hooks: Path, file: str, lines: str) -> None:
    target = hooks / "stoker_hooks" / "resume" / file
    target.write_text(f"{target.read_text('utf-8')}\n\n{lines}", "utf-8")


def _fresh(stage: Stage, takeout: Takeout, clear) -> None:
    clear()
    if takeout.before[0]:
        (stage.home / takeout.before[0]).write_text(takeout.before[1])


def _meddle(stage: Stage, takeout: Takeout) -> None:
    """What somebody does between the lives."""
    if takeout.between[0]:
        (stage.home / takeout.between[0]).write_text(takeout.between[1])
    if takeout.edit[0]:
        path = stage.home / takeout.edit[0]
        path.write_text(path.read_text().replace(*takeout.edit[1:]))


def run(takeout: Takeout, base: Path, *, out: bool, script: str = "") -> Trial:
    """One run that is killed and started again, with the check in place or taken out."""
    path = next(p for p in (HERE / "adversaries" / f"{script or takeout.script}.py", Path(script or takeout.script)) if p.exists())
    hooks = vendored(base / ("without" if out else "with"))
    if out:
        _add(hooks, takeout.file, takeout.lines)
    stage = Stage(read(path), base / "run", hooks=hooks, every=takeout.every)
    stage.fresh = functools.partial(_fresh, stage, takeout, stage.fresh)
    straight = stage.plain()
    stage.fresh()
    lives = [stage.live(1, takeout.kill)]
    if lives[0].rc is None:
        _meddle(stage, takeout)
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
            print(f"{takeout.check:44s} {script:24s} with: {held.outcome if held else '-':8s} without: {without.outcome:8s} "
                  f"{(without.differs or [''])[0][:110]} {without.reason[:140]}", flush=True)
            if held:
                print(f"{'':44s} {held.line()[:400]}", flush=True)
            if without.outcome != "WRONG":
                print(f"{'':44s} {without.line()[:400]}", flush=True)
            if args.search and without.outcome == "WRONG":
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What this trial was started for, who takes the order, and what is told at its end:
facts.json, written once and whole.

order.json: `{"mode": "probe", "trial", "guard" or "batch", "seconds", "steps" (0: no limit), "seed" (added
to each seed that the script sets; null: as it is), "settings", "try": [knob], "network" (false: after the
import of torch a request other than GET or HEAD, and any other connection that leaves the machine, is
blocked; the trial says so and ends, `error.type` "network"), "pool": N}`. A file `enough` in the room asks
for the facts so far. The first process that makes an optimizer step has the order (`taken`: its pid);
others run without measurement. If several processes train, the facts have `ranks`, and the measurement
ends.

facts.json; what was not measured is missing, not 0:
- `{"version": 1, "ended": "enough", "script" or "error", "python", "torch", "cuda", "cores", "threads",
  "setup_s", "first_step_s", "steps_seen", "ranks"?, "shapes", "faults": [errors of the hooks]}`
- `loaders`: `[{"id", "train", "workers", "prefetch", "persistent", "pin", "batch_size", "drop_last", "len",
  "passes", "pass_steps", "start_s", "sampler", "labels_sorted", "own_iter", "framework", "rebuilt",
  "signature", "collate", "dataset": {"type", "len", "iterable", "getitems", "transforms", "changed"},
  "replay": true or why not, "duplicates", "proof": {feed: sentence or true}}]`
- `windows`: windows.py · `samples`: samples.py · `stacks`: stacks.py
- `alone`: `[{"workers", "rate", "start_s"}]` · `batch`: `{"size", "bytes", "padding", "dim"}`
- `model`: `{"tensors", "params", "dtype", "device", "type", "conv2d", "channels_last", "parallel",
  "compiled"}`; `channels_last` is of the script itself, null: the filters and inputs are the same in both
  memory formats · `optimizers`: `[{"type", "tensors", "fused", "foreach", "lr"}]`
- `flags`: `{"anomaly", "retain_graph", "zero_fill", "accumulation", "autocast", "deterministic",
  "distributed", "turns" (of optimizers)}`
- `memory`: `[[step, resident bytes]]` · `growth`: `{"backward": slope per step}`
- `side_effects`: `{"network", "outside", "stdin"}` · `left`: phase -> why not tried · `failed`: phase ->
  the script's error in it
- `error`: `{"type" ("stdin": the script asked for input), "message", "file", "line"}`

progress.jsonl, as it goes: `{"at", "phase", "steps", "text"}`.
"""

from __future__ import annotations

import json
import os
import sys
import time

from . import telling

VERSION = 1
_monotonic = time.monotonic
room = ""
made = 0.0  # when the order was given: what is older is the user's
order: dict = {}
facts: dict = {}  # what is known so far
collect: list = []  # called before facts are written: each adds what it knows
_pid = 0
_done = False


def read() -> bool:
    """Read the order of the room that STOKER_TUNE names. False where there is none."""
    global made, room, order, _pid
    room, _pid = os.path.abspath(os.environ["STOKER_TUNE"]), os.getpid()
    try:
        with open(os.path.join(room, "order.json"), encoding="utf-8") as f:
            order = json.load(f)
            made = os.fstat(f.fileno()).st_mtime
    except (OSError, ValueError):
        return False
    return isinstance(order, dict)


def mode() -> str:
    """"probe", "trial", "guard" or "batch"."""
    return str(order.get("mode", "probe"))


def take() -> bool:
    """Whether the order is this process's: the first that makes an optimizer step has it."""
    return telling.take(room)


def taken_by() -> int:
    """The process that has the order; 0: nobody yet."""
    try:
        with open(os.path.join(room, "taken")) as f:
            return int(f.read() or 0)
    except (OSError, ValueError):
        return 0


def progress(phase: str, steps: int, text: str = "") -> None:
    """One line for who watches."""
    line("progress.jsonl", at=round(time.time(), 3), phase=phase, steps=steps, text=text)


def line(name: str, **said: object) -> None:
    """One line into a file of the room."""
    telling._state["room"] = room
    telling.line(name, **said)


def write(ended: str) -> None:
    """facts.json, once: later calls say nothing."""
    global _done
    if _done or os.getpid() != _pid:
        return
    _done = True
    for each in collect:
        try:
            each(facts)
        except Exception as e:
            facts.setdefault("faults", []).append(
                f"{getattr(each, '__module__', '')}: {type(e).__name__}: {e}"
            )
    told = {"version": VERSION, "ended": ended, "python": sys.version.split()[0], **facts}
    path = os.path.join(room, "facts.json")
    if os.path.exists(path):  # a child of this process, or another part, has told more
        return
    try:
        with open(path + ".part", "w", encoding="utf-8") as f:
            json.dump(told, f, default=_plain)
        os.replace(path + ".part", path)
    except (OSError, ValueError):
        pass


def _plain(value: object) -> object:
    """A number of numpy or torch as JSON knows it; anything else by its text."""
    try:
        return value.item()
    except Exception:
        return str(value)


def finish(ended: str) -> None:
    """All that was asked is known. This process was started for it alone:
    it ends here, and does not come back."""
    write(ended)
    leave()


def leave() -> None:
    """End this process at once, with the workers that it started."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    _end_workers()
    os._exit(0)


def _end_workers() -> None:
    known = sys.modules.get("multiprocessing.process")
    for child in list(getattr(known, "_children", ())):
        try:
            child.kill()
        except Exception:
            pass


def fault(where: str, error: BaseException) -> None:
    """One of ours: noted, and the script goes on."""
    facts.setdefault("faults", []).append(f"{where}: {type(error).__name__}: {error}")


def watch_the_end() -> None:
    """However the script ends, what is known by then is told."""
    import atexit
    atexit.register(_at_exit)


def _at_exit() -> None:
    if os.getpid() != _pid or _done or taken_by() not in (0, _pid):
        return
    error = getattr(sys, "last_value", None)
    if error is None or isinstance(error, KeyboardInterrupt):
        write("script")
        return
    if facts.get("trying"):  # it failed with a setting that was tried on it, not by itself
        facts.setdefault("failed", {})[facts["trying"]] = f"{type(error).__name__}: {error}"[:300]
        write("enough")
        return
    facts["error"] = describe(error)
    write("error")


def describe(error: BaseException) -> dict:
    """`{"type","message","file","line"}`: the last line of the script's own that it passed through."""
    file, number, trace = "", 0, error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if (
            "site-packages" not in name
            and "stoker_hooks" not in name
            and not name.startswith("<")
            and not _of_python(name)
        ):
            file, number = name, trace.tb_lineno
        trace = trace.tb_next
    kind = type(error).__name__
    if kind == "EOFError" and facts.get("side_effects", {}).get("stdin"):
        kind = "stdin"
    return {"type": kind, "message": str(error)[:500], "file": file, "line": number}


def _of_python(name: str) -> bool:
    return name.startswith(os.path.dirname(os.__file__) + os.sep) and "site-packages" not in name

"""What any part of Stoker may use in a process:
the clock that is real, what the process is, and a line about it in processes.jsonl.

It imports none of Stoker's files.
"""

from __future__ import annotations

import os
import sys
import time
from _json import encode_basestring_ascii as _text
from time import perf_counter_ns as now  # noqa: F401  # the real one: exact resume puts another into `time`

RECORD = "processes.jsonl"
# bytes; a run that starts a million processes does not fill the disk with lines about them
RECORD_MAX = 1 << 20
START = time.monotonic()


def command_line() -> list[str]:
    """The words this process was started with, the interpreter and its flags included."""
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]
    except OSError:
        return list(getattr(sys, "orig_argv", sys.argv))


def role(words: list[str]) -> str:
    """"script"; or "worker" for a process that multiprocessing started anew, "service" for one that only
    helps multiprocessing, and
    "tool" for Python's own ways to install and to ask."""
    if "--multiprocessing-fork" in words:
        return "worker"
    code = words[words.index("-c") + 1] if "-c" in words[:-1] else ""
    if "multiprocessing." in code and "import main" in code:
        return "service"
    module = words[words.index("-m") + 1] if "-m" in words[:4] and words[-1] != "-m" else ""
    return "tool" if module in ("pip", "venv", "ensurepip", "compileall", "site") else "script"


def record(**said: object) -> None:
    """One line about this process in this attempt's folder; what cannot be written is not worth a word.

    A line of processes.jsonl has `pid` and `at`, and one of these:
    - `role`, `argv`, `python`: at the start of the process
    - `torch`, `after_s`, `why`?: torch was imported; `why` exact resume cannot work there
    - `other`: TensorFlow or JAX was imported, which is not measured
    - `handles_term` · `stacks` {"signal", "fd", "path"} · `uncaught`, `rank` (handlers, stacks, uncaught)
    - `settings` {"applied", "left"} (settings/told.py) · `clock`, `progress`, `numbers`, `probe`: why that
      part stopped
    - `ended` and counts, by a process that made an optimizer or a loader (clock/book.py)
    """
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
    """JSON of text, numbers, lists and objects.
    The module json, with `re` behind it, would cost more than all the rest of a start."""
    if isinstance(value, list):
        return f"[{', '.join(_json(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(str(name))}: {_json(each)}' for name, each in value.items())}}}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _text(value) if isinstance(value, str) else repr(value)

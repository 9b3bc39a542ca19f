"""One process that holds torch and forks scripts: a start costs milliseconds. Lines of JSON on stdin and stdout.

{"run": script, "argv": [...], "env": {...}, "cwd": ..., "out": file} gives {"pid": n}; {"wait": pid, "timeout_s": s} gives {"code": n or null}.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import sys
import threading
import time
import traceback
import types

import torch
import torch._dynamo  # the first optimizer imports it, for seconds
import torch.distributed
import torch.optim.swa_utils
from torch.utils.data import DataLoader  # noqa: F401

import stoker.engine.engine  # noqa: F401

ended: dict[int, int] = {}  # pid -> exit code


def main() -> None:
    for name in filter(None, os.environ.get("NURSERY_IMPORTS", "").split(",")):
        importlib.import_module(name)
    gc.freeze()  # what is shared with the children stays shared
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    for line in sys.stdin:
        order = json.loads(line)
        if "run" in order:
            pid = os.fork()
            if not pid:
                end(live(order))
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have ended, or done so itself
                os.setpgid(pid, pid)  # here too: a kill may come before the child's own line
            answer = {"pid": pid}
        else:
            answer = {"code": wait(order["wait"], order["timeout_s"])}
        print(json.dumps(answer), flush=True)


def wait(pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while pid not in ended and time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended[pid] = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.005)
    return ended.get(pid)


def end(code: int) -> None:
    """What python does at its end, without taking torch apart piece by piece."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def live(order: dict) -> int:
    """The script, as if python had been started with it; the exit code."""
    os.setpgid(0, 0)
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, to in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(fd, to)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.argv = [order["run"], *order["argv"]]
    sys.path[:0] = [os.path.dirname(order["run"]), *filter(None, order["env"].get("PYTHONPATH", "").split(os.pathsep))]
    from stoker.base import crash

    crash._name, _, count = order["env"].get("STOKER_CRASH_AT", "").partition(":")
    crash._left = int(count or 1)
    module = types.ModuleType("__main__")
    module.__file__ = order["run"]
    sys.modules["__main__"] = module
    with open(order["run"], encoding="utf-8") as f:
        source = f.read()
    try:
        exec(compile(source, order["run"], "exec"), module.__dict__)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException as e:
        sys.last_value = sys.last_exc = e
        traceback.print_exc()
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    return 0


if __name__ == "__main__":
    main()

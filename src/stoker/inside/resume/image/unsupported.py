"""What exact resume does not understand, noticed as it happens, so that a run says "not resumable" while it
is young and not when it is
needed: processes and connections of the script's own, its threads, its compilers, its writers in C, its
    signals.
"""

from __future__ import annotations

import _thread
import functools
import os
import sys
import threading
from weakref import WeakSet

from ...looks import attributes, isinstance
from ..compute import shield_parts
from ..core import early_log, phases, words
from ..data import loader_state
from ..world import audit_hook, journal, streams, threads

_getframe = early_log.frame
# no tensors
THREADS_OF = (
    "tqdm",
    "huggingface_hub",
    "tensorboard",
    "tensorboardX",
    "torch",
    "numpy",
    "stoker_hooks",
    *threads.SENDERS,
)
# parts of the standard library that run small programs to ask
HELPERS = ("platform.py", "uuid.py", "ctypes" + os.sep + "util.py")
MOST_TOLD = 8  # programs
C_WRITERS = {"cv2": ("imwrite",), "soundfile": ("write",), "torchaudio": ("save",)}
_looked_at: set = set()  # names of modules that are no extension of the script's own
_threads: WeakSet = WeakSet()  # started in set-up by the script or a library that we do not know
_harmless: WeakSet = WeakSet()  # started in set-up, and seen to write nothing
_again: list = []  # programs that set-up starts and does not wait for: each life starts them


def install() -> None:
    """torch is there, the phase is SETUP: listen from here on."""
    from ...entry import imports

    for event in (
        "subprocess.Popen",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "os.fork",
        "os.forkpty",
        "os.exec",
        "pty.spawn",
    ):
        audit_hook.listen(event, functools.partial(_process, event), lasting=True)
    for event in ("socket.connect", "socket.bind"):
        audit_hook.listen(event, functools.partial(_socket, event), lasting=True)
    audit_hook.listen("ctypes.dlopen", _library, lasting=True)
    audit_hook.listen("ctypes.dlsym", _function_in_c, lasting=True)
    _watch_threads()
    audit_hook.listen("sqlite3.connect", _database, lasting=True)
    _watch_torch()
    _watch_signals()
    imports.after("h5py", _watch_h5py)
    imports.after("faulthandler", _watch_faulthandler)
    for name in C_WRITERS:
        imports.after(name, _watch_c_writer)
    phases.on_setup_end.append(_set_up)


def standing() -> str:
    """What stands in the way now; asked at the end of set-up and before each image."""
    torch = sys.modules["torch"]
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return words.DISTRIBUTED
    for thread in _threads:
        if thread.is_alive():
            return words.THREAD.format(name=thread.name, where=_where(thread))
    for pid, name in strangers():
        return words.CHILD.format(name=name, pid=pid)
    for name in sys.modules.keys() - _looked_at:
        path = attributes(sys.modules.get(name)).get("__file__")
        own = isinstance(path, str) and path.endswith(".so") and early_log.classify(path) == early_log.YES
        if own and "-packages" + os.sep not in path:
            return words.OWN_EXTENSION.format(path=path)
        _looked_at.add(name)
    return ""


def strangers() -> list[tuple[int, str]]:
    """(pid, name) of living children that are neither loader workers nor Python's own helpers."""
    from multiprocessing import process

    workers = loader_state.worker_pids()
    known = {child.pid for child in process._children}
    for name, field in (
        ("multiprocessing.resource_tracker", "_resource_tracker"),
        ("multiprocessing.forkserver", "_forkserver"),
    ):
        helper = getattr(sys.modules.get(name), field, None)
        known.update((getattr(helper, "_pid", None), getattr(helper, "_forkserver_pid", None)))
    found = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as f:
                children = [int(each) for each in f.read().split()]
            found += [
                (pid, _name(pid))
                for pid in children
                if pid not in known and _alive(pid) and not _only_sends(pid)
            ]
    except OSError:
        pass
    found += [
        (child.pid, child.name)
        for child in process._children
        if child.is_alive() and child.pid not in workers
    ]
    return found


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return "?"


def _only_sends(pid: int) -> bool:
    """A program of a library's, which gets what the script tells it: the service of wandb."""
    try:
        return threads.is_of(os.readlink(f"/proc/{pid}/exe"), threads.SENDERS)
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _refuse(reason: str) -> None:
    """Not resumable from here on; a life that goes to an image has left its way."""
    from ..core import outcome

    if phases.target is not None:
        outcome.diverged(reason)
    outcome.refuse(reason)


def _outside(reason: str) -> None:
    """As _refuse, of what may have changed the world where no journal sees it:
    older images are of no use any more either."""
    journal.give_up(reason)
    _refuse(reason)


def _set_up() -> None:
    from ..core import outcome

    if _again:
        outcome.write_state(again=_again[:MOST_TOLD])
    reason = standing()
    if reason:
        _refuse(reason)


# ---- who is behind it

def _first_outside(frame: object) -> str:
    """The file of the innermost frame that is neither Python's standard library nor ours;
    "" if there is none."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(HELPERS):
            return ""
        kind = early_log.classify(name)
        if kind in (early_log.YES, early_log.LIBRARY):
            return name
        frame = frame.f_back
    return ""


def _is_loader(name: str) -> bool:
    return f"torch{os.sep}utils{os.sep}data{os.sep}" in name


def _after_set_up() -> bool:
    return phases.phase > phases.SETUP or (not phases.phase and journal.epoch > 0)


def _process(event: str, args: tuple) -> None:
    late = _after_set_up()
    # what set-up waits for, or forks, is done once (programs.py, asked.py)
    if not late and (phases.depth or event != "subprocess.Popen"):
        return
    name = _first_outside(_getframe(2))
    if name and not _is_loader(name):
        what = os.fsdecode(args[0] if args and isinstance(args[0], (str, bytes)) else event)
        if late:
            _outside(words.PROCESS.format(what=what, where=_line(name)))
        else:
            _again.append({"what": what, "where": _line(name)})


def _socket(event: str, args: tuple) -> None:
    if not _after_set_up() or threading.current_thread() in _harmless:
        return
    name = _first_outside(_getframe(2))
    if name and not _is_loader(name) and not name.endswith(os.sep + "reductions.py"):
        _outside(words.SOCKET.format(where=_line(name)))


def _library(args: tuple) -> None:
    if not _after_set_up() or args[0] is None or _is_mapped(args[0]):
        return
    name = _first_outside(_getframe(2))
    if name and early_log.classify(name) == early_log.YES:
        _outside(words.LIBRARY.format(name=args[0]))


def _is_mapped(name: object) -> bool:
    """Whether it is a part of this process already, which somebody asks something:
    threadpoolctl, for scikit-learn."""
    path = os.fsdecode(name)
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as f:
        return os.path.isabs(path) and any(
            line.rstrip("\n").endswith(f" {os.path.realpath(path)}") for line in f
        )


def _function_in_c(args: tuple) -> None:
    """The script itself is about to call into C:
    what is kept there is seen by nobody, a ghost's call would count twice or not at all."""
    name = _first_outside(_getframe(2))
    if (
        name
        and early_log.classify(name) == early_log.YES
        and "-packages" + os.sep not in name
        and threading.get_ident() == phases.main
    ):
        what = next((each for each in args if isinstance(each, str)), "a function")
        _outside(words.FUNCTION_IN_C.format(name=what, where=_line(name)))


def _watch_threads() -> None:
    """No audit event tells of a new thread in all versions:
    the two ways to start one are followed instead."""
    start, start_new = threading.Thread.start, _thread.start_new_thread

    @functools.wraps(start)
    def new_start(self: threading.Thread) -> None:
        _thread_starts(self)
        start(self)

    @functools.wraps(start_new)
    def new_start_new(_of: object, *args: object, **kwargs: object) -> int:
        _thread_starts(None)
        return start_new(*args, **kwargs)

    for thread in threading.enumerate():  # since before torch was there
        if thread is not threading.main_thread() and not threads.is_of(_where(thread), THREADS_OF):
            _threads.add(thread)
    threading.Thread.start = new_start
    early_log.replace(_thread, "start_new_thread", new_start_new, early_log.Of("_thread"))


def _thread_starts(thread: threading.Thread | None) -> None:
    name = _first_outside(_getframe(2))
    if not name or not phases.phase or threading.get_ident() != phases.main:
        return
    if threads.is_of(name, THREADS_OF):
        return
    reason = words.THREAD.format(name=getattr(thread, "name", "?"), where=_line(name))
    if (
        phases.phase == phases.SETUP
        and thread is not None
        and threads.watch(thread, functools.partial(_refuse, reason))
    ):
        _harmless.add(thread)
    elif phases.phase > phases.SETUP or thread is None:
        _refuse(reason)
    else:
        _threads.add(thread)


def _database(args: tuple) -> None:
    name = args[0] if args else ""
    told = os.fsdecode(name) if isinstance(name, (str, bytes)) else str(name)
    if (
        told not in (":memory:", "")
        and "mode=ro" not in told
        and "mode=memory" not in told
        and early_log.asked(_getframe(2))
    ):
        _outside(words.DATABASE.format(path=told))


def _where(thread: threading.Thread) -> str:
    code = getattr(getattr(thread, "_target", None), "__code__", None) or getattr(
        type(thread).run, "__code__", None
    )
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "?"


def _line(name: str) -> str:
    frame = _getframe(2)
    while frame is not None and frame.f_code.co_filename != name:
        frame = frame.f_back
    return name if frame is None else f"{name}:{frame.f_lineno}"


# ---- torch

def _watch_torch() -> None:
    torch = sys.modules["torch"]
    _forbid(torch, "compile", words.COMPILE)
    _forbid(torch.jit, "script", words.JIT)
    for name in ("trace", "trace_module", "_get_trace_graph"):
        _trace_apart(torch.jit, name)
    torch.from_file = _not_shared(torch.from_file)
    torch.UntypedStorage.from_file = staticmethod(_not_shared(torch.UntypedStorage.from_file))
    graphs = getattr(torch.cuda, "CUDAGraph", None)
    if graphs is not None and hasattr(graphs, "capture_begin"):
        try:
            _forbid(graphs, "capture_begin", words.CUDA_GRAPH)
        except (TypeError, AttributeError):
            pass


def _forbid(owner: object, name: str, reason: str) -> None:
    """Calling this ends recording, if the script or one of its libraries calls it;
    the call itself goes on."""
    old = getattr(owner, name)

    @functools.wraps(old)
    def forbidden(*args: object, **kwargs: object) -> object:
        if phases.phase and early_log.asked(_getframe(1)) and not (name == "script" and not _trains(args)):
            _refuse(reason)
        if name == "script" and len(args) < 3:
            # it looks for names in the frame of its caller, which is not this one
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
        return old(*args, **kwargs)

    setattr(owner, name, forbidden)


def _trace_apart(owner: object, name: str) -> None:
    """Modules are traced once in each life, as a ghost too:
    to draw or export their graph (`SummaryWriter.add_graph`), to count operations.
    One that is kept is refused where the script calls it (shield_parts.py), or by the walk.
    Of functions nobody would know."""
    old = getattr(owner, name)

    @functools.wraps(old)
    def traced(*args: object, **kwargs: object) -> object:
        if not phases.here():
            return old(*args, **kwargs)
        if not isinstance(args[0] if args else kwargs.get("func"), sys.modules["torch"].nn.Module):
            _refuse(words.JIT)
            return old(*args, **kwargs)
        phases.depth = 1
        try:
            return old(*args, **kwargs)
        except BaseException as e:
            shield_parts.leaves_by_error(e)
            raise
        finally:
            phases.depth = 0

    setattr(owner, name, traced)


def _not_shared(old: object) -> object:
    """torch.from_file(path, shared): with `shared` what is written to the tensor goes into the file,
    past Python."""
    @functools.wraps(old)
    def from_file(*args: object, **kwargs: object) -> object:
        if (
            phases.phase
            and kwargs.get("shared", args[1] if len(args) > 1 else False)
            and early_log.asked(_getframe(1))
        ):
            _outside(words.UNKNOWN_MAP.format(path=kwargs.get("filename", args[0] if args else "?")))
        return old(*args, **kwargs)
    return from_file


def _trains(args: tuple) -> bool:
    """torch.jit.script of a library's little function or class is no training."""
    what = args[0] if args else None
    code = getattr(what, "__code__", None)
    if isinstance(what, type):
        file = getattr(sys.modules.get(what.__module__), "__file__", None) or ""
    else:
        file = "" if code is None else code.co_filename
    return "-packages" + os.sep not in file


# ---- writers in C

def _watch_h5py(module: object) -> None:
    old = module.File.__init__

    @functools.wraps(old)
    def init(self: object, name: object, mode: str = "r", *args: object, **kwargs: object) -> None:
        if phases.phase and mode != "r":
            _outside(words.C_WRITER.format(path=name))
        old(self, name, mode, *args, **kwargs)

    module.File.__init__ = init


def _watch_faulthandler(module: object) -> None:
    """It prints past Python, and what: the frames that run. So none of ours may be among them:
    who asks for the function is seen."""
    name = "dump_traceback"
    real = vars(module).pop(name, None)

    def ask(asked: str) -> object:
        if asked != name or real is None:
            raise AttributeError(f"module 'faulthandler' has no attribute {asked!r}")
        if early_log.asked(_getframe(1)):
            streams.another_door()
        return real

    module.__getattr__ = ask


def _watch_c_writer(module: object) -> None:
    from ..world import effects

    of = early_log.Of(module.__name__)
    for name in C_WRITERS[module.__name__]:
        if hasattr(module, name):
            early_log.replace(module, name, effects.written_by_name(getattr(module, name)), of)


# ---- signals

_handlers: dict = {}  # number -> (what the script set, what stands for it)


def _watch_signals() -> None:
    """A handler of the script's that runs does so at a moment that no second life can find again."""
    import signal

    set_signal, get_signal = signal.signal, signal.getsignal

    def new_signal(signalnum: int, handler: object) -> object:
        ours = handler
        if phases.phase and early_log.asked(_getframe(1)):
            ours = _in_its_place(signalnum, handler)
        elif phases.phase and callable(handler) and early_log.asked(_getframe(1), early_log.LIBRARY):
            ours = _Quiet(handler)
        return _meant(set_signal(signalnum, ours))

    def new_getsignal(signalnum: int) -> object:
        return _meant(get_signal(signalnum))

    signal.signal = functools.wraps(set_signal)(new_signal)
    signal.getsignal = functools.wraps(get_signal)(new_getsignal)
    phases.on_setup_end.append(functools.partial(_watch_interrupt, set_signal, get_signal))
    phases.on_tail_end.append(functools.partial(_watch_interrupt, set_signal, get_signal))


def _watch_interrupt(set_signal: object, get_signal: object) -> None:
    """Ctrl-C that the script catches is such a moment too."""
    import signal

    if phases.phase == phases.RECORD and get_signal(signal.SIGINT) is signal.default_int_handler:
        set_signal(signal.SIGINT, _Heard(signal.default_int_handler))


def _in_its_place(number: int, handler: object) -> object:
    """What is set where the script asks for this handler;
    where it asks for the default, we go on listening."""
    import signal

    from . import ending

    if number == signal.SIGTERM and handler == signal.SIG_DFL and phases.phase > phases.SETUP:
        return ending.asked
    if number == signal.SIGINT and handler is signal.default_int_handler and phases.phase == phases.GHOST:
        return ending.interrupted_as_ghost
    return _Heard(handler) if callable(handler) else handler


def _meant(handler: object) -> object:
    """What the script has set, or would find there without us."""
    from . import ending

    if type(handler) in (_Heard, _Quiet):
        return handler.handler
    return next((default for ours, default in ending.DEFAULTS if handler is ours), handler)


class _Quiet:
    """A handler of a library's. What it raises may come out within our own code, and is not lost there."""

    def __init__(self, handler: object) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: object) -> object:
        try:
            return self.handler(number, frame)
        except Exception as e:
            phases.from_signal = e if phases.depth else None
            raise


class _Heard(_Quiet):
    """The script's handler, or Python's own for Ctrl-C, and a word about it before it runs."""

    def __call__(self, number: int, frame: object) -> object:
        if phases.phase == phases.RECORD or (phases.phase == phases.SETUP and phases.target is None):
            import signal

            _refuse(
                words.INTERRUPT
                if self.handler is signal.default_int_handler
                else words.SIGNAL.format(number=number)
            )
        return super().__call__(number, frame)

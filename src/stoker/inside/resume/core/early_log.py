"""What the script learns from the world outside, as events: into the log, or out of it.
Until torch is imported there is no log, so the first events of a life wait on a small tape of their own,
which the next life replays from its very start.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from ...entry.methods import Method, Of, replace  # noqa: F401  # for whoever makes events
from ...looks import isinstance
from . import own, phases, words

PASS, RECORD, GHOST, TAIL = range(4)
# and a number made of the command line, in phases.folder: the events of a life before its torch was there
EARLY = "early-"
PUT_BACK = "put_back"  # in phases.folder: as_found.MARK
EARLY_MAX = 20_000  # events; who asks the clock so often before torch is there is no training script
NO, LIBRARY, YES, THROUGH = range(4)
_getframe = sys._getframe

early = PASS  # what happens now, while phases.phase is still OFF
early_names: set = set()  # of the events before torch was there
# called with the folder of a life that ended while it put files back, or did not accept them yet
on_put_back: list = []
lost = ""  # why the early events are of no use
_events: list = []
_next = 0
_pid = 0  # of the process that they are of
_kinds: dict = {}
_log = None  # the log that _kinds belongs to
through: set = set()  # code of ours that calls what its caller has given it
_classes: dict = {}  # co_filename -> NO, YES or THROUGH
_os = os.path  # before anybody changes it
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGE = os.path.dirname(_HERE)
_STDLIB = os.path.dirname(os.__file__) + os.sep
_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
# Python's own machinery, which asks for itself and not for the script
_MACHINERY = frozenset(
    "importlib linecache traceback tracemalloc warnings inspect tokenize threading queue multiprocessing "
    "concurrent selectors subprocess "
    "asyncio pkgutil zipimport runpy site sysconfig ctypes weakref abc ast dis codeop code pdb bdb "
    "cProfile profile unittest sre_parse re "
    "enum typing dataclasses _bootstrap _bootstrap_external mimetypes ssl locale gettext socketserver "
    "signal".split()
)
_NUMERIC = (
    "torch" + os.sep,
    "numpy" + os.sep,
    "torchgen" + os.sep,
    "functorch" + os.sep,
    "triton" + os.sep,
    "sympy" + os.sep,
)
_BY_ITSELF = "wandb" + os.sep  # asks, and writes, for its own program, which each life starts
_THEIRS_IN_TORCH = ("torch" + os.sep + "utils" + os.sep + "tensorboard" + os.sep,)


def mode(name: str) -> int:
    """What is to happen with an event of this name here and now:
    PASS (none of our business), RECORD, GHOST (replay), TAIL (replay and check)."""
    if phases.depth or get_ident() != phases.main:
        return PASS
    phase = phases.phase
    if not phase:
        if early == GHOST and not peek(name):
            spoil(words.EARLY_OTHER.format(now=name))
        return early
    if phase == phases.RECORD:
        return RECORD
    if phase == phases.GHOST:
        return GHOST
    if phase == phases.TAIL:
        return TAIL
    return RECORD if phases.target is None else GHOST


def here() -> bool:
    """Whether this is the main thread, outside every shield, of a process that is recorded or replayed."""
    return not phases.depth and get_ident() == phases.main and bool(phases.phase or early)


def ghosting() -> bool:
    """Whether the script's effects are swallowed now, whichever thread they come from."""
    phase = phases.phase
    if not phase:
        return early == GHOST or phases.again
    return phase == phases.GHOST or (phase == phases.SETUP and phases.target is not None)


def put(name: str, value: object = None) -> None:
    """Append an event in RECORD (in TAIL: compare it with the recorded one)."""
    if phases.phase:
        phases.log.put(_kind(name), value)
        return
    if len(_events) >= EARLY_MAX:
        spoil(words.EARLY_MUCH)
        return
    _events.append((name, value))


def take(name: str) -> object:
    """The value of the next event, which has to be of this kind; anything else ends this life's replay."""
    global _next
    if phases.phase:
        return phases.log.take(_kind(name))
    _next += 1  # mode() has looked at the name
    return _events[_next - 1][1]


def peek(name: str) -> bool:
    """Whether the next event is of this kind."""
    if phases.phase:
        return phases.log.peek() == _kind(name)
    return _next < len(_events) and _events[_next][0] == name


def spoil(why: str) -> None:
    """The early events are no longer whole: from here on nothing is remembered;
    `why` is told once torch is there. Does not return where they were replayed:
    what the script printed and wrote was swallowed, so it begins again, on the record."""
    global early, lost
    if early == GHOST and os.getpid() == _pid:  # not in a child that was forked before torch is there
        from . import outcome

        phases.folder = os.environ["STOKER_RESUME_DIR"]
        outcome.remember_start()
        outcome.write_state(tried=[*(outcome.state().get("tried") or ())[-9:], {"image": None, "why": why}])
        own.remove(_early_path(phases.folder))
        outcome.again()
    early, lost = PASS, why
    _events.clear()


def astray(why: str) -> None:
    """This life is not the recorded one. Returns only before torch is there."""
    if not phases.phase:
        spoil(why)
        return
    from . import outcome

    outcome.diverged(why)


def begin() -> None:
    """Once, at the start of the process: replay the early events of the life before, if it left any and an
    image to go to; else record."""
    global early, _events, _pid
    if early:
        return
    early, _pid = RECORD, os.getpid()
    folder = os.environ.get("STOKER_RESUME_DIR", "")
    if folder and own.lies(os.path.join(folder, PUT_BACK)):
        for call in on_put_back:
            call(folder)
    try:
        data = own.read(_early_path(folder))
        import marshal

        called, events = marshal.loads(data)
        if called == _called() and resumable(folder):
            early, _events = GHOST, events
    except (OSError, ValueError, EOFError, TypeError):
        pass


def resumable(folder: str) -> bool:
    """Whether there is an image that nobody has called bad. A look from far: image.choose() decides."""
    images = os.path.join(folder, "images")
    for name in own.folders(images):
        image = os.path.join(images, name)
        if (
            name.isdigit()
            and own.lies(os.path.join(image, "manifest.json"))
            and not own.lies(os.path.join(image, "bad"))
        ):
            return True
    return False


def end() -> str:
    """torch is there and phases.phase is SETUP: from here on the log holds the events.
    Says why that cannot be, or "". Does not return where this life began as a ghost and has no image to go
    to: what it printed was swallowed, so it begins again."""
    global early, _events
    was, early = early, PASS
    if lost:
        return lost
    if was == GHOST and phases.target is None:
        from . import outcome

        own.remove(_early_path(phases.folder))
        outcome.again()
    if was == GHOST and _next < len(_events):
        return words.EARLY_LESS
    if was == RECORD and phases.target is not None:
        return words.EARLY_GONE
    if was == RECORD and phases.folder:
        import marshal

        own.write(_early_path(phases.folder), marshal.dumps((_called(), _events)), sync=True)
    early_names.update(name for name, _ in _events)
    _events = []
    return ""


def _called() -> bytes:
    """How this process was called:
    the same words mean the same script (the launcher of a script has others)."""
    try:
        with open("/proc/self/cmdline", "rb") as f:
            words_then = f.read()
    except OSError:
        words_then = "\0".join(sys.argv).encode(errors="surrogateescape")
    return words_then + b"\0" + os.fsencode(os.getcwd())


def _early_path(folder: str) -> str:
    return os.path.join(folder, f"{EARLY}{int.from_bytes(_called(), 'big') % 0xFFFFFFFB:08x}")


def _kind(name: str) -> int:
    global _log
    if _log is not phases.log:
        _log = phases.log
        _kinds.clear()
    number = _kinds.get(name)
    if number is None:
        number = _kinds[name] = phases.log.kind(name)
    return number


# ---- who asks

def frame(up: int) -> object:
    """The frame so many above that of the caller. None:
    the interpreter itself calls, at exit or to show the lines of a traceback."""
    try:
        return _getframe(up + 1)
    except ValueError:
        return None


def asked(frame: object, least: int = YES) -> bool:
    """Whether the script or one of its libraries is asking here (with LIBRARY:
    or torch or numpy), rather than Python's machinery or we."""
    while frame is not None:
        name = frame.f_code.co_filename
        kind = _classes.get(name)
        if kind is None:
            kind = _classes[name] = NO if _is_by_itself(name) else classify(name)
        if kind != THROUGH and frame.f_code not in through:
            return kind >= least
        frame = frame.f_back
    return False


def by_itself(frame: object) -> bool:
    """Whether a library asks here that does all over again in each life."""
    while frame is not None and (classify(frame.f_code.co_filename) == THROUGH or frame.f_code in through):
        frame = frame.f_back
    return frame is not None and _is_by_itself(frame.f_code.co_filename)


def _is_by_itself(name: str) -> bool:
    return any(mark + _BY_ITSELF in name for mark in _PACKAGES)


def is_the_scripts(filename: str) -> bool:
    """Whether this is a file of the script's own, and of no installed package."""
    return classify(filename) == YES and not any(mark in filename for mark in _PACKAGES)


def classify(filename: str) -> int:
    """YES for user and third-party files, LIBRARY for torch and numpy, NO for machinery, THROUGH for the
    parts of the standard library that act for their caller."""
    if filename.startswith("<frozen "):
        return NO if filename[8:].rstrip(">").partition(".")[0] in _MACHINERY else THROUGH
    if filename.startswith(_PACKAGE + os.sep):
        return NO
    for mark in _PACKAGES:
        if mark in filename:
            inside = filename.split(mark, 1)[1]
            if inside.startswith(_THEIRS_IN_TORCH):
                return YES
            return LIBRARY if inside.startswith(_NUMERIC) else YES
    if filename.startswith(_STDLIB):
        top = filename[len(_STDLIB):].partition(os.sep)[0].partition(".")[0]
        return NO if top in _MACHINERY else THROUGH
    return YES


# ---- outcomes: a value or an exception

def done(name: str, key: object, call: object, told: bool = True) -> object:
    """Do it, inside, and put down how it ended; with `told`, what it gave too."""
    phases.depth = 1
    try:
        result = call()
    except Exception as e:
        phases.depth = 0
        put(name, (key, failed(e)))
        raise
    finally:
        phases.depth = 0
    put(name, (key, result if told and isinstance(result, (str, bytes, int, float, tuple)) else None))
    return result


def how_ended(name: str, key: object) -> object:
    """How it ended in the first life, for a ghost: what it gave, or its exception."""
    asked_then, value = take(name)
    if key is not None and asked_then != key:
        astray(words.OTHER_QUESTION.format(name=name, now=key, then=asked_then))
    if is_failure(value):
        raise_again(value)
    return value


def failed(error: BaseException) -> tuple:
    """An exception as a value that the log can hold."""
    kind = type(error)
    args = tuple(
        each if isinstance(each, (str, int, float, bytes, type(None))) else str(each) for each in error.args
    )
    if isinstance(error, OSError):
        args = (error.errno, error.strerror, _text(error.filename), None, _text(error.filename2))
        while args and args[-1] is None:
            args = args[:-1]
        if error.errno is None:
            args = tuple(str(each) for each in error.args)
    return ("!", kind.__module__, kind.__qualname__, args)


def _text(name: object) -> object:
    return name if name is None or isinstance(name, (str, bytes, int)) else os.fspath(name)


def is_failure(value: object) -> bool:
    """Whether this value out of the log stands for an exception."""
    return type(value) is tuple and len(value) == 4 and value[0] == "!"


def raise_again(value: tuple) -> None:
    """Raise the exception that `failed` packed."""
    module = sys.modules.get(value[1])
    kind = getattr(module, value[2], None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        kind = OSError if "Error" in value[2] else RuntimeError
    raise kind(*value[3])

"""What the script asks of the world: clocks, the file system, its process, chance.
Logged while recording, answered from the log in the ghost phase and in the tail, so that the second life
takes the same path; afterwards monotonic clocks go on where they stood.
"""

from __future__ import annotations

import os
import sys
import time

from ...entry.methods import replace_in_type
from ...looks import isinstance
from ..core import early_log, phases, resume_cost, words

_getframe = early_log.frame
_real: dict = {}  # "time.perf_counter" -> the function as it was
# the last value of each monotonic clock that the script was told, while it comes from the log
_last: dict = {}
_shift: dict = {}  # clock -> what is added to it since a resume
_pids: set = set()  # what the lives before this one were told to be their own process number

CLOCKS = (
    "time",
    "time_ns",
    "perf_counter",
    "perf_counter_ns",
    "monotonic",
    "monotonic_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
)
MONOTONIC = frozenset(CLOCKS[2:])
# position of the argument without which they ask a clock
CALENDAR = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
PATH_TESTS = (
    "exists",
    "lexists",
    "isfile",
    "isdir",
    "islink",
    "ismount",
    "getsize",
    "getmtime",
    "getatime",
    "getctime",
    "samefile",
)
PROCESS = (
    "getpid",
    "getppid",
    "getloadavg",
    "times",
    "uname",
    "cpu_count",
    "sched_getaffinity",
    "get_terminal_size",
    "getpgid",
    "getsid",
)


def install_early() -> None:
    """Before anything else is imported, so that `from time import time` gets what logs. Under 1 ms."""
    early_log.begin()
    of_time, of_os, of_path = early_log.Of("time"), early_log.Of("os"), early_log.Of("posixpath")
    for name in CLOCKS:
        if hasattr(time, name):
            _put(time, name, _clock(name, getattr(time, name)), of_time)
    for name, at in CALENDAR.items():
        _put(time, name, _calendar(name, getattr(time, name), at), of_time)
    for name in ("clock_gettime", "clock_gettime_ns"):
        _put(time, name, _observed(name, getattr(time, name)), of_time)
    _put(time, "sleep", _sleep(time.sleep), of_time)
    for name in PATH_TESTS:
        _put(os.path, name, _observed("path." + name, getattr(os.path, name), path=True), of_path)
    for name in ("stat", "lstat", "fstat"):
        _put(os, name, _observed(name, getattr(os, name), _from_stat, _to_stat, path=True), of_os)
    for name in ("statvfs", "fstatvfs"):
        _put(os, name, _observed(name, getattr(os, name), tuple, os.statvfs_result), of_os)
    for name in ("access", "readlink"):
        _put(os, name, _observed(name, getattr(os, name), path=True), of_os)
    _put(os, "listdir", _observed("listdir", os.listdir, path=True), of_os)
    _put(os, "scandir", _scandir(os.scandir), of_os)
    _put(os, "urandom", _observed("urandom", os.urandom), of_os)
    packed = {
        "times": (tuple, os.times_result),
        "uname": (tuple, os.uname_result),
        "get_terminal_size": (tuple, os.terminal_size),
        "sched_getaffinity": (sorted, set),
        "getpid": (None, _remember_pid),
    }
    for name in PROCESS:
        if hasattr(os, name):
            _put(os, name, _observed(name, getattr(os, name), *packed.get(name, ())), of_os)
    _put(os, "kill", _kill(os.kill), of_os)
    import builtins

    from ...entry import imports

    _put(builtins, "input", _observed("input", builtins.input), early_log.Of("builtins"))
    # which ask the world by themselves
    for name in ("socket", "uuid", "resource", "tempfile", "random", "datetime"):
        imports.after(name, _patch_module)


def install() -> str:
    """torch is there and the log is open: take over from the tape; says why that cannot be, or ""."""
    why = early_log.end()
    if not why:
        _patch_cuda()
        phases.on_tail_end.append(tail_is_over)
    return why


def real(name: str) -> object:
    """The function that stood under this name before ("time.monotonic"): for our own parts."""
    return _real[name]


def tail_is_over() -> None:
    """From here on clocks are real again:
    monotonic ones go on from the last value that came out of the log."""
    for name, told in _last.items():
        _shift[name] = told - _real["time." + name]()
    _last.clear()


def _put(module: object, name: str, function: object, of: early_log.Of) -> None:
    _real[f"{of.name}.{name}"] = getattr(module, name)
    early_log.replace(module, name, function, of)


# ---- clocks

def _clock(name: str, old: object) -> object:
    steady = name in MONOTONIC

    def clock(_of: object, *args: object, **kwargs: object) -> object:
        if args or kwargs:
            return old(*args, **kwargs)  # as it complains
        if not phases.phase and not early_log.early:
            return old()
        if not early_log.asked(_getframe(1)):
            return old()
        here = early_log.mode(name)
        if not here:  # another thread, or inside a shield: no event, but the same clock
            return old() + _shift[name] if name in _shift else old()
        if here >= early_log.GHOST:
            value = early_log.take(name)
            if early_log.is_failure(value):
                early_log.raise_again(value)
            if steady:
                _last[name] = value
                if phases.phase == phases.RECORD:  # it was the last value of the tail
                    tail_is_over()
            return value
        value = old()
        if name in _shift:
            value += _shift[name]
        early_log.put(name, value)
        return value

    return clock


def _calendar(name: str, old: object, at: int) -> object:
    observed = _observed(name, old, *((tuple, _to_time) if name in ("localtime", "gmtime") else ()), up=2)

    def calendar(_of: object, *args: object, **kwargs: object) -> object:
        if kwargs or (len(args) > at and args[at] is not None):
            return old(*args, **kwargs)  # of a time that is given: no clock is asked
        if (not phases.phase and not early_log.early) or not early_log.asked(_getframe(1)):
            return old(*args)
        return observed(_of, *args)

    return calendar


def _sleep(old: object) -> object:
    timed = resume_cost.skipped(old)

    def sleep(_of: object, *args: object, **kwargs: object) -> None:
        if (
            len(args) == 1
            and not kwargs
            and early_log.ghosting()
            and early_log.here()
            and early_log.asked(_getframe(1))
        ):
            return None
        return timed(*args, **kwargs)

    return sleep


def _to_time(fields: tuple) -> time.struct_time:
    return time.struct_time(fields)


# ---- everything that is asked and answered

def _observed(
    name: str, old: object, pack: object = None, unpack: object = None, *, path: bool = False, up: int = 1
) -> object:
    """`old` as an event with its answer or its exception;
    with `path`, the path that is asked for has to be the same in each life."""
    least = early_log.LIBRARY if path or name in ("urandom", "temporary name") else early_log.YES

    def observed(_of: object, *args: object, **kwargs: object) -> object:
        if not phases.phase and not early_log.early:
            return old(*args, **kwargs)
        here = early_log.asked(_getframe(up), least) and early_log.mode(name)
        if not here:
            return old(*args, **kwargs)
        key = _key(args) if path else None
        if here >= early_log.GHOST:
            return _answer(name, key, unpack)
        phases.depth = 1
        try:
            result = old(*args, **kwargs)
        except Exception as e:
            phases.depth = 0
            early_log.put(name, (key, early_log.failed(e)))
            raise
        finally:
            phases.depth = 0
        early_log.put(name, (key, pack(result) if pack else result))
        return result

    return observed


def _answer(name: str, key: object, unpack: object = None) -> object:
    asked, value = early_log.take(name)
    if asked != key:
        early_log.astray(words.OTHER_QUESTION.format(name=name, now=key, then=asked))
    if early_log.is_failure(value):
        early_log.raise_again(value)
    return unpack(value) if unpack else value


def _key(args: tuple) -> object:
    """The path as the script wrote it; a descriptor says nothing, its number can differ."""
    path = args[0] if args else "."
    if isinstance(path, (str, bytes)):
        return path
    if isinstance(path, int):
        return None
    try:
        return os.fspath(path)
    except TypeError:
        return None


def _from_stat(result: os.stat_result) -> tuple:
    return result.__reduce__()[1]


def _to_stat(fields: tuple) -> os.stat_result:
    return os.stat_result(*fields)


def _remember_pid(pid: int) -> int:
    _pids.add(pid)
    return pid


def _kill(old: object) -> object:
    def kill(_of: object, *args: object, **kwargs: object) -> None:
        """A process number out of the log is that of an earlier life: whoever has it now is not meant."""
        if phases.phase and args and type(args[0]) is int and args[0] in _pids:
            args = (_real["os.getpid"](), *args[1:])
        return old(*args, **kwargs)

    return kill


# ---- folders

class _Entry:
    """What os.DirEntry was for a name in a folder, out of the log."""

    __slots__ = ("_facts", "_folder", "name")

    def __init__(self, folder: object, name: object, facts: int) -> None:
        self._folder, self.name, self._facts = folder, name, facts

    @property
    def path(self) -> object:
        return os.path.join(self._folder, self.name)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._facts & (1 if follow_symlinks else 2))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._facts & (4 if follow_symlinks else 8))

    def is_symlink(self) -> bool:
        return bool(self._facts & 16)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return os.lstat(self.path).st_ino

    def __fspath__(self) -> object:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class _Entries:
    """The answer of os.scandir as a list that behaves like it."""

    def __init__(self, entries: list) -> None:
        self._rest = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> object:
        return next(self._rest)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._rest = iter(())


def _facts(entry: os.DirEntry) -> int:
    try:
        return (
            entry.is_dir()
            | entry.is_dir(follow_symlinks=False) << 1
            | entry.is_file() << 2
            | entry.is_file(follow_symlinks=False) << 3
            | entry.is_symlink() << 4
        )
    except OSError:
        return entry.is_symlink() << 4


def _scandir(old: object) -> object:
    def entries_of(path: object = ".") -> list:
        with old(path) as found:
            return list(found)

    def packed(found: list) -> list:
        return [(each.name, _facts(each)) for each in found]

    def scandir(_of: object, *args: object, **kwargs: object) -> object:
        if (
            len(args) + len(kwargs) > 1
            or not kwargs.keys() <= {"path"}
            or not (phases.phase or early_log.early)
        ):
            return old(*args, **kwargs)
        path = args[0] if args else kwargs.get("path", ".")
        here = (
            not isinstance(path, int)
            and early_log.asked(_getframe(1), early_log.LIBRARY)
            and early_log.mode("scandir")
        )
        if not here:
            return old(path)
        folder = "." if path is None else os.fspath(path)
        if here >= early_log.GHOST:
            return _Entries([_Entry(folder, *each) for each in _answer("scandir", folder)])
        phases.depth = 1
        try:
            found = entries_of(folder)
            told = packed(found)
        except OSError as e:
            phases.depth = 0
            early_log.put("scandir", (folder, early_log.failed(e)))
            raise
        finally:
            phases.depth = 0
        early_log.put("scandir", (folder, told))
        return _Entries(found)

    return scandir


# ---- datetime

OUTDATED = (
    "datetime.datetime.utcnow() is deprecated and scheduled for removal in a future version. "
    "Use timezone-aware objects to "
    # as Python 3.12 and later say it
    "represent datetimes in UTC: datetime.datetime.now(datetime.UTC)."
)


def _patch_datetime(module: object) -> None:
    """now() and its like are methods of C types:
    they are replaced in the types themselves, so that a datetime stays one.
    Where that cannot be done, the self test says so once torch is there."""
    now, utcnow, today = (
        vars(module.datetime)["now"],
        vars(module.datetime)["utcnow"],
        vars(module.date)["today"],
    )
    if sys.version_info >= (3, 12):
        utcnow = _without_a_warning(now, module.timezone.utc)
    try:
        for kind, name, old in (
            (module.datetime, "now", now),
            (module.datetime, "utcnow", utcnow),
            (module.date, "today", today),
        ):
            replace_in_type(kind, name, _today(f"{kind.__name__}.{name}", old))
    except Exception:
        return


def _without_a_warning(now: object, utc: object) -> object:
    """utcnow(), whose own warning would name a line of this file: `_today` warns of the line that asks."""
    return classmethod(lambda cls: now.__get__(None, cls)(utc).replace(tzinfo=None))


def _today(name: str, old: object) -> object:
    warns = name == "datetime.utcnow" and sys.version_info >= (3, 12)

    def now(cls: type, *args: object, **kwargs: object) -> object:
        if warns:
            import warnings
            warnings.warn(OUTDATED, DeprecationWarning, stacklevel=2)
        real_now = old.__get__(None, cls)
        here = early_log.asked(_getframe(1)) and early_log.mode(name)
        if not here:
            return real_now(*args, **kwargs)
        if here >= early_log.GHOST:
            fields = _answer(name, None)
            zone = args[0] if args else kwargs.get("tz")
            return cls(*fields[0], tzinfo=zone, fold=fields[1]) if len(fields[0]) > 3 else cls(*fields[0])
        phases.depth = 1
        try:
            moment = real_now(*args, **kwargs)
        finally:
            phases.depth = 0
        date = (moment.year, moment.month, moment.day)
        if hasattr(moment, "hour"):
            date += (moment.hour, moment.minute, moment.second, moment.microsecond)
        early_log.put(name, (None, (date, getattr(moment, "fold", 0))))
        return moment

    now.__name__ = name.split(".")[1]
    return now


# ---- what comes with a module

KNOWN = {"socket": ("gethostname", "getfqdn"), "uuid": ("getnode",), "resource": (), "getpass": ("getuser",)}
CUDA = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "mem_get_info",
    "memory_summary",
    "utilization",
    "temperature",
    "power_draw",
    "clock_rate",
    "memory_usage",
)


def _patch_cuda() -> None:
    torch = sys.modules["torch"]
    for name in CUDA:
        if hasattr(torch.cuda, name):
            _put(
                torch.cuda,
                name,
                _observed("cuda." + name, getattr(torch.cuda, name)),
                early_log.Of("torch.cuda"),
            )
    event = getattr(torch.cuda, "Event", None)
    if event is not None and "elapsed_time" in vars(event):
        event.elapsed_time = _plain(_observed("cuda.elapsed_time", event.elapsed_time, up=2))


def _patch_module(module: object) -> None:
    of = early_log.Of(module.__name__)
    for name in KNOWN.get(module.__name__, ()):
        _put(module, name, _observed(f"{module.__name__}.{name}", getattr(module, name)), of)
    if module.__name__ == "datetime":
        _patch_datetime(module)
    # its name for os.urandom: SystemRandom, secrets, and numpy's generators without a seed
    if module.__name__ == "random":
        _put(module, "_urandom", _observed("urandom", module._urandom), of)
        _seed_by_urandom(module)
    if module.__name__ == "tempfile":
        names = module._RandomNameSequence
        names.__next__ = _plain(_observed("temporary name", names.__next__, up=2))
    if module.__name__ == "uuid":
        _put(module, "uuid1", _observed("uuid1", module.uuid1, str, module.UUID), of)
    if module.__name__ == "resource":
        _put(module, "getrusage", _observed("getrusage", module.getrusage, tuple, module.struct_rusage), of)


def _seed_by_urandom(module: object) -> None:
    """Generators that nobody gives a seed take theirs from the system in C, where it cannot be seen:
    they are given one."""
    old, of_module = module.Random.seed, module.seed

    def seed(self: object, a: object = None, version: int = 2) -> None:
        if a is None and (phases.phase or early_log.early):
            a = int.from_bytes(module._urandom(2500), "big")  # as many bytes as its state has
        old(self, a, version)

    seed.__doc__, seed.__qualname__ = old.__doc__, old.__qualname__
    early_log.through.add(seed.__code__)
    module.Random.seed = seed
    if getattr(of_module, "__self__", None) is module._inst:
        module.seed = module._inst.seed


def _plain(observed: object) -> object:
    """As a method of a class: the first argument is the object, not a module."""

    def method(self: object, *args: object) -> object:
        return observed(None, self, *args)

    return method

"""What Python's own library and torch keep for a script:
loggers, files that are no files, members of enumerations, and what the script put into the namespaces of
libraries (`torch.calls = 0`).
"""

from __future__ import annotations

import io
import operator
import os
import sys
import threading
import types
import zlib

from ...looks import isinstance, vars
from ..core import leaves
from . import walk_classes, walk_opaque

_NAMESPACES = """
builtins torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.optim torch.optim.lr_scheduler
torch.utils.data torch.linalg torch.fft torch.special torch.autograd torch.func torch.distributions torch.amp
torch.cuda torch.random torch.backends.cudnn numpy numpy.random numpy.linalg numpy.fft random math os os.path
time datetime warnings logging json copy pickle itertools functools collections operator statistics string re
io pathlib shutil traceback threading contextlib textwrap csv glob heapq bisect
""".split()
# warning_filters.py: they are another list within each catch_warnings()
_OF_WARNINGS = ("N:warnings.filters", "N:warnings.onceregistry")
_CLASSES_OF = ("torch.nn", "torch.optim", "torch.utils.data")
_WORDS_OF_ENUM = ("_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_")
_WORDS_OF_LOGGER = frozenset("name level parent propagate handlers disabled filters manager _cache".split())
_COMPILER = (f"{os.sep}torch{os.sep}_compile.py", f"{os.sep}torch{os.sep}_dynamo{os.sep}")
_NEW = object()
_settings: list = []  # (path, namespace of a module, plain values that stood in it when set-up had ended)
_names: list = []  # (path, namespace, what stood in it when torch had been imported)


def of_logger(walk, thing, path):
    """Not its parents, nor what it remembers about levels: that differs between lives and changes nothing."""
    walk.facts[path] = (leaves.name_of(type(thing)), thing.level, thing.disabled, thing.propagate)
    for word in ("handlers", "filters"):
        walk.add(getattr(thing, word), f"{path}.{word}", thing, word, "attr")
    walk.add_attributes(thing, path, _WORDS_OF_LOGGER)


def of_log_handler(walk, thing, path):
    """One of the library's: all but its lock. One of the script's is an object as any other."""
    if walk_classes.user_kinds(type(thing)):
        walk_classes.of_instance(walk, thing, path)
        return
    walk.facts[path] = (leaves.name_of(type(thing)), thing.level)
    walk.things[path] = thing
    walk.add_attributes(thing, path, ("lock", "_builtinopen"))


def log_handlers_of_the_script() -> list:
    """(path, thing): handlers and filters of its own kind or on a logger of its own, though it may hold them
    nowhere else."""
    logging = sys.modules.get("logging")
    if not hasattr(logging, "root"):
        return []
    # and what stands for loggers that are not there yet
    loggers = {"root": logging.root, **logging.root.manager.loggerDict}
    found = [
        (f"L:logging.{name}[{n}]", each, _logs_for_a_library(name))
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
        for n, each in enumerate([*logger.handlers, *logger.filters])
    ]
    found += [
        (f"{path}.{name}", part, foreign)
        for path, each, foreign in found
        for name, part in (
            ("formatter", getattr(each, "formatter", None)),
            *[(f"filters[{m}]", part) for m, part in enumerate(getattr(each, "filters", ()))],
        )
    ]
    return [
        (path, each) for path, each, foreign in found if not foreign or walk_classes.user_kinds(type(each))
    ]


def _logs_for_a_library(logger: str) -> bool:
    home = sys.modules.get(logger.partition(".")[0])
    return home is not None and not leaves.is_user_module(home.__name__, home)


def loggers() -> list:
    """(path, fact) of those that are set up in some way, though no variable may lead to them;
    a library's own are its business: it may be imported where a ghost does not go."""
    logging = sys.modules.get("logging")
    if not hasattr(logging, "root"):
        return []
    found = []
    for name, each in [("root", logging.root), *sorted(logging.root.manager.loggerDict.items())]:
        if isinstance(each, logging.Logger) and not _logs_for_a_library(name):
            fact = (
                each.level,
                each.disabled,
                each.propagate,
                *[(leaves.name_of(type(h)), h.level) for h in each.handlers],
            )
            if fact not in ((0, False, True), (logging.WARNING, False, True)):  # as they begin
                found.append((f"L:logging.{name}<set>", fact))
    return [*found, ("L:logging.levels", repr(sorted(logging._levelToName.items())))]


def of_socket(walk, thing, path):
    """What was sent and not yet read lies in the kernel, and the other end may be anybody."""
    if sys.modules["_socket"].socket.fileno(thing) >= 0:
        walk.refusals.append(f"{path.rpartition('.')[2]} is an open socket")


def of_event_loop(walk, thing, path):
    """Of asyncio: a pair of sockets of its own wakes it up."""
    all_but(walk, thing, path, ("_ssock", "_csock"))


def all_but(walk, thing, path, words):
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.things[path] = thing
    walk.add_attributes(thing, path, words)
    if walk_classes.user_kinds(type(thing)):
        walk.add(type(thing), f"T:{leaves.name_of(type(thing))}")


def of_pixels(walk, thing, path):
    """Of a picture of PIL: compared, not put back.
    A data set that has read its pictures before training has the same ones in each life."""
    found = pixels(thing)
    walk.facts[path] = ("pixels", found)
    if found is None:
        walk.unknown.append((path, leaves.name_of(type(thing)), thing))


def pixels(thing) -> tuple | None:
    """(mode, size, checksum) of what a picture of PIL holds; None: it does not tell."""
    empty = sys.modules["PIL.Image"].Image()
    try:
        palette = thing.getpalette("RGB", "RGB") if thing.mode in ("P", "PA") else b""
        content = empty._new(thing).tobytes()
    except Exception:  # of another version, or of a mode of its own
        return None
    return thing.mode, tuple(thing.size), zlib.crc32(palette, zlib.crc32(content))


def of_h5(walk, thing, path):
    """What h5py keeps of an open file, a group or a data set in it:
    which one, of a file that is only read and has not changed.
    With them come lists of settings, which say how to read, and types and shapes."""
    h5 = sys.modules["h5py"]
    name = leaves.name_of(type(thing))
    if isinstance(thing, h5.h5p.PropID) or not thing.valid:
        walk.facts[path] = (name, thing.valid)
        return
    try:
        if isinstance(thing, (h5.h5t.TypeID, h5.h5s.SpaceID)):
            walk.facts[path] = (name, zlib.crc32(thing.encode()))
            return
        file = h5.h5i.get_file_id(thing)
        reads = not file.get_intent() & h5.h5f.ACC_RDWR
        found = os.stat(file.name)
        walk.facts[path] = (
            name,
            os.fsdecode(file.name),
            repr(h5.h5i.get_name(thing)),
            found.st_size,
            found.st_mtime_ns,
        )
    except Exception:  # of another version, or of a kind of its own
        reads = False
    if not reads:
        walk.unknown.append((path, name, thing))


def of_lmdb(walk, thing, path):
    """A database of LMDB that is opened for reading: which one, and its last change."""
    name = leaves.name_of(type(thing))
    try:
        walk.facts[path] = (name, os.fsdecode(thing.path()), thing.info()["last_txnid"])
        reads = thing.flags()["readonly"]
    except Exception:  # closed, or another library's class of that name
        walk.facts[path], reads = (name,), False
    if not reads:
        walk.unknown.append((path, name, thing))


def of_h5_object(walk, thing, path):
    """A file, group or data set of h5py: all but what it remembers of its shape and readers,
    made when first asked for."""
    all_but(walk, thing, path, ("_cache_props",))


def of_graph_node(walk, thing, path):
    """A node of a graph of torch.fx: its part in C tells all that it holds."""
    all_but(walk, thing, path, ())
    base = next(kind for kind in type(thing).__mro__ if kind.__name__ == "_NodeBase")
    for name, each in vars(base).items():
        if type(each) is types.MemberDescriptorType:
            walk.add(each.__get__(thing), f"{path}.{name}", thing, name, "attr")


def of_member(walk, thing, path):
    """A member of an enumeration; one of the script's may hold more than its name."""
    walk.facts[path] = leaves.value_of(thing)
    if walk_classes.user_kinds(type(thing)):
        walk.add(thing._value_, f"{path}._value_")
        walk.add_attributes(thing, path, _WORDS_OF_ENUM)


def of_file(walk, thing, path):
    """Files are judged elsewhere (files.py); what only looks like one (a text over a BytesIO, an unpacked
    gzip) is not understood."""
    inner = thing
    while isinstance(inner, (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)):
        try:
            inner = inner.buffer if isinstance(inner, io.TextIOWrapper) else inner.raw
        except ValueError:  # detached
            return
    if isinstance(inner, io.FileIO):
        walk_opaque.add_foreign(walk, thing, path, ("mode", "name"))
        return
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.unknown.append((path, leaves.name_of(type(thing)), thing))
    walk.add(inner, f"{path}.raw")


def remember_names() -> None:
    """Once, when torch was imported: what is in these namespaces is theirs."""
    _names.clear()
    spaces = {
        name: vars(sys.modules[name])
        for name in _NAMESPACES
        if isinstance(sys.modules.get(name), types.ModuleType)
    }
    for module in _CLASSES_OF:
        for kind in [kind for kind in spaces.get(module, {}).values() if isinstance(kind, type)]:
            spaces.setdefault(leaves.name_of(kind), vars(kind))
    torch = sys.modules.get("torch")
    spaces["torch.Tensor"] = vars(torch.Tensor) if torch is not None else {}
    things = [(f"{name}.{key}", thing) for name, space in spaces.items() for key, thing in space.items()]
    # `F.cross_entropy.calls`
    spaces.update((name, vars(thing)) for name, thing in things if type(thing) is types.FunctionType)
    spaces["main_thread"] = vars(threading.main_thread())
    _names.extend((f"N:{name}", space, dict(space)) for name, space in spaces.items())


def remember_settings() -> None:
    """Once, when set-up has ended: plain variables of the modules of libraries that the script has a name for
    (`ImageFile`)."""
    known = {id(space) for _, space, _ in _names}
    for _, module in leaves.user_modules():
        for other in list(vars(module).values()):
            if (
                type(other) is types.ModuleType
                and id(vars(other)) not in known
                and not leaves.is_user_module(other.__name__, other)
            ):
                known.add(id(vars(other)))
                _settings.append((f"N:{other.__name__}", vars(other), _plain(vars(other))))


def _plain(space: dict) -> dict:
    return {
        name: value for name, value in list(space.items()) if type(value) in leaves.PLAIN and name[:1] != "_"
    }


def settings_of_libraries() -> list:
    """(path, value) of those of them that are others since."""
    return [
        (f"{path}.{name}", value)
        for path, space, before in _settings
        for name, value in _plain(space).items()
        if before.get(name, _NEW) is not value
    ]


def names_of_the_script() -> list:
    """(path, value) of what was put there since.
    What begins with an underscore is the library's own business, unless it is a function;
    the walk passes over code that is not the script's."""
    found = []
    for path, space, before in _names:
        if len(space) == len(before) and all(map(operator.is_, space.values(), before.values())):
            continue
        for name, value in list(space.items()):
            new = before.get(name, _NEW) is not value and (
                name[:1] != "_" or type(value) is types.FunctionType
            )
            if (
                not new
                or f"{path}.{name}" in _OF_WARNINGS
                or _by_the_clock(name, value, before.get(name, _NEW))
            ):
                continue
            if not _by_an_import(value, before.get(name), f"{path[2:]}.{name}"):
                found.append((f"{path}.{name}", value))
    return found


def _by_the_clock(name: str, value: object, before: object) -> bool:
    """Whether the clock stands around what has always been there:
    it times copies from the moment that the script uses a GPU."""
    inner = value
    while type(inner) is types.FunctionType and leaves.is_ours(inner.__code__.co_filename):
        inner = inner.__dict__.get("__wrapped__")
    return inner is not value and (
        inner is before or inner is getattr(sys.modules["torch"]._C.TensorBase, name, _NEW)
    )


def _by_an_import(value: object, before: object, name: str) -> bool:
    """Whether a part of torch that was imported since, by the first vmap say, put it there:
    itself, or its compiler around a function."""
    if type(value) is types.ModuleType:
        return value.__name__ == name and sys.modules.get(name) is value
    if name.rpartition(".")[2].startswith("__dynamo"):  # how its compiler marks functions
        return True
    if type(value) is not types.FunctionType or not any(
        each in value.__code__.co_filename for each in _COMPILER
    ):
        return False
    return before is not None and value.__dict__.get("__wrapped__") is before


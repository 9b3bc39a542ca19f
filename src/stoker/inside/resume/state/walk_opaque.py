"""What the walk does not go into, and what it takes from there all the same:
threads, locks, pipes and semaphores of the operating system, writers and bars of libraries.
What the script hangs on such a thing is the script's.
"""

from __future__ import annotations

import array
import dis
import fcntl
import termios
import threading
import types
import zlib
from collections import OrderedDict

from ...looks import isinstance, vars
from ..core import internals, leaves

_STORES, _EXTENDED = dis.opmap["STORE_ATTR"], dis.EXTENDED_ARG
_words: dict = {}  # class -> names of the attributes that it sets itself
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)


def of_opaque(walk, thing, path):
    """Only the attributes that are not its own: `bar.total_loss = 0.0`."""
    if not add_foreign(walk, thing, path, words_of(type(thing))):
        unmeet(walk, thing, path)


def add_foreign(walk, thing, path: str, own: object) -> bool:
    """Go on to the attributes that the script has hung on it, and tell whether there are any.
    A library hangs functions on things too."""
    found = leaves.attributes(thing) or {}
    more = {name for name, value in found.items() if name not in own and not _hung_by_a_library(name, value)}
    if more:
        walk.facts[path] = (leaves.name_of(type(thing)),)
        walk.things[path] = thing
        walk.add_attributes(thing, path, found.keys() - more)
    return bool(more)


def unmeet(walk, thing, path) -> None:
    """As if nothing led to it. It is what was come to last."""
    del walk.seen[id(thing)]
    walk.keep.pop()
    walk.owners.pop(path, None)


def _hung_by_a_library(name: object, value: object) -> bool:
    if type(name) is str and name.startswith(("__", "_stoker")):
        return True
    return isinstance(value, _CODE) and leaves.is_library(
        getattr(getattr(value, "__code__", None), "co_filename", "<frozen")
    )


def words_of(kind: type) -> frozenset:
    """The names of the attributes that the code of libraries assigns in a class and its bases."""
    found = _words.get(kind)
    if found is None:
        names: set = set()
        for base in kind.__mro__:
            for each in vars(base).values():
                codes = [
                    part.__code__ for part in _functions(each) if leaves.is_library(part.__code__.co_filename)
                ]
                while codes:
                    code = codes.pop()
                    codes += [const for const in code.co_consts if type(const) is types.CodeType]
                    names.update(_stored(code))
        found = _words[kind] = frozenset(names)
    return found


def _functions(thing: object) -> list:
    if isinstance(thing, property):
        return [
            part
            for each in (thing.fget, thing.fset, thing.fdel)
            if each is not None
            for part in _functions(each)
        ]
    thing = getattr(thing, "__func__", thing)
    found = []
    while type(thing) is types.FunctionType:
        found.append(thing)
        thing = thing.__dict__.get("__wrapped__")
    return found


def _stored(code: types.CodeType) -> list:
    found, more, raw = [], 0, code.co_code
    for at in range(0, len(raw), 2):
        if raw[at] == _STORES:
            found.append(code.co_names[raw[at + 1] | more])
        more = (raw[at + 1] | more) << 8 if raw[at] == _EXTENDED else 0
    return found


def forget() -> None:
    _words.clear()


# -- threads, and what they wait for

_OF_THIS_LIFE = (
    "_ident",
    "_native_id",
    "_tstate_lock",
    "_handle",
    "_stderr",
    "_invoke_excepthook",
    "_name",
    "_started",
    "_is_stopped",
)


def of_thread(walk, thing, path):
    """One that was not started yet is an object as any other.
    What a started one still holds is a matter of the moment."""
    if not isinstance(getattr(thing, "_started", None), threading.Event) or thing.ident is not None:
        of_opaque(walk, thing, path)
        return
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.things[path] = thing
    walk.add_attributes(thing, path, _OF_THIS_LIFE)


def of_semaphore(walk, thing, path):
    """Of multiprocessing: a lock by whether this process has it, for a worker may have it in this moment;
    all others by their number."""
    inner = thing._semlock
    lock = type(thing).__name__ in ("Lock", "RLock")
    walk.facts[path] = (leaves.name_of(type(thing)), inner._count() if lock else inner._get_value())
    add_foreign(walk, thing, path + ".more", {*words_of(type(thing)), "acquire", "release"})


def of_pipe(walk, thing, path):
    """An end of a pipe, of multiprocessing: how much lies in it unread."""
    if thing.closed or not thing.readable:
        walk.facts[path] = (leaves.name_of(type(thing)), "closed" if thing.closed else "to write")
        return
    size = array.array("i", [0])
    fcntl.ioctl(thing.fileno(), termios.FIONREAD, size)
    walk.facts[path] = (leaves.name_of(type(thing)), size[0])
    add_foreign(walk, thing, path + ".more", words_of(type(thing)))


def of_queue(walk, thing, path):
    """Of multiprocessing: what has not left yet, and what lies in its pipe."""
    walk.facts[path] = (leaves.name_of(type(thing)),)
    for word in ("_reader", "_buffer"):
        if word in vars(thing):
            walk.add(vars(thing)[word], f"{path}.{word}", thing, word, "attr")
    add_foreign(walk, thing, path + ".more", words_of(type(thing)))


# -- nodes of graphs, consoles

def of_node(walk, thing, path):
    """Judged by whether the graph is alive. Its hooks are called within backward, of that of a leaf for as
    long as somebody holds it."""
    hooks = [part for part in leaves.parts(thing) if type(part) is OrderedDict and part]
    if not hooks:
        unmeet(walk, thing, path)
        return
    walk.facts[path] = (leaves.name_of(type(thing)),)
    for n, part in enumerate(hooks):
        for key, hook in part.items():
            walk.add(hook, f"{path}.hooks[{n}][{key}]")
            walk.strict.append((hook, path))


def of_console(walk, thing, path):
    """Of rich: what it has recorded, to be exported, by its text."""
    recorded = [part.text for part in list(getattr(thing, "_record_buffer", ()))]
    if recorded:
        walk.facts[path] = (
            leaves.name_of(type(thing)),
            len(recorded),
            zlib.crc32("".join(recorded).encode("utf-8", "surrogatepass")),
        )
    elif not add_foreign(walk, thing, path, words_of(type(thing))):
        unmeet(walk, thing, path)


def of_progress(walk, thing, path):
    """Of rich: how far each of its bars is."""
    tasks = [
        (int(task.id), str(task.description), repr((task.completed, task.total)), task.visible)
        for task in list(thing.tasks)
    ]
    walk.facts[path] = (leaves.name_of(type(thing)), *tasks)
    add_foreign(walk, thing, path + ".more", words_of(type(thing)))


def registered(kind: type) -> tuple:
    """Names of the classes that were registered with an abstract one of the script's."""
    if "_abc_impl" not in vars(kind):
        return ()
    return tuple(
        sorted(leaves.name_of(each) for ref in internals.registered(kind) if (each := ref()) is not None)
    )

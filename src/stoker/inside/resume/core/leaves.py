"""What an object is to the walk: a value, a container, memory, a random generator, or a thing that nobody
should look into.

Nothing here runs code of the user's: no property, no `__eq__`, no `__getattr__`, no `__len__` of a subclass.
"""

from __future__ import annotations

import _thread
import enum
import functools
import gc
import marshal
import os
import re
import sys
import sysconfig
import types
import zlib
from collections import OrderedDict

from ...looks import isinstance
from . import internals

PLAIN = frozenset((int, float, str, bytes, bool, type(None), complex))
LONG = 400  # characters of a string that is kept by its checksum only
BULK = 48  # elements of a list of numbers that is kept as one value
PACKAGE = __name__.rpartition(".resume.")[0]  # "stoker_hooks" in the user's Python
HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_LIBRARY = tuple(
    {sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib")}
    | {os.path.dirname(os.__file__) + os.sep}
)
_CLOCKS = re.compile(r" at 0x[0-9a-f]+")

# Threads, locks, files and sockets: other parts judge them; their insides are the business of the operating
# system. And what never changes.
_OPAQUE = tuple(
    """
threading _thread socket ssl select selectors subprocess concurrent.futures multiprocessing _multiprocessing
ast _ast importlib zipimport pkgutil signal linecache tempfile _io io _sre _struct struct _frozen_importlib
_frozen_importlib_external gettext locale abc _abc typing _typing google.protobuf rich wandb prometheus_client
tensorboard tensorboardX torch.utils.tensorboard pybind11_builtins _socket posix time _json
torch.utils.hooks.unserializable numba.core.registry numba.core.dispatcher numba.np.ufunc
""".split()
)
# Plain memory; what is only drawn when the script says so.
_SEEN_THROUGH = tuple(
    """
multiprocessing.sharedctypes multiprocessing.shared_memory rich.table rich.text rich.tree rich.panel
rich.columns rich.padding rich.align rich._log_render
""".split()
)
# whose objects tell their state by hexdigest()
HASHES = frozenset("_hashlib _blake2 _md5 _sha1 _sha2 _sha3 _sha256 _sha512".split())
# Objects that never change, known by their repr.
_VALUES = frozenset(
    """
datetime.datetime datetime.date datetime.time datetime.timedelta datetime.timezone decimal.Decimal
fractions.Fraction uuid.UUID builtins.range builtins.slice builtins.ellipsis builtins.NotImplementedType
torch.dtype torch.device torch.layout torch.memory_format torch.finfo torch.iinfo torch.qscheme
operator.itemgetter operator.attrgetter types.UnionType types.GenericAlias
collections.abc._CallableGenericAlias zoneinfo.ZoneInfo re.Pattern _regex.Pattern pathlib.PosixPath
pathlib.PurePosixPath pathlib._local.PosixPath torch.torch_version.TorchVersion
""".split()
)


def quietly(call):
    """`call` without the script's `__torch_function__`:
    a look at a tensor of its own class would run its code."""

    @functools.wraps(call)
    def wrapper(*args, **kwargs):
        torch = sys.modules.get("torch")
        if not hasattr(torch, "nn"):
            return call(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            return call(*args, **kwargs)

    return wrapper


def is_ours(file: str) -> bool:
    return file.startswith(HERE)


def is_library(file: str) -> bool:
    """Whether a source file belongs to Python or to an installed package, not to the user."""
    return (
        file.startswith("<frozen")
        or file.startswith(HERE)
        or "/site-packages/" in file
        or "/dist-packages/" in file
        or file.startswith(_LIBRARY)
        or os.path.basename(file) == "sitecustomize.py"
    )


def file_behind(function) -> str:
    """Where the code of a function stands that others have wrapped:
    torch.no_grad() and the like take its name over, and its place."""
    for _ in range(20):
        wrapped = function.__dict__.get("__wrapped__")
        if type(wrapped) is not types.FunctionType:
            break
        function = wrapped
    return function.__code__.co_filename


def is_user_module(name: str, module) -> bool:
    if name in ("__main__", "__mp_main__"):
        return True
    if name == PACKAGE or name.startswith(PACKAGE + ".") or name == "sitecustomize":
        return False
    file = vars(module).get("__file__") if type(module) is types.ModuleType else None
    if isinstance(file, str):
        return not is_library(file)
    if type(module) is not types.ModuleType or vars(module).get("__spec__") is not None:
        return False
    return not name.startswith("_cython") and "." not in name and name not in sys.builtin_module_names


def user_modules() -> list:
    """(name, module) of what the user wrote, in the order of their import."""
    found, seen = [], set()
    for name, module in list(sys.modules.items()):
        if type(module) is types.ModuleType and id(module) not in seen and is_user_module(name, module):
            seen.add(id(module))
            found.append((name, module))
    return found


def crc(value) -> int:
    """A checksum of plain values that is the same in each process."""
    return zlib.crc32(marshal.dumps(value, 2))


def code_sum(code: types.CodeType) -> int:
    """A checksum of what a function does, those within it included: two lambdas may stand on one line."""
    told = zlib.crc32(
        repr((code.co_names, code.co_varnames)).encode("utf-8", "surrogatepass"), zlib.crc32(code.co_code)
    )
    for const in code.co_consts:
        told = zlib.crc32(
            (repr(code_sum(const)) if type(const) is types.CodeType else repr(const)).encode(
                "utf-8", "surrogatepass"
            ),
            told,
        )
    return told


def text(value: str):
    """A string as a fact: long ones by length and checksum, addresses left out."""
    if " at 0x" in value:
        value = _CLOCKS.sub(" at 0x", value)
    if len(value) <= LONG:
        return value
    return ("text", len(value), zlib.crc32(value.encode("utf-8", "surrogatepass")))


def all_plain(values) -> bool:
    return PLAIN.issuperset(map(type, values))


def has_order(values: list) -> bool:
    """Whether a set of these is gone through in the same order in each life:
    it is made of hashes, and of all that was ever in the set."""
    kinds = set(map(type, values))
    return kinds <= _NUMBERS or (kinds <= _HASHED and not sys.flags.hash_randomization) or (
        kinds <= _HASHED and os.environ.get("PYTHONHASHSEED", "").isdigit())


def refill(place: set, values: list, table: tuple | None) -> bool:
    """Put these plain values into a set, with a table as it was (`table_of`);
    whether it is gone through in their order then."""
    if table is not None:
        try:
            internals.lay_set(place, values, table)
        except ValueError:  # this Python gives it another size
            return False
        return list(place) == values
    if list(place) != values:
        place.clear()
        place.update(values)
    return True


def table_of(thing: set) -> tuple | None:
    """What says in which order a set of plain values is gone through, and will be;
    None where lives do not share it."""
    return internals.set_table(thing) if has_order(list(thing)) else None


_NUMBERS = frozenset((int, float, bool, complex))
_HASHED = _NUMBERS | {str, bytes}  # the hash of None may be its address


def items(thing) -> list:
    """(key, value) of a dictionary in its order, past methods of a subclass;
    an OrderedDict keeps an order of its own."""
    return list((OrderedDict if isinstance(thing, OrderedDict) else dict).items(thing))


def bulk(values) -> bool:
    """Whether a long container (no iterator: it is gone through twice) is made of plain values, or of tuples
    of them, so that one checksum tells all."""
    kinds = set(map(type, values))
    if PLAIN.issuperset(kinds):
        return True
    return kinds <= _PLAIN_OR_TUPLE and all(all_plain(v) for v in values if type(v) is tuple)


_PLAIN_OR_TUPLE = PLAIN | {tuple}


def of_this_thread(thing) -> dict:
    """What a `threading.local` holds for the thread that asks."""
    return _thread._local.__getattribute__(thing, "__dict__")


def name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def made_by_python(kind: type) -> bool:
    """Whether a class was made by a `class` statement:
    then its whole state lies in `__dict__`, slots and its solid base."""
    if not kind.__flags__ & (1 << 9):  # a heap type
        return False
    own = kind.__dict__
    for word, doc in (
        ("__dict__", "dictionary for instance variables"),
        ("__weakref__", "list of weak references"),
    ):
        member = own.get(word)
        if member is not None:
            return type(member) is types.GetSetDescriptorType and (member.__doc__ or "").startswith(doc)
    if "__slots__" in own or "__firstlineno__" in own:
        return True
    base = kind.__base__
    return (
        base is not None
        and base.__basicsize__ == kind.__basicsize__
        and "__module__" in own
        and not _from_c(kind)
    )


def _from_c(kind: type) -> bool:
    """Class bodies in C leave method descriptors of their own behind, those in Python functions.
    A borrowed one says nothing: Lightning gives samplers the `__setattr__` of object."""
    return any(type(v) in _DESCRIPTORS and v.__objclass__ is kind for v in kind.__dict__.values())


_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType)


def solid(kind: type) -> type:
    """The first base that was not made by a `class` statement: object, dict, Tensor, ..."""
    for base in kind.__mro__:
        if not made_by_python(base):
            return base
    return object


def slots(kind: type) -> list:
    """(name, descriptor) of every slot that a class and its bases made in Python declare."""
    found = []
    for base in kind.__mro__:
        if made_by_python(base):
            found += [(n, d) for n, d in base.__dict__.items() if type(d) is types.MemberDescriptorType]
    return found


def is_filled(descriptor: types.MemberDescriptorType | types.GetSetDescriptorType, thing: object) -> bool:
    """Whether there is something in this slot of `thing`."""
    try:
        descriptor.__get__(thing)
    except AttributeError:
        return False
    return True


def attributes(thing):
    """The instance dictionary, or None; past any `__getattr__` of the user's."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def is_opaque(kind: type) -> bool:
    module = kind.__module__ if isinstance(kind.__module__, str) else ""
    if module in _SEEN_THROUGH:
        return False
    return is_of_ours(kind) or any(module == m or module.startswith(m + ".") for m in _OPAQUE)


def is_of_ours(kind: type) -> bool:
    module = kind.__module__ if isinstance(kind.__module__, str) else ""
    return module == PACKAGE or module.startswith(PACKAGE + ".")


def is_value(kind: type) -> bool:
    return f"{kind.__module__}.{kind.__qualname__}" in _VALUES or issubclass(type(kind), enum.EnumMeta)


def value_of(thing):
    """A short, stable word for an object that never changes."""
    if isinstance(type(thing), enum.EnumMeta):
        return ("value", name_of(type(thing)), str(thing._name_))
    if type(thing) is re.Pattern:  # whose repr is cut
        return ("value", "re.Pattern", text(repr(thing.pattern)), thing.flags)
    if type(thing).__module__ == "_regex":  # as cut, and without its lists of words
        lists = sorted((name, sorted(map(repr, words))) for name, words in thing.named_lists.items())
        return ("value", "regex.Pattern", text(repr((thing.pattern, lists))), thing.flags)
    return ("value", name_of(type(thing)), text(repr(thing)))


def position(thing):
    """Where a C iterator stands, as far as it tells without moving; None when it does not."""
    kind = type(thing)
    if kind.__name__ in ("count", "repeat"):
        return repr(thing)
    hint = getattr(kind, "__length_hint__", None)
    if hint is None:
        return None
    try:
        return int(hint(thing))
    except Exception:
        return None


def parts(thing) -> list:
    """What a C container holds, by the garbage collector; without classes and modules."""
    return [r for r in referents(thing) if not isinstance(r, (type, types.ModuleType))]


def referents(*things) -> list:
    """gc.get_referents. Before Python 3.11 a suspended generator holds its frame, and that what later ones
    hold themselves."""
    found = gc.get_referents(*things)
    for thing in things if _BY_FRAME else ():
        prefix = _BY_FRAME.get(type(thing))
        frame = prefix and getattr(thing, prefix + "_frame")
        if frame is not None and not getattr(thing, prefix + "_running"):
            found[:0] = [
                r for r in gc.get_referents(frame) if r is not frame.f_globals and r is not frame.f_builtins
            ]
    return found


_BY_FRAME: dict = {} if sys.version_info >= (3, 11) else {
    types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}

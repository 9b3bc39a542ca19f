"""What a script may set for its whole process, or leave within torch:
roots and facts of the walk that no variable leads to."""

from __future__ import annotations

import _locale
import os
import signal
import sys
import weakref

from ...looks import isinstance, vars
from ..core import internals, leaves
from ..world import at_exit
from . import walk_library

_ENVIRON = dict(os.environ)  # what this process began with: lives differ in it
_WORDS_OF_SYS = ("stdin", "stdout", "stderr", "displayhook", "excepthook", "unraisablehook")
_TINY = sys.float_info.min
# set by torch (the first vmap) and wandb
_OF_A_LIFE = frozenset(("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "WANDB_SERVICE"))


def library_roots() -> list:
    """(path, thing) that user code may have left within torch:
    hooks for all modules and optimizers, default modes."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn") or not hasattr(torch, "optim"):
        return []
    found = []
    for short, name in (("modules", "torch.nn.modules.module"), ("optimizers", "torch.optim.optimizer")):
        module = sys.modules.get(name)
        for word, value in list(vars(module).items()) if module is not None else ():
            if word.startswith("_global_") and isinstance(value, dict) and value:
                found.append((f"L:{short}.{word}", value))
    found.append(("L:torch.default_dtype", str(torch.get_default_dtype())))
    found.append(("L:torch.grad_enabled", torch.is_grad_enabled()))
    found.append(("L:torch.inference", torch.is_inference_mode_enabled()))
    found.append(("L:torch.deterministic", torch.are_deterministic_algorithms_enabled()))
    found.append(("L:torch.autocast", (torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu"))))
    if hasattr(torch, "get_autocast_dtype"):
        found.append(
            ("L:torch.autocast_dtype", str([torch.get_autocast_dtype(kind) for kind in ("cuda", "cpu")]))
        )
    einsum = torch.backends.opt_einsum
    found.append(("L:torch.opt_einsum", (einsum.enabled, str(einsum.strategy))))
    cudnn = torch.backends.cudnn
    found.append(
        (
            "L:torch.precision",
            (torch.get_float32_matmul_precision(), cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        )
    )
    found.append(("L:torch.threads", (torch.get_num_threads(), torch.get_num_interop_threads())))
    # the processor is asked: torch has no question for it
    found.append(("L:torch.flush_denormal", _TINY / 2 == 0.0))
    found += [(f"L:torch.{name}", setting) for name, setting in internals.torch_switches()]
    if hasattr(torch, "get_default_device"):
        found.append(("L:torch.default_device", str(torch.get_default_device())))
    printing = getattr(getattr(torch, "_tensor_str", None), "PRINT_OPTS", None)
    words = "precision threshold edgeitems linewidth sci_mode".split()
    found.append(("L:torch.printing", repr([getattr(printing, word, None) for word in words])))
    found += [(f"L:torch.modes[{n}]", mode) for n, mode in enumerate(internals.torch_modes())]
    found += walk_library.names_of_the_script() + walk_library.settings_of_libraries()
    return found + _of_the_process() + walk_library.log_handlers_of_the_script()


def _of_the_process() -> list:
    """What a script may set for its whole process."""
    environ = sorted((k, v) for k, v in os.environ.items() if k not in _OF_A_LIFE and _ENVIRON.get(k) != v)
    environ += sorted(_ENVIRON.keys() - os.environ.keys())
    found = [
        ("L:os.environ", repr(environ)),
        ("L:sys.recursionlimit", sys.getrecursionlimit()),
        ("L:os.cwd", os.getcwd()),
        ("L:sys.path", repr(sys.path)),
        ("L:os.umask", _umask()),
    ]
    decimal, numpy = sys.modules.get("decimal"), sys.modules.get("numpy")
    # a library may import it where a ghost does not go
    if decimal is not None and repr(decimal.getcontext()) != repr(decimal.Context()):
        found.append(("L:decimal.context", repr(decimal.getcontext())))
    if hasattr(numpy, "geterr"):
        found.append(("L:numpy.errors", repr((numpy.geterr(), numpy.get_printoptions()))))
    return found + _of_pythons_library()


def _umask() -> str:
    """As the kernel tells it: to ask for it is to set it."""
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).partition(b"Umask:")[2][:6].decode().strip()
    finally:
        os.close(fd)


def _of_pythons_library() -> list:
    """What its modules keep where no variable leads, and a script may set.
    A library may import one where a ghost does not go: what such a module begins with is not told."""
    found = [
        ("L:sys.switchinterval", sys.getswitchinterval()),
        ("L:sys.excepthook", _name(sys.excepthook, sys.__excepthook__)),
        ("L:locale", _locale.setlocale(_locale.LC_ALL)),
    ]
    found += [
        (f"L:sys.{word}", getattr(sys, word))
        for word in _WORDS_OF_SYS
        if getattr(sys, word) is not getattr(sys, f"__{word}__")
    ]
    found += [(f"L:signal.{number}", _handler(number)) for number in range(1, 32)]
    pyplot = sys.modules.get("matplotlib._pylab_helpers")
    if hasattr(pyplot, "Gcf"):
        found.append(
            (
                "L:matplotlib.figures",
                [(number, manager.canvas.figure) for number, manager in pyplot.Gcf.figs.items()],
            )
        )
    found += _options()
    csv, socket, logging, sharing = (
        sys.modules.get(name) for name in ("_csv", "_socket", "logging", "torch.multiprocessing")
    )
    if csv is not None and (csv.field_size_limit(), len(csv.list_dialects())) not in (
        (131072, 0),
        (131072, 3),
    ):
        found.append(("L:csv", (csv.field_size_limit(), tuple(csv.list_dialects()))))
    if socket is not None and socket.getdefaulttimeout() is not None:
        found.append(("L:socket.timeout", socket.getdefaulttimeout()))
    finalizers = [info.func for info in list(weakref.finalize._registry.values())]
    found.append(
        (
            "L:weakref.finalize",
            tuple(sorted(leaves.name_of(each) for each in finalizers if at_exit.of_the_script(each))),
        )
    )
    found.append(("L:atexit", at_exit.told()))
    if hasattr(logging, "root"):
        found.append(("L:logging.disable", logging.root.manager.disable))
        found += walk_library.loggers()
    if hasattr(sharing, "get_sharing_strategy"):
        found.append(("L:torch.sharing_strategy", sharing.get_sharing_strategy()))
    return found


def _options() -> list:
    """What was set in pandas and matplotlib, as far as it is not what these begin with."""
    found, config, matplotlib = [], sys.modules.get("pandas._config.config"), sys.modules.get("matplotlib")
    try:
        if hasattr(config, "_registered_options"):
            first = config._registered_options
            told = [
                (name, repr(value))
                for name, value in _flat(config._global_config, "")
                if repr(value) != repr(first[name].defval)
            ]
            found.append(("L:pandas.options", repr(told)))
        if hasattr(matplotlib, "rcParamsDefault"):
            now, first = (dict.items(each) for each in (matplotlib.rcParams, matplotlib.rcParamsDefault))
            then = dict(first)
            told = sorted(
                (name, repr(value))
                for name, value in now
                if name[:7] != "backend" and value != then.get(name)
            )
            found.append(("L:matplotlib.rcParams", repr(told)))
    except Exception:  # of another version
        return []
    return [(path, told) for path, told in found if told != "[]"]


def _flat(tree: dict, before: str) -> list:
    """(name.of.a.setting, value) of a tree of dictionaries."""
    found = []
    for name, value in tree.items():
        found += _flat(value, f"{before}{name}.") if type(value) is dict else [(before + name, value)]
    return found


def _handler(number: int) -> str:
    """Who hears a signal."""
    return _name(
        signal.getsignal(number), signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    )


def _name(handler: object, first: object) -> str:
    """Its name; one of our own, or of torch (which watches its workers),
    stands for what was there before it."""
    if (getattr(handler, "__module__", "") or "").startswith((f"{leaves.PACKAGE}.resume", "torch.")):
        handler = first
    if not callable(handler):
        return str(handler)
    return leaves.name_of(handler if hasattr(handler, "__qualname__") else type(handler))

"""What a script may set for its whole process, or leave within torch: roots and facts of the walk that no variable leads to."""

from __future__ import annotations

import os
import sys

from . import walk_library

_ENVIRON = dict(os.environ)  # what this process began with: lives differ in it
_CACHES = frozenset(("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))  # set by torch itself, in the first vmap for one


def library_roots() -> list:
    """(path, thing) that user code may have left within torch: hooks for all modules and optimizers, default modes."""
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
    cudnn = torch.backends.cudnn
    found.append(("L:torch.precision", (torch.get_float32_matmul_precision(), cudnn.enabled, cudnn.benchmark, cudnn.deterministic)))
    if hasattr(torch, "get_default_device"):
        found.append(("L:torch.default_device", str(torch.get_default_device())))
    printing = getattr(getattr(torch, "_tensor_str", None), "PRINT_OPTS", None)
    words = "precision threshold edgeitems linewidth sci_mode".split()
    found.append(("L:torch.printing", repr([getattr(printing, word, None) for word in words])))
    return found + _of_the_process() + walk_library.names_of_the_script() + walk_library.log_handlers_of_the_script()


def _of_the_process() -> list:
    """What a script may set for its whole process."""
    environ = sorted((k, v) for k, v in os.environ.items() if k not in _CACHES and _ENVIRON.get(k) != v)
    environ += sorted(_ENVIRON.keys() - os.environ.keys())
    found = [("L:os.environ", repr(environ)), ("L:sys.recursionlimit", sys.getrecursionlimit()), ("L:os.cwd", os.getcwd())]
    decimal, numpy = sys.modules.get("decimal"), sys.modules.get("numpy")
    if decimal is not None and repr(decimal.getcontext()) != repr(decimal.Context()):  # a library may import it where a ghost does not go
        found.append(("L:decimal.context", repr(decimal.getcontext())))
    if hasattr(numpy, "geterr"):
        found.append(("L:numpy.errors", repr((numpy.geterr(), numpy.get_printoptions()))))
    return found

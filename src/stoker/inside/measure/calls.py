"""What a line of the script calls just now: "torch.save", "Tensor.item", "print", "gc.collect",
"optimizer.step", "clip_grad_norm_".

The instruction says which expression is meant, the expression is read from the source, and its first name
from the frame. Nothing of the script is run for it: no property, no __getattr__.
"""

from __future__ import annotations

import ast
import os
import sys
import types

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_SAME = {
    "torch.serialization.save": "torch.save",
    "torch.serialization.load": "torch.load",
    "time.wait": "time.sleep",
}
# A call of these is told as what it is, even where it comes back into the script's own code.
_LEAVES = (
    "print",
    "input",
    "open",
    "time.",
    "gc.",
    "json.",
    "pickle.",
    "logging.",
    "os.",
    "subprocess.",
    "copy.",
    "torch.save",
    "torch.load",
    "torch.cuda.",
    "torch.nn.functional.",
    "clip_grad",
    "numpy.",
    "shutil.",
    "SummaryWriter.",
    "tqdm.",
)
_BACK = (
    "Tensor.backward",
    "Tensor.register_hook",
    "torch.autograd.",
    "torch.nn.",
    "torch.utils.",
    "torch.optim.",
    "torch.compile",
    "torch.func.",
)

_own: dict = {}  # file -> whether it is the script's
_names: dict = {}  # (code, instruction) -> (line, name, whether it is told here)
_trees: dict = {}  # file -> {(line, end, column, end): the function of the call}
_by_line: dict = {}  # file -> {line: [functions of calls]}
_places: dict = {}  # code -> positions of its instructions


def own(file: str) -> bool:
    """Whether a file is the script's own, and neither Python's nor a package's nor ours."""
    known = _own.get(file)
    if known is None:
        known = not file.startswith(("<", _OURS, _STDLIB)) and not any(each in file for each in _PACKAGES)
        _own[file] = known
    return known


def at(seen: tuple, deeper: tuple | None) -> tuple:
    """(line, name, told here) of what a frame of the script's calls. seen:
    the frame, its code, instruction and line as they were;
    deeper: the same of the frame that was called."""
    key = seen[1:3]
    known = _names.get(key)
    if known is None:
        known = _names[key] = _look(seen, deeper)
    return known


def _look(seen: tuple, deeper: tuple | None) -> tuple:
    frame, code, instruction, line = seen
    deeper = deeper and deeper[0]
    inward = False  # the script calls itself
    try:
        function = _function(code, instruction, line, deeper)
        name = _name(function, frame) if function is not None else ""
        inward = function is not None and _is_own(function, frame)
    except Exception:  # a form of code that nobody foresaw
        name = ""
    if not name and deeper is not None:
        name, inward = _of_frame(deeper), own(deeper.f_code.co_filename)
    name = _SAME.get(name, name)
    return line or 0, name, not inward and _is_told(name)


def _is_own(node: object, frame: object) -> bool:
    """Whether what is called is a function of the script's, or of a class of its."""
    found, value = _value(node, frame)
    if not found and isinstance(node, ast.Attribute):
        found, base = _value(node.value, frame)
        found, value = (
            _attribute(base if isinstance(base, type) else type(base), node.attr) if found else (False, None)
        )
    value = getattr(value, "__func__", value) if found else None
    value = getattr(value, "__init__", None) if isinstance(value, type) else value
    code = getattr(value, "__code__", None)
    return code is not None and own(code.co_filename)


def _is_told(name: str) -> bool:
    if name.startswith(_BACK) and not name.startswith("torch.nn.functional."):
        return False
    if name.startswith(_LEAVES) or name.startswith("Tensor."):
        return True
    return name.startswith("torch.") and name.count(".") == 1


def _function(code: object, instruction: int, line: int, deeper: object) -> object:
    """The expression that is called, as the source has it; None where the instruction is no call."""
    file = code.co_filename
    if file not in _trees:
        _read(file)
    positions = getattr(code, "co_positions", None)  # of Python 3.11 and later
    if positions is not None:
        places = _places.get(code)
        if places is None:
            places = _places[code] = list(positions())
        return _trees[file].get(tuple(places[instruction // 2]))
    found = _by_line[file].get(line, ())
    if deeper is not None:
        named = [each for each in found if _last_word(each) == deeper.f_code.co_name]
        return named[0] if named else None
    return found[0] if found else None


def _read(file: str) -> None:
    exact, lines = _trees.setdefault(file, {}), _by_line.setdefault(file, {})
    try:
        with open(file, "rb") as f:
            tree = ast.parse(f.read())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            exact[node.lineno, node.end_lineno, node.col_offset, node.end_col_offset] = node.func
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines.setdefault(line, []).append(node.func)


def _last_word(node: object) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _name(node: object, frame: object) -> str:
    torch = sys.modules["torch"]
    if isinstance(node, ast.Name):
        found, value = _value(node, frame)
        return _of_object(value, node.id) if found else node.id
    if not isinstance(node, ast.Attribute):
        return ""
    found, base = _value(node.value, frame)
    if not found:
        return _of_text(node, torch)
    if isinstance(base, types.ModuleType):
        value = vars(base).get(node.attr)
        return _of_module(base.__name__, node.attr, value)
    if isinstance(base, torch.Tensor):
        return f"Tensor.{node.attr}"
    if isinstance(base, torch.optim.Optimizer):
        return f"optimizer.{node.attr}"
    if isinstance(base, torch.nn.Module):
        found, value = _attribute(base, node.attr)
        return "Module.__call__" if found and isinstance(value, torch.nn.Module) else f"Module.{node.attr}"
    found, value = _attribute(base, node.attr)
    if found and isinstance(value, torch.nn.Module):
        return "Module.__call__"
    return f"{base.__name__ if isinstance(base, type) else type(base).__name__}.{node.attr}"


def _of_text(node: object, torch: object) -> str:
    """The value before the dot is not known: a method that only tensors have is a tensor's."""
    if isinstance(node.value, (ast.Constant, ast.JoinedStr)):
        return f"str.{node.attr}"
    others = (str, list, dict, set, bytes, int, float)
    if hasattr(torch.Tensor, node.attr) and not any(hasattr(each, node.attr) for each in others):
        return f"Tensor.{node.attr}"
    return node.attr


def _of_module(module: str, word: str, value: object) -> str:
    if module.startswith("torch.nn.utils") and word.startswith("clip_grad"):
        return word
    if isinstance(value, types.FunctionType) and getattr(value, "__module__", "") in (
        "torch.nn.utils.clip_grad",
    ):
        return word
    return f"{module}.{word}"


def _of_object(value: object, word: str) -> str:
    torch = sys.modules["torch"]
    if isinstance(value, torch.nn.Module):
        return "Module.__call__"
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", None) or word
    if isinstance(value, types.MethodType):
        return f"{type(value.__self__).__name__}.{value.__name__}"
    if module == "builtins" or (isinstance(value, type) and module == "builtins"):
        return name
    code = getattr(value, "__code__", None)
    if code is not None and own(code.co_filename):
        return name
    return _of_module(module, name, value) if module else name


def _of_frame(frame: object) -> str:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    if own(code.co_filename):
        return name
    module = frame.f_globals.get("__name__", "")
    if module == "torch._tensor":
        return f"Tensor.{code.co_name}"
    if code.co_name == "__next__":
        return "DataLoader.__next__" if "torch.utils.data" in module or "stoker" in module else name
    if "." in name or not isinstance(module, str):
        return name
    return f"{module}.{name}"


def _value(node: object, frame: object) -> tuple:
    """(whether it is known, what an expression of names and plain attributes stands for)."""
    if isinstance(node, ast.Name):
        for where in (frame.f_locals, frame.f_globals, vars(sys.modules["builtins"])):
            if node.id in where:
                return True, where[node.id]
        return False, None
    if isinstance(node, ast.Attribute):
        found, base = _value(node.value, frame)
        return _attribute(base, node.attr) if found else (False, None)
    return False, None


def _attribute(base: object, word: str) -> tuple:
    said = getattr(base, "__dict__", None)
    if isinstance(base, types.ModuleType):
        return base.__dict__.get(word) is not None, base.__dict__.get(word)
    if isinstance(base, type):
        return next(
            ((True, kind.__dict__[word]) for kind in base.__mro__ if word in kind.__dict__), (False, None)
        )
    if isinstance(said, dict):
        if word in said:
            return True, said[word]
        for part in ("_modules", "_parameters", "_buffers"):
            inside = said.get(part)
            if isinstance(inside, dict) and word in inside:
                return True, inside[word]
    return False, None

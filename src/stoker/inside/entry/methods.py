"""What stands in the place of a function of C:
like that one it does not become a method when a class keeps it as an attribute, which is what `class Log:
write = print` does, and pathlib of Python 3.9 and 3.10 with os.stat, os.open and others.
"""

from __future__ import annotations


class Of:
    """Stands for a module as the first argument of what replaces its functions:
    a method does not turn into another one as a class attribute (logging.Formatter.converter =
    time.localtime), and pickles by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple:
        return (__import__, (self.name,))

    def __deepcopy__(self, _memo: dict) -> Of:
        return self


Method = type(Of("").__reduce__)  # types.MethodType, without importing types


def replace(module: object, name: str, function: object, of: Of) -> None:
    """Put `function(of, ...)` where `module.name` is; `__wrapped__` is what was there."""
    old = getattr(module, name)
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__module__ = old.__doc__, old.__module__
    function.__wrapped__ = old
    setattr(module, name, Method(function, of))


def replace_in_type(kind: type, name: str, function: object) -> None:
    """Put `function` where a C type has a class method;
    subclasses and names that hold the type see it too."""
    import ctypes
    import gc
    namespace, = (each for each in gc.get_referents(kind.__dict__) if type(each) is dict)
    namespace[name] = classmethod(function)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

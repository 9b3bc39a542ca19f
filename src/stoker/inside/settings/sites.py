"""Where in the script a loader is made: `<file, relative to the script's folder>:<line>#<ordinal at that
line>`, and by whom. One that is made anew, for each epoch, is the same one."""

from __future__ import annotations

import os
import sys
import weakref

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
DEEP = 60  # frames looked at
PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)

_signatures: dict = {}  # (file, line) -> the different loaders that were made there, in their order
_sites: dict = {}  # id of a loader -> its Site
_stdlib = os.path.dirname(os.__file__) + os.sep


class Site:
    """Where one loader was made. `framework`: by code that is not the script's. `rebuilt`:
    a loader like it was made there before."""

    __slots__ = ("file", "forget", "framework", "line", "ordinal", "rebuilt", "signature")

    def __init__(self, file: str, line: int, framework: bool, signature: str) -> None:
        before = _signatures.setdefault((file, line), [])
        self.file, self.line, self.framework, self.signature = file, line, framework, signature
        self.rebuilt = signature in before
        if not self.rebuilt:
            before.append(signature)
        self.ordinal = before.index(signature)
        self.forget: object = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def id(self) -> str:
        return f"{self.place}#{self.ordinal}"


def here(loader: object, signature: str) -> Site:
    """The site of a loader that is being made: its name from now on."""
    known = site_of(loader)
    if known is not None:  # an __init__ that is called twice
        return known
    file, line, framework = _caller(loader)
    site = Site(file, line, framework, signature)
    key = id(loader)
    site.forget = weakref.ref(loader, lambda _, forget=_sites.pop: forget(key, None))
    _sites[key] = site
    return site


def site_of(loader: object) -> Site | None:
    """None for a loader that was made unseen."""
    site = _sites.get(id(loader))
    return site if site is not None and site.forget() is loader else None


def id_of(loader: object) -> str:
    """The name of a loader, or "" for one that was made unseen."""
    site = site_of(loader)
    return site.id if site is not None else ""


def script_folder() -> str:
    """Of the script that runs; the working folder where there is none."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or (sys.argv[0] if sys.argv else "")
    return os.path.dirname(os.path.abspath(main)) if main and main != "-c" else os.getcwd()


def _caller(loader: object) -> tuple:
    """(file, line, whether somebody else's code made it):
    the first frame that is the script's and not of the loader's own class."""
    folder, torch, framework = script_folder(), _torch(), False
    frame = sys._getframe(2)
    for _ in range(DEEP):
        if frame is None:
            break
        code = frame.f_code
        kind = _kind(code.co_filename, folder, torch)
        if kind == "script" and not _makes_itself(frame, loader):
            file = code.co_filename
            return (
                (file if file.startswith("<") else os.path.relpath(os.path.abspath(file), folder)),
                frame.f_lineno,
                framework,
            )
        framework = framework or kind == "framework"
        frame = frame.f_back
    return "?", 0, True


def _makes_itself(frame: object, loader: object) -> bool:
    code = frame.f_code
    return (
        code.co_name == "__init__"
        and code.co_argcount > 0
        and frame.f_locals.get(code.co_varnames[0]) is loader
    )


def _kind(file: str, folder: str, torch: str) -> str:
    if file.startswith("<"):
        return (
            "script"
            if file in ("<string>", "<stdin>") or file.startswith(("<ipython", "<python-input"))
            else "library"
        )
    file = os.path.abspath(file)
    if file.startswith((OURS, torch)):
        return "torch"
    if any(each in file for each in PACKAGES):
        # the folder of an installed script
        own = any(each in folder + os.sep for each in PACKAGES) and file.startswith(folder + os.sep)
        return "script" if own else "framework"
    return "library" if file.startswith(_stdlib) else "script"


def _torch() -> str:
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(os.path.abspath(torch)) + os.sep if torch else OURS

"""Import names of another library: `stoker run --compat NAME` provides them to a script if that library is
not installed."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from stoker.engine.errors import InvalidSpec


def lend(name: str, here: str) -> str:
    """Returns the name if the real library is not installed. here:
    a file of the package that provides the name. Raises InvalidSpec, with the path of the real library.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(here)))
    others = [path for path in sys.path if os.path.abspath(path or ".") != own]
    spec = PathFinder.find_spec(name, others)
    if spec is not None:
        place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
        raise InvalidSpec(f"{name} is installed here ({place}): --compat would replace this library.",
                          hint="Run the script without --compat, or in an environment without that library.")
    return name

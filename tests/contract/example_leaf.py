"""The leaf of docs/contributing/add-a-backend.md, taken out of the page."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import ModuleType

from stoker.backends.leaf import Leaf
from stoker.hosts.base import Host

PAGE = Path(__file__).resolve().parents[2] / "docs/contributing/add-a-backend.md"


@cache
def module_of_the_page() -> ModuleType:
    """The example, as a module."""
    code, = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    module = ModuleType("example")
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    return module


def leaf_of_the_page(host: Host, folder: Path) -> Leaf:
    """It keeps its notes in `folder`."""
    module = module_of_the_page()
    return module.NamespaceLeaf(host, module.NamespaceOptions(folder=str(folder)))

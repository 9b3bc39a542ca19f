"""The backends by name: `backend = "..."` of a [targets.NAME] table.
A backend adds one line to `LEAVES`, and its own file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from stoker.backends.base import Backend
from stoker.backends.core import Core
from stoker.backends.leaf import Leaf
from stoker.base.decode import asked
from stoker.base.errors import InvalidSpec, UnknownField
from stoker.hosts.base import Host

LEAVES = {
    "process": "ProcessLeaf",
}


def make(
    backend: str,
    host: Host,
    root: str,
    options: Mapping | None = None,
    *,
    owner: Mapping[str, str] | None = None,
    order: Mapping | None = None,
) -> Backend:
    """Return the backend of this name on `host`; see `Core`. `options`: the backend's own keys of the
    table. Raises InvalidSpec."""
    leaf = leaf_of(backend)
    return Core(host, root, leaf(host, _options(backend, leaf, options or {})), owner=owner, order=order)


def leaf_of(backend: str) -> type[Leaf]:
    """Return the class of a backend. Raises InvalidSpec for an unknown name."""
    if backend not in LEAVES:
        raise InvalidSpec(
            f"There is no backend '{backend}'.",
            hint=f"Known backends: {', '.join(LEAVES)}. See docs/reference/config.md.",
        )
    return getattr(import_module(f"stoker.backends.{backend}"), LEAVES[backend])


def _options(backend: str, leaf: type[Leaf], given: Mapping) -> object:
    try:
        return asked(leaf.OPTIONS, dict(given), f"table of backend '{backend}'")
    except UnknownField as e:
        raise InvalidSpec(f"The backend '{backend}' has no setting {', '.join(e.fields)}.",
                          hint="See docs/reference/config.md.") from e

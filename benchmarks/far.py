"""Far machines for the benchmarks and tests/e2e:
network namespaces with an sshd each, as targets of one ground."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.ground import REPO, Ground

sys.path.append(str(REPO / "tests"))

from real.cable import KEEP_ALIVE, Far, settings

NORMAL = ("ConnectTimeout=10",)  # Stoker's own keep-alive


@contextlib.contextmanager
def machines(
    ground: Ground, count: int, special: Mapping[int, dict] | None = None, *, short: bool = True
) -> Iterator[list[Far]]:
    """`count` machines, the targets far0, far1 and so on of the ground, with their folders in `far_root`.

    special: arguments of Far for single machines. short: keep-alive of 2 s.
    """
    folder = Path(tempfile.mkdtemp(prefix="st-far-", dir="/tmp"))
    made: list[Far] = []
    try:
        for n in range(count):
            made.append(Far(folder / str(n), **(special or {}).get(n, {})))
        write_targets(ground, made, KEEP_ALIVE if short else NORMAL)
        yield made
    finally:
        with contextlib.suppress(Exception):
            for each in made:
                each.plug_in()
        ground.stoker("server", "stop", timeout_s=60)
        for each in made:
            each.close()
        shutil.rmtree(folder, ignore_errors=True)


def write_targets(ground: Ground, made: list[Far], keep_alive: tuple[str, ...] = KEEP_ALIVE) -> None:
    """config.toml of the ground."""
    ground.home.mkdir(parents=True, exist_ok=True)
    text = ""
    for n, each in enumerate(made):
        text += (
            f"[targets.far{n}]\nhost = '''{shlex.join(settings(each, keep_alive))}'''\nroot = "
            f"\"{far_root(ground, n)}\"\n"
        )
    (ground.home / "config.toml").write_text(text)


def far_root(ground: Ground, number: int) -> Path:
    """Where that machine keeps its run folders."""
    return ground.root / f"far{number}"

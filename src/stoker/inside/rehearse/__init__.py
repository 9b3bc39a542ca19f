"""A rehearsal: a script that was written for GPUs runs a few steps on a CPU, unmodified, with as many ranks
as it will have, so that its mistakes show before a GPU is paid.
What cannot be seen without a GPU is told at the end."""

from __future__ import annotations

import os

RANKS = "STOKER_REHEARSE"  # how many GPUs are pretended; set by `stoker run --rehearse N`
# the folder where the conducted processes say what they do; set by the conductor
ROOM = "STOKER_REHEARSE_ROOM"


def begin(process: object) -> bool:
    """Take part: as the conductor, which never returns, or as one of its processes. False:
    torch need not be pretended here."""
    if process.role not in ("script", "worker"):
        return False
    if not os.environ.get(ROOM):
        if process.role == "worker":
            return False
        from . import conduct

        conduct.conduct(process.words)
    from .. import copied, scratch
    from ..entry import imports
    from . import tell

    tell.watch_the_end()
    room, origin = os.environ[ROOM], os.environ.get("STOKER_REHEARSE_FROM", "")
    work = os.environ.get("STOKER_REHEARSE_FOLDER") or os.getcwd()
    ours = (room, os.environ.get("STOKER_HOOKS", ""))
    scratch.install(
        os.path.join(room, "outside"),
        always=ours,
        work=work,
        kept=(origin, os.path.dirname(origin)),
        note=lambda what, path: tell.once(what, path, path=path),
    )
    if origin:
        copied.install(work, origin, ours)
    imports.after("torch", torch_is_here)
    process.rehearsed = True
    return True


def torch_is_here(torch: object) -> None:
    """The script has imported torch: from here on it has GPUs."""
    from .. import scratch
    from . import ends, late, pretend, pretend_cuda, ranks, tell

    late.stand_aside("torch._dynamo", pretend.off)
    pretend.install(torch)
    pretend_cuda.install(torch)
    ranks.install(torch)
    ends.install(torch)
    scratch.torch_files(torch, pretend.loads)
    tell.tell("torch")

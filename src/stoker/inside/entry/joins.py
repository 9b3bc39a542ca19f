"""Where two parts that do not know each other meet: clock, numbers and exact resume."""

from __future__ import annotations


def clock_and_children(_process: object) -> None:
    """A child of the script that trains is told of, with exact resume and without."""
    from ..clock import made
    from ..resume.world import spawned
    made.child_trains = spawned.trains


def clock_and_resume(_process: object) -> None:
    """A life that goes to an image is measured from there on."""
    from .. import clock
    from ..clock import timed
    from ..resume.core import phases
    from ..resume.image import points
    points.taken = timed.image_taken
    if phases.target is not None:
        phases.on_tail_end.append(clock.begin)
    else:
        clock.begin()


def numbers_and_resume(_process: object) -> None:
    """What was captured before an image is written before it: a life that comes from there does not repeat
    it."""
    from ..numbers import lines
    from ..resume.image import images
    images.before.append(lines.settle)

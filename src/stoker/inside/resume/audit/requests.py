"""Asking for audits, in the process that trains:
now and then a child of the agent's shall live the time between two images once more.

The order is a *room*, `audit/<n>/` in the resume folder:
links to image n, to the one before it and to what a life is begun with, and `order.json`, which comes last.
The child is auditor.py; the agent tells in `audits.json` what came of it, and removes the room.

An audit is asked for after the 2nd, 4th, 8th, ... image of a life, if there is no room. order.json:
`{"image", "from", "step", "from_step", "pid", "attempt", "cwd", "limit_s"}`. Once a second `look` sees
whether an audit has refused the images.
"""

from __future__ import annotations

import os

from ..core import copies, outcome, own, phases, store, words

ROOMS, ORDER, RECORDS = "audit", "order.json", "hooks"
BEGUN_WITH = ("start", "early-")  # rng._FIRST, and the beginning of tape._early_path
SLOWER, START_S = 4, 300.0  # so much longer than the run itself an audit may take, and so much more
_images = 0  # that this life has made
_next = 2  # the next audit is wanted at so many


def wanted() -> bool:
    return os.environ.get("STOKER_AUDIT") == "on"


def look() -> None:
    """Asked once a second while recording: an audit that found a difference refuses all images."""
    if wanted() and not outcome.stopped:
        why = outcome.refused()
        if why:
            outcome.refuse(why)


def image_written(n: int, meta: dict, size: int, more: dict) -> None:
    """By the writer of images, with image `n` on the disk and the one before it still there.
    Raises nothing."""
    global _images, _next
    if not wanted():
        return
    _images += 1
    if _images < _next:
        return
    try:
        why = _cannot(meta, size)
        if not why and _order(n, more):
            _next = 2 * _images
    except Exception as e:
        why = words.AUDIT_ROOM.format(error=e)
    if why != (outcome.state().get("not_audited") or ""):
        outcome.write_state(not_audited=why)


def images() -> list[int]:
    """Those in rooms: an audit puts files back as they were at its image, however many came since."""
    rooms = os.path.join(phases.folder, ROOMS)
    return [n for room in own.folders(rooms) for n in store.numbers(os.path.join(rooms, room))]


def _cannot(meta: dict, size: int) -> str:
    if meta["where"]["path"]["gpus"] or meta["cuda"] is not None:
        return words.AUDIT_GPU
    return words.AUDIT_DISK if store.room(phases.folder, 3 * size) else ""


def _order(n: int, more: dict) -> bool:
    """Make the room. False: there is no pair of images, or an audit is still at work;
    the next image is asked about again."""
    import json
    rooms = os.path.join(phases.folder, ROOMS)
    before = [
        each for each in store.numbers(phases.folder) if each < n and not store.is_bad(phases.folder, each)
    ]
    if not before or own.folders(rooms):
        return False
    then, now = store.manifest(phases.folder, before[0]), store.manifest(phases.folder, n)
    room = os.path.join(rooms, str(n))
    own.make(os.path.join(room, RECORDS))
    for number in (before[0], n):
        target = store.folder(room, number)
        own.make(target)
        for name in ("data", "meta", "manifest.json"):
            _same(os.path.join(store.folder(phases.folder, number), name), os.path.join(target, name))
    for name in os.listdir(phases.folder):
        if name.startswith(BEGUN_WITH) and not name.endswith(".new"):
            _same(os.path.join(phases.folder, name), os.path.join(room, name))
    apart_s = max(0.0, now["at"] - then["at"])
    limit_s = SLOWER * (apart_s + more.get("setup_s", 0.0) + more.get("back_s", 0.0)) + START_S
    order = {
        "image": n,
        "from": before[0],
        "step": now["step"],
        "from_step": then["step"],
        "pid": os.getpid(),
        "attempt": phases.attempt,
        "cwd": outcome.started_in(),
        "limit_s": round(limit_s, 1),
    }
    own.write(os.path.join(room, ORDER), json.dumps(order).encode())
    return True


def _same(source: str, target: str) -> None:
    """Another name of a file that is never changed, or a copy of it."""
    with own.Folder(os.path.dirname(source)) as here, own.Folder(os.path.dirname(target)) as there:
        source, target = f"{here}/{os.path.basename(source)}", f"{there}/{os.path.basename(target)}"
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            copies.copy(source, target)

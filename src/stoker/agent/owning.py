"""Whose a run is, where several servers work on one machine: only its owner starts, stops and removes it."""

from __future__ import annotations

import os
import sys
import time

from .reading import parse_json, read_json
from .words import OWNED, Problem, arguments, valid_id
from .writing import say, write_json

asker: list[str] = []  # the id of who asks, from --owner


def owner_of(run_dir: str) -> dict | None:
    """{"id", "hint"} of a run; None where it has no owner."""
    body = read_json(os.path.join(run_dir, OWNED)) or {}
    if not isinstance(body.get("id"), str):
        return None
    return {"id": body["id"], "hint": "".join(c for c in str(body.get("hint") or "") if c.isprintable())[:80]}


def guard(run_dir: str) -> None:
    """Raises Problem for a run of somebody else.

    The error is `not_yours`.
    """
    owner = owner_of(run_dir)
    if asker and owner is not None and owner["id"] != asker[0]:
        raise Problem(
            "not_yours", "%s belongs to %s" % (os.path.basename(run_dir), owner["hint"] or owner["id"])
        )


def verb_adopt(args: list[str]) -> None:
    """adopt ROOT, with {"owner": {"id", "hint"}, "runs": [ID...]} on stdin:
    these runs belong to that owner from now on"""
    (root,), _ = arguments(args, 1, {})
    try:
        body = parse_json(sys.stdin.buffer.read(), {"owner": {"id": str, "hint": str}, "runs": [str]})
        owner = {"id": body["owner"]["id"], "hint": body["owner"]["hint"]}
    except (ValueError, KeyError) as e:
        raise Problem("usage", "%s (%s)" % (verb_adopt.__doc__, e)) from None
    taken = []
    for run_id in body.get("runs") or ():
        run_dir = os.path.join(os.path.abspath(root), "runs", run_id)
        if valid_id(run_id) and os.path.isdir(run_dir) and not os.path.islink(run_dir):
            write_json(
                os.path.join(run_dir, OWNED), dict(owner, at=time.time(), before=owner_of(run_dir)), sync=True
            )
            taken.append(run_id)
    say({"taken": taken})

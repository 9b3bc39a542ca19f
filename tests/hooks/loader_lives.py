"""Plays the lives of a script that reads loaders: a straight one without hooks, a recorded one with an image after each batch, and for each
of those images a life that goes there as a ghost and on from there. What they were given is compared bit by bit.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import marshal
import os
import random
import shutil
import sys
import tempfile
import warnings

import numpy as np
import torch

from stoker.inside.resume.compute import stand_ins
from stoker.inside.resume.core import internals, log, outcome, phases
from stoker.inside.resume.data import loader, loader_state

warnings.filterwarnings("ignore")


class Diverged(BaseException):
    """In place of an exec."""


def told(batch: object) -> str:
    """A word for a batch: its bits."""
    h = hashlib.blake2b(digest_size=8)

    def feed(thing: object) -> None:
        h.update(type(thing).__name__.encode())
        if isinstance(thing, torch.Tensor):
            h.update(repr((tuple(thing.shape), thing.dtype)).encode())
            h.update(thing.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if thing.numel() else b"")
        elif isinstance(thing, dict):
            for k, v in thing.items():
                feed(k), feed(v)
        elif isinstance(thing, (list, tuple)):
            for v in thing:
                feed(v)
        else:
            h.update(repr(thing).encode())
    feed(batch)
    return h.hexdigest()


def begin_life(folder: str, phase: int) -> None:
    random.seed(11)
    np.random.seed(12)
    torch.manual_seed(13)
    loader_state.tracks.clear()
    loader_state.known.clear()
    loader_state._guards.clear()
    loader_state.counts.update(iterators=0, samplers=0)
    stand_ins._ids.clear(), stand_ins._quick.clear(), stand_ins._known.clear()
    outcome.passed.clear()
    outcome.stopped = ""
    phases.phase, phases.depth, phases.folder = phase, 0, folder
    phases.target = phases.resumed = None
    phases.log = log.Log(os.path.join(folder, "log"))


class Lives:
    """All lives of one script."""

    def __init__(self, script: object) -> None:
        self.script = script
        self.folder = tempfile.mkdtemp(prefix="lives")
        self.images: list = []
        self.obstacles: dict = {}

    def straight(self) -> list:
        begin_life(self.folder, phases.OFF)
        return [told(batch) for batch in self.script()]

    def recorded(self) -> list:
        begin_life(self.folder, phases.RECORD)
        phases.log.open()
        given = []
        for batch in self.script():
            given.append(told(batch))
            why = outcome.stopped or loader.obstacle()
            if why:
                self.obstacles[why] = self.obstacles.get(why, 0) + 1
                self.images.append(None)
            else:
                self.images.append((len(phases.log), marshal.dumps(loader.save()), internals.rngs()))
        phases.log.flush()
        phases.phase = phases.OFF
        return given

    def resumed(self, n: int) -> list:
        """What is given behind point n by a life that goes there as a ghost."""
        events, state, rngs = self.images[n]
        begin_life(self.folder, phases.GHOST)
        phases.log.replay(events)
        given = []
        for i, batch in enumerate(self.script()):
            if i == n:
                loader.load(marshal.loads(state))
                internals.set_rngs(rngs)
                phases.phase = phases.TAIL
                if not phases.log.left():
                    phases.log.go_on()
                    phases.phase = phases.RECORD
            if i > n:
                given.append(told(batch))
        phases.phase = phases.OFF
        return given

    def close(self) -> None:
        phases.log.close()
        shutil.rmtree(self.folder)


def play(script: object, points: int) -> dict:
    """`points`: of so many, spread over the script, a life goes on; 0: of all."""
    lives = Lives(script)
    straight = lives.straight()
    result = {"recording changes nothing": straight == lives.recorded(), "batches": len(straight), "obstacles": lives.obstacles, "exact": 0,
              "wrong": [], "diverged": {}}
    good = [n for n, image in enumerate(lives.images) if image is not None]
    chosen = good if not points else good[len(good) // (2 * points)::max(1, len(good) // points)]
    for n in chosen:
        shutil.copy(lives.folder + "/log", lives.folder + "/kept") if n == chosen[0] else shutil.copy(lives.folder + "/kept", lives.folder + "/log")
        try:
            given = lives.resumed(n)
        except Diverged as e:
            result["diverged"][str(e)] = result["diverged"].get(str(e), 0) + 1
            phases.phase = phases.OFF
        else:
            if given == straight[n + 1:]:
                result["exact"] += 1
            else:
                result["wrong"].append(n)
        gc.collect()
    lives.close()
    result["lives"] = len(chosen)
    return result


def main() -> None:
    """`loader_lives.py MODULE POINTS SCRIPT...`: a line of JSON for each script."""
    def diverged(reason: str) -> None:
        raise Diverged(reason)

    outcome.diverged = diverged  # an exec would end the comparison: here it is an exception
    outcome.write_state = lambda **fields: None
    wrong = internals.self_test()
    assert not wrong, wrong
    phases.off_in_children()
    loader.install()
    module = importlib.import_module(sys.argv[1])
    for name in sys.argv[3:]:
        print(json.dumps({"script": name, **play(getattr(module, name), int(sys.argv[2]))}), flush=True)


if __name__ == "__main__":
    main()

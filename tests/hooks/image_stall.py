"""How long an image of 200 MB of state stops a script, beside a plain copy of as many bytes: `python tests/hooks/image_stall.py [MB]`."""

import json
import os
import sys
import tempfile
import time

import torch

from stoker.inside.resume.core import log, phases
from stoker.inside.resume.image import images
from stoker.inside.resume.state import reachability, walk, walk_heap


def plain_copy(size_mb: int) -> float:
    """Seconds to copy as many bytes between buffers that are warm."""
    source = torch.ones(size_mb * (1 << 18))
    target = torch.ones_like(source)
    begun = time.perf_counter()
    target.copy_(source)
    return round(time.perf_counter() - begun, 4)


def main(size_mb: int = 200, rounds: int = 6) -> dict:
    """{"copy_s": [...], "stall_s": [...], "walk_s": [...]}: seconds, one entry a round."""
    walk_heap.baseline()
    count = size_mb * (1 << 20) // 4 // 3 // 16
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(count)) for _ in range(16)])
    optimizer = torch.optim.Adam(model.parameters())
    sum((p * p).sum() for p in model).backward()
    optimizer.step()
    optimizer.zero_grad()
    told = {"copy_s": [], "stall_s": [], "walk_s": []}
    with tempfile.TemporaryDirectory() as folder:
        phases.folder, phases.phase, phases.depth = folder, phases.RECORD, 1
        phases.log = log.Log(os.path.join(folder, "log"))
        phases.log.open()
        seen = walk.Walk().run()
        reachability.know(seen)
        seen.close()
        for _ in range(rounds):
            told["copy_s"].append(plain_copy(size_mb))
            begun = time.perf_counter()
            walk.Walk().run().close()
            told["walk_s"].append(round(time.perf_counter() - begun, 4))
            begun = time.perf_counter()
            assert images.take({})
            told["stall_s"].append(round(time.perf_counter() - begun, 4))
            images.wait()
        phases.log.close()
    return told


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))

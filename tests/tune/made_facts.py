"""Facts as the probe writes them, made by hand: a quiet script of 10 ms a step on two cores, to be changed by each test."""

from __future__ import annotations

import copy

CARD = {"cores": 2.0, "machine_cores": 2, "memory_bytes": 8e9, "memory_free": 4e9, "shm_bytes": 1e9, "files_limit": 1024, "memcpy_gbs": 8.0,
        "matmul": {"float32": 60.0}, "gpu": False, "gpu_names": [], "now": {"who": []}}
SPLIT = {"data": 0.02, "forward": 0.4, "backward": 0.4, "optimizer": 0.15, "other": 0.03}


def window(phase, ms, *, block=1, steps=20, batch=32, split=SPLIT, cpu=0.9, children=0.0, stolen=0.0, **more):
    """A window of so many steps of `ms` each; split: of the clock, by kind."""
    whole = ms * steps
    return {"phase": phase, "block": block, "steps": steps, "samples": batch * steps, "wall_s": whole / 1e3, "cpu_s": cpu * whole / 1e3,
            "children_cpu_s": children * whole / 1e3, "stolen_s": stolen * whole / 1e3,
            "ms": {k: v * whole for k, v in split.items()}, "step_ms": [ms] * steps, **more}


def pairs(phase, ms, base=10.0, *, blocks=2, split=SPLIT, batch=32, grown=1, **more):
    """A B B A: R0, phase, phase, R0, so many times, with a little noise that is always the same."""
    found = []
    for block in range(1, blocks + 1):
        for i, (name, took) in enumerate((("R0", base), (phase, ms), (phase, ms), ("R0", base))):
            noise = 1 + 0.01 * ((i + block) % 3 - 1)
            found.append(window(name, took * noise, block=block, batch=batch * (1 if name == "R0" else grown),
                                split=split if name == "R0" else SPLIT, **(more if name == "R0" else {})))
    return found


def facts(*windows, loader=None, dataset=None, samples=None, **more):
    """Whole facts; loader, dataset, samples: what differs from the usual. loader=False: there is none."""
    made = {
        "version": 1, "ended": "enough", "python": "3.12", "torch": "2.9", "cuda": False, "cores": 2, "threads": 2, "setup_s": 2.0,
        "first_step_s": 0.1, "steps_seen": 400, "ranks": 1,
        "loaders": [{"id": "train.py:40#0", "train": True, "workers": 0, "prefetch": None, "persistent": False, "pin": False, "batch_size": 32,
                     "len": 100, "passes": 2, "pass_steps": 100, "sampler": "RandomSampler", "own_iter": False, "framework": False,
                     "rebuilt": False, "dataset": {"type": "Pictures", "len": 3200, "iterable": False}, "proof": {}}],
        "windows": list(windows) or pairs("R1", 9.8),
        "samples": {"n": 64, "cpu_s": 64 * 5e-6, "wait_s": 0.0, "p50_s": 5e-6, "p90_s": 6e-6, "max_s": 1e-5, "bytes": 4096, "collate_s": 64 * 2e-6,
                    "same": True, "again_s": 64 * 5e-6, "beside_s": 64 * 5e-6},
        "alone": [], "batch": {"size": 32, "bytes": 131072, "padding": 0.0, "dim": 0}, "stacks": {"n": 500, "lines": []},
        "model": {"tensors": 10, "params": 100000, "dtype": "float32", "conv2d": 0, "channels_last": False, "parallel": "", "compiled": False},
        "optimizers": [{"type": "SGD", "tensors": 10, "fused": False, "foreach": False, "share": 0.15}],
        "flags": {}, "memory": [[0, 300 << 20], [1, 310 << 20]], "growth": {"backward": 0.0}, "side_effects": {"network": [], "outside": [], "stdin": False},
    }
    made = copy.deepcopy(made)
    if loader is False:
        made["loaders"] = []
    else:
        made["loaders"][0].update(loader or {})
        made["loaders"][0]["dataset"].update(dataset or {})
    made["samples"].update(samples or {})
    made.update(more)
    return made


def line(call, share, *, number=50, kind="other", file="train.py"):
    """A line of the sampler."""
    return {"file": str(file), "line": number, "call": call, "kind": kind, "share": share, "self": share}

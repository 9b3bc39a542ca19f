"""A witness inside the script's process: at its end it writes hashes of every module, optimizer and tensor that is still alive.

It imports nothing before the end, patches nothing and holds nothing, so no object lives longer because it looks.
"""

import atexit
import os

OUT = os.environ.get("PROBE_OUT", "")
PARENT = int(os.environ.get("PROBE_PARENT", "0"))
DEPTH = 4  # how far containers of the script's own globals are followed


def witness():
    import sys

    torch = sys.modules.get("torch")
    if os.getppid() != PARENT or torch is None:  # a forked child, a subprocess, or a script without torch
        return
    import ctypes
    import gc
    import hashlib
    import json

    def of_tensor(tensor):
        try:
            plain = tensor.detach().cpu().contiguous()
            raw = ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size()) if plain.numel() else b""
        except Exception as error:
            raw = type(error).__name__.encode()
        head = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.requires_grad} "
        return hashlib.sha256(head.encode() + raw).hexdigest()[:16]

    def of(value, depth):
        if isinstance(value, torch.Tensor):
            return of_tensor(value)
        if isinstance(value, torch.nn.Module):
            return {"training": value.training, **{n: of_tensor(t) for n, t in [*value.named_parameters(), *value.named_buffers()]}}
        if isinstance(value, torch.optim.Optimizer):
            params = [p for g in value.param_groups for p in g["params"]]
            plain = [[(k, of(v, 1)) for k, v in sorted(g.items()) if k != "params"] for g in value.param_groups]
            return {"groups": plain, "state": [of(value.state.get(p), 3) for p in params]}
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if depth and isinstance(value, dict):
            return {str(k): of(v, depth - 1) for k, v in value.items() if isinstance(k, (str, int))}
        if depth and isinstance(value, (list, tuple)):
            return [of(v, depth - 1) for v in value]
        if depth and type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
            return of(vars(value), depth - 1)
        return None

    names = vars(sys.modules["__main__"])
    skip = ("__", "t0", "start", "began")
    found = {n: of(v, DEPTH) for n, v in list(names.items()) if not n.startswith(skip)}
    gc.collect()  # what only waits for it is nobody's state, and when it comes is not the same in two lives
    alive = [o for o in gc.get_objects() if issubclass(type(o), (torch.nn.Module, torch.optim.Optimizer))]
    inner = {id(c) for m in alive if isinstance(m, torch.nn.Module) for c in list(m.modules())[1:]}
    others = sorted(json.dumps(of(o, 1), sort_keys=True) for o in alive if id(o) not in inner)
    body = {"names": {k: v for k, v in found.items() if v not in (None, {}, [])},
            "alive": hashlib.sha256("\n".join(others).encode()).hexdigest()[:16] if others else "", "count": len(others)}
    with open(OUT + ".part", "w") as f:
        json.dump(body, f)
    os.replace(OUT + ".part", OUT)


if OUT:
    atexit.register(witness)

"""The machine card: what this machine can do, measured once and kept; and what goes on on it now."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import statistics
import time
from pathlib import Path

from stoker.base.config import Home
from stoker.doctor import gpu, machine, python
from stoker.tune import procs
from stoker.tune.trial import Command

MAX_AGE_S = 30 * 86400.0
CHILD_S = 20.0  # a cold import of torch from a slow disk takes long; the products themselves take a second
FILES, FILE_BYTES, SEQUENTIAL_BYTES = 200, 256 << 10, 64 << 20
COPY_BYTES = 64 << 20
LOOK_S = 0.4  # how long "now" is looked at
FASTER = 1.15  # a bf16 product must be so much faster to count as of use
_MARK = "stoker-card:"

# Runs in the user's interpreter (3.9 on), with the user's torch. Bounded in time: each product is repeated
# until its time is up.
_PROGRAM = r"""
import json, time
import torch
def rate(device, dtype, n, seconds, wait):
    a = torch.randn(n, n, device=device).to(dtype)
    t = time.perf_counter()
    a @ a
    wait()
    first = time.perf_counter() - t
    best, end = None, time.perf_counter() + seconds
    while time.perf_counter() < end or best is None:
        t = time.perf_counter()
        a @ a
        wait()
        took = time.perf_counter() - t
        best = took if best is None or took < best else best
    return 2.0 * n ** 3 / best / 1e9, first * 1e3
out = {"torch": torch.__version__}
def products(device, n, wait):
    found = {}
    for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        try:
            found[name], first = rate(device, dtype, n, 0.2, wait)
            found.setdefault("first_ms", first)
        except Exception:
            pass
    return found
out["matmul"] = dict(products("cpu", 640, lambda: None), threads=torch.get_num_threads())
if torch.cuda.is_available():
    t = time.perf_counter()
    torch.zeros(1, device="cuda").item()
    out["gpu_start_ms"] = (time.perf_counter() - t) * 1e3
    out["gpu_matmul"] = products("cuda", 4096, torch.cuda.synchronize)
print("\nstoker-card:" + json.dumps(out))
"""


def card(where: Home, command: Command) -> dict:
    """The card of this machine with `now` in it;
    measured anew when there is none, it is old, or the machine is another.

    Keys are left out where nothing could be measured:
    `cores` (ours, by affinity and quota), `machine_cores`, `memory_bytes` (that we may use), `shm_bytes`
    (free), `files_limit`, `memcpy_gbs`, `file_us`, `read_mbs` (in the script's folder),
    `matmul` {"float32", "bf16":
    GFLOP/s, "first_ms", "threads"}, `bf16` (is it faster), `gpu`, `gpu_names`, `gpu_matmul`, `torch`,
    `now` (see `now`).
    """
    limits = read_limits(dict(command.env))
    place = where.tune / f"card-{_key(command)}.json"
    kept = _kept(place)
    if kept is None:
        kept = {"at": time.time(), "memcpy_gbs": memcpy_gbs(), **_products(command)}
        with contextlib.suppress(OSError):
            write_private(place, kept)
    return {
        **kept,
        **limits,
        **storage(command.script.parent if command.script else command.folder),
        "now": now(limits["cores"]),
    }


def read_limits(env: dict[str, str]) -> dict:
    """What is simply read: cores, memory, shared memory, open files, GPUs."""
    mine = float(len(os.sched_getaffinity(0)))
    quota = machine.cpu_quota()
    info = _meminfo()
    limit = min(filter(None, (machine.memory_limit(), info.get("MemTotal"))), default=0)
    found: dict = {
        "cores": min(mine, quota) if quota else mine,
        "machine_cores": os.cpu_count() or 1,
        "memory_bytes": limit,
    }
    if "MemAvailable" in info:
        found["memory_free"] = min(info["MemAvailable"], limit or info["MemAvailable"])
    with contextlib.suppress(OSError):
        shm = os.statvfs("/dev/shm")
        found["shm_bytes"] = shm.f_bavail * shm.f_frsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found["files_limit"] = soft if soft != resource.RLIM_INFINITY else 1 << 20
    seen = gpu.gpus(env)
    return found | {"gpu": not seen.none, "gpu_names": list(seen.names) if not seen.none else []}


def memcpy_gbs() -> float:
    """Bytes that one core copies in a second, in 1e9; the best of some."""
    source, target = memoryview(bytearray(COPY_BYTES)), memoryview(bytearray(COPY_BYTES))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        target[:] = source
        best = min(best, time.perf_counter() - began)
    return round(COPY_BYTES / best / 1e9, 2)


def storage(folder: Path) -> dict:
    """Reading as it is in the script's folder: `file_us` for one small file, `read_mbs` for a large one.
    Only what lies there is read."""
    small, large = _files(folder)
    found = {}
    if len(small) >= 5:
        found["file_us"] = round(statistics.median(_open_read(path, FILE_BYTES) for path in small) * 1e6, 1)
    if large is not None:
        size = min(large.stat().st_size, SEQUENTIAL_BYTES)
        found["read_mbs"] = round(size / max(1e-9, _open_read(large, SEQUENTIAL_BYTES)) / 1e6)
    return found


def now(cores: float) -> dict:
    """Who is busy here at this moment: `busy` (share of our cores that others use), `who` [[name, cores]],
    `load1`, `psi_cpu`, `steal`."""
    watch = procs.Watch([])
    time.sleep(LOOK_S)
    load = watch.load()
    who = sorted(
        ((name, round(s / load.wall_s, 2)) for name, s in load.who.items() if s > 0.05 * load.wall_s),
        key=lambda each: -each[1],
    )
    found = {
        "busy": round(min(1.0, load.foreign_s / load.wall_s / cores), 3),
        "who": [list(each) for each in who[:5]],
        "steal": round(load.steal_s / load.wall_s, 3),
    }
    with contextlib.suppress(OSError):
        found["load1"] = os.getloadavg()[0]
    with contextlib.suppress(OSError, ValueError, IndexError):
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        found["psi_cpu"] = float(some.split("avg10=")[1].split()[0]) / 100
    return found


def write_private(place: Path, body: object) -> None:
    """A JSON file that only its owner reads, whole or not at all."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temp = place.with_name(f".{place.name}.{os.getpid()}")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as f:
        json.dump(body, f)
    os.replace(temp, place)


def machine_key() -> str:
    """Tells this machine from another one with the same home folder; the same after a reboot.
    Only files are read."""
    mine, quota = float(len(os.sched_getaffinity(0))), machine.cpu_quota()
    memory = min(filter(None, (machine.memory_limit(), _meminfo().get("MemTotal"))), default=0)
    gpus = sorted(
        _model(path.read_text("utf-8", "replace"), "Model")
        for path in Path("/proc/driver/nvidia/gpus").glob("*/information")
    )
    what = [
        os.uname().nodename,
        min(mine, quota) if quota else mine,
        os.cpu_count(),
        memory >> 28,
        gpus,
        _cpu_model(),
    ]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def _key(command: Command) -> str:
    """A card is of a machine and of a torch: each interpreter brings its own."""
    return hashlib.sha256(f"{machine_key()}\0{command.interpreter}".encode()).hexdigest()[:16]


def _kept(place: Path) -> dict | None:
    try:
        body = json.loads(place.read_bytes())
        return body if 0 <= time.time() - body["at"] < MAX_AGE_S else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _products(command: Command) -> dict:
    """What the user's torch makes of this machine; {} when it has none."""
    if command.interpreter is None:
        return {}
    env = {k: v for k, v in command.env.items() if k not in ("STOKER_HOOKS", procs.MARK)}
    done = python.quiet([command.interpreter, "-c", _PROGRAM], Path("/"), env, CHILD_S)
    if isinstance(done, python.Silence):
        return {}
    for line in done[1].decode("utf-8", "replace").splitlines():
        if line.startswith(_MARK):
            body = json.loads(line.removeprefix(_MARK))
            for table in (body["matmul"], body.get("gpu_matmul") or {}):
                table |= {
                    name: round(table[name], 1) for name in ("float32", "bf16", "first_ms") if name in table
                }
            product = body.get("gpu_matmul") or body["matmul"]
            if "bf16" in product and "float32" in product:
                body["bf16"] = product["bf16"] > FASTER * product["float32"]
            return body
    return {}


def _files(folder: Path) -> tuple[list[Path], Path | None]:
    """Some small files under a folder, chosen by chance, and its largest one of at least 8 MB."""
    small: list[Path] = []
    large, size, seen = None, 8 << 20, 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and name not in ("venv", "node_modules")
        )
        for name in names:
            path, seen = Path(root, name), seen + 1
            with contextlib.suppress(OSError):
                info = path.lstat()
                if path.is_file() and not path.is_symlink() and info.st_size:
                    if info.st_size <= FILE_BYTES:
                        small.append(path)
                    elif info.st_size > size:
                        large, size = path, info.st_size
        if seen > 5000:
            break
    return random.Random(0).sample(small, min(FILES, len(small))), large


def _open_read(path: Path, most: int) -> float:
    began = time.perf_counter()
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as f:
        left = most
        while left > 0 and (got := len(f.read(min(left, 1 << 20)))):
            left -= got
    return time.perf_counter() - began


def _meminfo() -> dict[str, int]:
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    return found


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        return _model(Path("/proc/cpuinfo").read_text("utf-8", "replace"), "model name") or os.uname().machine
    return os.uname().machine


def _model(text: str, key: str) -> str:
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(key)), "")

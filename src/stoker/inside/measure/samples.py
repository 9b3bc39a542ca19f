"""The data by itself: single samples, their collate, two processes at once.
All in forked children, so that no file position, cache or random stream of the script moves;
the script's training stands still meanwhile.

`samples`: `{"n", "cpu_s", "wait_s" (sums over all n, without waits for a core), "p50_s", "p90_s", "max_s",
"bytes", "collate_s", "same" (the same index twice gives the same), "again_s", "beside_s" (of each
process, if two read at once), "apart": false if two processes disturb each other}`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import signal
import sys
import time
import warnings

from .. import scratch
from . import ring

MOST, LEAST = 256, 16  # samples
SAME = 16  # of them compared with themselves
_wall, _cpu = time.perf_counter, time.process_time


def measure(loader: object, seconds: float) -> tuple:
    """(`samples` of the facts, more about the loader: `replay`, `duplicates`, `labels`).
    Missing is not zero."""
    until = time.monotonic() + seconds
    offsets = _offsets()
    more: dict = {}
    try:
        if _is_stream(loader.dataset):
            told = _ask([lambda: _stream(loader, 0.4 * seconds)], until)[0]
            more.update({name: told.pop(name) for name in ("replay",) if name in told})
            if loader.num_workers > 1:
                more["duplicates"] = _duplicates(loader, until)
        else:
            told = _ask([lambda: _single(loader, 0.35 * seconds)], until)[0]
            more["labels"] = told.pop("labels", [])
            marks = told.pop("marks", [])
            if told.get("n"):
                _beside(loader, told, marks, until)
    finally:
        _put_back(offsets)
    if "error" in told:
        more["replay"] = told.pop("error")
    for name in ("indices", "each"):
        told.pop(name, None)
    return {name: value for name, value in told.items() if value is not None}, more


def _is_stream(data: object) -> bool:
    return isinstance(data, sys.modules["torch"].utils.data.IterableDataset)


# ---- in a child

def _single(loader: object, seconds: float) -> dict:
    """Some samples one by one: first time, second time, collate."""
    data = loader.dataset
    _as_worker(loader, 0)
    indices = _indices(loader)
    kept, times, stats = [], [], [0.0, 0.0, 0.0]
    until = _wall() + seconds
    for n, index in enumerate(indices):
        sample, took = _timed(lambda i=index: data[i], stats)
        times.append(took)
        if n < max(SAME, min(4096, loader.batch_size or 1)):
            kept.append(sample)
        if _wall() > (until if n + 1 >= LEAST else until + 2 * seconds):
            break
    n = len(times)
    told = {"n": n, "cpu_s": stats[0], "wait_s": max(0.0, stats[1]), **_spread(times), "indices": indices[:n]}
    told["bytes"] = sum(ring.nbytes(each) for each in kept) / len(kept)
    told["labels"] = [
        [index, _label(sample)]
        for index, sample in zip(indices, kept)  # noqa: B905
        if isinstance(index, int)
    ]
    told["marks"] = [_mark(each) for each in kept[:SAME]]
    again, same, second = 0.0, True, [0.0, 0.0, 0.0]
    until = _wall() + max(0.5 * seconds, 1e-3)
    done = 0
    for index in indices[:n]:
        sample, took = _timed(lambda i=index: data[i], second)
        again, done = again + took, done + 1
        if done <= min(SAME, len(kept)):
            same = same and _mark(sample) == told["marks"][done - 1]
        elif len(told["labels"]) < 64 and isinstance(index, int):
            told["labels"].append([index, _label(sample)])
        if _wall() > until and done >= min(8, n):
            break
    told["same"], told["again_s"] = same, again / done * n
    if callable(getattr(data, "__getitems__", None)) and loader.batch_size:
        _together(loader, data, indices, told, 0.3 * seconds)
    took = _collate(loader, kept, 0.3 * seconds)
    told["collate_s"] = took * n if took is not None else None
    return told


def _together(loader: object, data: object, indices: list, told: dict, seconds: float) -> None:
    """A data set that makes many samples at once does so in training: what one costs there."""
    n, stats, done, until = told["n"], [0.0, 0.0, 0.0], 0, _wall() + seconds
    batch = (indices * (loader.batch_size // len(indices) + 1))[: loader.batch_size]
    while not done or (_wall() < until and done < 20 * len(batch)):
        _timed(lambda: data.__getitems__(list(batch)), stats)
        done += len(batch)
    told["cpu_s"], told["wait_s"] = stats[0] / done * n, max(0.0, stats[1]) / done * n


def _stream(loader: object, seconds: float) -> dict:
    """The first samples of a stream, and whether it can be read again."""
    data = loader.dataset
    _as_worker(loader, 0)
    one = iter(data)
    kept, times, stats = [], [], [0.0, 0.0, 0.0]
    until = _wall() + seconds
    while len(times) < MOST and (_wall() < until or len(times) < LEAST):
        try:
            sample, took = _timed(lambda: next(one), stats)
        except StopIteration:
            break
        times.append(took)
        if len(kept) < max(SAME, loader.batch_size or 1) and len(kept) < 4096:
            kept.append(sample)
    n = len(times)
    if not n:
        return {"replay": "reading the data a second time returns nothing"}
    told = {"n": n, "cpu_s": stats[0], "wait_s": max(0.0, stats[1]), **_spread(times)}
    told["bytes"] = sum(ring.nbytes(each) for each in kept) / len(kept)
    told["replay"] = (
        "the data cannot be read a second time: the data set is its own iterator"
        if one is data
        else _second(data, kept)
    )
    took = _collate(loader, kept, 0.3 * seconds)
    told["collate_s"] = took * n if took is not None else None
    return told


def _second(data: object, kept: list) -> object:
    """True where a second reading begins with something again; else why not."""
    try:
        sample = next(iter(data))
    except StopIteration:
        return "reading the data a second time returns nothing"
    except Exception as e:
        return f"reading the data a second time fails ({type(e).__name__}: {e})"
    return True if sample is not None or kept[0] is None else "reading the data a second time returns nothing"


def _timed(make: object, stats: list) -> tuple:
    """(what was made, s that it took without waits for a core); stats:
    sums of work, waiting, waits for a core."""
    ready = _stood_ready()
    cpu, wall = _cpu(), _wall()
    made = make()
    wall, cpu = _wall() - wall, _cpu() - cpu
    ready = _stood_ready() - ready
    took = max(wall - ready, 0.0)
    stats[0] += cpu
    stats[1] += took - cpu
    stats[2] += ready
    return made, took


_schedstat = -1


def _stood_ready() -> float:
    global _schedstat
    try:
        if _schedstat < 0:
            _schedstat = os.open("/proc/self/schedstat", os.O_RDONLY)
        return int(os.pread(_schedstat, 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _spread(times: list) -> dict:
    ordered = sorted(times)
    last = len(ordered) - 1
    return {"p50_s": ordered[last // 2], "p90_s": ordered[int(last * 0.9)], "max_s": ordered[last]}


def _collate(loader: object, kept: list, seconds: float) -> float | None:
    """s of collate for one sample; None where it fails."""
    size = loader.batch_size
    if size is None:
        batch: object = kept[0]
        size = 1
    else:
        batch = (kept * (size // len(kept) + 1))[:size]
    stats, done, until = [0.0, 0.0, 0.0], 0, _wall() + seconds
    total = 0.0
    try:
        while done < 2 or (_wall() < until and done < 10):
            _, took = _timed(lambda: loader.collate_fn(batch), stats)
            total, done = total + took, done + 1
            if _wall() > until + seconds:
                break
    except Exception:
        return None
    return total / done / size


def _indices(loader: object) -> list:
    """Indices that the loader's sampler might give:
    random ones, where it is one of torch's over all of the data."""
    data, sampler = loader.dataset, loader.sampler
    draw = random.Random(11)
    plain = loader.batch_sampler is None or type(loader.batch_sampler).__name__ == "BatchSampler"
    if plain and type(sampler).__name__ in ("SequentialSampler", "RandomSampler"):
        n = len(data)
        return draw.sample(range(n), min(n, MOST))
    if plain and type(sampler).__name__ == "SubsetRandomSampler":
        return draw.sample([int(i) for i in sampler.indices], min(len(sampler.indices), MOST))
    found: list = []
    for each in loader._index_sampler:
        found += list(each) if isinstance(each, (list, tuple)) else [each]
        if len(found) >= MOST:
            break
    return found[:MOST]


def _as_worker(loader: object, number: int) -> None:
    """As a worker of this loader begins, where it has some."""
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    if not loader.num_workers:
        return
    worker = sys.modules["torch.utils.data._utils.worker"]
    worker._worker_info = worker.WorkerInfo(
        id=number, num_workers=loader.num_workers, seed=number, dataset=loader.dataset
    )
    if loader.worker_init_fn is not None:
        loader.worker_init_fn(number)


def _label(sample: object) -> int | None:
    """The class of a sample, where there seems to be one."""
    if isinstance(sample, dict):
        sample = next(
            (sample[name] for name in ("label", "labels", "target", "y", "class") if name in sample), None
        )
    elif isinstance(sample, (tuple, list)) and len(sample) > 1:
        sample = sample[-1]
    else:
        return None
    if hasattr(sample, "item") and getattr(sample, "shape", None) in ((), None):
        sample = sample.item()
    return sample if isinstance(sample, int) and not isinstance(sample, bool) else None


def _mark(sample: object) -> str:
    """A short name for what is in a sample."""
    digest = hashlib.sha1(usedforsecurity=False)
    torch = sys.modules["torch"]
    for leaf in ring.leaves(sample):
        if isinstance(leaf, torch.Tensor):
            digest.update(repr((leaf.dtype, leaf.shape)).encode())
            if leaf.numel() and leaf.layout is torch.strided:
                digest.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif hasattr(leaf, "tobytes"):
            digest.update(leaf.tobytes())
        elif isinstance(leaf, (str, bytes, int, float, complex, bool, type(None))):
            digest.update(repr(leaf).encode())
        else:
            digest.update(type(leaf).__name__.encode())
    return digest.hexdigest()


# ---- two at once

def _beside(loader: object, told: dict, marks: list, until: float) -> None:
    """The same samples again in one process, and in two at the same time:
    whether they wait for each other."""
    if until - time.monotonic() < 0.2:
        return
    each = max(told["again_s"], told["cpu_s"] + told["wait_s"]) / told["n"]
    n = int(min(told["n"], max(4, 0.15 / max(each, 1e-6))))
    indices = told["indices"][:n]

    def work() -> dict:
        _as_worker(loader, 0)
        data = loader.dataset
        seen = [_mark(data[i]) for i in indices[:SAME]]
        for i in indices[SAME:]:
            data[i]
        stats = [0.0, 0.0, 0.0]
        return {"s": sum(_timed(lambda i=i: data[i], stats)[1] for i in indices), "marks": seen}

    found = _ask([work, work], until)
    took = [one["s"] for one in found if "s" in one]
    if len(took) == 2:
        told["beside_s"] = sum(took) / 2 / n * told["n"]
        told["apart"] = not told.get("same") or all(
            one["marks"] == marks[: len(one["marks"])] for one in found
        )


def _duplicates(loader: object, until: float) -> bool | None:
    """Whether the first two workers of a stream yield the same."""
    def work(number: int) -> dict:
        _as_worker(loader, number)
        found = []
        for sample in loader.dataset:
            found.append(_mark(sample))
            if len(found) == SAME:
                break
        return {"marks": found}

    both = _ask([lambda: work(0), lambda: work(1)], until)
    if not all(one.get("marks") for one in both):
        return None
    one, two = (set(each["marks"]) for each in both)
    return len(one & two) >= 0.5 * min(len(one), len(two)) and len(one) > 1


# ---- children

def _ask(works: list, until: float) -> list:
    """Run each in a child of its own, all at the same time; what they tell. {"error":
    why} for one that failed or was too slow."""
    children = [_fork(work) for work in works]
    answers = [b""] * len(works)
    open_ = {fd: n for n, (_, fd) in enumerate(children)}
    deadline = max(until, time.monotonic() + 0.5) + 1.0
    while open_ and time.monotonic() < deadline:
        for fd in select.select(list(open_), [], [], 0.1)[0]:
            part = os.read(fd, 1 << 16)
            answers[open_[fd]] += part
            if not part:
                del open_[fd]
    for pid, fd in children:
        os.close(fd)
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
        os.waitpid(pid, 0)
    return [_read(answer) for answer in answers]


def _read(answer: bytes) -> dict:
    try:
        return json.loads(answer)
    except ValueError:
        return {"error": "a sample could not be read in a separate process"}


def _fork(work: object) -> tuple:
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    try:
        scratch.hold_all()  # a data set that removes what it has read removes nothing here
        try:
            told = work()
        except BaseException as e:
            told = {"error": f"{type(e).__name__}: {e}"[:300]}
        data = json.dumps(told, default=str).encode()
        while data:
            data = data[os.write(theirs, data):]
    finally:
        os._exit(0)


def _offsets() -> dict:
    """Where files stand: a child shares that with us."""
    found = {}
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("/"):
                    found[int(name)] = os.lseek(int(name), 0, os.SEEK_CUR)
            except OSError:
                continue
    except OSError:
        pass
    return found


def _put_back(offsets: dict) -> None:
    for fd, at in offsets.items():
        try:
            if os.lseek(fd, 0, os.SEEK_CUR) != at:
                os.lseek(fd, at, os.SEEK_SET)
        except OSError:
            continue

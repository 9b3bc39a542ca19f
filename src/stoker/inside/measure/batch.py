"""Batch sizes inside a training script: the same loop is fed batches of other sizes, going up;
of each size, the time of a step and the most memory that training and evaluation took are told.
Which size comes next is said from outside, in the room's file `sizes`.

The loader's batches come from another loader over the same data.
After a size the epoch is cut short, so that the evaluation behind it has its turn.
This process was started for this alone, and may be killed at any moment: every line is written at once.

The order has `batch`: `{"size" (0: the script's), "cap_bytes"}`. Lines of batch.jsonl: `{"size", "began",
"own", "samples", "optimizer", "lr"}` · `{"size", "ms", "peak", "accumulated", "varied"}` · `{"size",
"evaluated": peak}` · `{"size"}` with `oom`, `failed`, `data` or `warm` · `{"asked"}` · `{"cap"}`.
"""

from __future__ import annotations

import dis
import os
import sys
import time
from typing import Any

from ..clock.wrapping import wrap
from ..entry.processes import now
from . import enough, telling

BATCHES, SIZES = "batch.jsonl", "sizes"
# full steps before one is measured: an optimizer makes its state in the first, a compiler is done by then
WARM = 3
STEPS_MIN, SECONDS_MIN, SECONDS_MAX = 6, 1.5, 12.0
EVALUATED = 2  # batches of a loader that trains nothing
UNSTEPPED = 64  # batches without a step: the script passes over what fails
NEXT_S = 30.0  # so long the next size is waited for
LOOKED_AT, LOOKED_S = 256, 1.0  # samples whose length is looked at, and how long
NOT_ENOUGH = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "could not create a memory object",
    "killed by signal",
    "shared memory",
)


def begin(torch: Any, order: dict, room: str) -> None:
    """torch has just been imported by a script whose batch is to be tried."""
    from torch.optim import optimizer
    from torch.utils.data import dataloader
    probe = Probe(torch, order, room)

    def iterate(real: Any) -> Any:
        def __iter__(self: Any) -> Any:
            made: list = []
            if not probe.inside:
                probe.fenced(probe.feed, self, real, made)
            return made[0] if made else real(self)
        return __iter__

    def backward(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            probe.fenced(probe.trained_on)
            try:
                return real(*args, **kwargs)
            except (MemoryError, RuntimeError) as e:
                probe.fenced(probe.no_memory, e)
                raise
        return call
    wrap(dataloader.DataLoader, "__iter__", iterate)
    wrap(torch.autograd, "backward", backward)
    optimizer.register_optimizer_step_post_hook(lambda opt, args, kwargs: probe.fenced(probe.step, opt))
    _last_to_be_kept()


def _last_to_be_kept() -> None:
    """Should memory run out, the kernel takes this process and no other."""
    try:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")
    except OSError:
        pass


class _Feed:
    """What a script's loop gets instead of its loader's iterator."""

    def __init__(self, probe: Probe, loader: Any, real: Any) -> None:
        self._probe, self._loader, self._real = probe, loader, real
        self._inner: Any = None
        self._size, self.own = 0, loader.batch_size
        self.given = 0
        self.ended = False  # its epoch

    def __iter__(self) -> _Feed:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        return self._probe.next_of(self, _is_loop(sys._getframe(1)))

    def fetch(self, size: int, again: bool) -> Any:
        """The next batch of `size` samples; with `again` there is always one."""
        if self._inner is None or size != self._size:
            self._inner, self._size = self._iterator(size), size
        try:
            return next(self._inner)
        except StopIteration:
            if not again:
                self.ended = True
                raise
        self._inner = self._iterator(size)
        try:
            return next(self._inner)
        except StopIteration:
            self.ended = True
            self._probe.fenced(self._probe.no_batch, size)
            raise

    def _iterator(self, size: int, indices: list | None = None) -> Any:
        self._inner = None  # workers of the old one end before new ones come
        self._probe.inside = True
        try:
            return self._real(
                self._loader if size == self.own and not indices else resized(self._loader, size, indices)
            )
        finally:
            self._probe.inside = False

    def longest(self, size: int) -> Any:
        """A batch of the longest samples; None where all are equally long."""
        indices = _longest(self._loader, size)
        return next(self._iterator(size, indices)) if indices else None

    @property
    def loader(self) -> Any:
        return self._loader


class Probe:
    """The state of this process."""

    def __init__(self, torch: Any, order: dict, room: str) -> None:
        self.torch, self.room = torch, room
        self.cap = int((order.get("batch") or {}).get("cap_bytes") or 0)
        self.first = int((order.get("batch") or {}).get("size") or 0)  # 0: the script's own
        self.on, self.inside = True, False
        self.size = 0  # that is being measured; 0: none yet
        self.own = 0
        self._data: Any = None  # the dataset that is trained on
        self._last: _Feed | None = None
        self._given: _Feed | None = None  # the last one that was asked, be it to evaluate
        self._lead: Any = None
        self._lr: float | None = None  # of its first step
        self._why_not = ""
        self._steps = self._in_size = self._fetched = self._unstepped = self._sizes_read = 0
        self._times: list = []
        self._at = self._delay = self._began = 0
        self._cut = self._evaluating = self._longest_due = self._varied = False
        self._taken: bool | None = None
        telling.begin(room, "batch")

    def fenced(self, what: Any, *args: Any) -> None:
        """A fault of ours ends the probe, not the script."""
        if self.on:
            enough.fenced("batch", self._give_up, what, *args)

    def _give_up(self) -> None:
        self.on = False

    # ---- loaders

    def feed(self, loader: Any, real: Any, made: list) -> None:
        """An iterator of ours for the script, into `made`, where batches can have another size."""
        why = unfit(loader, self.torch)
        self._why_not = self._why_not or why
        if not why:
            made.append(_Feed(self, loader, real))

    def next_of(self, feed: _Feed, loops: bool) -> Any:
        """The next batch for the script. loops: it asks in a `for`, so that an epoch may end."""
        plan: list = []
        self.fenced(self._choose, feed, loops, plan)
        size, again = plan[0] if plan else (feed.own, False)
        if not size:
            feed.ended = True
            raise StopIteration
        if self._longest_due and self._last is feed and self.on:
            self._longest_due = False
            batch = feed.longest(size)
            self._varied = batch is not None
            if batch is not None:
                return batch
        return feed.fetch(size, again)

    def _choose(self, feed: _Feed, loops: bool, plan: list) -> None:
        """What `feed` gives next, into `plan`: how many samples (0:
        its epoch ends), and whether there is always a further batch."""
        self._given = feed
        if self._data is not None and feed.loader.dataset is not self._data:
            feed.given += 1
            ends = feed.given > EVALUATED and loops
            plan.append(
                (0 if ends else self.size if feed.own == self.own and self.size else feed.own, not loops)
            )
            return
        if self._cut:
            self._cut = False
            if loops:
                plan.append((0, False))
                return
        if self._data is not None and (self._evaluating or not self.size):
            self._next_size(feed)
        if self._last is None and self.torch.is_grad_enabled():
            telling.line(BATCHES, asked=feed.own)  # should not even that fit
        self._last = feed
        self._unstepped += 1
        if self.size and self._unstepped > UNSTEPPED:
            telling.line(
                BATCHES, size=self.size, failed=f"the script made no optimizer step in {UNSTEPPED} batches"
            )
            enough.reached()
        self._fetched += 1
        plan.append((self.size or self.first or feed.own, self._data is not None))

    def trained_on(self) -> None:
        """A backward: what was fetched last is trained on.
        A script may make its dataset anew for each epoch."""
        given, last = self._given, self._last
        if self._data is None and last is not None:
            self._data, self.own = last.loader.dataset, last.own
        elif (
            given is not None
            and last is not None
            and given is not last
            and last.ended
            and given.own == self.own
        ):
            self._data, self._last = given.loader.dataset, given

    def no_batch(self, size: int) -> None:
        """A whole pass has given none: a stream, whose length nobody knows, is shorter than one batch."""
        telling.line(BATCHES, size=size, failed="the data set has too few samples for a batch of this size")
        enough.reached()

    # ---- sizes

    def _next_size(self, feed: _Feed) -> None:
        if self._evaluating:
            telling.line(BATCHES, size=self.size, evaluated=self._peak())
            self._evaluating = False
        size = self._read_size() if self.size else self.first or self.own
        count = _count(feed.loader)
        if count is not None and size > count:
            telling.line(BATCHES, size=size, data=count)
            enough.reached()
        if not self.size:
            self._limit()
        self.size, self._in_size, self._times = size, 0, []
        self._longest_due = True
        self._unstepped = 0
        telling.line(
            BATCHES,
            size=size,
            began=True,
            own=self.own,
            samples=count,
            optimizer=type(self._lead).__name__,
            lr=self._lr,
            momentum=_momentum(self._lead),
        )
        telling.progress(f"batch of {size}")
        self._reset_peak()

    def _read_size(self) -> int:
        """The next one from outside. Nobody says one: there is no more to do."""
        path, until = os.path.join(self.room, SIZES), now() + NEXT_S * 1e9
        while now() < until:
            try:
                with open(path) as f:
                    lines = f.read().split("\n")[:-1]
            except OSError:
                lines = []
            if len(lines) > self._sizes_read:
                self._sizes_read += 1
                size = int(lines[self._sizes_read - 1])
                if size > 0:
                    return size
                break
            time.sleep(0.01)
        enough.reached()
        return 0

    def step(self, optimizer: Any) -> None:
        """An optimizer has made a step."""
        if self._taken is None:
            self._taken = self.on = telling.take(self.room)
            if not self._taken:
                return
            import atexit
            atexit.register(self._at_end)
        if self._lead is None:
            self._lead, self._lr = optimizer, _rate(optimizer)
        if optimizer is not self._lead:
            return
        self._steps += 1
        self._unstepped = 0
        telling.step(self._steps)
        if not self.size:
            if self._data is None and self._steps >= WARM:
                enough.reached(refused=self._why_not or "no_loader")
            return
        if self._evaluating:
            return
        self._in_size += 1
        self._measure()

    def _measure(self) -> None:
        moment, delay = now(), _run_delay()
        if self._in_size > WARM:
            self._times.append(max(1, moment - self._at - (delay - self._delay)))
        elif self._in_size == WARM:
            self._fetched = 0
            # what the last size held was there beside this one's; the longest samples come in the first step
            if not self._varied:
                self._reset_peak()
                telling.line(BATCHES, size=self.size, warm=True)
            if self._cuda():
                self.torch.cuda.synchronize()
                moment = now()
            self._began = moment
        self._at, self._delay = moment, delay
        seconds = (moment - self._began) / 1e9
        if len(self._times) < STEPS_MIN and (len(self._times) < 2 or seconds < SECONDS_MAX):
            return
        if seconds < SECONDS_MIN:
            return
        self._tell_size()

    def _tell_size(self) -> None:
        times = sorted(self._times)
        ms = times[len(times) // 2] / 1e6
        more = {}
        if self._cuda():
            self.torch.cuda.synchronize()
            ms = (now() - self._began) / 1e6 / len(times)
            stats = self.torch.cuda.memory_stats()
            more = {
                "reserved": self.torch.cuda.max_memory_reserved(),
                "retries": stats.get("num_alloc_retries", 0),
                "cuda": True,
            }
        fetches = max(1, round(self._fetched / len(times)))
        telling.line(
            BATCHES,
            size=self.size,
            ms=ms / fetches,
            steps=len(times),
            accumulated=fetches,
            peak=self._peak(),
            varied=self._varied,
            **more,
        )
        self._cut = self._evaluating = True

    def _at_end(self) -> None:
        if self._evaluating:
            telling.line(BATCHES, size=self.size, evaluated=self._peak())

    def no_memory(self, error: BaseException) -> None:
        """Told at once: the script may have an answer of its own to it."""
        if isinstance(error, MemoryError) or any(word in str(error).lower() for word in NOT_ENOUGH):
            telling.line(BATCHES, size=self.size or self.first, oom=str(error)[:200])
            enough.reached()

    # ---- memory

    def _cuda(self) -> bool:
        return bool(self.torch.cuda.is_available() and self.torch.cuda.is_initialized())

    def _limit(self) -> None:
        """What this process may take. On a GPU the neighbours keep theirs."""
        if self._cuda():
            free, total = self.torch.cuda.mem_get_info()
            mine = self.torch.cuda.memory_reserved()
            cap = min(self.cap or total, int(0.95 * (free + mine)))
            self.torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total))
            telling.line(BATCHES, cap=cap)
        elif self.cap:
            import resource
            data, resident = _status("VmData"), _status("VmRSS")
            limit = data + max(0, self.cap - resident)
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))

    def _reset_peak(self) -> None:
        if self._cuda():
            self.torch.cuda.reset_peak_memory_stats()
            return
        try:
            with open("/proc/self/clear_refs", "w") as f:
                f.write("5")
        except OSError:
            pass

    def _peak(self) -> int:
        if self._cuda():
            return int(self.torch.cuda.max_memory_allocated())
        return _status("VmHWM")  # with what its workers hold, it is seen from outside


# ---- loaders of another size

def unfit(loader: Any, torch: Any) -> str:
    """Why the batches of this loader cannot have another size; "" if they can."""
    from torch.utils.data import BatchSampler
    if loader.batch_size is None and loader.batch_sampler is None:
        return "the dataset builds the batches itself"
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return "the loader uses a custom batch sampler"
    return "" if loader.batch_size else "the dataset builds the batches itself"


def resized(loader: Any, size: int, indices: list | None = None) -> Any:
    """A loader over the same data with batches of `size`; with `indices`, one batch of these samples."""
    from torch.utils.data import DataLoader
    workers = loader.num_workers
    ways: dict = {
        "num_workers": workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
    }
    if workers:
        ways.update(
            prefetch_factor=loader.prefetch_factor, multiprocessing_context=loader.multiprocessing_context
        )
    if indices:
        return DataLoader(
            loader.dataset,
            batch_sampler=[indices],
            **{**ways, "num_workers": 0, "timeout": 0} if not workers else ways,
        )
    if _is_stream(loader):
        return DataLoader(loader.dataset, batch_size=size, drop_last=True, **ways)
    return DataLoader(loader.dataset, batch_size=size, sampler=loader.sampler, drop_last=True, **ways)


def _is_stream(loader: Any) -> bool:
    """Whether its samples have no numbers to ask for (its batch sampler then counts without end)."""
    from torch.utils.data import IterableDataset
    return isinstance(loader.dataset, IterableDataset)


def _count(loader: Any) -> int | None:
    if _is_stream(loader):
        return None
    try:
        return len(loader.sampler)
    except TypeError:
        return None


def _longest(loader: Any, size: int) -> list | None:
    """Indices of the longest of some samples, `size` of them; None where they do not differ."""
    if _is_stream(loader):
        return None
    until, lengths = now() + LOOKED_S * 1e9, []
    for n, index in enumerate(loader.sampler):
        if n >= LOOKED_AT or now() > until:
            break
        lengths.append((_elements(loader.dataset[index], 0), n, index))
    if len(lengths) < 2 or len({length for length, _, _ in lengths}) == 1:
        return None
    order = [index for _, _, index in sorted(lengths, reverse=True)]
    return [order[n % len(order)] for n in range(size)]


def _elements(value: Any, depth: int) -> int:
    if hasattr(value, "numel"):
        return int(value.numel())
    if hasattr(value, "size") and isinstance(value.size, int):  # numpy
        return value.size
    if isinstance(value, (str, bytes)):
        return len(value)
    if depth > 3:
        return 0
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return (
            len(value)
            if value and isinstance(value[0], (int, float))
            else sum(_elements(each, depth + 1) for each in value)
        )
    return 0


def _is_loop(frame: Any) -> bool:
    """Is the caller a `for`, which takes the end of a loader as the end
    of an epoch? A next() might not expect it."""
    return frame.f_lasti >= 0 and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(
        ("FOR_ITER", "FOR_LOOP")
    )


def _rate(optimizer: Any) -> float | None:
    """The one that a schedule goes by, not that of this moment."""
    try:
        group = optimizer.param_groups[0]
        return float(group.get("max_lr", group.get("initial_lr", group["lr"])))
    except Exception:  # an optimizer of the user's own
        return None


def _momentum(optimizer: Any) -> float | None:
    try:
        return float(optimizer.param_groups[0].get("momentum", 0.0))
    except Exception:
        return None


# ---- /proc

def _status(field: str) -> int:
    """Bytes of a field in /proc/self/status."""
    try:
        with open("/proc/self/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def _run_delay() -> int:
    """ns for which this thread stood ready and others had the core."""
    try:
        with open(f"/proc/self/task/{_thread_id()}/schedstat") as f:
            return int(f.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _thread_id() -> int:
    import threading
    return threading.get_native_id()

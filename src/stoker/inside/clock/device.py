"""The same marks on a GPU's own clock: events that are recorded on the stream as the host passes, and read
when they are long past.
Nothing here waits for the GPU; what is not known yet when a line is written goes into a later one.
"""

from __future__ import annotations

import sys

from . import marks

POOL_MAX = 4096  # events on their way; a GPU that is further behind goes unobserved
# what lies before the mark: batch, module, backward, its end, step's end
NAMES = ("gap", "transfer", "forward", "backward", "optimizer")
BATCH, MODULE, BACKWARD, BACKWARD_END, STEP_END = range(5)


class Device:
    """Marks on the current stream. `make_event` gives objects with `record()`, `query()` and
    `elapsed_time(other)` in ms."""

    def __init__(self, make_event: object) -> None:
        self._make, self._free, self._waiting = make_event, [], []
        self._previous = None  # (kind, event) of the last mark that was read
        self._kind = STEP_END  # of the last mark that was made
        self._ms = [0.0] * len(NAMES)
        self._dropped = 0

    def begins(self) -> None:
        """A batch is there, or where there is no loader, the module is about to be called."""
        if self._kind == STEP_END:
            self._mark(BATCH)

    def forward_begins(self) -> None:
        """The first module after a batch."""
        if self._kind == BATCH:
            self._mark(MODULE)

    def backward_begins(self) -> None:
        self._mark(BACKWARD)

    def backward_ends(self) -> None:
        self._mark(BACKWARD_END)

    def step_ends(self) -> None:
        self._mark(STEP_END)

    def collect(self) -> dict:
        """`{"gpu_ms": {...}}` of the marks that the GPU has passed since it was last asked.
        `gap` is its wait for the next batch."""
        self._read()
        told = {name: round(ms, 4) for name, ms in zip(NAMES, self._ms) if ms}  # noqa: B905
        self._ms = [0.0] * len(NAMES)
        body = {"gpu_ms": told} if told else {}
        if self._dropped:
            body["gpu_dropped"], self._dropped = self._dropped, 0
        return body

    def _mark(self, kind: int) -> None:
        self._kind = kind
        if len(self._waiting) >= POOL_MAX:
            self._dropped += 1
            return
        event = self._free.pop() if self._free else self._make()
        event.record()
        self._waiting.append((kind, event))
        if len(self._waiting) >= POOL_MAX // 2:
            self._read()

    def _read(self) -> None:
        done = 0
        for kind, event in self._waiting:
            if not event.query():
                break
            if self._previous is not None:
                self._ms[kind] += self._previous[1].elapsed_time(event)
                self._free.append(self._previous[1])
            self._previous = (kind, event)
            done += 1
        del self._waiting[:done]


def look() -> None:
    """If the script has begun to use CUDA, observe it from now on."""
    torch = sys.modules["torch"]
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return
    marks.device = Device(lambda: torch.cuda.Event(enable_timing=True))
    from .timed import timed_outside
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, timed_outside(getattr(torch.Tensor, name), marks.TRANSFER))

"""The folder of a run: choose and claim it, read it, save into it at the right moments, mark it finished."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic

import torch

from stoker.base.errors import StokerError
from stoker.base.rundir import ATTEMPTS, ENGINE, read_json, write_json
from stoker.engine import checkpoint, place
from stoker.engine.config import Config, every
from stoker.engine.dist import World
from stoker.engine.errors import StateError
from stoker.engine.progress import Pulse, say
from stoker.engine.writer import Writer

YES = ("1", "yes", "true")


def wanted(name: str) -> bool:
    """True if the environment variable asks for this."""
    return os.environ.get(name, "").lower() in YES


class Keeper:
    """One per Engine. Rank 0 decides and writes; the other ranks get its decisions."""

    def __init__(self, config: Config, world: World) -> None:
        self.config = config
        self.world = world
        self.every = every(config.save)
        self.saved: checkpoint.Saved | None = None
        self.root = Path()
        self.said: list[str] = []  # sentences for the start line
        self.extending = False
        self.code_changed = False
        self.pulse: Pulse | None = None
        self.best: dict | None = None  # {"score", "step"}
        self.score: float | None = None  # of the save that is wanted
        self.wish = False
        self.off = False  # nothing is saved from here on
        self._writer: Writer | None = None
        self._last_step = 0
        self._last_time = monotonic()
        self._last_epochs = 0

    def open(self) -> None:
        """Choose and claim the folder, and read its newest complete checkpoint.
        Every rank raises the error of rank 0."""
        answer: dict = {}
        if self.world.rank == 0:
            try:
                answer = {"root": str(self._choose())}
            except StokerError as e:
                self.world.share({"error": e.message, "hint": e.hint})
                raise
        answer = self.world.share(answer)
        if "error" in answer:
            raise StateError(answer["error"], hint=answer["hint"])
        self.root = Path(answer["root"])
        if self.world.rank:
            self.saved, _ = checkpoint.newest(self.root)
        if self.world.share(self.saved and self.saved.step) != (self.saved and self.saved.step):
            raise StateError(f"The ranks read different checkpoints from {self.root}.",
                             hint="All ranks need the same folder on a shared disk.")
        self.best = self.saved.doc["best"] if self.saved else None
        self._last_step = self.saved.step if self.saved else 0
        self._last_time = monotonic()
        self._writer = Writer(self.root, self._prune)

    def _choose(self) -> Path:
        self.extending = wanted("STOKER_EXTEND")
        root, said, after = place.choose(
            place.folder(self.config.folder), self.extending, wanted("STOKER_FRESH")
        )
        place.claim(root)
        self.said += [said] if said else []
        left = checkpoint.remove_unfinished(root)
        self.said += [f"{left} unfinished save{'s were' if left > 1 else ' was'} removed"] if left else []
        self.saved, skipped = checkpoint.newest(root)
        checkpoint.correct_latest(self.saved)
        self.said += skipped
        self.extending = self.extending and place.finished(root)
        self._compare_code(root)
        self.pulse = Pulse(root)
        starts = (read_json(root / place.RUN) or {}).get("starts", 0) + 1
        place.mark(root, finished=False, script=str(place.main_file() or ""), starts=starts, after=after)
        return root

    def _compare_code(self, root: Path) -> None:
        """Raises StateError if the code changed and nobody has said what that means."""
        if self.saved is None:
            return
        self.code_changed = place.code_changed(place.main_file(), self.saved.doc["made"]["code"])
        told = self.extending or wanted("STOKER_RESUME") or int(os.environ.get("STOKER_ATTEMPT") or 1) > 1
        if not self.code_changed or told:
            return
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
            sys.stderr.write(
                f"stoker: the code changed since step {self.saved.step:,} of {root}. "
                "Resume with the new code? [y/N] "
            )
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() in ("y", "yes"):
                return
        raise StateError(
            f"{root} holds an unfinished run (step {self.saved.step:,}), and the code changed after this "
            "step.",
            hint=(
                "STOKER_RESUME=1 resumes with the new code; STOKER_FRESH=1 starts from scratch and renames "
                "the folder."
            ),
        )

    def want(self, score: float | None) -> None:
        """Request a save at the next boundary."""
        self.wish = True
        self.score = score if self.score is None or (score is not None and score > self.score) else self.score

    def due(self, step: int, epochs: int) -> bool:
        """True if a save is due."""
        if self.off:
            return False
        if self.wish:
            return True
        if self.every.steps:
            return step - self._last_step >= self.every.steps
        if self.every.epochs:
            return epochs - self._last_epochs >= self.every.epochs
        return monotonic() - self._last_time >= self.every.seconds

    def save(self, doc: dict, tensors: dict[str, torch.Tensor], epochs: int, wait: bool) -> None:
        """Write a checkpoint: in the background, or at once.
        A failed write is printed, and raised if `wait` is true."""
        if self.off:
            return
        if self.score is not None and (self.best is None or self.score > self.best["score"]):
            self.best = {"score": self.score, "step": doc["step"]}
        self.wish, self.score = False, None
        self._last_step, self._last_epochs = doc["step"], epochs
        if self.world.rank == 0:
            self._tell_failure()
            try:
                self._writing().save({**doc, "best": self.best}, tensors, wait)
            except OSError as e:
                raise StateError(
                    (
                        f"The checkpoint of step {doc['step']:,} could not be written to {self.root} "
                        f"({e.strerror or e})."
                    ),
                    hint="Older checkpoints are intact. Free disk space, then start the same command again.",
                ) from e
        self._last_time = monotonic()

    def need_space(self, tensors: dict[str, torch.Tensor]) -> None:
        """Raises StateError if two checkpoints would not fit on the disk."""
        needed = 2 * sum(t.numel() * t.element_size() for t in tensors.values())
        if self.world.rank == 0 and place.free_bytes(self.root) < needed:
            free = place.free_bytes(self.root)
            raise StateError(
                f"{self.root} has {free / 1e9:.2f} GB free; two checkpoints need {needed / 1e9:.2f} GB.",
                hint="Free disk space, or use a folder on another disk: Engine(folder=...).",
            )

    def wait(self) -> None:
        """Wait until no save is in progress."""
        if self._writer is not None:
            self._writer.wait()
            self._tell_failure()

    def _writing(self) -> Writer:
        assert self._writer is not None  # rank 0, after `open`
        return self._writer

    def _tell_failure(self) -> None:
        writer = self._writing()
        writer.wait()
        if writer.failed:
            say(
                f"a checkpoint could not be written ({writer.failed.strerror}); "
                "the training continues, older checkpoints are intact"
            )
            writer.failed = None

    def _prune(self) -> None:
        checkpoint.prune(self.root, self.config.keep_last, self.best["step"] if self.best else None)

    def finish(self) -> None:
        """Mark the run as finished."""
        if self.world.rank == 0:
            place.mark(self.root, finished=True)

    def note(self, **facts: object) -> None:
        """Tell `stoker show` about the engine of this attempt."""
        folder, attempt = os.environ.get("STOKER_RUN_DIR"), os.environ.get("STOKER_ATTEMPT")
        if self.world.rank == 0 and folder and attempt:
            path = Path(folder) / ATTEMPTS / attempt / ENGINE
            write_json(path, {**(read_json(path) or {}), **facts})

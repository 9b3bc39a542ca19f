"""The parts of an `Engine`, and the services for its loops:
when to save, where to continue, what to print."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, time
from types import FrameType

import torch
from torch import nn
from torch.optim import Optimizer

from stoker.base.rundir import write_whole
from stoker.engine import checkpoint, dist, grade, metrics, place, precision, seeds, workers
from stoker.engine.ahead import Ahead
from stoker.engine.carried import carried
from stoker.engine.config import Config
from stoker.engine.data import Micro, move
from stoker.engine.ending import Exit, Signals
from stoker.engine.errors import StateError
from stoker.engine.gradients import Gradients
from stoker.engine.keeper import Keeper
from stoker.engine.loops import DONE, Batches, Epochs, Loop, Position
from stoker.engine.objects import Objects
from stoker.engine.progress import Progress, Spent, say
from stoker.engine.state import KeptValue

MOST_BACK = 3  # times to the same checkpoint
_open: dict[str, Core] = {}  # by folder: a notebook cell that runs again takes over from the Engine before it
HERE = os.path.dirname(os.path.dirname(__file__))


class Core:
    """The state of one training. Public names are for the other files of this room."""

    def __init__(self, config: Config) -> None:
        self.config = config
        stop_recording()
        self.device = dist.device_of(config.device)
        self.world = dist.join(self.device)
        self.seed_all = seeds.seeder(self.device)
        self.moves = self.device.type != "cpu"
        self.keeper = Keeper(config, self.world)
        self.objects = Objects(self.device)
        self.position = Position(None, None)
        self.signals = Signals()
        self.exit = Exit()
        self.spent = Spent()
        self.progress = Progress(self.world.rank == 0)
        self.metrics: metrics.Metrics | None = None
        self.precision = precision.Precision(self.device)
        self.gradients = Gradients(self.world, self.precision, config.clip, config.nan)
        self.gradients.names = self.objects.parameter_names
        self.micro: Micro | None = None
        self.window = config.accumulate * self.world.size
        self.evaluating = 0
        self.resuming = False
        self.opened = False
        self.announced = False
        self.moved = False
        self.steps = 0
        self.samples = 0
        self.epoch = 0
        self.epochs_done = 0
        self._batch_size: int | None = None
        self._agreed: list[float] = [0.0, 0.0]
        self._totals: dict[str, int] = {}
        self._looked_at: set[tuple[str, int]] = set()
        self._told: set[str] = set()
        self._doubts: list[tuple[str, str]] = []
        self._went_back: dict[int, int] = {}  # step of a checkpoint -> times
        self.trained = False  # in the loop over batches that runs
        self.before_save: list[Callable[[], None]] = []
        self.seed_all(seeds.mix(seeds.key(config.seed), 0))
        self.open()

    # the start

    def open(self) -> None:
        """Find the folder and its checkpoints,
        and take over the settings that the run froze at its first start."""
        if self.config.folder is not None:
            for root in place.family(Path(self.config.folder), list(_open)):
                _open[root].shut(True)
        self.keeper.open()
        _open[str(self.keeper.root.resolve())] = self
        saved = self.keeper.saved
        made = saved.doc["made"] if saved else {}
        self._threads(made)
        self._choose_precision(made)
        if made.get("accumulate") == self.config.accumulate and made["window"] != self.window:
            self.window = made["window"]
            if self.window < self.world.size:
                raise StateError(
                    (
                        f"The run started with {self.window} micro-batches per step. Each rank needs at "
                        f"least one micro-batch, so {self.world.size} ranks are too many."
                    ),
                    hint=f"Use at most {self.window} ranks.",
                )
        if saved:
            self.resuming = True
            self.position = Position(saved.doc["position"], saved.doc["at"])
            self._totals = dict(saved.doc["totals"])
            self.precision.load_state_dict(saved.doc["precision"])
        if self.world.rank == 0:
            self.metrics = metrics.opened(
                self.keeper.root, saved.doc["metrics"] if saved else None, self.config.sinks
            )
        atexit.register(self.close)

    def _threads(self, made: dict) -> None:
        """As many threads as cores are ours, shared by the ranks here;
        a resumed run keeps its number, which can change bits."""
        if "threads" in made:
            torch.set_num_threads(made["threads"])
        elif "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(
                max(1, min(torch.get_num_threads(), grade.cores() // self.world.local_size))
            )

    def _choose_precision(self, made: dict) -> None:
        name = self.config.precision
        if name == "auto":
            name, why = (
                (made["precision"], "the same as at the first start of the run")
                if made.get("precision")
                else precision.choose(self.device)
            )
            self.keeper.said.append(f'precision="auto" chose {name}: {why}')
        self.precision = self.gradients.precision = precision.precision(name, self.device)

    def prepare(self, model: nn.Module, compiled: bool) -> None:
        """Take a model: move it to the device, with the same values on every rank."""
        model.to(self.device)
        self.world.same_everywhere([*model.parameters(), *model.buffers()])
        self.gradients.buffers += list(model.buffers())
        self.precision.prepare(model, compiled)
        if compiled:
            model.compile()

    def remember(self, things: tuple[object, ...]) -> None:
        """Register the objects of `setup`; restore them if the run resumes."""
        names = self.objects.add(things)
        self.objects.measure_schedules(self.window)
        if self.resuming:
            saved = self._saved()
            self.objects.restore(saved.doc, saved.tensors, names)

    def kept_value(self, name: str, value: object) -> object:
        """The value that `keep` returns."""
        held = self.objects.kept.get(name)
        if held is None:
            held = self.objects.kept[name] = KeptValue(name, value)
        if not self.resuming:
            held.value = value
            return value
        held.value = value
        saved = self._saved()
        kept = self.objects.kept_of(saved.doc, saved.tensors, self.world.rank)
        if name in kept:
            held.restore(kept[name])
        return held.value

    def _saved(self) -> checkpoint.Saved:
        """The checkpoint that the run resumes from."""
        assert self.keeper.saved is not None  # `open` sets it with `resuming`, `arrive` clears both
        return self.keeper.saved

    # what the loops ask for

    def before_loop(self, loop: Loop) -> None:
        """Once per start: print how the run starts.
        At the first training loop of a new run, save the initial state."""
        if self.announced or self.evaluating:
            self._look_for_carried()
            return
        self.announced = True
        if self.keeper.saved is None:
            body = self._collect(loop, 0)
            self.keeper.need_space(body[1])
            self.keeper.save(*body, 0, wait=True)
        self._announce(self._look_for_carried(quietly=True))

    def extends(self, loop: Epochs) -> bool:
        """STOKER_EXTEND asks a finished loop for more epochs: continue where the loop ended."""
        before = self._totals.get(loop.key, 0)
        if not self.keeper.extending or loop.total <= before:
            return False
        loop.spot.item = before
        rates = ", ".join(
            f"{group['lr']:.3g}" for optimizer in self.objects.optimizers for group in optimizer.param_groups
        )
        say(
            f"the run continues after epoch {before}, up to epoch {loop.total}. Learning rate now: {rates}; "
            "schedules continue unchanged"
        )
        return True

    def arrive(self) -> None:
        """The position of the checkpoint is reached:
        restore the state, whatever the code before the loop did."""
        saved = self._saved()
        self.objects.restore_all(saved.doc, saved.tensors)
        for name, value in self.objects.kept_of(saved.doc, saved.tensors, self.world.rank).items():
            if name in self.objects.kept:
                self.objects.kept[name].restore(value)
        self.precision.load_state_dict(saved.doc["precision"])
        self.steps, self.samples, self.epochs_done = (
            saved.step,
            saved.doc["samples"],
            saved.doc["epochs_done"],
        )
        self.spent = Spent(**saved.doc["spent"])
        self.progress.epoch_begins(self.samples, self.spent)
        self.resuming = False
        self.keeper.saved = None

    def begin_epoch(self, loop: Epochs) -> None:
        """An epoch starts."""
        self.epoch = loop.spot.item
        self._totals[loop.key] = loop.total
        self.progress.epoch_begins(self.samples, self.spent)

    def end_of_epoch(self, loop: Epochs) -> None:
        """The outer loop asks for its next epoch: the loop body has finished."""
        self.epochs_done += 1
        self.progress.epoch_ends(
            f"epoch {loop.spot.item + 1}/{loop.total}", self.samples, self.spent, self.loss()
        )
        self.moved = False
        last = loop.spot.item + 1 >= loop.total
        if not last and self._all_agree(self.keeper.due(self.steps, self.epochs_done) or self.signals.wanted):
            stop = self._all_agree(self.signals.wanted)
            self.save_at(loop, loop.spot.item + 1, wait=stop)
            if stop:
                self._stop()

    def end_of_loop(self, loop: Loop) -> None:
        """A loop over epochs, or the outermost loop over batches, ended or was left by break.
        Its end is a separate position."""
        if self.resuming or self.evaluating:
            return
        self._totals[loop.key] = getattr(loop, "total", 1)
        self.save_at(loop, DONE, wait=True)
        self.exit.watch()

    def batches_begin(self) -> None:
        """The loop asks for its first batch."""
        if not self.evaluating:
            self.trained = False
            self.signals.watch()

    def boundary(self, loop: Batches) -> None:
        """The loop asks for its next batch after an optimizer step: the moment to save and to stop."""
        if not self.moved or self.gradients.weights:
            return
        self.moved = False
        self.precision.after()
        if self.progress.terminal:
            self.progress.step(
                f"epoch {self.epoch + 1}", loop.spot.item, loop.feed.length(), self.samples, self.loss()
            )
        if self.world.size == 1:
            due, stop = self.keeper.due(self.steps, self.epochs_done), bool(self.signals.wanted)
        else:
            due, stop = bool(self._agreed[0]), bool(self._agreed[1])
        if (due or stop) and not self._waits_for_epoch(loop):
            self.save_at(loop, loop.following(self.window), wait=stop)
            if stop:
                self._stop()

    def _waits_for_epoch(self, loop: Batches) -> bool:
        """Was this the last step of a loop in an epoch? A resume after it
        would not set the variables of the loop."""
        length = loop.feed.length()
        return self.in_epochs() and length is not None and loop.following(self.window) >= length

    def in_epochs(self) -> bool:
        """True inside a loop over epochs."""
        return any(spot.micro is None for spot in self.position.open)

    def _stop(self) -> None:
        if self.world.rank == 0:
            by = f"signal {self.signals.wanted}" if self.signals.wanted else "a signal to another rank"
            say(f"stopped by {by}; saved at step {self.steps:,}")
        workers.end()
        self.signals.wanted = self.signals.wanted or 15
        self.signals.act()

    def _wishes(self) -> list[float]:
        """What this rank wants all ranks to know with the next step:
        is a save due (rank 0 decides), is an end asked for."""
        due = self.world.rank == 0 and self.keeper.due(self.steps + 1, self.epochs_done)
        return [float(due), float(bool(self.signals.wanted))]

    def apply(self, optimizers: list[Optimizer]) -> None:
        """Step these optimizers. The first such step in a micro-batch counts as a step of the run."""
        alone = self.world.size == 1
        began = 0.0 if alone else perf_counter()
        skipped = self.gradients.skipped
        try:
            agreed = self.gradients.apply(optimizers, [] if alone else self._wishes(), self.steps + 1)
        except StateError as e:
            raise StateError(f"{e.message} {self._where()}", hint=e.hint) from None
        if not alone:
            self._agreed = agreed
            self.spent.exchange += perf_counter() - began
        if self.gradients.skipped > skipped:
            self._step_was_bad()
        if self.moved:
            return
        self.moved = self.trained = True
        self.steps += 1
        assert self.micro is not None  # an optimizer steps inside a loop over batches
        self.samples += self.micro.samples
        if self.keeper.pulse is not None:
            self.keeper.pulse.beat(self.steps, self.samples)

    def _step_was_bad(self) -> None:
        """A step was not finite and was skipped:
        say so, and go back to the last checkpoint where that is asked for."""
        done = "is skipped"
        if self.config.nan == "back":
            self.keeper.wait()
            self.world.barrier()
            saved, _ = checkpoint.newest(self.keeper.root)
            step = saved.step if saved else -1
            self._went_back[step] = self._went_back.get(step, 0) + 1
            if saved is None or self._went_back[step] > MOST_BACK:
                raise StateError(
                    f"Step {self.steps + 1:,} gave a value that is not finite. "
                    f"The run has already gone back {MOST_BACK} times to step {step:,}. "
                    f"{self.gradients.bad} {self._where()}",
                    hint="A lower learning rate or clip=1.0 often prevents NaN and infinite values.",
                )
            names = [name for name in saved.doc["objects"] if not name.startswith("loader")]
            self.objects.restore(saved.doc, saved.tensors, names)
            self.precision.load_state_dict(saved.doc["precision"])
            done = f"is skipped. Stoker restored models and optimizers from step {step:,}"
        if self.world.rank == 0:
            say(
                f"step {self.steps + 1:,} gave a value that is not finite, and {done}. "
                f"{self.gradients.bad} {self._where()}"
            )

    def back_in(self, loop: Loop) -> None:
        """The loop ended: the micro-batch of the outer loop is the current micro-batch again."""
        around = [
            spot.micro for spot in self.position.open if spot.micro is not None and spot is not loop.spot
        ]
        self.micro = around[-1] if around else None
        if not around:
            self.precision.after()
            self.drop_pending()
            self.signals.leave()

    def drop_pending(self) -> None:
        """A loop ended within an accumulation: drop its gradients."""
        if not self.evaluating and self.gradients.drop(self.objects.optimizers):
            say(
                "the loop ended during gradient accumulation, so the gradients of the last micro-batches "
                "are dropped"
            )

    def on_device(self, source: Iterator, ahead: bool) -> Iterator:
        """Micro-batches with their data on this rank's device. ahead:
        whether the next micro-batch may be read and copied early."""
        if self.moves and ahead:
            return Ahead(source, self.device, lambda batch: move(batch, self.device))
        return ((micro, move(batch, self.device)) for micro, batch in source) if self.moves else source

    def inside_batches(self) -> bool:
        """True inside a loop over batches."""
        return any(spot.micro is not None for spot in self.position.open)

    def loss(self) -> float | None:
        """The loss of the last micro-batch."""
        return None if self.gradients.loss is None else self.gradients.loss.item()

    # saving

    def save_at(self, loop: Loop, following: int | str, wait: bool = False) -> None:
        """Save with the position: `following` is the next element of `loop`."""
        began = perf_counter()
        self._check_finite()
        for call in self.before_save:
            call()
        self.keeper.save(*self._collect(loop, following), self.epochs_done, wait)
        self.keeper.note(step=self.steps)
        self.spent.save += perf_counter() - began

    def _collect(self, loop: Loop, following: int | str) -> tuple[dict, dict[str, torch.Tensor]]:
        body, tensors = self.objects.collect(self.world)
        log = self.metrics.mark() if self.metrics else {}
        doc = {
            **body,
            "step": self.steps,
            "samples": self.samples,
            "epochs_done": self.epochs_done,
            "at": loop.key,
            "position": self.position.to_save(loop, following),
            "totals": self._totals,
            "precision": self.precision.state_dict(),
            "metrics": log,
            "made": self._made(),
            "data": self.objects.fingerprints(),
            "spent": vars(self.spent),
            "at_s": time(),
        }
        return doc, tensors

    def _made(self) -> dict:
        return {
            **grade.facts(self.device),
            "world": self.world.size,
            "window": self.window,
            "accumulate": self.config.accumulate,
            "seed": self.config.seed,
            "precision": self.precision.name,
            "clip": self.config.clip,
            "code": place.code_hashes(place.main_file()),
        }

    def _check_finite(self) -> None:
        """No checkpoint is made of parameters that are not finite. And all ranks have the same ones."""
        if not self.objects.finite():
            bad = self.gradients.first_bad(list(self.objects.parameter_names))
            raise StateError(f"Parameters are not finite after step {self.steps:,}. {bad}",
                             hint="The last checkpoint is not affected, because it was saved before this "
                                  "step.")
        if self.world.size > 1 and len(set(self.world.gather(self.objects.checksum()))) > 1:
            raise StateError(
                f"The ranks have different parameters after step {self.steps:,}: some ranks ran code that "
                "other ranks did not run.",
                hint="Check code in `if engine.rank == 0` that changes the model or the optimizer.",
            )

    def _all_agree(self, wish: object) -> bool:
        """Rank 0's wish, or that of any rank for an end."""
        counts = bool(wish) and (self.world.rank == 0 or bool(self.signals.wanted))
        return bool(self.world.add([float(counts)])[0])

    # the end

    def close(self) -> None:
        """At exit: wait for the last save. If all loops have ended, the run is finished."""
        self.shut(self.exit.was_good())

    def shut(self, good: bool) -> None:
        """Release the folder. good: no error occurred after the loops."""
        atexit.unregister(self.close)
        _open.pop(str(self.keeper.root.resolve()), None)
        self.progress.clear()
        self.keeper.wait()
        if self.metrics is not None:
            self.metrics.close()
            self.metrics = None
        over = self._totals and not self.position.open and not self.position.failed and not self.resuming
        if over and good:
            self.keeper.finish()
        self.world.close()

    def write_weights(self, path: Path, model: nn.Module, best: bool) -> Path:
        """See `Engine.export`."""
        from safetensors.torch import save

        name = self.objects.name_of(model)
        weights = {n: t.detach().cpu().contiguous().clone() for n, t in model.state_dict().items()}
        if best:
            self.keeper.wait()
            self.world.barrier()
            weights = self._best_weights(name, list(weights))
        if self.world.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, save(weights))
        return path

    def _best_weights(self, name: str, wanted: list[str]) -> dict[str, torch.Tensor]:
        if self.keeper.best is None:
            raise StateError(
                "No checkpoint has a score yet.",
                hint="Pass a score: engine.save(score=...); larger is better.",
            )
        folder = self.keeper.root / f"step-{self.keeper.best['step']:09d}"
        why = checkpoint.fault(folder)
        if why:
            raise StateError(f"The best checkpoint, {folder}, cannot be used: {why}.")
        tensors = checkpoint.load_file(folder / checkpoint.TENSORS)
        return {n: tensors[f"{name}.state.{n}"] for n in wanted}

    # what is said

    def _where(self) -> str:
        """Which samples the current micro-batch holds, for an error message."""
        item = self.micro.item if self.micro else None
        if isinstance(item, torch.Tensor) and item.dtype == torch.int64 and item.dim() == 1:
            item = item.tolist()
        if not isinstance(item, list) or not all(isinstance(i, int) for i in item):
            return ""
        shown = ", ".join(map(str, item[:16]))
        return f"Samples of the step's last micro-batch: {shown}{', ...' if len(item) > 16 else ''}."

    def _look_for_carried(self, quietly: bool = False) -> list[str]:
        """Names that the loop which begins now carries and that are not kept;
        each loop of the source is looked at once."""
        frame = _of_user()
        spot = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        if self.evaluating or frame is None or spot in self._looked_at or self.world.rank:
            return []
        self._looked_at.add(spot)
        names = [
            name
            for name in carried(frame)
            if not self.objects.knows(frame.f_locals.get(name)) and name not in self._told
        ]
        self._told.update(names)
        if names and not quietly:
            say(
                f"these variables change in the loop but are not saved: {', '.join(names)} (to save these "
                "variables: engine.keep)"
            )
        return names

    def _announce(self, names: list[str]) -> None:
        self._doubts += grade.of_kernels(self.device)
        self._doubts += [(grade.STATE, feed.doubt) for feed in self.objects.feeds.values() if feed.doubt]
        saved = self.keeper.saved
        if saved:
            self._doubts += grade.compare(saved.doc["made"], self._made())
            self._doubts += [(grade.STATE, "the code changed")] if self.keeper.code_changed else []
            self._compare_data(saved.doc["data"])
        lowest, reasons = grade.worst(self._doubts)
        notes = [*self.keeper.said, *(note for feed in self.objects.feeds.values() for note in feed.notes)]
        self.keeper.note(
            grade=lowest, reasons=reasons, folder=str(self.keeper.root), resumed=saved.step if saved else None
        )
        if self.world.rank:
            return
        root = self.keeper.root
        head = (
            f"resumes {root} at step {saved.step:,}, grade: {lowest}"
            if saved
            else f"new run in {root}; grade of a resume: {lowest}"
        )
        parts = [head + (f" ({'; '.join(reasons)})" if reasons else ""), self._lost(), self._equation()]
        parts += [f"not saved: {', '.join(names)}"] if names else []
        for note in notes:
            say(note)
        say("; ".join(part for part in parts if part))

    def _lost(self) -> str:
        pulse, saved = self.keeper.pulse, self.keeper.saved
        if saved is None or pulse is None or pulse.step <= saved.step:
            return ""
        seconds = max(0.0, pulse.at - saved.doc["at_s"])
        return f"{seconds:.1f} s and {max(0, pulse.samples - saved.doc['samples']):,} samples are repeated"

    def _equation(self) -> str:
        size = next((feed.batch_size for feed in self.objects.feeds.values() if feed.batch_size), None)
        if size is None:
            return ""
        each = self.window / self.world.size
        ranks = f"{self.world.size} rank{'s' if self.world.size > 1 else ''}"
        return f"batch size {size * self.window} = {ranks} x {size} samples x {each:g} micro-batches"

    def _compare_data(self, then: dict[str, dict]) -> None:
        """Raises StateError for other data, unless a resume was asked for by name."""
        for name, now in self.objects.fingerprints().items():
            changed = [fact for fact, value in now.items() if name in then and then[name].get(fact) != value]
            if "ids" in changed:
                raise StateError(
                    (
                        f"{name} ({now['dataset']}) has different samples than at the start of the run: "
                        "the split is random."
                    ),
                    hint=(
                        "Pass `generator=torch.Generator().manual_seed(0)` to random_split, or call "
                        "random_split after Engine(...). Then start with STOKER_FRESH=1."
                    ),
                )
            if changed:
                told = ", ".join(f"{fact} {then[name].get(fact)} → {now[fact]}" for fact in changed)
                self._doubts.append((grade.STATE, f"{name} changed: {told}"))


def stop_recording() -> None:
    """Under `stoker run`, tell the hooks not to record this script: it saves and resumes by itself."""
    # now, in older hooks
    for end, words in (("resume.core.outcome", "resume.core.words"), ("ghost.fate", "ghost.words")):
        outcome, sentences = (sys.modules.get(f"stoker_hooks.{name}") for name in (end, words))
        if outcome is not None and sentences is not None:
            outcome.refuse_for_all(sentences.ENGINE)


def _of_user() -> FrameType | None:
    """The innermost frame outside of Stoker."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame

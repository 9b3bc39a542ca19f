"""The mistakes that the doctor knows in training code:
one row each, with what it costs and what to do instead.

A rule reads the parsed file and gives the places it is sure of. It says nothing where it is not:
a wrong lint is worse than none.
"""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.doctor import lint_data, lint_learning, lint_speed, machine
from stoker.doctor.finding import Finding
from stoker.doctor.flow import Program
from stoker.doctor.loops import Training
from stoker.doctor.reader import Surroundings
from stoker.doctor.source import Source

NODES_AT_MOST = 120_000  # a larger file was written by a program
_LINES_NAMED = 6


@dataclass(frozen=True)
class Lint:
    """level: "warn" for what makes the result wrong or the run fail, "note" for what only costs. why, do:
    one sentence each."""

    name: str
    level: str
    why: str
    do: str
    rule: Callable[..., Iterator[Any]]  # of nodes that have a line


LINTS = {
    lint.name: lint
    for lint in (
        Lint(
            "loss-graph",
            "warn",
            "The script keeps the loss with its graph, so memory grows at each step.",
            "Accumulate loss.detach() (or loss.item()).",
            lint_speed.loss_graph,
        ),
        Lint(
            "sync-each-step",
            "note",
            "The CPU waits for a value from the device at each step; this costs noticeable time only if "
            "steps are short.",
            "Sum the values on the device (total += loss.detach()), and fetch the sum every N steps.",
            lint_speed.sync_each_step,
        ),
        Lint(
            "empty-cache",
            "note",
            "empty_cache() at each step waits for the GPU, and PyTorch must request the same memory again.",
            "Remove empty_cache() from the loop: PyTorch reuses memory without this call.",
            lint_speed.empty_cache,
        ),
        Lint(
            "cpu-round-trip",
            "note",
            "A value is copied to the CPU and back to the device within one step.",
            "Compute on the device, with torch functions.",
            lint_speed.cpu_round_trip,
        ),
        Lint(
            "print-each-step",
            "note",
            "The script prints or logs at each step; this fills the log, and slows short steps.",
            "Print every N steps: if step % 100 == 0.",
            lint_speed.print_each_step,
        ),
        Lint(
            "save-each-step",
            "note",
            "The script writes a checkpoint at each step.",
            "Save every N steps or minutes. A crash loses the work after the last save.",
            lint_speed.save_each_step,
        ),
        Lint(
            "data-parallel",
            "note",
            (
                "nn.DataParallel copies the network to each GPU at each step. Its single process is the "
                "bottleneck."
            ),
            "Use DistributedDataParallel, started with torchrun.",
            lint_speed.data_parallel,
        ),
        Lint(
            "retain-graph",
            "warn",
            (
                "The step calls backward() only once, so retain_graph=True is not needed. "
                "With retain_graph=True, backward() may go through all earlier steps again."
            ),
            (
                "Remove retain_graph=True. If backward() then fails, use detach() on the values that the "
                "script carries from step to step."
            ),
            lint_speed.retain_graph,
        ),
        Lint(
            "unshuffled",
            "warn",
            "The training loader does not shuffle, or shuffles only on some machines. Without shuffling, "
            "the sample order is the same in each epoch.",
            "Set shuffle=True for the training loader, both on machines with a GPU and on machines without a "
            "GPU.",
            lint_data.unshuffled,
        ),
        Lint(
            "duplicated-data",
            "warn",
            "Each worker reads the whole IterableDataset, so each epoch contains each sample once per "
            "worker.",
            "In __iter__, read only the share of this worker: torch.utils.data.get_worker_info().",
            lint_data.duplicated_data,
        ),
        Lint(
            "too-many-workers",
            "note",
            (
                "There are more workers than available cores; extra workers help only if reading waits for a "
                "disk or network."
            ),
            "Use at most num_workers=len(os.sched_getaffinity(0)). With a CPU quota, use fewer workers.",
            lint_data.too_many_workers,
        ),
        Lint(
            "pin-without-gpu",
            "note",
            "In a script that uses no GPU, pin_memory=True only causes a warning.",
            "Remove pin_memory=True.",
            lint_data.pin_without_gpu,
        ),
        Lint(
            "shuffle-before-cache",
            "warn",
            "cache() comes after shuffle() or after a random map(). So every epoch repeats the order or "
            "the random samples of the first epoch.",
            "Put cache() first, then shuffle() and random maps.",
            lint_data.shuffle_before_cache,
        ),
        Lint(
            "no-zero-grad",
            "warn",
            "The script does not clear the gradients between two steps, or clears the gradients before "
            "optimizer.step() uses them.",
            "Call optimizer.zero_grad() once a step, before backward().",
            lint_learning.no_zero_grad,
        ),
        Lint(
            "accumulation-undivided",
            "warn",
            "The script adds the gradients of N batches, but does not divide the loss by N. The effect is "
            "a learning rate that is N times as large.",
            "Use (loss / N).backward().",
            lint_learning.accumulation_undivided,
        ),
        Lint(
            "scheduler-place",
            "warn",
            "The learning rate schedule counts epochs but is stepped once per batch, or counts batches "
            "but is stepped once per epoch.",
            "Call scheduler.step() after each epoch if the schedule counts epochs, or after each "
            "optimizer.step() if it counts batches.",
            lint_learning.scheduler_place,
        ),
        Lint(
            "scheduler-order",
            "warn",
            "scheduler.step() comes before optimizer.step(), so the first learning rate is never used.",
            "Call scheduler.step() after optimizer.step().",
            lint_learning.scheduler_order,
        ),
        Lint(
            "evaluation-grad",
            "note",
            "The evaluation builds an autograd graph that is never used. This wastes time and memory.",
            "Evaluate inside `with torch.no_grad():`.",
            lint_learning.evaluation_grad,
        ),
        Lint(
            "evaluation-mode",
            "warn",
            "The network has dropout or batch norm, and is evaluated in training mode.",
            "Call model.eval() before the evaluation, and model.train() after the evaluation.",
            lint_learning.evaluation_mode,
        ),
        Lint(
            "softmax-before-loss",
            "warn",
            (
                "The loss applies softmax (or sigmoid) itself. A second softmax makes the training slower "
                "and its result worse."
            ),
            "Pass the raw outputs to the loss.",
            lint_learning.softmax_before_loss,
        ),
        Lint(
            "seed-in-loop",
            "warn",
            "The same seed is set again in the loop, so each pass of the loop draws the same random numbers.",
            "Seed once before the loop.",
            lint_learning.seed_in_loop,
        ),
        Lint(
            "whole-model-saved",
            "note",
            "torch.save(model) stores the names of your classes and files. If you rename a class or a "
            "file, loading fails.",
            "Save model.state_dict().",
            lint_learning.whole_model_saved,
        ),
    )
}


def look(sources: Sequence[Source], around: Surroundings, cpus: float | None = None) -> Iterator[Finding]:
    """The lints of a script and of the user's own files that it imports, in the order of lines. cpus:
    cores that are ours."""
    for source in sources:
        name = around.name(source)
        for lint, lines in sorted(
            lint_lines(source, own_cpus() if cpus is None else cpus), key=lambda f: f[1][0]
        ):
            more = [*map(str, lines[1:_LINES_NAMED]), *(["and more"] if len(lines) > _LINES_NAMED else [])]
            several = "s" if len(more) > 1 else ""
            also = f" The same problem in line{several} {', '.join(more)}." if more else ""
            yield Finding(
                lint.level, lint.name, lint.why + also, lint.do, name, lines[0], lint.name
            )


def lint_lines(source: Source, cpus: float) -> Iterator[tuple[Lint, list[int]]]:
    """(lint, its lines) for each lint that a file has."""
    if source.tree is None or not any(word in source.text for word in ("torch", "tensorflow")):
        return
    if sum(1 for _ in ast.walk(source.tree)) > NODES_AT_MOST:
        return
    with contextlib.suppress(RecursionError):  # generated code may nest without end
        training = Training(Program(source.tree, source.text))
        for lint in LINTS.values():
            nodes = (
                lint.rule(training, cpus) if lint.rule is lint_data.too_many_workers else lint.rule(training)
            )
            if lines := sorted({node.lineno for node in nodes if not training.program.dead(node)}):
                yield lint, lines


def own_cpus() -> float:
    """Cores that are ours: affinity and cgroup quota counted."""
    mine = len(os.sched_getaffinity(0))
    return min(mine, machine.cpu_quota() or mine)

"""Facts made by hand that show each cause and each refusal, and nothing else; and a script for those that need its text."""

from __future__ import annotations

from made_facts import facts, line, pairs

WAITS = {"data": 0.7, "forward": 0.15, "backward": 0.15}  # of the clock, where 7 of 10 ms wait for data
STARVED = pairs("R1", 3.0, split=WAITS)


def sampled(n=64, **each):
    """Facts of samples from what one takes, in seconds."""
    return {"n": n, **{k: n * v for k, v in each.items() if k not in ("p50_s", "p90_s", "max_s", "same")},
            **{k: v for k, v in each.items() if k in ("p50_s", "p90_s", "max_s", "same")}}


def slow(work=2e-4, wait=0.0, collate=3e-6, **more):
    """A loader without workers that takes most of 10 ms a step."""
    each = work + wait
    return sampled(**{"cpu_s": work, "wait_s": wait, "p50_s": each, "p90_s": each * 1.1, "max_s": each * 1.5, "collate_s": collate,
                      "again_s": each, "beside_s": each, "same": False, **more})


def stacks(*lines):
    return {"stacks": {"n": 800, "lines": list(lines)}}


def memory(*mib):
    return {"memory": [[i, m << 20] for i, m in enumerate(mib)]}


def few_long():
    return sampled(cpu_s=0, wait_s=2.2e-4, p50_s=1e-5, p90_s=2e-5, max_s=0.012, collate_s=1e-6, same=True)


SHOWS = {
    "sample_work": facts(*STARVED, samples=slow()),
    "repeated_work": facts(*STARVED, samples=slow(same=True)),
    "collate": facts(*STARVED, samples=slow(work=2e-5, collate=2e-4)),
    "storage": facts(*STARVED, samples=slow(work=1e-5, wait=2.1e-4)),
    "slow_sample": facts(*STARVED, samples=few_long()),
    "worker_lock": facts(*STARVED, samples=slow(work=2e-5, wait=2e-3, beside_s=4e-3), loader={"workers": 4, "prefetch": 2, "persistent": True},
                         alone=[{"workers": 1, "rate": 480}, {"workers": 4, "rate": 490}]),
    "too_many_workers": facts(*STARVED, samples=slow(work=5e-6), loader={"workers": 16, "prefetch": 2}),
    "worker_start": facts(*pairs("R1", 3.0, split={"start": 0.6, "data": 0.05, "forward": 0.35}), samples=slow(work=5e-6),
                          loader={"workers": 2, "prefetch": 2, "start_s": 0.6}),
    "duplicates": facts(loader={"workers": 2, "duplicates": True}, dataset={"iterable": True}),
    "unshuffled": facts(loader={"sampler": "SequentialSampler", "labels_sorted": True}),
    "threads": facts(*pairs("R1", 9.8), *pairs("threads=2", 6.0), threads=8),
    "neighbour": facts(*pairs("R1", 9.8, stolen=0.45, cpu=0.5)),
    "sync": facts(**stacks(line("Tensor.item", 0.4))),
    "ping_pong": facts(**stacks(line("Tensor.cpu", 0.3), line("Tensor.cpu", 0.1, number=52))),
    "cleanup": facts(**stacks(line("gc.collect", 0.6))),
    "logging": facts(*pairs("R1", 9.8, split={"log": 0.4, "forward": 0.3, "backward": 0.3}), **stacks(line("print", 0.35, kind="log"))),
    "checkpoint": facts(*pairs("R1", 9.8, split={"save": 0.5, "forward": 0.25, "backward": 0.25}), **stacks(line("torch.save", 0.5, kind="save"))),
    "validation": facts(**stacks(line("Linear.__call__", 0.5, kind="evaluation"))),
    "tiny_batch": facts(*pairs("R1", 9.9, batch=4), *pairs("batch=2x", 10.4, batch=4, grown=2)),
    "precision": facts(*pairs("R1", 9.8), *pairs("bf16", 5.5)),
    "double": facts(model={"dtype": "torch.float64", "tensors": 10}),
    "memory_format": facts(*pairs("R1", 9.8), *pairs("channels_last", 7.0), model={"dtype": "float32", "conv2d": 12, "channels_last": False}),
    "layout": facts(**stacks(line("Tensor.contiguous", 0.4, kind="other", number=1))),
    "graph_kept": facts(*pairs("R1", 9.8), growth={"backward": 0.04}, flags={"retain_graph": True}),
    "per_parameter": facts(**stacks(line("Tensor.norm", 0.3, number=8))),
    "optimizer": facts(*pairs("R1", 9.8, split={"forward": 0.3, "backward": 0.3, "optimizer": 0.4}), *pairs("fused", 7.0),
                       **stacks(line("optimizer.step", 0.4, kind="optimizer")),
                       optimizers=[{"type": "Adam", "tensors": 400, "fused": False, "foreach": False}]),
    "zero_grad": facts(flags={"zero_fill": True}, **stacks(line("Optimizer.zero_grad", 0.2))),
    "time_loop": facts(**stacks(line("LSTMCell.__call__", 0.5, kind="forward", number=18))),
    "padding": facts(batch={"size": 32, "bytes": 1, "padding": 0.7, "dim": 1}),
    "replicas": facts(**stacks(line("copy.deepcopy", 0.3))),
    "anomaly": facts(flags={"anomaly": True}),
    "memory_jump": facts(**memory(300, 380, 381), model={"dtype": "float32", "tensors": 6, "params": 7_000_000},
                         optimizers=[{"type": "Adam", "tensors": 6}]),
}
SCRIPT = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def clip(model):
    return [p.grad.norm() for p in model.parameters()]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x):
        for t in range(x.size(1)):
            h = self.cell(x[:, t])
        return h


for epoch in range(3):
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        clip(model)
        optimizer.step()
"""
KNOWS_TEXT = ("per_parameter", "time_loop", "repeated_work")  # causes that are told from SCRIPT too
LOADER = ("workers", "batched", "cache", "prefetch", "persistent_workers")
REFUSES = [  # reason, knobs, facts
    ("own_iter", LOADER, facts(loader={"own_iter": True})),
    ("no_loader", LOADER, facts(loader=False)),
    ("order_matters", ("workers",), facts(dataset={"iterable": True})),
    ("random_samples", ("cache",), facts(samples={"same": False})),
    ("dataset_changes", ("persistent_workers", "cache"), facts(dataset={"changed": ["level"]})),
    ("precision_sensitive", ("bf16",), facts(bf16={"cosine": 0.91, "finite": True})),
    ("needs_stdin", ("all",), facts(side_effects={"stdin": True})),
    ("fails_itself", ("all",), facts(ended="error", error={"type": "KeyError", "message": "'x'", "file": "train.py", "line": 9})),
    ("too_short", ("all",), facts(ended="script", steps_seen=20)),
    ("several_optimizers", ("all",), facts(flags={"turns": True})),
    ("distributed", ("all",), facts(ranks=2)),
    ("network_writes", ("all",), facts(side_effects={"network": ["127.0.0.1:9"]})),
    ("not_replayable", ("all",), facts(loader={"replay": "the second read is empty"})),
]
_IDLE = {"split": {"data": 0.95, "forward": 0.05}, "cpu": 0.1}
FURTHER = {  # name: cause, forecast of one more action in it, facts: what a part of the tuner tells that the causes above do not need
    "a lock that is seen before there are workers": ("sample_work", ("workers", 0.70), facts(*STARVED, samples=slow(beside_s=4e-4))),
    "a loader that is slower than its samples": (
        "sample_work", ("workers", 0.73), facts(*STARVED, samples=slow(), alone=[{"workers": 1, "rate": 4700}, {"workers": 2, "rate": 5000}])),
    "workers that need the cores of idle threads": ("sample_work", ("workers", 0.54), facts(*STARVED, *pairs("threads=1", 10.5), samples=slow())),
    "waiting told from work by a window": ("storage", ("storage", 0.05), facts(*pairs("R1", 0.5, **_IDLE), samples={"n": 0, "cpu_s": None})),
    "a wait that the clock does not see": (
        "sample_work", ("workers", 0.70), facts(*pairs("R1", 4.0), loader={"workers": 2, "prefetch": 2}, samples=slow())),
    "a mode of debugging, measured": ("anomaly", ("anomaly", 0.40), facts(*pairs("anomaly=off", 4.0), flags={"anomaly": True})),
}

"""Which autograd graphs could still be used, what is learnt about those that a script keeps, and the guard behind it."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from stoker.inside.resume.compute import graphs
from stoker.inside.resume.core import outcome
from stoker.inside.resume.state import walk_heap


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch sets it for good when checkpoints are used
    monkeypatch.setattr(graphs, "_unused", {})
    monkeypatch.setattr(graphs, "_used", set())


def seen(**tensors: torch.Tensor) -> SimpleNamespace:
    """A walk that found these."""
    return SimpleNamespace(tensors=tensors, seen={}, keep=[], heap=walk_heap.Heap())


def alive(**tensors: torch.Tensor) -> str:
    walk = seen(**tensors)
    try:
        return graphs.alive(walk)
    finally:
        walk.heap.objects.clear()
        walk.keep.clear()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


X, Y = torch.ones(5, 4), torch.zeros(5, dtype=torch.long)


def test_a_graph_is_alive_until_backward_went_through_it() -> None:
    out = net()(X)
    loss = nn.functional.cross_entropy(out, Y)
    assert alive(loss=loss) == "loss"
    loss.backward(retain_graph=True)
    assert alive(loss=loss, out=out) == "loss"
    loss.backward()
    assert not alive(loss=loss, out=out)


def test_a_branch_that_backward_did_not_go_is_dead_with_what_it_hangs_on() -> None:
    """`_, preds = torch.max(outputs, 1)`: its own saved tensors are there, but all ways to a leaf lead through freed ones."""
    out = net()(X)
    most, _ = torch.max(out, 1)
    loss = nn.functional.cross_entropy(out, Y)
    total = torch.zeros(()) + loss * loss.detach()
    loss.backward()
    assert not alive(most=most, total=total)
    for each in (most.sum(), total):
        with pytest.raises(RuntimeError, match="second time"):
            each.backward()


def test_one_way_to_a_leaf_that_was_not_freed_keeps_it_alive() -> None:
    model, scale = net(), nn.Parameter(torch.ones(()))
    out = model(X)
    penalty = (out.exp() * scale).sum()  # exp's own way back is freed, the way to scale is not
    out.sum().backward()
    assert alive(penalty=penalty) == "penalty"
    running = torch.zeros(())
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(X), Y)
        running = running + loss
    loss.backward()
    assert alive(running=running) == "running"


def test_a_graph_that_saves_nothing_is_no_obstacle() -> None:
    w = nn.Parameter(torch.ones(2, 3))
    assert not alive(turned=w.t(), row=w[0], more=w + 1)


def test_looking_runs_no_checkpointed_part() -> None:
    runs = []

    def part(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return torch.relu(x) * 2

    x = torch.ones(3, requires_grad=True)
    y = checkpoint(part, x, use_reentrant=False)
    assert alive(y=y) == "y" and len(runs) == 1
    y.sum().backward()
    assert not alive(y=y) and len(runs) == 2


def test_own_functions_count_by_what_they_saved() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    y = Double.apply(torch.ones(3, requires_grad=True))
    assert alive(y=y) == "y"
    y.sum().backward()
    assert not alive(y=y)


def test_kept_graphs_that_were_never_used_are_expected_not_to_be() -> None:
    model = net()
    for _ in range(graphs._UNUSED):
        output = model(X)
        assert alive(output=output) == "output"
        assert alive(output=output) == "output"  # the same graph is no second proof
        output = None
    assert not alive(output=model(X))
    assert alive(other=model(X)) == "other"


def test_one_use_and_a_name_is_never_trusted_again() -> None:
    model = net()
    for _ in range(graphs._UNUSED + 2):
        output = model(X)
        alive(output=output)
        output = None
    output = model(X)
    assert not alive(output=output)
    output.sum().backward()
    for _ in range(graphs._UNUSED + 2):
        output = model(X)
        assert alive(output=output) == "output"
        output = None


def test_elements_of_a_list_share_a_name() -> None:
    model = net()
    kept = [model(X) for _ in range(3)]
    assert alive(**{f"kept[{i}]": t for i, t in enumerate(kept)}) == "kept[0]"
    kept[2].sum().backward()
    kept.clear()
    assert graphs._used == {"kept[]"}


def test_what_only_the_graph_holds_is_no_lost_tensor_what_somebody_holds_is() -> None:
    model, held = net(), torch.ones(5, 4, requires_grad=True)
    walk = seen(out=model(X), product=held * held.exp())
    assert graphs.alive(walk)
    hidden = [t for t in walk.heap.pick(walk_heap.TENSOR) if t.shape == (5, 8)]
    assert hidden and all(id(t) in walk.seen for t in hidden)
    assert id(held) not in walk.seen


def test_deep_graphs_end() -> None:
    x = torch.ones((), requires_grad=True)
    total = x
    for _ in range(graphs._NODES + 10):
        total = total * 1.0 + 0.0
    assert alive(total=total) == "total"


def test_the_guard_ends_the_life_that_goes_back_through_a_graph_of_its_ghost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Diverged(Exception):
        pass

    def diverged(reason: str) -> None:
        raise Diverged(reason)

    monkeypatch.setattr(outcome, "diverged", diverged)
    gc.collect()
    model, w = net(), nn.Parameter(torch.ones(2, 3))
    out, turned = model(X), w.t()
    most, _ = torch.max(out, 1)
    graphs.guard()
    turned.sum().backward()  # holds nothing of the ghost's
    assert w.grad is not None
    with pytest.raises(Diverged):
        torch.autograd.grad(most.sum(), out)  # never comes to a leaf
    with pytest.raises(Diverged):
        out.sum().backward()
    fresh = model(X)
    fresh.sum().backward()


def test_an_image_beside_a_kept_graph_is_of_use_when_the_graph_was_let_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(graphs.phases, "folder", str(tmp_path))
    monkeypatch.setattr(graphs.phases, "log", SimpleNamespace(n=1))
    monkeypatch.setattr(graphs, "_unused", {"a": 9, "b": 9})
    model = net()
    a, b = model(X), model(X)
    assert not alive(a=a, b=b)
    token = graphs.kept()
    assert token and not graphs.let_go(token) and graphs.let_go(graphs.kept())
    a = None
    assert not graphs.let_go(token)
    b = None
    assert a is b and graphs.let_go(token)
    graphs.phases.log.n = 2
    a, b = model(X), model(X)
    assert not alive(a=a, b=b)
    token = graphs.kept()
    a = None
    b.sum().backward()
    b = None
    assert not graphs.let_go(token), "one of them was used"

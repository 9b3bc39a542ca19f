"""The private parts of CPython, numpy and torch are where they are thought to be, and a version without them is told by a sentence."""

from __future__ import annotations

import ast
import random
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
from stoker.inside.resume.core import internals  # noqa: E402

RESUME = Path(internals.__file__).parents[1]


def test_this_version_is_known() -> None:
    import numpy.random  # noqa: F401
    assert internals.self_test() == ""


def test_a_part_that_is_gone_is_a_sentence(monkeypatch) -> None:
    monkeypatch.delattr(internals.data_module("dataloader")._BaseDataLoaderIter, "_next_index")
    assert "_BaseDataLoaderIter._next_index" in internals.self_test()
    assert torch.__version__ in internals.self_test()


@pytest.mark.parametrize(("owner", "name", "told"), [
    (torch.library, "get_kernel", "torch has no library.get_kernel"), (torch._tensor_str, "_str", "torch has no _tensor_str._str"),
    (torch.optim.Optimizer, "_patch_step_function", "torch has no optim.Optimizer._patch_step_function")])
def test_what_torch_no_longer_has_is_a_sentence(monkeypatch, owner, name, told) -> None:
    monkeypatch.delattr(owner, name)
    assert told in internals.self_test()


def test_a_torch_that_works_otherwise_is_a_sentence(monkeypatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(torch.optim.Optimizer, "_patch_step_function", lambda self: None)
        assert "optimizers call step hooks in an unknown way" in internals.self_test()
    with monkeypatch.context() as other:
        real = torch.library.get_kernel("aten::_local_scalar_dense", "CPU")
        other.setattr(torch.library, "get_kernel", lambda op, device: type("K", (), {"call_boxed": lambda _, keys, t: real.call_boxed(keys, t + 1)})())
        assert "Stoker cannot call the kernels" in internals.self_test()
    assert internals.self_test() == ""


def test_a_python_that_nobody_tried_is_a_sentence(monkeypatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, internals.PYTHONS[1][1] + 1, 0))
    assert "CPython 3.9 to 3.13 are supported" in internals.self_test()


@pytest.mark.parametrize("path", sorted(RESUME.rglob("*.py")), ids=lambda path: path.stem)
def test_private_parts_of_torch_stand_in_one_file(path) -> None:
    """What the other files use by name is asked for by the self test."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        used = _dotted(node) if path.name != "internals.py" else ""
        if used.startswith("torch.") and any(part.startswith("_") and not part.startswith("__") for part in used.split(".")):
            used = used.partition(".")[2] + "."
            assert any(used.startswith(f"{part}.") or f"{part}.".startswith(used) for part in internals.TORCH_PARTS), f"{path.name}:{node.lineno} uses torch.{used[:-1]}"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def test_generators_go_on_bit_for_bit_with_a_gaussian_kept_aside() -> None:
    import numpy.random

    def draw() -> tuple:
        return random.gauss(0, 1), random.random(), numpy.random.randn(), numpy.random.rand(), torch.randn(3).tolist()

    before = internals.rngs()
    for _ in range(3):  # the second half of a pair of Gaussians is state as well
        state = internals.rngs()
        given = draw()
        internals.set_rngs(state)
        assert draw() == given
    internals.set_rngs(before)
    assert internals.rngs() == before

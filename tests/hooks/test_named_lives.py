"""Adversaries of exact resume whose faults were found in whole lives, one kill each: those that are cheap enough for every run of the suite.
The killed life and the one that ends the run are recorded, and what came of them is compared with plain Python: so recording changed nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

RESUME = Path(__file__).resolve().parents[1] / "resume"
sys.path.insert(0, str(RESUME))

from harness import Kill, Script, Stage, read, vendored  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OUTCOMES = dict.fromkeys((
    "collected_in_a_comprehension", "count_in_a_text_stream", "data_set_that_tells", "forks_before_torch", "functional_state",
    "gradient_penalty_kept", "handlers_remembered", "hooks_that_collect", "iterable_notes", "library_warning_once", "logger_in_workers",
    "looks_before_torch", "loss_kept_in_modules", "optimizer_around_another", "parametrized", "pictures_in_a_list", "plots_of_losses",
    "rate_by_version", "sampler_stats", "sampler_that_tells", "saves_by_a_temporary_file", "sparse_gradients", "steps_inside_a_module",
    "table_of_rows", "tee_before_torch", "tensor_view_in_forward", "waits_to_be_collected", "warned_once", "weights_by_hand",
    "written_when_python_ends",
), "exact") | dict.fromkeys((
    "another_way_before_torch", "atexit_in_forward", "count_on_a_function_of_torch", "dtype_of_autocast", "file_opened_in_forward",
    "flush_denormal_in_forward", "handler_that_counts", "logs_to_dev_stdout", "module_swapped_in_a_set", "pictures_drawn_upon_in_workers",
    "plots_from_forward", "scripted_before", "table_that_drifts_in_workers", "weights_into_an_open_bz2", "worker_notes",
    "written_to_a_duplicate",
), "refused")
BEHIND = {"collected_in_a_comprehension": 9, "sampler_that_tells": 3, "waits_to_be_collected": 2}  # which image is waited for, where it is not the first
TO = """import time, torch
from torch import nn
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)).to("cpu")
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(900):
    x = torch.randn(16, 8).to("cpu")
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    time.sleep(0.002)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
"""


def shorter(name: str, folder: Path) -> Script:
    """The adversary with half of its steps: the kill comes near the 200th, and what is wrong by then stays wrong.
    `make test-resume` runs each in its full length."""
    text = (RESUME / "adversaries" / f"{name}.py").read_text("utf-8")
    path = folder / f"{name}.py"
    path.write_text(text.replace("range(1600)", "range(800)"), "utf-8")
    return read(path)


@pytest.mark.parametrize("name", OUTCOMES)
def test_killed_behind_an_image(name, short_tmp):
    stage = Stage(shorter(name, short_tmp), short_tmp / "run", hooks=vendored(short_tmp / "hooks"), every="60steps")
    straight = stage.plain()
    assert straight.rc == 0, straight.err.decode()
    trial = stage.trial([Kill("image", 0.1, BEHIND.get(name, 1))], straight)
    assert trial.outcome == OUTCOMES[name], trial.line()


def test_the_clock_times_copies_once_the_script_uses_a_gpu(short_tmp):
    """It stands around `Tensor.to` from the middle of the training on. There is no GPU: its part that asks for one is left out."""
    hooks = vendored(short_tmp / "hooks")
    device = next(hooks.rglob("clock/device.py"))
    text = device.read_text()
    without = re.sub(r"    if not torch\.cuda\.is_available.*?\n    marks\.device = [^\n]*\n", "", text, flags=re.S)
    assert without != text
    device.write_text(without)
    (short_tmp / "script.py").write_text(TO)
    stage = Stage(read(short_tmp / "script.py"), short_tmp / "run", hooks=hooks, every="60steps")
    trial = stage.trial([Kill("image", 0.1, 3)], stage.plain())
    assert trial.outcome == "exact" and trial.resumes == 1, trial.line()
    assert "torch.Tensor" not in str([life.said.get("points_passed") for life in trial.lives])

"""The examples of the Engine: they run, they learn, and the twin of the plain loop differs from it in six lines."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.ground import REPO, Ground, until
from safetensors.torch import load_file

FOLDER = REPO / "examples" / "engine"
ACCURACY = re.compile(r"test accuracy ([\d.]+) %")

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(300)]


def run(name: str, cwd: Path, *before: str) -> str:
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *before, str(FOLDER / name)], cwd=cwd, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_twin_differs_in_six_lines():
    plain, twin = ((FOLDER / name).read_text("utf-8").splitlines() for name in ("plain.py", "with_engine.py"))
    lines = [line for line in difflib.ndiff(plain, twin) if line[0] in "+-" and line[2:].strip()]
    assert sum(line[0] == "+" for line in lines) <= 6
    assert sum(line[0] == "-" for line in lines) <= 6


def test_the_twin_learns_as_well_and_the_gan_draws(tmp_path):
    plain, twin = (float(ACCURACY.findall(run(name, tmp_path))[-1]) for name in ("plain.py", "with_engine.py"))
    assert abs(plain - twin) <= 1.7  # five seeds of the plain loop lie within 1.7 of each other
    run("gan.py", tmp_path)
    assert load_file(tmp_path / "maker.safetensors")["0.weight"].isfinite().all()


def test_two_ranks_stop_early_and_export_the_best(tmp_path):
    text = run("ranks.py", tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert float(re.search(r"best test accuracy ([\d.]+) %", text)[1]) > 96
    assert load_file(tmp_path / "best.safetensors")["1.weight"].shape == (128, 64)


def test_the_trainer_and_the_lightning_module_learn(tmp_path):
    assert float(re.search(r"best test accuracy ([\d.]+) %", run("trainer.py", tmp_path))[1]) > 96
    assert load_file(tmp_path / "trainer.safetensors")["1.weight"].shape == (128, 64)
    assert float(re.search(r"best test accuracy ([\d.]+) %", run("lit.py", tmp_path))[1]) > 95


def test_the_text_network_learns_and_stops_early(tmp_path):
    text = run("../text/train.py", tmp_path)
    assert float(re.search(r"best test accuracy ([\d.]+) %", text)[1]) > 50  # guessing gives 25
    assert len(re.findall(r"^epoch", text, re.MULTILINE)) < 40
    assert load_file(tmp_path / "best.safetensors")["words.weight"].shape == (2000, 64)


def test_an_unmodified_script_for_colossalai_on_two_ranks_is_killed_and_started_again(tmp_path):
    ground = Ground()
    try:
        shutil.copytree(FOLDER.parent / "colossalai", ground.work, dirs_exist_ok=True)
        config = ground.work / "config.py"
        config.write_text(config.read_text().replace("NUM_EPOCHS = 8", "NUM_EPOCHS = 4\nstoker_save = '1step'"))
        started = ground.detach("--ranks", "2", "--compat", "colossalai", "train.py", timeout_s=100)
        checkpoints = Path(started["folder"]) / "checkpoints"
        until(lambda: list(checkpoints.glob("step-0000000[12]?")), 150, "a step of the second epoch")
        os.kill(ground.run_pid(started["id"]), signal.SIGKILL)
        assert ground.wait_state(started["id"], timeout_s=60)["reason"] == "killed"
        ground.stoker("start", started["id"]).ok()
        assert ground.wait_state(started["id"], timeout_s=200)["state"] == "done", ground.log(started["id"], 2)
        assert re.search(r"grade +bit-exact", ground.stoker("show", started["id"]).ok().out)
        text = ground.log(started["id"], 2).decode()
        epochs = [int(line.split()[2]) for line in text.splitlines() if line.startswith("INFO")]
        assert epochs == list(range(epochs[0], 4))
        assert epochs[0] >= 1
        assert float(re.findall(r"accuracy ([\d.]+)", text)[-1]) > 0.5
    finally:
        left = ground.close()
    assert not left, "processes were left behind: " + "; ".join(left)


def test_under_stoker_it_is_not_recorded_and_comes_back_by_itself(tmp_path):
    text = (FOLDER / "with_engine.py").read_text("utf-8").replace('Engine(seed=1)', 'Engine(seed=1, save="5step")').replace("epochs(10)", "epochs(30)")
    straight = tmp_path / "straight"
    straight.mkdir()
    for folder in (straight,):
        (folder / "train.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": f"{FOLDER}", "OMP_NUM_THREADS": "1"}
    wanted = subprocess.run([sys.executable, "train.py"], cwd=straight, env=env, capture_output=True, text=True, timeout=200, check=True).stdout
    ground = Ground()
    try:
        ground.script("train.py", text)
        started = ground.detach("--env", f"PYTHONPATH={FOLDER}", "--env", "OMP_NUM_THREADS=1", "--", sys.executable, "train.py", timeout_s=100)
        checkpoints = Path(started["folder"]) / "checkpoints"
        until(lambda: any(path.name >= "step-000000100" for path in checkpoints.glob("step-?????????")), 100, "step 100")
        os.kill(ground.run_pid(started["id"]), signal.SIGKILL)
        assert ground.wait_state(started["id"], timeout_s=60)["reason"] == "killed"
        ground.stoker("start", started["id"]).ok()
        assert ground.wait_state(started["id"], timeout_s=120)["state"] == "done", ground.log(started["id"], 2)
        shown = ground.stoker("show", started["id"]).ok().out
        assert re.search(r"grade +bit-exact", shown), shown
        assert re.search(r"resumed +at step \d+", shown), shown
        assert "stoker.Engine" in str(ground.show(started["id"])["resume"])
        assert not list((Path(started["folder"]) / "resume").glob("images/*"))
        lines = ground.log(started["id"], 2).decode().splitlines()
        epochs = [line for line in lines if line.startswith("epoch")]
        assert epochs
        assert [line.rstrip() for line in wanted.splitlines()][-len(epochs):] == [line.rstrip() for line in epochs]
    finally:
        left = ground.close()
    assert not left

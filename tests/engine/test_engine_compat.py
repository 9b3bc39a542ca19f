"""Scripts written for other libraries, on Stoker's engine: killed at random times they end with the bits of undisturbed ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from pathlib import Path

import pytest
from enginekit import HERE, Training, kill_moments

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(300)]

REPO = HERE.parents[1]
NAMES = REPO / "src/stoker/compat/own_names"
EXAMPLE = REPO / "examples/colossalai"
KILLS = 2


class Old(Training):
    """A script under the import names of its library, in a folder of its own."""

    def __init__(self, nursery, folder, script, library, ranks=1):
        super().__init__(nursery, folder, {"ranks": ranks})
        self.script = script
        self.library = library

    def start(self, script=None, **env):
        return super().start(script, PYTHONPATH=str(NAMES / self.library), **env)

    def result(self):
        """Tensors and counters of the last checkpoint, the curve, the samples, what was printed last."""
        root = min((self.folder / "runs").iterdir(), key=lambda path: len(path.name))  # a start after the end has a folder of its own
        last = root / (root / "latest").read_text().strip()
        doc = json.loads((last / "state.json").read_text())
        found = {name: json.dumps(doc[name]) for name in ("step", "samples", "objects", "kept", "best", "position")}
        found["tensors"] = hashlib.sha256((last / "tensors.safetensors").read_bytes()).hexdigest()
        lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
        found["curve"] = json.dumps([{k: v for k, v in line.items() if k != "at"} for line in lines])
        seen = self.folder / "seen.txt"
        places = dict.fromkeys(sorted(seen.read_text().splitlines())) if seen.exists() else {}
        assert len({line.split()[0] for line in places}) == len(places), "a place that was seen twice was not the same twice"
        found["seen"] = str(list(places))
        found["printed"] = next(line for line in reversed(self.text().splitlines()) if line.startswith(("RESULT", "INFO")))
        return found


def killed_as_straight(make, tmp_path, seed):
    straight = make(tmp_path / "straight")
    began = time.monotonic()
    wanted = straight.run()
    span_s = time.monotonic() - began
    killed = make(tmp_path / "killed")
    for after_s in kill_moments(seed, span_s * 0.9, KILLS):
        killed.killed_after(after_s)
    found = killed.run()
    assert {name for name in wanted if wanted[name] != found[name]} == set(), killed.text()
    return straight, killed


def test_an_unmodified_lightning_script_survives_kills(nursery, tmp_path):
    script = tmp_path / "train.py"
    shutil.copy(HERE / "lit_training.py", script)
    straight, _ = killed_as_straight(lambda folder: Old(nursery, folder, script, "lightning"), tmp_path, 3)
    assert "'sum_of_losses'" in straight.text()


def test_an_unmodified_colossalai_script_on_two_ranks_survives_kills(nursery, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(EXAMPLE, home)
    (home / "train.py").write_text((EXAMPLE / "train.py").read_text().replace("Pictures(0, 600,", "Pictures(0, 200,"))
    config = (EXAMPLE / "config.py").read_text()
    (home / "config.py").write_text(re.sub(r"NUM_EPOCHS = \d+", "NUM_EPOCHS = 3\nstoker_save = '1step'\ngradient_accumulation = 1", config).replace("= 32", "= 16"))
    straight, _ = killed_as_straight(lambda folder: Old(nursery, folder, home / "train.py", "colossalai", 2), tmp_path, 5)
    assert [line.split()[2] for line in straight.text().splitlines() if line.startswith("INFO")] == ["0", "1", "2"]
    assert straight.text().count(".cuda() has no effect") == 1


def test_what_the_fronts_promise(nursery, tmp_path):
    training = Training(nursery, tmp_path, {})
    assert training.live(HERE / "compat_checks.py") == [0], training.text()


@pytest.mark.parametrize("library", ["lightning", "colossalai"])
def test_a_library_that_is_installed_is_not_hidden(nursery, tmp_path, library):
    names = {"lightning": ["pytorch_lightning", "lightning"], "colossalai": ["colossalai"]}[library]
    for name in names:
        installed = tmp_path / name / "site"
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").write_text("# stands where the real library would\n")
        script = tmp_path / name / "script.py"
        script.write_text(f"import sys\nsys.path.append({str(installed)!r})\nimport {name}\n")
        training = Old(nursery, tmp_path / name / "run", script, library)
        assert training.live() == [1]
        assert f"{name} is installed here ({Path(installed / name / '__init__.py')}): --compat would replace this library." in training.text()

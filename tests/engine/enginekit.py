"""The honest test: trainings that are killed at any time and started again, compared with undisturbed ones in everything they saved and saw."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
TRAINING = HERE / "engine_training.py"
TRAINER = HERE / "trainer_training.py"
LIFE_S = 100.0
NOT_STATE = {"spent", "at_s"}  # what a clock says
# Each pair of values of two options is in one of these at least.
CELLS = [
    {"workers": 0, "accumulate": 1, "dropout": True, "norm": True, "ahead": True},
    {"workers": 1, "accumulate": 3, "precision": "bf16", "ema": True, "sampler": True},
    {"workers": 3, "accumulate": 1, "plateau": True, "gan": True, "dropout": True},
    {"workers": 0, "accumulate": 3, "precision": "bf16", "plateau": True, "norm": True, "gan": True, "ema": True},
    {"workers": 1, "accumulate": 1, "dropout": True, "norm": True, "ema": True, "plateau": True, "sampler": True, "gan": True},
    {"workers": 3, "accumulate": 3, "precision": "bf16", "dropout": True, "norm": True, "sampler": True, "clip": 1.0, "ahead": True},
    {"workers": 0, "accumulate": 1, "precision": "fp16", "dropout": True, "ema": True, "sampler": True},
    {"workers": 0, "accumulate": 3, "ranks": 2, "dropout": True, "norm": True, "sampler": True},
    {"workers": 1, "accumulate": 1, "ranks": 2, "precision": "bf16", "gan": True, "ema": True, "plateau": True, "norm": True,
     "stream": "flow"},
    {"workers": 0, "accumulate": 1, "ranks": 4, "dropout": True, "gan": True, "ema": True, "stream": "kept"},
    {"workers": 1, "accumulate": 3, "ranks": 4, "precision": "bf16", "plateau": True, "sampler": True, "norm": True, "samples": 58},
    {"workers": 3, "accumulate": 1, "ranks": 2, "ema": True, "sampler": True, "clip": 0.5, "stop_early": True},
    {"trainer": True, "workers": 1, "accumulate": 3},
    {"trainer": True, "ranks": 2, "plateau": True, "epochs": 5},
]


class Nursery:
    """The process that holds torch."""

    def __init__(self, python: str = sys.executable, **more: str) -> None:
        """python: the interpreter of the scripts. more: variables of their environment."""
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])}
        env = {k: v for k, v in env.items() if not k.startswith("STOKER_")} | more
        self._process = subprocess.Popen([python, str(HERE / "nursery.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def _ask(self, **order: object) -> dict:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, script: Path, argv: list[str], cwd: Path, out: Path, **env: str) -> int:
        """The pid of a script that was just started; it leads a process group of its own."""
        return self._ask(run=str(script), argv=argv, env=env, cwd=str(cwd), out=str(out))["pid"]

    def wait(self, pid: int, timeout_s: float = LIFE_S) -> int | None:
        """Its exit code (negative for a signal); None if it still runs."""
        return self._ask(wait=pid, timeout_s=timeout_s)["code"]

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


class Training:
    """One run of engine_training.py in a folder of its own: started, killed, started again."""

    def __init__(self, nursery: Nursery, folder: Path, options: dict) -> None:
        self.nursery = nursery
        self.folder = folder
        self.options = options
        self.script = TRAINER if options.get("trainer") else TRAINING
        self.starts = 0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def ranks(self) -> int:
        return self.options.get("ranks", 1)

    @property
    def root(self) -> Path:
        """The checkpoint folder."""
        return self.folder / "run"

    def start(self, script: Path | None = None, **env: str) -> list[int]:
        """Start every rank; the pids."""
        self.starts += 1
        argv = [json.dumps(self.options)]
        many = {"WORLD_SIZE": str(self.ranks), "LOCAL_WORLD_SIZE": str(self.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())} if self.ranks > 1 else {}
        pids = []
        for rank in range(self.ranks):
            mine = {**many, "RANK": str(rank), "LOCAL_RANK": str(rank)} if many else {}
            pids.append(self.nursery.start(script or self.script, argv, self.folder, self.folder / f"out{rank}.log", STARTS=str(self.starts), **mine, **env))
        return pids

    def kill(self, pids: list[int]) -> None:
        """SIGKILL to each rank and what it started, then wait for their end."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in pids:
            self.nursery.wait(pid)

    def live(self, script: Path | None = None, **env: str) -> list[int]:
        """One start to its end; the exit codes."""
        pids = self.start(script, **env)
        return [self._end(pid, pids) for pid in pids]

    def _end(self, pid: int, pids: list[int]) -> int:
        code = self.nursery.wait(pid)
        if code is None:
            self.kill(pids)
            raise AssertionError(f"still running after {LIFE_S:.0f} s:\n{self.text()}")
        return code

    def run(self) -> dict[str, str]:
        """One start that has to end well; what it came to."""
        codes = self.live()
        assert not any(codes), f"exit codes {codes}:\n{self.text()}"
        return self.result()

    def killed_after(self, seconds: float) -> bool:
        """A start that is killed after this time, unless it ended before. Was it killed?"""
        pids = self.start()
        code = self.nursery.wait(pids[0], seconds)
        self.kill(pids)
        assert code in (None, 0, -9), f"exit code {code}:\n{self.text()}"
        return code is None

    def text(self, rank: int = 0) -> str:
        """What a rank printed, over all starts."""
        path = self.folder / f"out{rank}.log"
        return path.read_text() if path.exists() else ""

    def result(self) -> dict[str, str]:
        """Everything that must not depend on kills: the last checkpoint leaf by leaf, the samples that were seen, the curve."""
        from safetensors.torch import load_file  # brings torch

        last = self.root / (self.root / "latest").read_text().strip()
        doc = json.loads((last / "state.json").read_text())
        found = {f"doc.{name}": json.dumps(value) for name, value in leaves(doc) if name.split(".")[0] not in NOT_STATE and not name.startswith("metrics.")}
        found |= {f"tensor.{name}": hashlib.sha256(t.contiguous().reshape(-1).view(-1).numpy().tobytes() if t.dtype.is_floating_point and t.element_size() > 2
                                                   else repr(t.tolist()).encode()).hexdigest() for name, t in load_file(last / "tensors.safetensors").items()}
        found |= {f"seen.{name}": line for name, line in self.seen().items()}
        curve = [json.loads(line) for line in (self.root / "metrics.jsonl").read_text().splitlines()]
        found["curve"] = json.dumps([{k: v for k, v in line.items() if k != "at"} for line in curve])
        found["printed"] = next(line for line in reversed(self.text().splitlines()) if line.startswith("RESULT"))
        return found

    def seen(self) -> dict[str, str]:
        """place in the training -> sample ids and a hash of what came of them. A place that was seen twice has to be the same twice."""
        found: dict[str, str] = {}
        for rank in range(self.ranks):
            path = self.folder / f"seen{rank}.txt"
            for line in path.read_text().splitlines() if path.exists() else []:
                place, _, rest = line.partition(" ")
                key = f"{rank}.{place}"
                assert found.get(key, rest) == rest, f"{key} was {found[key]}, then {rest}"
                found[key] = rest
        return found

    def edit(self, change: Callable[[dict, dict], None]) -> None:
        """Change the newest checkpoint (document and tensors) and make it whole again."""
        from stoker.engine import checkpoint

        saved, _ = checkpoint.newest(self.root)
        change(saved.doc, saved.tensors)
        for folder in self.root.glob("step-*"):
            shutil.rmtree(folder)
        checkpoint.write(self.root, saved.doc, {name: t.contiguous() for name, t in saved.tensors.items()})

    def copy_to(self, folder: Path) -> Training:
        """The same run, as it stands on disk, in another folder."""
        shutil.copytree(self.folder, folder)
        twin = Training(self.nursery, folder, self.options)
        twin.starts = self.starts
        return twin


def leaves(value: object, path: str = "") -> list[tuple[str, object]]:
    """(path, value) of every leaf of a JSON document."""
    if isinstance(value, dict) and value:
        return [leaf for name, each in value.items() for leaf in leaves(each, f"{path}.{name}" if path else name)]
    if isinstance(value, list) and value:
        return [leaf for n, each in enumerate(value) for leaf in leaves(each, f"{path}.{n}")]
    return [(path, value)]


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Names of what differs."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def kill_moments(seed: int, span_s: float, kills: int) -> list[float]:
    """Random times within a training of this length."""
    dice = random.Random(seed)
    return [dice.uniform(0.02, span_s) for _ in range(kills)]


def timed(training: Training) -> tuple[dict[str, str], float]:
    """An undisturbed run, and how long it took."""
    began = time.monotonic()
    return training.run(), time.monotonic() - began


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

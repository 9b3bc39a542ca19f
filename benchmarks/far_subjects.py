"""Claim: scripts that nobody here wrote run on an ssh machine unmodified, are killed and resumed there, and
their files at home are equal.

The machine is a real sshd on loopback. The measure is a plain run of the same command.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import real
from benchmarks.ground import REPO, Ground, until
from benchmarks.measure import Row

FIRST_STEP, TAIL = 20_000, 200  # bytes of a recording: with the first step in it; behind an image
PICTURES = 6_000  # of MNIST for the training that is long enough to be resumed
TIMES = re.compile(r"time [\d.]+ms, mfu [-\d.]+%")
TRIALS = {  # name -> (training, words after it, time between images)
    "nanoGPT, 20 iterations": (
        "nanogpt",
        ("--max_iters=20", "--eval_interval=10", "--always_save_checkpoint=True"),
        "5steps",
    ),
    "MNIST, one epoch of 6,000 pictures": (
        "mnist",
        ("--epochs", "1", "--save-model", "--no-accel", "--log-interval", "5"),
        "30steps",
    ),
    "MNIST, --dry-run": ("mnist", ("--epochs", "1", "--save-model", "--no-accel", "--dry-run"), "1steps"),
}


def rows(ground: Ground, short: bool) -> list[Row]:
    """One kill a training."""
    spec = importlib.util.spec_from_file_location("sshd", REPO / "tests" / "real" / "sshd.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = Path(tempfile.mkdtemp(prefix="st-sshd-", dir="/tmp"))
    sshd = module.Sshd(folder)
    try:
        _add_machine(ground, sshd.options)
        names = list(TRIALS)[:1] if short else list(TRIALS)
        return [_trial(ground, name) for name in names]
    finally:
        ground.stoker("server", "stop")
        sshd.close()
        shutil.rmtree(folder, ignore_errors=True)


def _add_machine(ground: Ground, options: tuple[str, ...]) -> None:
    settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
    ground.stoker(
        "machine", "add", "box", "--root", f"{ground.root}/far", "--", "-F", f"{ground.root}/ssh", "box"
    ).ok()


def _trial(ground: Ground, name: str) -> Row:
    training, words, every = TRIALS[name]
    here, plain = (
        _laid_out(training, name, ground.root / "here" / training),
        _laid_out(training, name, ground.root / "plain" / training),
    )
    script = here.script.relative_to(here.folder)
    command = [
        "sh",
        "-c",
        'cd "$0" && exec "$@"',
        here.folder.name,
        sys.executable,
        str(script),
        *here.args,
        *words,
    ]
    env = {**ground.env, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=plain.folder.parent, env=env, capture_output=True, text=True, check=True
    )
    began = time.monotonic()
    run = ground.detach(
        "--on",
        "box",
        "--env",
        "OMP_NUM_THREADS=1",
        "--env",
        f"STOKER_IMAGE_EVERY={every}",
        "--",
        *command,
        cwd=here.folder.parent,
    )
    _kill(Path(run["folder"]), one_step="--dry-run" in words)
    killed = ground.stoker("wait", run["id"], timeout_s=600).code
    ground.stoker("start", run["id"]).ok()
    ended = ground.stoker("wait", run["id"], timeout_s=600).code
    shown = ground.show(run["id"])
    resumed = (shown["resume"] or {}).get("resumed") or {}
    differ = sorted(_differing(plain.folder.parent, here.folder.parent))
    text = [TIMES.sub("", each) for each in (ground.stoker("logs", run["id"]).out, done.stdout)]
    missing = [line for line in text[1].splitlines() if line not in text[0]]
    wrong = [
        *differ,
        *missing,
        *([] if (killed, ended) == (128 + signal.SIGKILL, 0) else [f"exit codes {killed}, {ended}"]),
    ]
    how = f"resumed at step {resumed['step']}, {resumed['grade']}" if resumed else "restarted from the start"
    detail = (
        f"{how}; {time.monotonic() - began:.0f} s; {', '.join(shown['outputs']['lines'])}; first: "
        f"{(wrong or ['none'])[0][:200]}"
    )
    return Row(
        name=f"{name}: files and lines that differ from a plain run's",
        value=len(wrong),
        target=0,
        unit="",
        n=1,
        detail=detail,
    )


def _laid_out(training: str, name: str, target: Path) -> real.Real:
    shutil.rmtree(target, ignore_errors=True)
    made = real.ready(training, target)
    if training == "nanogpt":
        kept = [each for each in made.args if not each.startswith(("--max_iters", "--eval_iters"))]
        return replace(made, args=(*kept, "--eval_iters=5"))
    for file in (target / "data" / "MNIST" / "raw").iterdir():
        if file.suffix == ".gz":
            file.unlink()
        elif "pictures" in name:
            file.write_bytes(_first_of(file.read_bytes()))
    return made


def _first_of(idx: bytes) -> bytes:
    """A file of MNIST with the first of its pictures or labels; big-endian:
    type, how many, and for pictures their two sides."""
    count, head = int.from_bytes(idx[4:8], "big"), 4 + 4 * idx[3]
    most = min(PICTURES, count)
    return idx[:4] + most.to_bytes(4, "big") + idx[8:head + (len(idx) - head) // count * most]


def _kill(folder: Path, one_step: bool) -> None:
    """SIGKILL the script a little behind its first image;
    a training of one step has none that could be used, and dies in that step."""
    log, attempt = folder / "resume" / "log", folder / "attempts" / "1"

    def seen() -> tuple[int, int]:
        try:
            image = json.loads((folder / "resume" / "state.json").read_bytes()).get("image") or {}
            pid = json.loads((attempt / "hooks" / "processes.jsonl").read_text().splitlines()[-1])["pid"]
        except (OSError, ValueError, IndexError, KeyError):
            return 0, 0
        return pid, image.get("step", 0)

    if one_step:
        until(lambda: _size(log) > FIRST_STEP, 600, "the first step")
    else:
        until(lambda: seen()[1], 600, "an image")
        size = _size(log)
        until(lambda: _size(log) > size + TAIL, 600, "values behind the image")
    os.kill(seen()[0], signal.SIGKILL)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _differing(plain: Path, here: Path) -> Iterator[str]:
    """Files that are not the same in both folders."""
    known, found = _hashes(plain), _hashes(here)
    return (name for name in known.keys() | found.keys() if known.get(name) != found.get(name))


def _hashes(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}

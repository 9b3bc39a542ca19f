"""The CPU time that recording adds to ordinary scripts:
`python benchmarks/recording_cpu.py [--short] [--only NAME]`.

Each script runs whole, about a minute: plain, recorded at the default interval of images, and recorded
without images, in the order
A B C C B A. The number is CPU time (user and system) of the script and its workers.
The third side tells recording and images apart.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "resume")]

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row, number  # noqa: E402
from benchmarks.resume_cost import Lives, lives  # noqa: E402

ORDINARY = REPO / "tests" / "resume" / "ordinary"
PLAIN, RECORDED, NO_IMAGES = "", "auto", "86400s"


@dataclass(frozen=True, kw_only=True)
class Training:
    """A script, and what makes it last a minute."""

    name: str
    args: tuple[str, ...] = ()
    longer: tuple[tuple[str, str], ...] = ()  # (text in the script, the same with more epochs)


TRAININGS = (
    Training(name="cnn_tutorial", args=("--epochs", "130")),
    Training(name="vae", longer=(("range(1, 31)", "range(1, 1100)"),)),
    Training(name="word_language_model", longer=(("0.25, 20, 10\n", "0.25, 20, 970\n"),)),
    Training(name="tiny_vit", longer=(("epochs: int = 8", "epochs: int = 150"),)),
)


def prepared(base: Path, training: Training) -> list[str]:
    """The command of an ordinary script, made longer, in a folder of its own."""
    text = (ORDINARY / f"{training.name}.py").read_text()
    for short, longer in training.longer:
        assert short in text, f"{training.name}: {short!r} is not in the script"
        text = text.replace(short, longer)
    script = base / f"{training.name}.py"
    script.write_text(text)
    return [str(script), *training.args]


def subjects(base: Path) -> Iterator[tuple[str, list[str], Path]]:
    """MNIST of the PyTorch examples and nanoGPT, where they are beside this checkout:
    name, command, folder to run in."""
    import test_resume_subjects as found

    if not found.SUBJECTS.is_dir():
        return
    mnist = found.mnist(base / "mnist", 0)
    yield "MNIST", ["main.py", "--epochs", "1", "--batch-size", "64", "--no-accel"], mnist.path.parent
    gpt = found.nanogpt(base / "nanogpt")
    replaced = ("--max_iters", "--lr_decay_iters", "--eval_interval")
    words = [word for word in gpt.args if not word.startswith(replaced)]
    yield (
        "nanoGPT",
        ["train.py", *words, "--max_iters=6000", "--lr_decay_iters=6000", "--eval_interval=1000"],
        gpt.path.parent,
    )


def cpu_s(made: Lives, argv: list[str], every: str, cwd: Path) -> float:
    """CPU seconds of one run from start to end, its workers included."""
    process, folder = made.start(argv, every=every, cwd=fresh(cwd, made.base), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "err").read_text()[-2000:]
    return used.ru_utime + used.ru_stime


def fresh(cwd: Path, base: Path) -> Path:
    """A copy of the folder: no run finds what another left. Data beside it is linked."""
    count = len(list(base.glob("at-*")))
    place = base / f"at-{count}" / cwd.name
    shutil.copytree(cwd, place, symlinks=True)
    if (cwd.parent / "data").is_dir():
        (place.parent / "data").symlink_to(cwd.parent / "data")
    return place


@contextmanager
def chosen(short: bool, only: list[str] | None) -> Iterator[tuple[Lives, list[tuple[str, list[str], Path]]]]:
    """The trainings to run, each with its command and folder."""
    with lives() as made:
        empty = made.base / "empty"
        empty.mkdir()
        every = [(training.name, prepared(made.base, training), empty) for training in TRAININGS]
        if short:
            every = [("cnn_tutorial", [*every[0][1][:1], "--epochs", "1"], empty)]
        else:
            every += subjects(made.base)
        yield made, [each for each in every if not only or each[0] in only]


def rows(ground: Ground | None, short: bool, only: list[str] | None = None) -> list[Row]:
    """For the page of all benchmarks: two numbers a script, told without a target."""
    found = []
    with chosen(short, only) as (made, trainings):
        for name, argv, cwd in trainings:
            sides: dict[str, list[float]] = {PLAIN: [], RECORDED: [], NO_IMAGES: []}
            for side in (
                (PLAIN, RECORDED, NO_IMAGES)
                if short
                else (PLAIN, RECORDED, NO_IMAGES, NO_IMAGES, RECORDED, PLAIN)
            ):
                sides[side].append(cpu_s(made, argv, side, cwd))
            plain, recorded, bare = (statistics.median(each) for each in sides.values())
            ratios = sorted(b / a for a, b in zip(sides[PLAIN], sides[RECORDED], strict=True))
            found.append(
                Row(
                    name=f"recording {name}: CPU over plain python",
                    value=recorded / plain,
                    low=ratios[0],
                    high=ratios[-1],
                    target=None,
                    unit="x",
                    n=len(ratios),
                    detail=(
                        f"plain {number(plain)} s, recorded {number(recorded)} s, without images "
                        f"{number(bare)} s"
                    ),
                )
            )
            print(found[-1].line(), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    rows(None, args.short, args.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())

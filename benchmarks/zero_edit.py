"""An unmodified script with and without what the tuner found for it:
`python benchmarks/run.py --only zero-edit`.

MNIST of the PyTorch examples, with consent to bfloat16, is tuned by `stoker tune` and then run whole, start
and tests included, by `stoker run` with and without the settings, in ABBA order with the same seeds on both
sides. nanoGPT, on whose CPU steps little can be won from outside, shows that nothing is claimed there.
"""

from __future__ import annotations

import re
import statistics
import time

from benchmarks import real
from benchmarks.ground import Ground
from benchmarks.measure import Row, ratio

SEEDS = (1, 2, 3)
FASTER, MOST_OF_NANOGPT = 1.5, 1.15
_ACCURACY = re.compile(r"Accuracy: (\d+)/10000")


def rows(ground: Ground, short: bool) -> list[Row]:
    """Minutes of training; the short form has none of them."""
    return [] if short else [*_mnist(ground), _nanogpt(ground)]


def _mnist(ground: Ground) -> list[Row]:
    script = real.ready("mnist", ground.work / "mnist")
    told = ground.stoker(
        "tune", "--json", "--force", "--allow", "precision", *script.words, cwd=script.folder, timeout_s=900
    ).json()
    workers = next(t for t in told["tips"] if t["name"] == "num_workers")
    times: dict[bool, list[float]] = {False: [], True: []}
    right: dict[bool, list[int]] = {False: [], True: []}
    for n, seed in enumerate(SEEDS):
        for tuned in (False, True) if n % 2 == 0 else (True, False):
            began = time.monotonic()
            done = ground.stoker(
                "run",
                *([] if tuned else ["--no-settings"]),
                *script.words,
                "--epochs",
                "1",
                "--seed",
                str(seed),
                cwd=script.folder,
                timeout_s=600,
            ).ok()
            times[tuned].append(time.monotonic() - began)
            right[tuned].append(int(_ACCURACY.search(done.out)[1]))
    value, low, high = ratio(times[False], times[True])
    lost = statistics.mean(right[False]) - statistics.mean(right[True])
    spread = max(right[False]) - min(right[False])
    return [
        Row(
            name="MNIST, unmodified, one epoch from start to end: without settings / with those found",
            value=value,
            low=low,
            high=high,
            target=FASTER,
            unit="x",
            best="high",
            n=len(SEEDS),
            detail=f"{statistics.median(times[False]):.1f} s, {statistics.median(times[True]):.1f} s with "
            f"{', '.join(told['kept'])}; "
            f"tip num_workers: {workers['state']}",
        ),
        Row(
            name="MNIST: right answers of 10,000 lost by that, mean of seeds",
            value=max(0.0, lost),
            target=spread,
            unit="",
            n=len(SEEDS),
            detail=f"without {right[False]}, with {right[True]}; the target is the spread of the seeds without",  # noqa: E501
        ),
    ]


def _nanogpt(ground: Ground) -> Row:
    script = real.ready("nanogpt", ground.work / "nanogpt")
    told = ground.stoker("tune", "--json", "--force", *script.words, cwd=script.folder, timeout_s=600).json()
    claimed = 1 / told["total"]["value"] if told["total"] else 1.0
    return Row(
        name="nanoGPT on the CPU: speed-up that the tuner claims",
        value=claimed,
        target=MOST_OF_NANOGPT,
        unit="x",
        n=1,
        detail=told["verdict"],
    )

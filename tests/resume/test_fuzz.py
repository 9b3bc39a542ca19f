"""Random training scripts, composed from parts: never silently wrong, and most of them exact."""

from __future__ import annotations

import pytest
from fuzz import PARTS, compose, spec_of, write
from harness import Kill


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))  # the campaign has 100
def test_a_random_script_is_exact_or_refused(seed, killed, short_tmp):
    killed(write(spec_of(seed), short_tmp / "src"), [[Kill("image", 0.1, 1)]], every="80steps")


def test_a_seed_always_makes_the_same_script():
    assert compose(spec_of(7)) == compose(spec_of(7))
    assert compose(spec_of(7)) != compose(spec_of(8))


def test_every_choice_of_every_part_can_be_written():
    simplest = {**{part: options[0] for part, options in PARTS.items()}, "extras": [], "seed": 1, "every": 10}
    for part, options in PARTS.items():
        for option in options:
            compile(compose({**simplest, part: option}), option, "exec")

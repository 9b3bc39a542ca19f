"""The picture as SVG and in characters: it holds what was measured, is well formed, and fits its width."""

import re
import xml.etree.ElementTree as ET

import pytest
from made_facts import CARD, facts, pairs

from stoker.tune import picture, reading, rules
from stoker.tune.findings import Curve, Findings, Stage

WAITS = {"data": 0.7, "forward": 0.15, "backward": 0.15}


def found(card=CARD):
    made = facts(*pairs("R1", 3.0, split=WAITS), alone=[{"workers": 1, "rate": 4500}, {"workers": 2, "rate": 8500}],
                 samples={"n": 64, "cpu_s": 64 * 2e-4, "wait_s": 0.0, "p50_s": 2e-4, "max_s": 3e-4, "bytes": 4096, "same": True, "again_s": 64 * 2e-4},
                 loader={"workers": 1, "prefetch": 2})
    return rules.judge(made, card, reading.Reading(epochs=True))


def test_the_svg_is_well_formed_and_says_what_it_shows():
    root = ET.fromstring(picture.svg(found(), "a < b & c"))
    said = " ".join(root.itertext())
    for word in ("now", "after", "floor", "waiting for data", "needed by the training", "2 cores", "advised", "a < b & c"):
        assert word in said, word
    assert root.tag.endswith("svg") and "script" not in {e.tag.rpartition("}")[2] for e in root.iter()}


def test_too_many_workers_are_shaded():
    said = " ".join(ET.fromstring(picture.svg(found({**CARD, "shm_bytes": 1 << 20}))).itertext())
    assert "shared memory is full" in said


def test_bars_are_as_tall_as_their_times():
    shown = dict(picture.bars(found()))
    assert sum(shown["now"].values()) == pytest.approx(10, rel=0.03) and sum(shown["floor"].values()) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_the_terminal_picture_fits(width, colour):
    import re

    told = picture.terminal(found(), width, colour)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told)
    assert max(map(len, plain.splitlines())) <= width and ("\x1b" in told) == colour
    assert "advised" in plain and "floor" in plain


def test_nothing_measured_is_still_a_picture():
    assert "Not tuned" in picture.svg(Findings("Not tuned: the script asks for input."))
    assert picture.terminal(Findings("Not tuned."), 80).strip() == ""
    ET.fromstring(picture.svg(Findings("x", curve=Curve(dots=((1, 10.0),)))))


@pytest.mark.parametrize("value, top", [(0, 1.0), (0.9, 1.0), (1.01, 1.2), (7, 8), (9.7, 10), (1234, 1600)])
def test_round_tops(value, top):
    assert picture.nice(value) == pytest.approx(top)


def test_cells_of_a_bar_add_up():
    assert sum(c for _, c in picture.blocks({"a": 1.0, "b": 1.0, "c": 1.0}, 3.0, 50)) == 50


def test_what_is_far_above_the_compute_line_keeps_its_shape():
    curve = Curve(dots=((0, 16_800.0), (1, 11_000.0), (2, 17_800.0)), line=((0, 16_800.0), (1, 11_000.0), (2, 17_800.0)), compute=1_530.0, cores=2)
    found = Findings(verdict="", stages=(Stage("forward", 40.0, 1.0, None, "clock"),), curve=curve)
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)" r="4"', picture.svg(found))]
    assert len(set(heights)) == 3 and heights[1] > heights[0] > heights[2]
    assert len({line.index("●") for line in picture.terminal(found).splitlines() if "●" in line and "measured" not in line}) == 3


def test_without_a_curve_there_is_no_room_for_one():
    found = Findings(verdict="", stages=(Stage("forward", 40.0, 1.0, None, "clock"),))
    assert 'width="470"' in picture.svg(found)

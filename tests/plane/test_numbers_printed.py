"""What is read from a printed log: files in published styles, with what must come of each; and what no log may do to the reader.

`printed/NAME.log` is what a script of that style prints, `printed/NAME.json` the curves that it tells, and nothing besides.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from stoker.plane.numbers.printed import KINDS_MAX, Parser

FOLDER = Path(__file__).parent / "printed"
STYLES = sorted(path.stem for path in FOLDER.glob("*.log"))


def read(data: bytes, piece: int = 1 << 20, whole: bool = True) -> Parser:
    parser = Parser()
    for at in range(0, len(data), piece):
        parser.feed(data[at:at + piece])
    parser.end(whole)
    return parser


def told(parser: Parser) -> dict:
    return {one.name: {"axis": one.axis, "points": [[at, value if math.isfinite(value) else str(value)] for at, value, _ in one.points]}
            for one in parser.series()}


def lines(text: str, count: int) -> bytes:
    return "".join(text.format(i=i, v=1 / i) + "\n" for i in range(1, count + 1)).encode()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("piece", [1 << 20, 97], ids=["whole", "pieces"])
def test_a_log_of_a_published_style(style: str, piece: int):
    wanted = json.loads((FOLDER / f"{style}.json").read_text("utf-8"))
    parser = read((FOLDER / f"{style}.log").read_bytes(), piece, whole=style != "torn_end")
    assert told(parser) == wanted["series"]
    assert {name: value for name, (value, _) in parser.results().items()} == wanted["results"]


def test_there_are_enough_styles():
    assert len(STYLES) >= 60


def test_a_curve_is_there_from_its_second_line_on_and_a_single_line_is_none():
    assert told(read(lines("step {i} loss {v:.3f}", 1))) == {}
    assert told(read(lines("step {i} loss {v:.3f}", 2))) == {"loss": {"axis": "step", "points": [[1, 1.0], [2, 0.5]]}}
    assert told(read(lines("loss {v:.3f}", 2))) == {}
    assert list(told(read(lines("loss {v:.3f}", 3)))) == ["loss"]


def test_a_torn_number_is_not_read():
    data = lines("step {i} loss {v:.5f}", 3) + b"step 4 loss 0.2"
    assert len(told(read(data, whole=False))["loss"]["points"]) == 3
    assert told(read(data, whole=True))["loss"]["points"][-1] == [4, 0.2]


def test_the_bytes_of_a_point_say_where_in_the_log_it_is():
    data = lines("step {i} loss {v:.3f}", 3)
    offsets = [offset for _, _, offset in read(data, piece=1).series()[0].points]
    assert offsets == [data.index(b"\n", data.index(b"step %d" % i)) + 1 for i in (1, 2, 3)]


def test_names_of_any_kind_are_kept():
    text = "step {i} | \N{DIRECT HIT} hits/f1: {v:.3f} | <b>loss</b>&amp;: {v:.2f} | a/b/c loss: {v:.2f}"
    names = list(told(read(lines(text, 3))))
    assert "\N{DIRECT HIT} hits/f1" in names and "a/b/c loss" in names


def test_a_repeated_value_is_no_new_point():
    twice = read(b"".join(line * 2 for line in lines("epoch {i} loss {v:.3f}", 3).splitlines(keepends=True)))
    assert told(twice)["loss"]["points"] == [[1, 1.0], [2, 0.5], [3, 0.333]]


@pytest.mark.parametrize("line", [
    "(" * 60000 + "1", " " * 60000 + "1", "1 " * 30000, "[1/2" * 10000, "tensor(" * 9000 + "1", "|" * 60000 + "1", "- " * 30000 + "1",
    "{" * 60000 + "}" * 60000, "a" * 60000 + "1", "a b " * 15000 + "=1", "Epoch " * 10000 + "1", "0.1 loss" * 8000, "x: " + "9" * 5000,
    "far: 1e99999", "far: -1e99999", "\x1b[" * 30000 + "1", "\r" * 60000 + "1", "\b" * 60000 + "1", "100%|" * 9000 + "1/1 ["])
def test_no_line_holds_the_reader_up(line: str):
    text = line.encode() + b"\n"
    parser = read(text * 2 + lines("step {i} loss {v:.3f}", 3) + text)
    assert told(parser)["loss"]["points"][:2] == [[1, 1.0], [2, 0.5]]


def test_noise_is_no_number():
    dice = random.Random(1)
    assert told(read(bytes(dice.randrange(256) for _ in range(200_000)))) == {}


def test_a_table_of_a_megabyte_and_ten_thousand_names():
    assert told(read(("|".join(["0.5"] * 250_000) + "\n").encode() * 2)) == {}
    parser = read("".join(f"key{i} word{chr(97 + i % 26) * (i % 50 + 1)}{'q' * (i // 50)} loss: 0.{i}\n" for i in range(10_000)).encode())
    assert len(parser._kinds) <= KINDS_MAX

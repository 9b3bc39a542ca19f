"""The English that a user reads: no riddles that a pattern can find, and no sentence over 35 words."""

from __future__ import annotations

import english
import pytest


def test_every_help_is_in_plain_words():
    found = [fault for where, text in english.help_texts() for fault in english.faults(where, text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", english.sources())
def test_every_message_is_in_plain_words(room):
    found = [fault for path in english.sources()[room] for fault in english.faults_of(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", english.pages())
def test_every_page_is_in_plain_words(name):
    found = [fault for line, text in english.prose(name) for fault in english.faults(f"{name}:{line}", text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("pattern", english.PATTERNS)
def test_each_pattern_is_found_with_its_place(pattern, tmp_path):
    bad = pattern.partition("`")[2].rpartition("`")[0]
    assert english.faults("a.py:3", f"The text says {bad} here.")[0] == f"a.py:3: {pattern}: The text says {bad} here."


def test_a_message_of_many_parts_is_read_as_one_text(tmp_path):
    """Messages of several lines and of f-strings are read as a user reads them; a list of names and a docstring are no messages."""
    source = tmp_path / "a.py"
    source.write_text('"""The docstring is not a message."""\nsay(f"the run {name} "\n    f"is told.")\nNAMES = "add append clear copy"\n')
    assert list(english.messages(source)) == [(2, "the run {} is told.")]
    long = " ".join(["word"] * 20)
    assert not english.faults("x", f"{long}. {long}.") and english.faults("x", f"{long} {long}.")

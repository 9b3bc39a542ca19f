"""The verbs and flags are what people's fingers and scripts know. A change here is a change for every user."""

from __future__ import annotations

import difflib
from pathlib import Path

from cli_flags import listing

GOLDEN = Path(__file__).with_name("cli_flags.txt")


def test_the_command_line_is_the_frozen_one():
    frozen, now = GOLDEN.read_text("utf-8"), listing()
    change = "\n".join(difflib.unified_diff(frozen.splitlines(), now.splitlines(), "cli_flags.txt", "the code", lineterm="", n=1))
    assert now == frozen, f"{change}\nIf users are meant to see this: python tests/house/cli_flags.py > tests/house/cli_flags.txt, and a line in CHANGELOG.md"

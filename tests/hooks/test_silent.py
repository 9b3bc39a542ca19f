"""Recording runs nobody else's code: no method of the script's objects is called that plain python does not call."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import beside
import pytest

HOOKS = Path(__file__).resolve().parents[2] / "src" / "stoker" / "inside"


@pytest.mark.parametrize("room", ["resume", "clock"])
def test_what_records_looks_by_type(room: str):
    """The builtin asks `thing.__class__`, which may be code of the script's."""
    asking = [path for path in sorted((HOOKS / room).rglob("*.py")) if re.search(r"(?<!\w)isinstance\(", path.read_text())]
    assert asking
    assert not [path.name for path in asking if not re.search(r"^from \.{2,3}looks import .*\bisinstance\b", path.read_text(), re.M)]


@pytest.mark.inside
@pytest.mark.timeout(300)
def test_objects_of_the_script_are_asked_nothing(tmp_path: Path):
    shutil.copy(Path(__file__).with_name("silent.py"), tmp_path / "train.py")
    plain, hooked, state = beside.both(tmp_path, "train.py", STOKER_IMAGE_EVERY="3steps")
    assert "the end of main" in plain[0]
    assert state["image"], f"no image was taken: {state['points_passed']}"
    assert hooked[0].splitlines() == plain[0].splitlines()
    assert hooked[1].splitlines() == plain[1].splitlines()

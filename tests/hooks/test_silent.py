"""Recording runs nobody else's code: no method of the script's objects is called that plain python does not call."""

from __future__ import annotations

import shutil
from pathlib import Path

import beside
import pytest


@pytest.mark.inside
@pytest.mark.timeout(300)
def test_objects_of_the_script_are_asked_nothing(tmp_path: Path):
    shutil.copy(Path(__file__).with_name("silent.py"), tmp_path / "train.py")
    plain, hooked, state = beside.both(tmp_path, "train.py", STOKER_IMAGE_EVERY="3steps")
    assert "the end of main" in plain[0]
    assert state["image"], f"no image was taken: {state['points_passed']}"
    assert hooked[0].splitlines() == plain[0].splitlines()
    assert hooked[1].splitlines() == plain[1].splitlines()

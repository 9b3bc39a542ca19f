"""What the tests of exact resume share: the hooks laid out once, a folder for each script, the judgement of a campaign."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import FULL, Kill, Script, Trial, campaign, vendored

HERE = Path(__file__).resolve().parent
IN_THE_GATE = ("test_fuzz.py", "test_mutation.py")  # `make test-hooks` has these, all else is `make test-resume`


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in IN_THE_GATE:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.campaign)


@pytest.fixture(scope="session")
def hooks() -> Iterator[Path]:
    """The folder for PYTHONPATH."""
    folder = Path(tempfile.mkdtemp(prefix="st-hooks-", dir="/tmp"))
    yield vendored(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def killed(hooks: Path, short_tmp: Path) -> Callable[..., list[Trial]]:
    """Runs a script's campaign and fails on anything silent; gives the trials."""

    def run(script: Script, plans: list[list[Kill]] | None = None, *, control: bool = FULL, **more: object) -> list[Trial]:
        if missing := script.missing():
            pytest.skip(f"the script needs {missing}, which is no part of this project")
        plans = plans or [[Kill("image", 0.1, 1)]]
        trials = campaign(script, short_tmp, kills=len(plans), plans=plans, control=control, hooks=hooks, every=more.pop("every", "150steps"), **more)
        if any(t.outcome == "unhurt" for t in trials):  # it ended before the kill: once more, sooner
            trials = campaign(script, short_tmp, kills=1, plans=[[Kill("image", 0.0, 1)]], control=False, hooks=hooks, every="40steps", **more)
        wrong = [t.line() for t in trials if not t.good]
        assert not wrong, "\n".join(wrong)
        return trials

    return run

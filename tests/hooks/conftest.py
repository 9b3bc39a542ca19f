"""Which tests of the hooks start whole lives of a script, with torch in them: those are slow."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
QUICK = {"test_captured_libraries.py", "test_captured_numbers.py", "test_entry.py", "test_fate_state.py", "test_lazy_numpy.py", "test_log_core.py", "test_points_bytecode.py", "test_private.py", "test_way_back.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in QUICK:
            item.add_marker(pytest.mark.slow)

"""What the house tests look at, and the check at the end of every whole run that nothing was left behind."""

from __future__ import annotations

import pytest
from leaks import Leaks

_leaks = Leaks()  # the picture before the first test: this file is read while tests are collected


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of the suite that leaves a process, a thread, a file or a changed environment behind has failed."""
    _leaks.look()
    if _leaks.found and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _leaks.found:
        terminalreporter.section("left behind by the tests", red=True)
        for line in _leaks.found:
            terminalreporter.write_line(f"  {line}")

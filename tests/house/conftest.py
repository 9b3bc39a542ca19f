"""Checks at the end of every whole run: nothing was left behind, and in the gate nothing was skipped that could be installed."""

from __future__ import annotations

import pytest
from leaks import Leaks
from skips import not_accepted

_leaks = Leaks()  # the picture before the first test: this file is read while tests are collected


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of the suite that leaves something behind, or skips what the gate wants tested, has failed."""
    _leaks.look()
    if (_leaks.found or not_accepted(session.config)) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, lines in (("left behind by the tests", _leaks.found), ("skipped, and must not be where STOKER_REQUIRE_REAL is set", not_accepted(terminalreporter.config))):
        if lines:
            terminalreporter.section(title, red=True)
            for line in lines:
                terminalreporter.write_line(f"  {line}")

"""In the gate (STOKER_REQUIRE_REAL=1) a skipped test is a failure, unless its reason is one that no installation can remove."""

from __future__ import annotations

import os
import re

import pytest

NOBODY_CAN_INSTALL = re.compile(
    r"\.\./shared"  # other people's scripts and data, which do not ship with the project
    r"|needs a GPU|no GPU"
    r"|/dev/fuse|cannot mount|memory cgroup"  # what the kernel or the container refuses
    r"|needs root|only root")


def not_accepted(config: pytest.Config) -> list[str]:
    """One line for each skip, of a test or of a whole file, that the gate does not accept; empty outside the gate."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("STOKER_REQUIRE_REAL") or reporter is None:
        return []
    reasons = ((r.nodeid, str(r.longrepr[2] if isinstance(r.longrepr, tuple) else r.longrepr)) for r in reporter.stats.get("skipped", ()))
    return [f"{test}: {why}" for test, why in reasons if not NOBODY_CAN_INSTALL.search(why)]

"""What every test may use: a state folder of its own, real parts or the reason why not, and a check that no process is left.

At the end of every run of tests: nothing was left behind, and in the gate nothing was skipped that could be installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.sshd import Sshd
from real.sshd import program as sshd_program

sys.path.insert(0, str(Path(__file__).with_name("house")))

from leaks import Leaks
from shares import in_shares
from skips import not_accepted

MARK = "TEST_MARK"  # inherited by what a test starts; not STOKER_*, since those do not reach runs
TRAINING_S = {"examples": 60.0}  # a slow test of that folder, where it is far from the usual
INSIDE = {"engine", "hooks", "tune", "faults", "rehearse", "test_cli_tune.py", "test_resume_runs.py", "test_fuzz.py", "test_mutation.py"}  # folders and files of tests
QUIET_S = 5.0  # what is on its way out gets this long
PARTS = {"sshd": lambda: sshd_program() and shutil.which("ssh") and shutil.which("ssh-keygen")}  # others: a program of that name


_looking: list[Leaks] = []  # one, in the process that the others belong to


def pytest_configure(config: pytest.Config) -> None:
    """The picture before the first test; one thread for each training; and an end by SIGTERM is one by Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` and CI send it: what the tests started shall end with them
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    os.environ.pop("PYTHONUNBUFFERED", None)  # what a script prints is buffered here as it is for its users
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads that spin at barriers made 15 s of training take 300
    config.pluginmanager.register(_Order())
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        _looking.append(Leaks())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of the suite that leaves something behind, or skips what the gate wants tested, has failed."""
    for leaks in _looking:
        leaks.look()
        if (leaks.found or not_accepted(session.config)) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = [line for leaks in _looking for line in leaks.found]
    for title, lines in (("left behind by the tests", left),
                         ("skipped, and must not be where STOKER_REQUIRE_REAL is set", not_accepted(terminalreporter.config))):
        if lines:
            terminalreporter.section(title, red=True)
            for line in lines:
                terminalreporter.write_line(f"  {line}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What works inside of scripts is tried with real trainings, and has a command of its own."""
    for item in items:
        inside = INSIDE & {*item.path.parts, item.path.name}
        if item.path.name.startswith(("test_probe", "test_settings")) or (inside and item.get_closest_marker("slow")):
            item.add_marker(pytest.mark.inside)


class _Order:
    """The order for several processes, once it is known which tests are left out."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        processes = getattr(config, "workerinput", {}).get("workercount", 1)
        if processes > 1:
            items[:] = in_shares(items, processes, TRAINING_S)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.real("sshd")`: a missing part skips with the reason; with STOKER_REQUIRE_REAL=1 it fails."""
    for mark in item.iter_markers("real"):
        for part in mark.args:
            need(part)


def need(part: str) -> None:
    """Go on only where the part is installed."""
    if PARTS.get(part, lambda: shutil.which(part))():
        return
    if os.environ.get("STOKER_REQUIRE_REAL"):
        pytest.fail(f"{part} is not installed", pytrace=False)
    pytest.skip(f"{part} is not installed")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fails the test that leaves a process behind, and ends that process. What wider fixtures start is theirs to end."""
    mark = uuid.uuid4().hex
    before = {name: os.environ.get(name) for name in (MARK, "PATH")}
    os.environ[MARK] = mark
    os.environ["PATH"] = f"{before['PATH'] or os.defpath}:/nonexistent/{mark}"  # daemons keep little else of their environment
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    deadline = time.monotonic() + QUIET_S
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        _kill(pid)
    assert not left, "left behind: " + "; ".join(f"{pid} {words}" for pid, words in left.items())


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A fresh folder whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stoker_home(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$STOKER_HOME for one test; nothing is made in it."""
    monkeypatch.setenv("STOKER_HOME", str(short_tmp / "h"))
    return short_tmp / "h"


@pytest.fixture(scope="session")
def sshd() -> Iterator[Sshd]:
    """A real sshd on loopback for all tests. Ask for it with `@pytest.mark.real("sshd")` beside."""
    need("sshd")
    folder = Path(tempfile.mkdtemp(prefix="st-sshd-", dir="/tmp"))
    made = Sshd(folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


def _marked(mark: str) -> dict[int, str]:
    """Living processes that inherited the mark, by pid, with their command lines."""
    wanted, found = mark.encode(), {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in Path(entry.path, "environ").read_bytes():
                words = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                found |= {int(entry.name): words[:200]} if words else {}  # none: a zombie
        except OSError:
            continue  # it ended, or is not ours
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass

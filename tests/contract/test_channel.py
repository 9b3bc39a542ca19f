"""Many logs of a machine on one stream: whole, in order, no reader waits for another, and a cut is told to all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.sshd import Sshd, wait_for
from stoker.backends import registry
from stoker.backends.base import Backend
from stoker.backends.channel import WINDOW
from stoker.base.errors import TargetError
from stoker.hosts.ssh import SshHost

pytestmark = pytest.mark.real("sshd")
LOGS = 13  # more than sshd's MaxSessions


@pytest.fixture
def backend(sshd: Sshd, short_tmp: Path) -> Iterator[Backend]:
    made = registry.make("process", SshHost("127.0.0.1", options=sshd.options), str(short_tmp / "far"))
    yield made
    made.close()


def attempt(short_tmp: Path, number: int) -> Path:
    """An attempt's folder, as an agent would have made it a moment ago."""
    folder = short_tmp / "far" / "runs" / f"run{number}" / "attempts" / "1"
    folder.mkdir(parents=True)
    return folder


def end(folder: Path) -> None:
    (folder / "exit.new").write_text("{}")
    (folder / "exit.new").rename(folder / "exit.json")


def everything(log) -> bytes:
    found = b""
    while data := log.stdout.read(1 << 16):
        found += data
    return found


def test_thirteen_logs_use_one_login_and_one_command_and_each_is_whole(sshd, backend, short_tmp):
    folders = [attempt(short_tmp, n) for n in range(LOGS)]
    for n, folder in enumerate(folders):
        (folder / "out.log").write_bytes(b"begin %d\n" % n)
    before = sshd.logins()
    logs = [backend.read(f"run{n}", 1, "out", 0, follow=True) for n in range(LOGS)]
    assert [log.stdout.read(100) for log in logs] == [b"begin %d\n" % n for n in range(LOGS)]
    assert len({log.pid for log in logs}) == 1 and sshd.logins() == before + 1
    for folder in folders:
        with open(folder / "out.log", "ab") as f:
            f.write(os.urandom(200_000))
        end(folder)
    for n, (log, folder) in enumerate(zip(logs, folders, strict=True)):
        assert b"begin %d\n" % n + everything(log) == (folder / "out.log").read_bytes() and log.wait(60) == 0
        log.close()


def test_a_log_that_nobody_reads_holds_up_no_other_and_comes_whole_later(backend, short_tmp):
    slow, quick = attempt(short_tmp, 0), attempt(short_tmp, 1)
    content = os.urandom(5 * WINDOW)
    for folder in (slow, quick):
        (folder / "out.log").write_bytes(content)
        end(folder)
    waiting, read = (backend.read(f"run{n}", 1, "out", 0, follow=True) for n in range(2))
    assert everything(read) == content and read.wait(60) == 0
    read.close()
    assert everything(waiting) == content and waiting.wait(60) == 0
    waiting.close()


def test_from_an_offset_and_an_attempt_that_is_not_there(backend, short_tmp):
    folder = attempt(short_tmp, 0)
    (folder / "out.log").write_bytes(b"0123456789")
    end(folder)
    with backend.read("run0", 1, "out", 4, follow=True) as log:
        assert everything(log) == b"456789" and log.wait(60) == 0
    with backend.read("run0", 2, "out", 0, follow=True) as log:
        assert everything(log) == b"" and log.wait(60) == 1 and "run0 has no attempt 2" in log.stderr_tail()


def test_a_cut_is_told_to_all_and_the_next_log_opens_another_stream(sshd, backend, short_tmp):
    folder = attempt(short_tmp, 0)
    (folder / "out.log").write_bytes(b"here\n")
    logs = [backend.read("run0", 1, "out", 0, follow=True) for _ in range(3)]
    assert [log.stdout.read(100) for log in logs] == [b"here\n"] * 3
    sshd.cut()
    for log in logs:
        assert log.stdout.read(100) == b""
        with pytest.raises(TargetError) as raised:
            log.wait(60)
        assert raised.value.retry
        log.close()
    with backend.read("run0", 1, "out", 0, follow=True) as log:
        assert log.stdout.read(100) == b"here\n"


def test_close_ends_a_read_that_waits_and_the_command_there_after_the_last(backend, short_tmp):
    folder = attempt(short_tmp, 0)
    (folder / "out.log").write_bytes(b"here\n")
    log, other = (backend.read("run0", 1, "out", 0, follow=True) for _ in range(2))
    assert log.stdout.read(100) == other.stdout.read(100) == b"here\n"
    waits = threading.Thread(target=log.stdout.read, args=(100,))
    waits.start()
    log.close()
    waits.join(60)
    assert not waits.is_alive()
    log.close()
    with open(folder / "out.log", "ab") as f:
        f.write(b"more\n")
    assert other.stdout.read(100) == b"more\n"
    pid = other.pid
    other.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 60, "the ssh of the channel")

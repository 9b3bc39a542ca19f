"""What the agent prints, as values: pure functions on real answers, and on what a broken machine may print instead."""

from __future__ import annotations

import json

import pytest

from stoker.backends.answers import parse_answer, parse_observations
from stoker.backends.base import Capacity, Observation
from stoker.base.errors import NotFound, StateError, StokerError, TargetError
from stoker.hosts.base import Finished

RUNNING = (b'{"id": "r1", "attempt": 2, "phase": "running", "attempts": [1, 2], "started_at": 1795263975.88, "heartbeat_at": 1795263976.07, '
           b'"heartbeat_age_s": 0.06, "used_s": 12.5, "limits_seq": 3, "waits_for_input": true, "out_bytes": 6, "err_bytes": 0, '
           b'"telemetry": {"cpu_percent": 93.0}, "exit": null, "keep": null, "run_pid": 77, "something_newer": 1}\n')
ABSENT = b'{"id": "r2", "attempt": null, "phase": "absent", "attempts": []}\n'
PROBE = (b'{"identity": {"hostname": "box", "boot_id": "b", "init_start": 1}, "cpus": 7.5, "cpus_total": 8, "memory_bytes": 10, "memory_free_bytes": null, '
         b'"gpus": [{"index": 0, "uuid": "GPU-1", "name": "H200", "memory_bytes": 9, "used_bytes": 1}], "disk_free_bytes": 5, "python": {"version": "3.8.1"}}\n')


def test_observations() -> None:
    running, absent = parse_observations(parse_answer(Finished(0, RUNNING + ABSENT, b""), "poll", "box"), "box")
    assert (running.id, running.attempt, running.attempts, running.phase, running.used_s) == ("r1", 2, (1, 2), "running", 12.5)
    assert running.waits_for_input and running.run_pid == 77 and running.telemetry == {"cpu_percent": 93.0}
    assert absent == Observation(id="r2", phase="absent")


def test_capacity() -> None:
    has = Capacity.from_json(json.loads(PROBE))
    assert (has.cpus, has.memory_bytes, has.memory_free_bytes, has.gpus[0]["uuid"], has.inodes_free) == (7.5, 10, None, "GPU-1", None)


@pytest.mark.parametrize(("error", "kind"), [("state", StateError), ("absent", NotFound), ("no_spec", NotFound), ("disk_full", TargetError),
                                             ("system", TargetError), ("usage", TargetError), ("of a newer agent", TargetError)])
def test_errors_of_the_agent(error: str, kind: type[StokerError]) -> None:
    line = json.dumps({"error": error, "detail": "attempt 2 is running"}).encode()
    with pytest.raises(kind) as raised:
        parse_answer(Finished(1, line + b"\n", b""), "start", "box")
    assert "ttempt 2 is running" in raised.value.message and raised.value.hint


def test_a_folder_that_is_away_is_looked_for_again() -> None:
    with pytest.raises(TargetError, match="disk/x does not exist") as raised:
        parse_answer(Finished(1, RUNNING + b'{"error": "away", "detail": "the folder /disk/x does not exist"}\n', b""), "poll", "box")
    assert raised.value.retry and "mounted" in raised.value.hint


@pytest.mark.parametrize("out", [b"Welcome to box!\n", b"[1, 2]\n", b'{"id": "r1"\n', b"\xff\xfe\n", b"null\n"])
def test_nonsense_is_no_answer(out: bytes) -> None:
    with pytest.raises(TargetError) as raised:
        parse_answer(Finished(0, out, b""), "poll", "box")
    assert not raised.value.retry


@pytest.mark.parametrize("line", [b"{}", b'{"id": 3, "phase": "running"}', b'{"id": "r1", "phase": "flying"}', b'{"id": "r1"}'])
def test_nonsense_is_no_observation(line: bytes) -> None:
    with pytest.raises(TargetError) as raised:
        parse_observations(parse_answer(Finished(0, line, b""), "poll", "box"), "box")
    assert not raised.value.retry


@pytest.mark.parametrize(("code", "retry"), [(137, True), (143, True), (1, False), (127, False)])
def test_an_agent_that_says_nothing(code: int, retry: bool) -> None:
    with pytest.raises(TargetError) as raised:
        parse_answer(Finished(code, b"", b"Traceback\nMemoryError\n"), "poll", "box")
    assert raised.value.retry is retry and "MemoryError" in raised.value.message

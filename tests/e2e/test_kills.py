"""SIGKILL at every named point and at a few random moments. The full campaigns are benchmarks; these are short ones."""

from __future__ import annotations

import pytest
from benchmarks import kills
from benchmarks.ground import Ground

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def kept(tally: kills.Tally) -> None:
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.moments and tally.runs


@pytest.mark.parametrize("point", kills.SERVER_POINTS)
def test_the_server_dies_at_a_named_point(ground: Ground, point: str):
    kept(kills.server_at_point(ground, point))


@pytest.mark.parametrize("point", kills.AGENT_POINTS)
def test_a_caretaker_dies_at_a_named_point(ground: Ground, point: str):
    kept(kills.agent_at_point(ground, point))


def test_the_server_dies_while_it_makes_its_database(ground: Ground):
    """Whatever it had written, the next one opens it."""
    ground.home.mkdir(mode=0o700)
    doomed = kills.start_server(ground, STOKER_CRASH_AT="migrate.middle")
    assert doomed.wait(30) == -9, "the server never passed migrate.middle"
    run = ground.detach("--", "echo", "hello")
    assert ground.wait_state(run["id"])["state"] == "done"
    assert ground.log(run["id"]) == b"hello\n"


def test_the_server_dies_at_random_moments(ground: Ground):
    kept(kills.server_at_random(ground, moments=5, live=8))


def test_the_agent_dies_at_random_moments(ground: Ground):
    kept(kills.agent_at_random(ground, moments=4))


def test_holder_and_agent_die_together(ground: Ground):
    kept(kills.caretakers_killed(ground, moments=4))


def test_everything_dies_and_the_machine_is_another_one(ground: Ground):
    kept(kills.rebooted(ground, moments=1))


def test_the_judge_notices_what_is_wrong(ground: Ground):
    """The campaigns are worth what their judge sees: one byte, one attempt, one run, one wish, one process more or less."""
    traffic = kills.Traffic(ground, 0, lines=3)
    for _ in range(2):
        traffic.submit()
    runs = {name: ground.wait_state(name) for name in traffic.wished}
    first = traffic.wished["r0"]

    def wrong() -> str:
        tally = kills.Tally(moments=1)
        kills.judge(ground, traffic, tally)
        return "\n".join(tally.wrong)
    assert wrong() == ""
    log = ground.attempt_file(runs["r0"]["id"], 1, "out.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    assert "r0: attempt 1" in wrong()
    log.write_bytes(whole.replace(b"1", b"7"))
    assert "is not what was printed" in wrong()
    log.write_bytes(whole)
    first.starts = 1
    assert "restarts asked" in wrong()
    first.starts = 0
    with open(traffic.side("r0"), "ab") as f:
        f.write(b"1\n")
    assert "processes started" in wrong()
    (ground.root / "starts-r0").write_bytes(b"1\n")
    forgotten = traffic.wished.pop("r1")
    assert "nobody asked for" in wrong()
    traffic.wished["r1"] = forgotten
    traffic.wished["r2"] = kills.Wished("r2", "lost-id")
    assert "acknowledged and lost" in wrong()
    del traffic.wished["r2"]
    assert wrong() == ""

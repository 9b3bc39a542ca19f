"""Claim: whatever is killed, whenever: no run, no byte, no wish is lost, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import kills
from benchmarks.ground import Ground
from benchmarks.measure import Row


def _row(name: str, tally: kills.Tally) -> Row:
    """How many things were not as promised, and the first of them."""
    detail = f"{tally.moments} kills, {tally.runs} runs"
    if tally.wrong:
        detail += "; first: " + tally.wrong[0][:300]
    return Row(
        name=name + ": broken promises",
        value=len(tally.wrong),
        target=0,
        unit="",
        n=tally.moments,
        detail=detail,
    )


def _points(campaign: Callable[[Ground, str], kills.Tally], points: tuple[str, ...]) -> kills.Tally:
    whole = kills.Tally()
    for point in points:
        ground = Ground()
        try:
            one = campaign(ground, point)
        except AssertionError as e:
            one = kills.Tally(moments=1, wrong=[f"{point}: {e}"])
        finally:
            left = ground.close()
        whole.moments += one.moments
        whole.runs += one.runs
        whole.wrong += one.wrong + [f"{point}: left behind: {x}" for x in left]
    return whole


def _random(ground: Ground, short: bool) -> kills.Tally:
    return (
        kills.server_at_random(ground, 1, live=3, lines=40) if short else kills.server_at_random(ground, 50)
    )


def server(ground: Ground, short: bool) -> list[Row]:
    """SIGKILL the server at every named point and at random moments."""
    points = kills.SERVER_POINTS[:1] if short else kills.SERVER_POINTS
    return [_row("SIGKILL the server at named points", _points(kills.server_at_point, points)),
            _row("SIGKILL the server at random moments", _random(ground, short))]


def agent(ground: Ground, short: bool) -> list[Row]:
    """SIGKILL the agent at every named point and at random moments; both caretakers; everything."""
    both = kills.caretakers_killed(ground, 1 if short else 20)
    points = kills.AGENT_POINTS[1:2] if short else kills.AGENT_POINTS
    return [
        _row("SIGKILL a caretaker at named points", _points(kills.agent_at_point, points)),
        _row("SIGKILL the agent at random moments", kills.agent_at_random(ground, 2 if short else 20)),
        _row("SIGKILL holder and agent together", both),
        Row(
            name="SIGKILL holder and agent: tree gone after, at most",
            value=both.slowest_s,
            target=10,
            unit="s",
            n=both.moments,
        ),
    ]


def machine(ground: Ground, short: bool) -> list[Row]:
    """SIGKILL everything and change the machine's identity."""
    return [
        _row(
            "SIGKILL everything on a machine that comes back as another",
            kills.rebooted(ground, 1 if short else 10),
        )
    ]

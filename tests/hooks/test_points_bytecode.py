"""Where intermediate values lie on a value stack, told from the bytecode of real frames."""

from __future__ import annotations

import contextlib
import sys

from stoker.inside.resume.core import bytecode


def dirty(_: object = None) -> bool:
    """Whether the caller holds intermediate values while it calls us."""
    return bytecode.holds_values(sys._getframe(1), False)


def made(x: int = 1) -> list:
    return [x]


def test_between_expressions_nothing_is_held() -> None:
    assert not dirty()
    found = [dirty()]
    value = dirty()
    made(dirty(made()))
    with contextlib.nullcontext():
        found.append(dirty())
        for _ in range(2):
            found.append(dirty())
            for _ in made():
                found += made(dirty())
    try:
        found.append(dirty())
    finally:
        found.append(dirty())
    for _ in made():  # displays that begin empty take nothing from the stack, where the loop's iterator lies
        seen, best = [], {}
        found.append(dirty())
        for each in made():
            best, seen = {**best}, [*seen, each]
            found.append(dirty())
    i = 0
    while i < 2:
        i += 1
        found.append(dirty())
    with contextlib.suppress(ValueError):
        raise ValueError
    try:
        raise ValueError
    except ValueError:  # no checkpoint: training begins in here
        found.append(dirty())
        for _ in made():
            found.append(dirty())
    found.append(dirty())
    assert not any(found[:1]) and not value and not found[-1], found
    assert not any(found), found


def test_in_the_middle_of_an_expression_something_is() -> None:
    assert all([made() and [made(), dirty()][1]])
    assert (made() + made(dirty()))[1]
    assert {"a": made(), "b": dirty()}["b"]
    assert max(made(0), made(dirty()))[0]
    total = made()
    total += made(dirty())  # the list is on the stack, but a name holds it too
    assert total[1] is False
    assert f"{made()} {dirty()}".endswith("True")


def collects(_: object = None) -> bool:
    """Whether all that the caller holds is one list that is being made."""
    return bytecode.collects(sys._getframe(1))


def test_a_list_that_a_comprehension_makes_is_known() -> None:
    assert [collects(x) for x in range(2)] == [True, True]
    assert [collects(x) for x in made() if x] == [True]
    assert [(made(), collects())[1] for _ in range(1)] == [False]  # and something else
    assert not collects() and not made(collects())[0] and {collects() for _ in range(2)} == {False} and (made() + made(collects()))[1] is False


def test_what_a_loop_is_called_from_counts_too() -> None:
    def inner() -> bool:
        return bytecode.holds_values(sys._getframe(1), False)

    def generator() -> object:
        yield inner()

    assert not next(generator())
    assert list(generator()) == [False]


def test_at_the_start_of_a_line_the_whole_stack_counts() -> None:
    lines = []

    def trace(frame: object, event: str, arg: object) -> object:
        if event == "line":
            lines.append((frame.f_lineno - frame.f_code.co_firstlineno, bytecode.holds_values(frame, True), bytecode.at_loop(frame)))
        return trace

    def script() -> list:
        total = []
        for i in range(2):
            total.append(i)
            total.append(
                made(i) +
                made(i))
        return total

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        script()
    finally:
        sys.settrace(before)
    told = {line: held for line, held, _ in lines}
    assert not told[1] and not told[2] and not told[3] and told[6] and not told[7], lines
    assert {line for line, _, loop in lines if loop} == {2}, lines


class _Stands:
    """Tells at which offset its caller stands, as next() calls it."""

    def __init__(self) -> None:
        self.at: list = []

    def __next__(self) -> int:
        frame = sys._getframe(1)
        self.at.append((bytecode.call_at(frame.f_code, frame.f_lasti), frame.f_lasti))
        return 1


def test_a_call_is_at_one_place_whether_python_is_warm_or_traced() -> None:
    stands = _Stands()

    def step() -> None:
        next(stands)

    for n in range(60):
        if n == 40:
            sys.settrace(lambda *_: None)
        step()
    sys.settrace(None)
    assert len({place for place, _ in stands.at}) == 1
    if sys.version_info[:2] == (3, 11):
        assert len({offset for _, offset in stands.at}) == 2, "this version no longer needs it"

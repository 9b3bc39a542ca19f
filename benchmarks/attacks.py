"""Claim: no accident and no attack that we know of breaks Stoker.

`python benchmarks/attacks.py [--short] [--group NAME] [--only WORD]`.

Each attack is a function in the list ATTACKS of a module in PARTS, with a group and a name.
It gets a ground (a state folder with its server, shared by the attacks of its module), attacks it, and
checks. An AssertionError says what broke; Skipped says why this machine cannot try the attack.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ground import Ground
from benchmarks.measure import Row

# modules of benchmarks/
PARTS = ("attacks_files", "attacks_deletion", "attacks_home", "attacks_words", "attacks_processes")
Act = Callable[[Ground], None]


class Skipped(Exception):
    """This machine cannot try the attack: says what is missing."""


@dataclass(frozen=True)
class Attack:
    """One attack. `quick`: it takes part in the short form, so it must take three seconds at most."""

    group: str
    name: str
    act: Act
    quick: bool = False


def attack(into: list[Attack], group: str, name: str, quick: bool = False) -> Callable[[Act], Act]:
    """Decorator: the function is an attack of that list."""
    def taken(act: Act) -> Act:
        into.append(Attack(group, name, act, quick))
        return act
    return taken


def known(short: bool = False, group: str = "", only: str = "") -> list[list[Attack]]:
    """The attacks that are meant, a list for each module."""
    found = []
    for part in PARTS:
        if importlib.util.find_spec(f"benchmarks.{part}") is None:
            continue
        listed: list[Attack] = importlib.import_module(f"benchmarks.{part}").ATTACKS
        found.append(
            [
                a
                for a in listed
                if (a.quick or not short) and (not group or a.group == group) and only in a.name
            ]
        )
    return [part for part in found if part]


@dataclass
class Outcome:
    """What came of one attack: `why` is empty when Stoker held."""

    attack: Attack
    why: str = ""
    skipped: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        verdict = (
            f"BROKEN: {self.why}" if self.why else f"skipped: {self.skipped}" if self.skipped else "held"
        )
        return f"{self.attack.group}: {self.attack.name}: {verdict} ({self.seconds:.1f} s)"


def tried(attacks: list[Attack]) -> Iterator[Outcome]:
    """Attack one ground with all of them, in turn;
    a ground that an attack broke, or that leaves something behind, is replaced."""
    ground = Ground()
    try:
        for each in attacks:
            outcome = _one(each, ground)
            if outcome.why:
                ground.close()
                ground = Ground()
            yield outcome
    finally:
        left = ground.close()
    if left:
        yield Outcome(
            Attack("processes", "nothing is left behind", lambda _: None), why="; ".join(left)[:300]
        )


def _one(each: Attack, ground: Ground) -> Outcome:
    outcome, began = Outcome(each), time.monotonic()
    try:
        each.act(ground)
    except Skipped as e:
        outcome.skipped = str(e)
    except Exception as e:
        if not isinstance(e, AssertionError):
            traceback.print_exc()
        outcome.why = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    outcome.seconds = time.monotonic() - began
    return outcome


def row(outcomes: list[Outcome], took_s: float) -> Row:
    """How many attacks broke something."""
    broken = [o for o in outcomes if o.why]
    skipped = sum(bool(o.skipped) for o in outcomes)
    detail = f"{len(outcomes) - skipped} attacks in {took_s:.0f} s" + (
        f", {skipped} could not be tried here" if skipped else ""
    )
    if broken:
        detail += f"; first: {broken[0].attack.name}: {broken[0].why}"
    return Row(
        name="attacks that broke something",
        value=len(broken),
        target=0,
        unit="",
        n=len(outcomes) - skipped,
        detail=detail,
    )


def rows(_ground: Ground, short: bool) -> list[Row]:
    """For benchmarks/run.py."""
    began = time.monotonic()
    outcomes = [outcome for part in known(short) for outcome in tried(part)]
    return [row(outcomes, time.monotonic() - began)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="only the attacks that take seconds")
    parser.add_argument("--group", default="", help="only the attacks of this group")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="only the attacks with this in their names"
    )
    args = parser.parse_args()
    began, outcomes = time.monotonic(), []
    for part in known(args.short, args.group, args.only):
        for outcome in tried(part):
            outcomes.append(outcome)
            print(outcome.line(), flush=True)
    print(row(outcomes, time.monotonic() - began).line())
    return any(o.why for o in outcomes)


if __name__ == "__main__":
    sys.exit(main())

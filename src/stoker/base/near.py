"""What somebody may have meant by a word that is mistyped. Nothing is better than nonsense:
only what is really near is named."""

from __future__ import annotations

from collections.abc import Iterable

PREFIX_MIN = 2  # letters that are enough to stand for a longer word


def near(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """At most `count` of `known` that `word` was meant to be, the likeliest first;
    of equal ones the order of `known` decides.

    A beginning of a word counts before a mistyped one. Mistyped:
    one slip in a word of up to four letters, two in a longer one;
    two letters in the wrong order are one slip.
    In a word of two letters no letter may be wrong, and a wrong number is never a slip:
    who types `train-9` does not mean `train-7`.
    """
    ranked = []
    for at, other in enumerate(dict.fromkeys(known)):
        rank = _rank(word.casefold(), other.casefold())
        if rank is not None:
            ranked.append((rank, at, other))
    return [other for _, _, other in sorted(ranked)[:count]]


def _rank(word: str, other: str) -> tuple[int, int] | None:
    """How far away: equal but for case, a beginning of it, mistyped; None where it is another word."""
    if word == other:
        return 0, 0
    if len(word) >= PREFIX_MIN and other.startswith(word):
        return 1, len(other) - len(word)
    allowed = 0 if len(word) < 2 else 1 if min(len(word), len(other)) < 5 else 2
    if (
        abs(len(word) - len(other)) > allowed
        or _digits(word) != _digits(other)
        or (len(word) == 2 and not set(word) <= set(other))
    ):
        return None
    slips = distance(word, other)
    return (2, slips) if slips <= allowed else None


def _digits(word: str) -> str:
    return "".join(filter(str.isdigit, word))


def distance(one: str, two: str) -> int:
    """How many letters must be added, dropped, changed or swapped with their neighbour (Damerau-Levenshtein,
    adjacent swaps only)."""
    before: list[int] = []
    last = list(range(len(two) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(two, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == two[j - 2] and one[i - 2] == b:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]

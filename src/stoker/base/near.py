"""What somebody may have meant by a word that is mistyped. Nothing is better than nonsense:
only what is really near is named."""

from __future__ import annotations

from collections.abc import Iterable

PREFIX_MIN = 2  # letters that are enough to stand for a longer word


def near(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return at most `count` of `known` that are similar to `word`, the most similar first; equal ones keep
    the order of `known`.
    A word that begins with `word` counts before a misspelled word. One error is allowed in a word of up to
    four letters, two in a longer word; two swapped letters are one error. No error is allowed in a word of
    two letters or in a number: `train-9` never means `train-7`."""
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
    """Damerau-Levenshtein distance with adjacent swaps only: the letters to add, drop, change or swap."""
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

"""One thing the doctor saw: how bad it is, where it is, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

LEVELS = ("ok", "note", "warn", "fail")  # from good to bad; "fail" will stop the run, "warn" may


@dataclass(frozen=True)
class Finding:
    """level: one of LEVELS. topic: one word or two. message: one sentence. hint: what to type or change."""

    level: str
    topic: str
    message: str
    hint: str = ""
    file: str = ""  # as the user would write it, relative to the folder where it can be
    line: int = 0  # counted from 1; 0: no line
    lint: str = ""  # the name of the lint that it is, from lints.LINTS

    def to_json(self) -> dict:
        """All fields; of a lint also `why` and `do`, its message and hint in the words of the table."""
        plain = asdict(self)
        return (
            plain | {"why": self.message, "do": self.hint}
            if self.lint
            else {k: v for k, v in plain.items() if k != "lint"}
        )


def worst(findings: list[Finding]) -> str:
    """The level of the worst finding; "ok" where there is none."""
    return max((f.level for f in findings), key=LEVELS.index, default="ok")

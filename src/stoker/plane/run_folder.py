"""A run folder as it was at one look, on whatever machine it is:
all that is asked about it goes there and comes back at once."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any

from stoker.backends.base import Backend, Observation
from stoker.base import reading
from stoker.base.errors import StokerError

UNPACKED_MAX = 512 << 20  # bytes of one answer
Question = tuple  # a name in the agent's QUESTIONS, and its arguments


def whole(name: str) -> Question:
    """A question for a JSON file."""
    return ("read", name, reading.limit_of(name))


def tail(name: str, limit: int) -> Question:
    """A question for the last lines of a JSON lines file."""
    return ("tail", name, limit)


class RunFolder:
    """The answers of a machine about a run folder. Files that were not requested, do not exist or cannot be
    used are None or empty; `broken` names unusable files, with the reason.
    If the machine could not be reached (not `reached`), only earlier answers and the earlier observation of
    the run are available."""

    def __init__(self, answers: dict[str, dict], seen: Observation | None, *, reached: bool) -> None:
        self.seen, self.reached = seen, reached
        self.broken: dict[str, str] = dict(seen.broken) if seen and reached else {}
        self._answers = answers

    @classmethod
    def ask(cls, backend: Backend, run_id: str, questions: Sequence[Question]) -> RunFolder:
        """Ask the machine. Raises TargetError if it cannot be reached."""
        seen, answers = backend.look({run_id: questions})[run_id]
        return cls(
            {_key(question): answer for question, answer in zip(questions, answers, strict=False)},
            seen,
            reached=True,
        )

    @classmethod
    def look(cls, backend: Backend, run_id: str, questions: Sequence[Question], before: Observation | None,
             copied: Backend | None = None) -> RunFolder:
        """As `ask`, but uses stored facts if the machine cannot be reached: `before` is the last
        observation, `copied` reads copied logs."""
        try:
            return cls.ask(backend, run_id, questions)
        except StokerError:
            if copied is not None and copied is not backend:
                return cls.look(copied, run_id, questions, before)
            return cls({}, before, reached=False)

    def json(self, name: str) -> dict | None:
        """A JSON file of the folder; None if it is missing or cannot be used."""
        answer = self._answer("read", name)
        try:
            if "broken" in answer:
                raise reading.Broken(str(answer["broken"]))
            return reading.parse_json(_unpack(answer["data"]), name) if "data" in answer else None
        except reading.Broken as e:
            self.broken[name] = str(e)
        return None

    def lines(self, name: str) -> list[dict]:
        """The valid lines at the end of a file."""
        answer = self._answer("tail", name)
        try:
            return list(reading.parse_lines(_unpack(answer["data"]), name)) if "data" in answer else []
        except reading.Broken:
            return []

    def has(self, name: str) -> bool:
        """True if the file exists."""
        return bool(self._answer("has", name).get("has"))

    def made(self, since: float, until: float | None) -> tuple[list[dict], str]:
        """The files of its copy that the run created or changed, and why the list is incomplete, if it is."""
        answer = self._answer("made", since, until)
        try:
            found = json.loads(_unpack(answer.get("data")))
        except (reading.Broken, ValueError):
            return [], "the machine sent a list that is not valid"
        return found, str(answer.get("cut") or "")

    def told(self, *question: object) -> dict:
        """The answer to a question without a file: "env", "cost", "edited", "changed", "written"."""
        return self._answer(*question)

    def _answer(self, *question: object) -> dict:
        return self._answers.get(_key(question), {})


class Folders:
    """Run folders, and for a machine that cannot be reached the answers that it gave last."""

    MOST = 64  # runs

    def __init__(self) -> None:
        self._last: dict[str, dict[str, dict]] = {}

    def look(self, backend: Backend, run_id: str, questions: Sequence[Question], before: Observation | None,
             copied: Backend | None = None) -> RunFolder:
        """As `RunFolder.look`."""
        folder = RunFolder.look(backend, run_id, questions, before, copied)
        known = self._last.pop(run_id, {})
        if not folder.reached:
            folder = RunFolder(known, before, reached=False)
        self._last[run_id] = folder._answers
        if len(self._last) > self.MOST:
            self._last.pop(next(iter(self._last)), None)
        return folder


def _key(question: Question) -> str:
    """What tells a question from the others: limits and times do not."""
    return repr(question[:2])


def _unpack(data: Any) -> bytes:
    """What the agent's `pack` made. Raises Broken."""
    try:
        unpacking = zlib.decompressobj()
        found = unpacking.decompress(base64.b64decode(data), UNPACKED_MAX)
        if not unpacking.eof:
            raise reading.Broken("too large")
        return found
    except (TypeError, ValueError, zlib.error):
        raise reading.Broken("unreadable after the transfer") from None

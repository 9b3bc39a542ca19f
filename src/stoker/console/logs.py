"""A log as text for a page: from its end, earlier parts, and live. Positions are bytes of the log;
escape codes are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from stoker.base.errors import NotFound, StokerError
from stoker.client import Client, Pieces

ERROR = re.compile(rb"\b(?:error|exception|traceback|fatal|killed|nan)\b|\w(?:Error|Exception)\b", re.I)
# bytes of one search, of a look back, above a hit, over a seam
SEARCH_MAX, BLOCK, ABOVE, HELD = 256 << 20, 1 << 20, 4 << 10, 4 << 10
TAIL = 64 << 10  # bytes that a page begins with, and of each earlier part
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_OPEN_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,256})?\Z")


class Log:
    """The log of one attempt of a run; the newest attempt by default."""

    def __init__(self, client: Client, run: dict, attempt: int | None) -> None:
        known = {each["attempt"]: each for each in run["attempts_detail"]}
        self.attempt = attempt or run["attempts"]
        if self.attempt not in known:
            raise NotFound(
                f"{run['name']} has no attempt {self.attempt} with a log.", hint=f"stoker show {run['name']}"
            )
        told = known[self.attempt]
        both = bool(run["spec"].get("split_stderr"))
        self.stream = "both" if both else "out"
        self.size = (told["out_bytes"] or 0) + ((told["err_bytes"] or 0) if both else 0)
        self._client, self._id = client, run["id"]

    def pieces(self, begin: int, *, follow: bool) -> Pieces:
        """The bytes from a position, as `Client.logs` returns them: can be closed."""
        return self._client.logs(
            self._id, attempt=self.attempt, stream=self.stream, offset=begin, follow=follow
        )

    def part(self, begin: int | None, end: int | None) -> dict:
        """`{"begin", "end", "text"}`: text after `begin`, or whole lines before `end` (by default, the end
        of the log); about TAIL bytes."""
        upto = self.size if end is None else end
        start = max(0, upto - TAIL) if begin is None else begin
        limit = TAIL if begin is not None else upto - start
        data = bytearray()
        pieces = self.pieces(start, follow=False)
        try:
            for piece in pieces:
                data += piece
                if len(data) >= limit:
                    break
        finally:
            pieces.close()
        data = data[:limit]
        if begin is None and start > 0:
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        whole = safe_end(data) if begin is not None else len(data)
        return {"begin": start, "end": start + whole, "text": clean(data[:whole]), "attempt": self.attempt}


    def find(self, wanted: re.Pattern[bytes], at: int, *, back: bool) -> dict:
        """`{"found": part, "line", "at"}`: the first match after the position `at`, or the last match
        before it. The part begins some lines above the match; `line` is the line of the match in the part.
        `found` is None without a match; `cut`: only SEARCH_MAX bytes were searched."""
        place = self._last(wanted, at) if back else self._first(wanted, at)
        if place is None:
            return {"found": None, "cut": (at if back else self.size - at) > SEARCH_MAX}
        begin = max(0, place - ABOVE)
        above = b"".join(self._bytes(begin, place - begin))
        cut = above.find(b"\n") + 1 if begin else 0
        return {"found": self.part(begin + cut, None), "line": above.count(b"\n", cut), "at": place}

    def _first(self, wanted: re.Pattern[bytes], at: int) -> int | None:
        held, begin = b"", at
        for piece in self._bytes(at, SEARCH_MAX):
            data = held + piece
            if hit := wanted.search(data):
                return begin + hit.start()
            kept = data[max(0, data.rfind(b"\n") + 1, len(data) - HELD):]
            begin, held = begin + len(data) - len(kept), kept
        return None

    def _last(self, wanted: re.Pattern[bytes], at: int) -> int | None:
        end, limit = at, max(0, at - SEARCH_MAX)
        while end > limit:
            begin = max(limit, end - BLOCK)
            data = b"".join(self._bytes(begin, end - begin + HELD if end < at else end - begin))
            hits = [hit.start() for hit in wanted.finditer(data) if begin + hit.start() < end]
            if hits:
                return begin + hits[-1]
            end = begin
        return None

    def _bytes(self, begin: int, count: int) -> Iterator[bytes]:
        pieces = self.pieces(begin, follow=False)
        try:
            for piece in pieces if count > 0 else ():
                yield piece[:count]
                count -= len(piece)
                if count <= 0:
                    break
        finally:
            pieces.close()


def pattern(text: str) -> re.Pattern[bytes]:
    """A pattern that finds a text in a log, ignoring case; without a text, it finds errors."""
    return re.compile(re.escape(text.encode("utf-8", "surrogateescape")), re.I) if text else ERROR


class Live:
    """Server-sent events of a growing log; the id of each event is the position after it. Another thread
    may close it."""

    def __init__(self, log: Log, begin: int) -> None:
        self._log, self._at = log, begin
        self._pieces: Pieces | None = None
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"retry: 1000\n\n"
        held = b""
        try:
            self._pieces = self._log.pieces(self._at, follow=True)
            for piece in () if self._closed else self._pieces:
                data = held + piece
                whole = safe_end(data)
                self._at, held = self._at + whole, data[whole:]
                if whole:
                    yield event(clean(data[:whole]), number=self._at)
            if held:
                yield event(clean(held), number=self._at + len(held))
        except StokerError as e:
            if not self._closed:
                yield event(e.message, name="away")
            return
        if not self._closed:
            yield event("", name="end")

    def close(self) -> None:
        self._closed = True
        if self._pieces is not None:
            self._pieces.close()


def event(text: str, *, name: str = "", number: int | None = None) -> bytes:
    """One server-sent event; its data is a JSON string, so no text can end the event."""
    head = f"event: {name}\n" if name else ""
    tail = f"id: {number}\n" if number is not None else ""
    return f"{head}{tail}data: {json.dumps(text)}\n\n".encode("ascii")


def safe_end(data: bytes | bytearray) -> int:
    """Number of bytes that do not end inside a character or an escape code."""
    end = len(data)
    for back in range(1, min(4, end + 1)):
        byte = data[end - back]
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            end -= back if wanted > back else 0
            break
        if byte < 0x80:
            break
    begun = _OPEN_ESCAPE.search(data, max(0, end - 300), end)
    return begun.start() if begun else end


def clean(data: bytes | bytearray) -> str:
    """The text without escape codes and invisible characters; keeps line ends and carriage returns."""
    return _ESCAPES.sub("", data.decode("utf-8", "replace"))

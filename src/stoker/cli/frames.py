"""Progress bars in a log: a line that was written over again and again is printed as it was left."""

from __future__ import annotations


class Frames:
    """Writes pieces of a log to stdout. If a line has carriage returns, writes only its last frame, unless
    `raw`.
    `live`: writes incomplete lines at once, so that progress bars move; otherwise waits for the end of the
    line."""

    def __init__(self, raw: bool, live: bool) -> None:
        self._raw, self._live = raw, live
        self._rest = b""
        self._inside = False  # a part of the present line is written already

    def write(self, piece: bytes) -> None:
        """Write the next bytes of the log. Raises OSError."""
        from stoker.cli.run.follow import write_all

        if self._raw:
            write_all(1, piece)
            return
        lines = (self._rest + piece).split(b"\n")
        last = lines.pop()
        text = b"".join(self._settled(line) + b"\n" for line in lines)
        self._rest = _newest(last)
        if self._live and last:
            text += self._settled(last)
            self._rest, self._inside = b"", True
        write_all(1, text)

    def end(self) -> None:
        """End of the log."""
        from stoker.cli.run.follow import write_all

        rest, self._rest = self._rest, b""
        write_all(1, self._settled(rest))

    def _settled(self, line: bytes) -> bytes:
        """The last frame of a line, from where it was written last.
        A line without inner carriage returns is returned unchanged."""
        inside, self._inside = self._inside, False
        if b"\r" not in line.removesuffix(b"\r"):
            return line
        ending = b"\r" if line.endswith(b"\r") else b""
        return (b"\r" if inside else b"") + _newest(line).strip(b"\r") + ending


def _newest(line: bytes) -> bytes:
    """The last frame of a line that is not whole yet,
    with the carriage return before it and those behind it."""
    body = line.rstrip(b"\r")
    at = body.rfind(b"\r")
    return line if at < 0 else line[at:]

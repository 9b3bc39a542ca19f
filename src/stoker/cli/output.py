"""How the command line speaks: tables, ages, errors, questions.
What it prints for scripts is JSON or plain columns.

Facts go to stdout, everything about Stoker itself goes to stderr.
Rich is imported only to draw a table on a terminal; the rest late too, since every command imports this.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from stoker.base.errors import StokerError

NAME_COLUMNS = 24  # of the first column, on a terminal
SILENT_S = 3.0  # nothing that a person waits for is silent for longer
SIGPIPE_CODE = 141  # 128 + SIGPIPE: what a program ends with when nobody reads its output

_as_json = False  # --json was given: errors are JSON too


def prepare() -> None:
    """Let stdout and stderr accept any name, even if it is not valid UTF-8, and make sure that no socket
    gets their descriptors."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)  # None where the descriptor was closed
    for stream in streams:
        if stream is not None:
            utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")


def use_json(on: bool) -> None:
    """Remember that --json was given, so that errors are also printed as JSON."""
    global _as_json
    _as_json = _as_json or on


def json_wanted() -> bool:
    return _as_json


def print_json(body: object) -> None:
    """Print one JSON document on stdout; indented if stdout is a terminal."""
    import json

    print(json.dumps(body, ensure_ascii=True, indent=2 if is_terminal(sys.stdout) else None))


def say(text: str) -> None:
    """Print one line about Stoker itself on stderr; ignored if stderr is closed."""
    try:
        print(f"stoker: {shown_lines(text)}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


@contextlib.contextmanager
def slow(text: str) -> Iterator[None]:
    """Context that prints `text` if its block takes longer than three seconds."""
    from threading import Timer

    timer = Timer(SILENT_S, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def print_error(error: StokerError) -> None:
    """Print `error: sentence` and `hint: ...` on stderr, or the same as a JSON object."""
    text = shown_lines(f"error: {error.message}\nhint: {error.hint}")
    if _as_json:
        import json

        text = json.dumps(error.to_json())
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


def is_terminal(stream: TextIO | None) -> bool:
    """True if the stream is open and is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def can_ask() -> bool:
    """True if Stoker can show a question and read an answer."""
    return not _as_json and is_terminal(sys.stdin) and is_terminal(sys.stderr)


def ask(question: str, default: bool) -> bool:
    """Ask a yes/no question on stderr. Call this only if `can_ask()` is true."""
    choice = "[Y/n]" if default else "[y/N]"
    while True:
        print(f"stoker: {shown(question)} {choice} ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            print(file=sys.stderr)
            return False
        word = answer.strip().lower()
        if not word:
            return default
        if word in ("y", "yes", "n", "no"):
            return word[0] == "y"


def close_stdout() -> None:
    """After a broken pipe: prevent the interpreter from flushing stdout when it exits."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
    except OSError:
        pass


def ago(iso_time: str | None, now: float | None = None) -> str:
    """"3m ago" for an ISO time, with the largest unit only; "-" for none."""
    if not iso_time:
        return "-"
    from stoker.base.units import format_duration, from_iso

    seconds = (time.time() if now is None else now) - from_iso(iso_time)
    if seconds < 0:
        return "just now"
    return f"{format_duration(seconds).split()[0]} ago"


def local_time(iso_time: str | None) -> str:
    """An ISO time as local time of day."""
    if not iso_time:
        return "-"
    from stoker.base.units import from_iso

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(from_iso(iso_time)))


def unreachable(told: dict) -> str:
    """"unreachable since 14:02, next try in 20 s", from `unreachable` of a run or a machine."""
    from stoker.base.units import clock_time, format_duration, from_iso

    now = time.time()
    left = from_iso(told["next_at"]) - now
    return (f"unreachable since {clock_time(from_iso(told['since']), now)}, "
            f"next try {f'in {format_duration(left)}' if left >= 1 else 'now'}")


def shown(text: str) -> str:
    """Escape text of the user or of a run, so that it is safe to print on one line of a terminal. Can be
    repeated.
    Escapes control characters (C0, C1, also as raw bytes), line ends, and characters that change the
    writing direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or "\udca0" <= c <= "\udcff" else _escaped(c) for c in text)


def shown_lines(text: str) -> str:
    """As `shown`, for text of several lines."""
    return "\n".join(map(shown, text.split("\n")))


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(c) - 0xdc00:02x}"
    return c.encode("unicode_escape").decode("ascii")


def command_line(command: Sequence[str]) -> str:
    """A command as a user types it."""
    import shlex

    return shown(shlex.join(command))


def type_ref(run: dict) -> str:
    """What to type for this run after a verb: its name, or its id if the name means a newer run; quoted
    for the shell."""
    import shlex

    ref = str(run.get("ref") or run.get("name") or run.get("id") or "")
    quoted = shown(shlex.quote(ref))
    return f"-- {quoted}" if ref.startswith("-") else quoted


def width(text: str) -> int:
    """Number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def cut(text: str, columns: int) -> str:
    """The text in at most `columns` columns; a shortened text ends in an ellipsis."""
    if width(text) <= columns:
        return text
    taken, used = [], 0
    for c in text:
        used += width(c)
        if used > columns - 1:
            break
        taken.append(c)
    return "".join(taken) + "…"


def cut_words(text: str, columns: int) -> str:
    """The text in at most this many columns, shortened after a whole word."""
    if width(text) <= columns:
        return text
    whole = cut(text, columns - 1).removesuffix("…")
    at = whole.rfind(" ") if not text[len(whole):].startswith(" ") else len(whole)
    return f"{whole[:at]} …" if at > 0 else cut(text, columns)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Plain aligned columns, two spaces apart; the last column is not padded."""
    table = [list(header), *[list(row) for row in rows]]
    widths = [max(width(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        padded = [cell + " " * (w - width(cell)) for cell, w in zip(row[:-1], widths[:-1], strict=True)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return lines


def without_empty(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The header and rows without empty columns."""
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def cut_names(header: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[list[str]]:
    """The rows, with long names (the first column) cut where the table is wider than the terminal."""
    rest = sum(max(width(row[i]) for row in (header, *rows)) + 2 for i in range(1, len(header)))
    return [[cut(row[0], max(NAME_COLUMNS, columns - rest)), *row[1:]] for row in rows]


def wrapped(text: str, columns: int) -> list[str]:
    """The text in lines of at most this many columns, broken at spaces; a longer word stays whole."""
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        if lines[-1].strip() and width(lines[-1]) + 1 + width(word) > columns:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset(),
                styles: dict[str, str] | None = None) -> None:
    """Print a table: with rich on a terminal, else as plain columns. `styles` colours a cell by its first
    word; `right`: columns of numbers."""
    rows = [[shown(cell) for cell in row] for row in rows]
    if not is_terminal(sys.stdout):
        print("\n".join(columns(header, rows)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), expand=True)
    fitted = cut_names(header, rows, shutil.get_terminal_size().columns)
    for i, title in enumerate(header):
        last = i == len(header) - 1
        natural = max(width(row[i]) for row in [header, *fitted])
        table.add_column(
            title,
            justify="right" if i in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            min_width=None if last else natural,
        )
    for row in fitted:
        table.add_row(
            *[Text(cell, style=(styles or {}).get(cell.split(" ")[0], "") if cell else "") for cell in row]
        )
    Console(highlight=False, soft_wrap=False).print(table)


STATE_STYLES = {
    "pending": "yellow",
    "staging": "yellow",
    "starting": "yellow",
    "running": "green",
    "stopping": "yellow",
    "done": "dim",
    "failed": "red",
    "stopped": "magenta",
}


def flush() -> None:
    """Flush stdout, so that a full disk or a closed pipe is noticed here. Raises OSError."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()

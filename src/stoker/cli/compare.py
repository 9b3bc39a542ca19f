"""Two runs of one script, compared: weights, printed text, written files.
What differs between undisturbed runs too (times, dates) is noise, and left out."""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# A moment is one number: two runs in the same hour differ in its seconds only, and a third one in its hour.
# So is a duration (1m 2s).
NUMBER = re.compile(rb"(?:(?:\d{4}-\d\d-\d\d|\d\d?/\d\d?/\d{4})[ T]+)?\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"
                    rb"|(?:\d+ ?h[ :,]*)?\d+ ?m(?:in)?[ :,]*\d+(?:\.\d+)? ?s\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
FEW = 5  # of each kind are named
# bytes of a written file, and of all, whose text is compared number by number
TEXT_MAX, TEXTS_MAX = 1 << 20, 64 << 20
_IN_NAMES = re.compile(r"[0-9a-f]{6,}|\d+")  # times, process ids and other ids
_BLANKS = re.compile(rb"[ \t]+")  # before a number they are as many as it leaves room for


@dataclass(frozen=True)
class Noise:
    """Differences between two undisturbed runs."""

    shapes: frozenset[tuple[bytes, int]] = frozenset()  # (a line without its numbers, which number of it)
    lines: frozenset[bytes] = frozenset()  # shapes of lines that only one of them has
    files: frozenset[str] = frozenset()  # that both have, with another content
    in_files: Mapping[str, Noise] = field(default_factory=dict)  # that both have, alike but for these numbers
    packed: frozenset[str] = frozenset()  # archives that both have, with the same members
    # of files that both have; others are known by their form: a time or an id in it left out
    same_names: frozenset[str] = frozenset()
    contents: frozenset[str] = frozenset()  # forms of which both have as many, with another content
    forms: frozenset[str] = frozenset()  # of which one has more

    def names(self) -> list[str]:
        """What is not compared, in words, at most a few of each kind."""
        found = [
            *sorted(self.files),
            *sorted(self.forms),
            *(f"the content of {name}" for name in sorted(self.contents)),
        ]
        found += [f"some numbers in {name}" for name in sorted(self.in_files)]
        found += [f"the time stamp of {name}" for name in sorted(self.packed)]
        if len(found) > FEW:
            found[FEW - 1:] = [f"{len(found) - FEW + 1} more files"]
        numbers: dict[str, set[int]] = {}
        for shape, n in self.shapes:
            numbers.setdefault(_told(shape), set()).add(n + 1)
        found += [
            f"number {' and number '.join(map(str, sorted(which)))} of each line like {line}"
            for line, which in sorted(numbers.items())
        ][:FEW]
        return found + sorted({f"all lines like {_told(shape)}" for shape in self.lines})[:FEW]


def noise(a: dict, b: dict) -> Noise:
    """The differences between two undisturbed runs (`text`: bytes, `files`: {name: hash})."""
    numbers: set[tuple[bytes, int]] = set()
    lines: set[bytes] = set()
    for text in (lambda run: run["text"], lambda run: _standing(run["text"])):
        more = _noise_of_lines(_lines(text(a)), _lines(text(b)))
        numbers |= more[0]
        lines |= more[1]
    same = a["files"].keys() & b["files"].keys()
    here, there = _by_form(a, same), _by_form(b, same)
    contents = {
        form
        for form in here.keys() & there.keys()
        if len(here[form]) == len(there[form]) and here[form] != there[form]
    }
    forms = {
        form for form in here.keys() | there.keys() if len(here.get(form, ())) != len(there.get(form, ()))
    }
    files = {name for name in same if a["files"][name] != b["files"][name]}
    in_files = {name: Noise(known) for name in files if (known := _noise_in_file(a, b, name))}
    packed = frozenset(name for name in files if _same_members(a, b, name))
    return Noise(
        frozenset(numbers),
        frozenset(lines),
        frozenset(files - in_files.keys() - packed),
        in_files,
        packed,
        frozenset(same),
        frozenset(contents),
        frozenset(forms),
    )


def _noise_in_file(a: dict, b: dict, name: str) -> frozenset[tuple[bytes, int]]:
    """Numbers in its lines; empty where more than numbers differs, or it is no text."""
    here, there = (run.get("texts", {}).get(name) for run in (a, b))
    numbers, lines = _noise_of_lines(_lines(here), _lines(there)) if here and there else (set(), set())
    return frozenset() if lines else frozenset(numbers)


def _noise_of_lines(first: list[bytes], second: list[bytes]) -> tuple[set[tuple[bytes, int]], set[bytes]]:
    """Numbers of lines, and whole lines, that two texts do not agree on."""
    if [_shape(x) for x in first] != [_shape(x) for x in second]:
        return set(), {_shape(x) for x in first} ^ {_shape(x) for x in second} or {
            _shape(x) for x in {*first} ^ {*second}
        }
    numbers = set()
    for x, y in zip(first, second, strict=True):
        pairs = zip(NUMBER.findall(x), NUMBER.findall(y), strict=True)
        numbers |= {(_shape(x), n) for n, (p, q) in enumerate(pairs) if p != q}
    return numbers, set()


def differences(plain: dict, other: dict, known: Noise, *, tail_only: bool = False) -> list[str]:
    """Differences in words; empty if everything comparable is equal. `tail_only`: the text may be only the
    end of the baseline's text."""
    found = []
    if other["digest"] is None:
        return [f"the run ended differently than the baseline run: {other['run']['sentence']}"]
    if other["digest"]["digest"] != plain["digest"]["digest"]:
        found.append("weights" if other["digest"]["steps"] == plain["digest"]["steps"] else
                     f"weights ({other['digest']['steps']:,} steps instead of {plain['digest']['steps']:,})")
    a, b = (_masked(each["text"], known) for each in (plain, other))
    if not _alike(a, b, tail_only) and not only_bars(plain, other, known, tail_only=tail_only):
        found.append(f"printed text{_first_other(a, b)}")
    wrong = sorted(
        name
        for name in known.same_names - known.files
        if plain["files"].get(name) != other["files"].get(name)
        and not (name in known.in_files and _same_but_numbers(plain, other, name, known.in_files[name]))
        and not (name in known.packed and _same_members(plain, other, name))
    )
    here, there = _by_form(plain, known.same_names), _by_form(other, known.same_names)
    for form in sorted((here.keys() | there.keys()) - known.forms):
        mine, theirs = here.get(form, []), there.get(form, [])
        if len(mine) != len(theirs):
            wrong.append(f"{form}: {len(theirs)} in this run, {len(mine)} in the baseline run")
        elif form not in known.contents and mine != theirs:
            wrong.append(form)
    return found + [f"file {name}" for name in wrong[:5]]


def only_bars(plain: dict, other: dict, known: Noise, *, tail_only: bool = False) -> bool:
    """True if the texts differ only in overwritten frames of progress bars, whose number depends on the
    clock."""
    mine, theirs = plain["text"], other["text"]
    if _alike(_masked(mine, known), _masked(theirs, known), tail_only):
        return False
    return _alike(_masked(_standing(mine), known), _masked(_standing(theirs), known), tail_only)


def _same_but_numbers(plain: dict, other: dict, name: str, known: Noise) -> bool:
    a, b = (run.get("texts", {}).get(name) for run in (plain, other))
    return bool(a and b) and _masked(a, known) == _masked(b, known)


def _same_members(a: dict, b: dict, name: str) -> bool:
    here, there = (run.get("members", {}).get(name) for run in (a, b))
    return here is not None and here == there


def file_hashes(folder: Path, names: list[str]) -> dict[str, str]:
    """{name: hash of its content}; unreadable files are missing."""
    found = {}
    for name in names:
        try:
            with open(folder / name, "rb") as f:
                found[name] = hashlib.file_digest(f, "blake2b").hexdigest()[:32]
        except OSError:
            continue
    return found


def archive_members(folder: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """{name: {member: hash of the content}} of each file in `names` that is a zip archive. Ignores time
    stamps in the archive."""
    found = {}
    for name in names:
        try:
            with zipfile.ZipFile(folder / name) as packed:
                found[name] = {
                    member: hashlib.blake2b(packed.read(member)).hexdigest() for member in packed.namelist()
                }
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error):
            # none, encrypted or torn
            continue
    return found


def file_texts(folder: Path, names: list[str]) -> dict[str, bytes]:
    """{name: content} of text files that are not too large."""
    found: dict[str, bytes] = {}
    for name in names:
        try:
            with open(folder / name, "rb") as f:
                content = f.read(TEXT_MAX + 1)
            content.decode()
        except (OSError, UnicodeDecodeError):
            continue
        if (
            len(content) <= TEXT_MAX
            and b"\0" not in content
            and sum(map(len, found.values())) + len(content) <= TEXTS_MAX
        ):
            found[name] = content
    return found


def _by_form(run: dict, without: Collection[str]) -> dict[str, list[str]]:
    """What is in the files of each form, in order of its hashes."""
    found: dict[str, list[str]] = {}
    for name, content in run["files"].items():
        if name not in without:
            found.setdefault(_IN_NAMES.sub("#", name), []).append(content)
    return {form: sorted(contents) for form, contents in found.items()}


def _alike(a: list[bytes], b: list[bytes], tail_only: bool) -> bool:
    return a == b or (tail_only and a[len(a) - len(b):] == b)


def _standing(text: bytes) -> bytes:
    """The text as a terminal shows it in the end:
    each part behind a carriage return is written over the one before.
    A last line that is not ended, and was drawn over,
    is a bar that a run had not done with when it was cut."""
    lines = []
    text = text if b"\r" not in text[text.rfind(b"\n") + 1:] else text[:text.rfind(b"\n") + 1]
    for line in text.decode("utf-8", "surrogateescape").split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part):]
        lines.append(shown.rstrip())
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _lines(text: bytes) -> list[bytes]:
    return text.replace(b"\r", b"\n").split(b"\n")


def _shape(line: bytes) -> bytes:
    return _BLANKS.sub(b" ", NUMBER.sub(b"#", line))


def _told(shape: bytes) -> str:
    return repr(shape.decode("utf-8", "replace").strip()[:60])


def _first_other(a: list[bytes], b: list[bytes]) -> str:
    """Where two texts part, in words."""
    n = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    x, y = (
        repr(text[n].decode("utf-8", "replace").strip()[:100]) if n < len(text) else "nothing"
        for text in (a, b)
    )
    return f" (line {n + 1}: {y} instead of {x})"


def _without_numbers(line: bytes, shape: bytes, known: Noise) -> bytes:
    """The line with "#" for each number that is known to differ."""
    count = iter(range(line.count(b"") + 1))

    def masked(number: re.Match[bytes]) -> bytes:
        return b"#" if (shape, next(count)) in known.shapes else number.group()
    return NUMBER.sub(masked, line)


def _masked(text: bytes, known: Noise) -> list[bytes]:
    """The lines without the numbers, and without the lines, that are known to differ."""
    kept, touched = [], {shape for shape, _ in known.shapes}
    for line in _lines(text):
        shape = _shape(line)
        if shape in known.lines:
            continue
        if shape in touched:
            line = _BLANKS.sub(b" ", _without_numbers(line, shape, known))  # noqa: PLW2901
        kept.append(line)
    return kept

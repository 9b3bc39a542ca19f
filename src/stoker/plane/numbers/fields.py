"""One line of text: the values with their names, the axis, the split,
and the words that are none of these. Pure."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from stoker.plane.numbers import words

CACHED = 4096  # texts between numbers: the lines of a log differ in their numbers only
NUMBER = r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b"  # noqa: E501
_TOKEN = re.compile(
    r"(?P<none>\d+(?:-\d\d?){2}[T "
    r"]\d\d:\d\d[\d:.,]*|\d{4}-\d\d-\d\d|\d+(?::\d\d)+(?:[.,]\d+)?(?:\s?[ap]m\b)?|\d+(?:\.\d+){2,}|0x[0-9a-f]+)"
    r"|(?<![\w@.^])(?<![\w)]-)(?P<pair>(?P<k>\d+)\s*/\s*(?P<of>\d+)(?![\d.\w]))(?P<share>\s*\(\s*[\d.]+\s*%\s*\))?"
    rf"|(?<![\w@.^])(?<!\w[-/])(?P<number>{NUMBER})(?P<unit>\s?%|[a-zA-Zµ°]+(?:/\w+)?|/(?:s|it|sec|step|batch|iter|epoch|sample)\b"
    r"|\s(?:ms|s|sec|secs|seconds|minutes|min|GB|GiB|MB|MiB|it/s|img/s|imgs/s|samples/s|tok/s|tokens/s|hours|h|m)(?![\w/:=]))?(?![\w])",
    re.IGNORECASE,
)
_WRAPPED = re.compile(
    rf"(?:tensor|array|np\.\w+|jnp\.\w+|float\d*|torch\.tensor)\(\[?\s*({NUMBER})\s*\]?(?:,[^()]*)?\)",
    re.IGNORECASE,
)
_TF = re.compile(rf"<tf\.(?:Tensor|Variable)[^>]*numpy=({NUMBER})>")
_LISTED = re.compile(rf"([=:]\s*)[\[(]\s*({NUMBER})\s*,?\s*[\])]", re.IGNORECASE)
_MEAN = re.compile(rf"\s*\(\s*({NUMBER})\s*%?\s*\)")
_ASIDE = re.compile(r"\s*\([^()=:]*\d[^()=:]*\)")
_SLASHED = re.compile(rf"\s*/\s*({NUMBER})(?![\w%])")
_SPREAD = re.compile(rf"\s*(?:±|\+/-|\+-)\s*({NUMBER})")
_GAPS = re.compile(r"[|,;\t\[\]{}<>│║┃]|\s{2,}|\s[-–—*·•/]+\s|=>|->|={2,}|-{2,}|:\s|：|!\s|\.\s")
_ENDS = re.compile(r"\s*(?::|=|：|=>|->)\s*[\[(]?\s*$")
_LETTERS = re.compile(r"[^\W\d]+")
_JUNK = " \t-–—*=>#~.•·'\"`(!?│|_\\/"
_REPR = re.compile(r"^\s*(?:\(?[\w.]+\)?:\s*)?[A-Z]\w*\((?:$|.*=)|^\s*\([\w.]+\): ")
# the summary of COCO, where ranges stand between the name and its value; a status of a server
_NO_METRIC = re.compile(r"@\[|\bHTTP\b")
_STAMPS = re.compile(
    r"^(?:\s*(?:\[?\d{4}[-/]\d\d?[-/]\d\d?[T ]\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?"
    r"|\[?\d\d?[-/]\d\d?(?:[-/]\d{2,4})? \d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?: "
    r"[\w.]+(?=\]))?\]?:?|\[?\d\d?:\d\d:\d\d(?:[.,]\d+)?\]?"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ "
    r"[\w.]+:\d+\]|(?:\[?(?:INFO|DEBUG|WARNING|WARN|ERROR)\]?)(?::[\w.]+:)?"
    r"|\[\d{2,8}\](?=\s+[\w./]+\.py:\d)|\[\w+\|[\w./]+\.py:\d+\]|>>"
    r"|[\w./]+\.py(?::|, line |\()\d+\)?\]?:?|\[[\w.]+\.py:?\d*(?: "
    r"\w+)?\]|root:|__main__|mmengine|mmdet|\[?\w+\.\w+\.\w+\]?(?= )"
    r"|\[(?:\w+\]\[)?(?:INFO|root|trainer|__main__)\])(?:\s*[-:|]\s+|\s*))",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"^\s*[\[(<]?\s*(?:rank|gpu|cuda|worker|proc|process|local_rank|device)\s*[:=_ ]?\s*(\d+)\s*[\])>:|-]+",
    re.IGNORECASE,
)
_START = re.compile(r"^\s*(?:\[\s*(\d+)\s*\](?!\s*\[)|#?(\d+)\s*(?::|\|)(?!\d))")
_DIGIT, _WHOLE = re.compile(r"\d"), re.compile(r"\d+")
_NOT_FINITE = re.compile(r"nan|inf", re.IGNORECASE)
_ONE = re.compile(r"\s*\[\s*\d+\s*\]\s*$")
_SHARED = re.compile(r"acc|correct|precision|recall", re.IGNORECASE)
_PASS = re.compile(r"\s*\[\s*\d+\s*/")
_STEPS_OF = re.compile(r"^\s*\[\s*(\d+)\s*,\s*(\d+)\s*\]")


@dataclass(slots=True)  # not frozen, which would make each of very many slower; nobody changes one
class Value:
    """One number with its name. second: the mean after it, in parentheses or after a slash."""

    name: str
    value: float
    unit: str = ""
    split: str | None = None


@dataclass(slots=True)
class Line:
    """The content of a line. place, of: the position within an epoch (or in total), as in `[40/200]`."""

    values: list[Value] = field(default_factory=list)
    step: float | None = None
    step_name: str = ""
    epoch: float | None = None
    epochs: int | None = None  # of how many
    place: int | None = None
    of: int | None = None
    first: int | None = None  # a bare number at the begin: `[300] loss`; an axis only if it rises
    split: str | None = None
    words: str = ""
    rank: int | None = None
    form: str = "text"


def read(text: str) -> Line | None:
    """Parse a line; None if it has no number or only repeats earlier values."""
    if not _DIGIT.search(text) and not _NOT_FINITE.search(text):
        return None
    body, rank = without_prefix(text)
    if _NO_METRIC.search(body):
        return None
    if _REPR.match(body) and not body.lstrip().startswith("Namespace"):
        return None
    found = _object(body)
    line = _of_object(*found) if found else _of_text(body)
    if line is not None:
        line.rank = rank
    return line


@lru_cache(maxsize=4)  # a line is asked about twice: as a row of a table, and as a text
def without_prefix(text: str) -> tuple[str, int | None]:
    """The text without time stamps, logger and rank; and the rank."""
    rank = None
    for _ in range(8):
        match = _STAMPS.match(text)
        if match and match.end():
            text = text[match.end():]
            continue
        match = _RANK.match(text)
        if not match:
            break
        rank, text = int(match[1]), text[match.end():]
    return text.lstrip(" -|:") if rank is not None else text, rank


# ---- dicts and JSON

def _object(text: str) -> tuple[str, dict] | None:
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin or text[end + 1:].strip(" .,;\n"):
        return None
    body = text[begin:end + 1]
    try:
        found = json.loads(body) if '"' in body else None
    except (ValueError, RecursionError):
        found = None
    if found is None:
        found = _literal(body)
    return (text[:begin], found) if isinstance(found, dict) else None


def _literal(body: str) -> object:
    body = _TF.sub(r"\1", _WRAPPED.sub(r"\1", body))
    body = re.sub(
        r"(?<=[:,\s\[])([-+]?)(nan|inf)(?=\s*[,}\]])",
        lambda m: "1e999" if m[2] == "inf" and m[1] != "-" else "-1e999" if m[2] == "inf" else "None",
        body,
    )
    try:
        return ast.literal_eval(body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _of_object(before: str, found: dict) -> Line | None:
    if words.old(before):
        return None
    head = _of_text(before) or Line()
    line = Line(
        step=head.step,
        step_name=head.step_name,
        epoch=head.epoch,
        place=head.place,
        of=head.of,
        first=head.first,
        split=words.split_of(before),
        form="dict",
    )
    kept = [re.sub(r"[\d.]+", "#", before).strip()]
    for name, value in _flat(found):
        number = _number(value)
        if number is None:
            if isinstance(value, str) and len(value) < 32:
                split = words.SPLITS.get(value.lower())
                line.split = split or line.split
                kept.append(f"{name}={re.sub(r'[0-9]+', '#', value)}")
            elif isinstance(value, bool):
                kept.append(f"{name}={value}")
            continue
        _place(line, name, number)
        if words.axis(name) is None and not words.refused(name) and not words.old(name):
            line.values.append(Value(name, number))
    line.words = " ".join(kept)
    if line.split:
        line.values = [
            Value(v.name, v.value, v.unit, line.split if words.takes_split(v.name) else None)
            for v in line.values
        ]
    return line


def _flat(found: dict, before: str = "", deep: int = 0) -> list[tuple[str, object]]:
    flat: list[tuple[str, object]] = []
    for name, value in found.items():
        whole = f"{before}{name}"
        if isinstance(value, dict) and deep < 4:
            flat += _flat(value, f"{whole}/", deep + 1)
        elif isinstance(value, list | tuple) and len(value) == 1:
            flat.append((whole, value[0]))
        else:
            flat.append((whole, value))
    return flat


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if value is None:
        return math.nan
    if isinstance(value, int | float):
        return _float(value)
    if isinstance(value, str) and re.fullmatch(NUMBER, value.strip(), re.IGNORECASE):
        return _float(value.strip().replace(",", ""))
    return None


def _float(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError):
        return math.inf


def _place(line: Line, name: str, number: float) -> None:
    """Take it as the axis, if it is named so."""
    kind = words.axis(name)
    if kind == "epoch" and line.epoch is None:
        line.epoch = number
    elif (
        kind not in (None, "epoch")
        and not math.isnan(number)
        and (line.step is None or (kind == "step" and line.step_name != "step"))
    ):
        line.step, line.step_name = number, kind


# ---- text

def _of_text(text: str) -> Line | None:
    if "(" in text or "[" in text:
        text = _TF.sub(r"\1", _WRAPPED.sub(r"\1", text)) if "(" in text else text
        text = _LISTED.sub(r"\1\2", text)
    line = Line()
    at = _start(line, text)
    free: list[str] = []
    scope: str | None = None
    attached = many = False  # the split stands in a name, as in `Train loss`; there are several
    first = None
    inherited: set[int] = set()
    while match := _TOKEN.search(text, at):
        gap, at = text[at:match.start()], match.end()
        label, strong, rest = _label(gap)
        free.append(rest)
        if match["none"]:
            free.append(_kept(label))
            continue
        # `Test: [3/10]`, `Train: 0 [3/10]`; not `test: 0.31`
        alone = match["pair"] or words.axis(label) or _PASS.match(text, at)
        split = words.split_of(f"{rest} {label}" if alone or " " in label else rest)
        if split:
            many = many or (scope is not None and split != scope)
            scope, attached = split, not words.split_of(rest) and not alone
        if not line.values and words.old(f"{rest} {label}"):
            return None
        if not line.values:
            first = len(free)
        if match["pair"]:
            at = _pair(line, match, label, scope, free, text)
            continue
        before = len(line.values)
        at = _single(line, match, label, strong, scope, free, text)
        if attached and not words.split_of(label):
            inherited |= {*range(before, len(line.values))}
    tail = words.split_of(text[at:])
    line.words = _shape(" ".join(free if not line.values else free[:first]))
    if not line.values:
        line.words = f"{line.words} {_shape(text[at:])}".strip()
    if tail and scope is None and not many:
        line.values = [
            Value(v.name, v.value, v.unit, v.split or (tail if words.takes_split(v.name) else None))
            for v in line.values
        ]
        scope = tail
    line.split = scope
    if many and inherited:
        line.values = [v if i not in inherited or _twice(v, line.values) else Value(v.name, v.value, v.unit)
                       for i, v in enumerate(line.values)]
    return line


def _twice(value: Value, values: list[Value]) -> bool:
    """`train loss 0.5, acc 0.8, val loss 0.4, acc 0.7`: the second `acc` is that of the validation;
    a name that occurs once is not."""
    return sum(each.name == value.name for each in values) > 1


@lru_cache(maxsize=CACHED)
def _shape(text: str) -> str:
    """The words of a text; numbers and signs left out."""
    return " ".join(_LETTERS.findall(text))


def _start(line: Line, text: str) -> int:
    """`[2, 4000] loss` and `[300] loss` and `300: loss`: where the rest begins."""
    match = _STEPS_OF.match(text)
    if match:
        line.epoch, line.place = float(match[1]), int(match[2])
        return match.end()
    match = _START.match(text)
    if match and not _ONE.match(text):
        line.first = int(match[1] or match[2])
        return match.end()
    return 0


@lru_cache(maxsize=CACHED)
def _label(gap: str) -> tuple[str, bool, str]:
    """The name that stands just before a value; whether a sign binds them; what else stands there."""
    match = _ENDS.search(gap)
    strong = match is not None
    body = gap[:match.start()] if match else gap.rstrip(" [(")
    pieces = _GAPS.split(body)
    label = pieces[-1].strip(_JUNK) if pieces else ""
    if label.endswith(")") and "(" not in label:
        label = label.rstrip(") ")
    elif body.rstrip().endswith(")") and label.count("(") < label.count(")"):
        label = label.rstrip(")")
    elif "(" in pieces[-1] and label.count("(") > label.count(")"):
        label = label.rpartition("(")[2].strip(_JUNK)
    rest = body[:len(body) - len(pieces[-1])] if pieces else ""
    return label.lstrip(") "), strong, rest


def _pair(line: Line, match: re.Match, label: str, scope: str | None, free: list[str], text: str) -> int:  # noqa: PLR0917
    k, of, end = int(match["k"]), int(match["of"]), match.end()
    kind = words.axis(label) if label else None
    share = match["share"]
    if _SHARED.search(label) and (share or text[end:end + 1].strip() in ("", ",", "|")):
        if share and of:
            name = words.without_split(label)[1]
            line.values.append(Value(name, round(100.0 * k / of, 6), "%", scope))
        return end
    if kind == "epoch":
        line.epoch, line.epochs = float(k), of
    elif (
        kind is not None
        or not label
        or words.split_of(label)
        or label.lower() in ("train", "batch", "batches")
    ):
        nested = line.place is not None and line.epoch is None and kind is None
        if nested:  # [epoch/epochs][batch/batches]
            line.epoch, line.epochs = float(line.place or 0), line.of
        if line.place is None or nested:
            line.place, line.of = k, of
    else:
        free.append(label)
    return end


def _single(  # noqa: PLR0917
    line: Line, match: re.Match, label: str, strong: bool, scope: str | None, free: list[str], text: str
) -> int:
    number, unit, end = match["number"], (match["unit"] or "").strip(), match.end()
    value = _float(number.replace(",", ""))
    mean = _MEAN.match(text, end)
    if mean:
        end = mean.end()
    elif aside := _ASIDE.match(text, end):
        end = aside.end()
    if spread := _SPREAD.match(text, end):
        end = spread.end()
    slashed = None if mean else _SLASHED.match(text, end)
    if slashed:
        end = slashed.end()
    whole = _WHOLE.fullmatch(number) is not None
    kind = words.axis(label) if label and not unit else None
    if kind is None and whole and not unit and words.SPLITS.get(label.lower()) and _PASS.match(text, end):
        kind = "epoch"  # timm: `Train: 0 [ 50/1251 (4%)]`
    if kind == "epoch":
        line.epoch = value if line.epoch is None else line.epoch
        return end
    if kind is not None and (whole or value == int(value) if math.isfinite(value) else False):
        _place(line, label, value)
        return end
    name = _name(label, strong)
    if name is None and not strong and _is_bound(label, number, text, match):
        name = _parts(label)[0]
    if name is None or unit not in ("", "%") or words.old(name):
        free.append(_kept(label))
        return end
    split, bare = words.without_split(name)
    if words.refused(bare):
        return end
    one = split or (scope if words.takes_split(bare) else None)
    line.values.append(Value(bare, value, unit, one))
    if mean:
        line.values.append(Value(f"{bare}.mean", _float(mean[1].replace(",", "")), unit, one))
    if slashed:
        line.values.append(Value(f"{bare}.2", _float(slashed[1].replace(",", "")), unit, one))
    return end


@lru_cache(maxsize=CACHED)
def _kept(label: str) -> str:
    """Words of a sentence that are the same in each such line; a time may be missing in some."""
    return "" if words.refused(label) or len(label) > 40 else label


@lru_cache(maxsize=CACHED)
def _parts(label: str) -> list[str]:
    """The words of a name, without those that are in each sentence."""
    parts = label.split()
    while parts and parts[0].lower().strip(_JUNK) in words.STOP:
        parts.pop(0)
    while parts and parts[-1].lower() in words.STOP:
        parts.pop()
    return parts if any(c.isalpha() or ord(c) > 0x2000 for c in label) else []


@lru_cache(maxsize=CACHED)
def _name(label: str, strong: bool) -> str | None:
    """The name of a metric, or None where it is not clear that this is one."""
    parts = _parts(label)
    if not parts:
        return None
    if strong:
        return " ".join(parts[-5:]) if len(parts) <= 6 else None
    name = " ".join(parts[-3:])
    if words.metric(parts[-1]) or (len(parts) <= 3 and words.metric(name)):
        return name
    return None


def _is_bound(label: str, number: str, text: str, match: re.Match) -> bool:
    """Whether one word of a kind that is not known stands alone before a number that is no count."""
    parts = _parts(label)
    return bool(match.start() and len(parts) == 1 and ("." in number or "e" in number.lower()) and re.search(
        rf"(?:^|[|,;\t\[]|\s{{2,}}|[\d%)]\s){re.escape(parts[0])}\s+$", text[:match.start("number")]))

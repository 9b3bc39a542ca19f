"""What the console is made of: files of others as they were, texts in both languages, a first page that is small."""

from __future__ import annotations

import ast
import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from stoker.backends.base import PHASES
from stoker.base.state import REASONS, STATE_SENTENCES, Reachability, State
from stoker.console import words
from stoker.inside.clock.marks import KINDS

HERE = Path(words.__file__).parent
SOURCE = HERE.parent
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
FIRST_PAGE_MAX = 150_000  # bytes, compressed


def test_the_files_of_others_are_as_they_were():
    told = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (HERE / "THIRD_PARTY.md").read_text("utf-8"), re.M))
    assert told == {name: hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest() for name in told}
    own = {"asks.js", "charts.js", "console.js", "log.js", "pictures.js", "console.css", "icon.svg"}
    assert told.keys() | own == {path.name for path in (HERE / "static").iterdir()}


def test_the_first_page_is_small():
    assert sum(len(gzip.compress(path.read_bytes())) for path in (HERE / "static").iterdir()) < FIRST_PAGE_MAX


def texts() -> set[str]:
    """All that the templates say in English."""
    extract = jinja2.Environment(extensions=["jinja2.ext.i18n"]).extract_translations
    found: set[str] = set()
    for path in TEMPLATES:
        for _, _, message in extract(path.read_text("utf-8")):
            found |= {each for each in (message if isinstance(message, tuple) else (message,)) if each}
    return found


def closed() -> set[str]:
    """The words that templates translate by a variable: every value that there can be."""
    levels = re.findall(r'Finding\("(\w+)"', "".join(path.read_text("utf-8") for path in (SOURCE / "doctor").glob("*.py")))
    phases = {*PHASES, "unknown"}
    reasons = {reason.replace("_", " ") for reason in REASONS}
    sources = {"engine", "printed", "printed (stderr)", "printed once"}
    axes = {"step", "epoch", "count", "iteration", "order of the lines", "time", "Memory", "GPU memory"}
    return {*map(str, State), *map(str, Reachability)} - {"ok"} | set(levels) | phases | reasons | sources | axes | {
        *KINDS, "gap", "new", "changed", "best", "last", "yes", "no", "none"}


def sentences() -> set[str]:
    """What the server says of a run in words that are always the same."""
    states = {f"{text[0].upper()}{text[1:]}." for state, text in STATE_SENTENCES.items() if not state.final}
    return states | {"Waiting for its turn."} | {reason.sentence for reason in REASONS.values() if "{" not in reason.sentence}


def test_the_catalogue_is_whole():
    chinese = words.catalogue("zh")
    text = (words.FOLDER / "zh.po").read_text("utf-8")
    ids = re.findall(r'^msgid "(.+)"$', text, re.M)
    assert len(ids) == len(set(ids)) == len(chinese), "one text, one translation, none empty"
    assert "fuzzy" not in text
    missing = (texts() | closed() | sentences()) - chinese.keys()
    assert not missing
    places = {key: ({*PLACE.findall(key)}, {*PLACE.findall(value)}) for key, value in chinese.items()}
    assert not [key for key, (one, other) in places.items() if not other <= one or one - other - {"{are}"}]
    assert not [value for value in chinese.values() if not re.search("[\u3000-\u9fff\uff00-\uffef]|^[CG]PU$", value)]
    left = [key for key in chinese.keys() - texts() - closed() - sentences() - JOINED if not spoken(key)]
    assert not left, "nobody says this any more"


PLACE = re.compile(r"%\(\w+\)s|\{[^{}]+\}")


def written(path: Path) -> Iterator[str]:
    """The texts in a file, with {} for each name and value in them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield PLACE.sub("{}", node.value)


# texts that the code puts together of parts
JOINED = {"the machine has none", "A process can open any number of files.", "torch {version} is built for CPU only and will not use the GPU.",
          *(f"With this run, {{count}} runs share {{cores}} {word} and slow each other down." for word in ("core", "cores")),
          *(f"{{names}} {word} to this folder too; files with the same name may be overwritten." for word in ("write", "writes")),
          *(f"audited at {word}: bit-exact (no spare core: audits slowed the training)" for word in ("step {step}", "steps {steps}"))}
SAID = "\n".join(text for path in sorted(SOURCE.rglob("*.py")) for text in written(path))


def spoken(key: str) -> bool:
    """Whether each part of a text of the catalogue, between its names and values, is in the code."""
    parts = [part.strip(" .:;,()") for part in PLACE.split(key)]
    return all(part in SAID or part[:1].lower() + part[1:] in SAID for part in parts)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_text_stands_outside_of_the_catalogue(path):
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", "", path.read_text("utf-8"), flags=re.S)
    left = {word.strip(" \n·,.:()×/%") for word in re.findall(r">([^<>]*)<", text)} - {"", "Stoker", "CPU", "GPU", "ms", "s", "0"}
    assert not [word for word in left if re.search(r"[A-Za-z]{3}", word)]


@pytest.mark.parametrize(("cookie", "accepts", "name"), [(None, "", "en"), (None, "zh-CN,en;q=0.5", "zh"), ("en", "zh", "en"), ("x", "fr, zh;q=0.1", "zh"),
                                                         (None, "*", "en")])
def test_which_language(cookie, accepts, name):
    assert words.language(cookie, accepts).name == name


@pytest.mark.parametrize(("told", "meant"), [
    ("Waiting for its turn.", "正在排队。"),
    ("Waiting for lr-4 to end.", "正在等待 lr-4 结束。"),
    ("There is no run '完 a'.", "没有名为“完 a”的运行。"),
    ("There is no run 'done'.", "没有名为“done”的运行。"),
    ("Failed with exit code 3.", "失败，退出码 3。"),
    ("68.7 GB of 271 GB are free on the disk of your folder (/tmp/w).", "你的文件夹 (/tmp/w)：68.7 GB 可用，共 271 GB。"),
    ("box has no GPU.", "box has no GPU."),
    ("", ""),
])
def test_a_sentence_with_names_and_values_in_it(told, meant):
    assert words.language("zh", "").sentence(told) == meant
    assert words.language("en", "").sentence(told) == told

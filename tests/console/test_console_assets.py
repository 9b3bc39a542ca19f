"""What the console is made of: files of others as they were, texts in both languages, a first page that is small."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import jinja2
import pytest

from stoker.base.state import REASONS, State
from stoker.console import words

HERE = Path(words.__file__).parent
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


def test_every_text_has_a_translation():
    chinese = words.catalogue("zh")
    assert len(texts()) > 80
    assert not (texts() | {state.value for state in State} | {reason.replace("_", " ") for reason in REASONS}) - chinese.keys()
    assert all(text.count("%(num)s") == chinese[text].count("%(num)s") for text in texts())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_text_stands_outside_of_the_catalogue(path):
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", "", path.read_text("utf-8"), flags=re.S)
    left = {word.strip(" \n·,.:()×/%") for word in re.findall(r">([^<>]*)<", text)} - {"", "Stoker", "CPU", "GPU", "ms", "s", "0"}
    assert not [word for word in left if re.search(r"[A-Za-z]{3}", word)]


@pytest.mark.parametrize(("cookie", "accepts", "name"), [(None, "", "en"), (None, "zh-CN,en;q=0.5", "zh"), ("en", "zh", "en"), ("x", "fr, zh;q=0.1", "zh"),
                                                         (None, "*", "en")])
def test_which_language(cookie, accepts, name):
    assert words.language(cookie, accepts).name == name

"""The documentation says what the code does: tables, settings, variables, files, commands, links."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from cli_flags import listing
from tree import REPO, name_of, parse, python_files, texts

from stoker.base import rundir
from stoker.base.config import Config, TargetConfig
from stoker.base.errors import ALL_ERRORS
from stoker.base.state import EXIT_CODES, REASONS, State

PAGES = {name: text for name, text in texts() if name.endswith(".md")}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
CODE_BLOCK = re.compile(r"^```.*?^```", re.M | re.S)
FENCE = re.compile(r"^```(?:console|sh|bash|text)?\n(.*?)^```", re.M | re.S)


def read(name: str) -> str:
    return (REPO / name).read_text("utf-8")


def test_the_reference_is_what_the_tables_say():
    done = subprocess.run([sys.executable, str(REPO / "docs/generate.py"), "--print"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == read("docs/reference/reference.md"), "docs/reference/reference.md is not what the code says: make docs"


def test_every_sentence_of_refusal_is_listed():
    done = subprocess.run([sys.executable, str(REPO / "docs/generate.py"), "--print-refusals"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == read("docs/reference/refusals.md"), "docs/reference/refusals.md does not list the sentences of words.py: make docs"


def test_the_engine_reference_is_what_the_docstrings_say():
    done = subprocess.run([sys.executable, str(REPO / "docs/generate.py"), "--print-engine"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == read("docs/reference/engine-reference.md"), "docs/reference/engine-reference.md is not what the code says: make docs"


@pytest.mark.parametrize("name", REASONS)
def test_every_reason_is_explained(name):
    assert f"`{name}`" in read("docs/reference/reference.md")
    assert f"`{name}`" in read("docs/how-to/troubleshooting.md"), f"docs/how-to/troubleshooting.md does not say what to do about {name}"


def test_every_state_exit_code_and_error_is_in_the_reference():
    text = read("docs/reference/reference.md")
    assert not [s for s in State if f"`{s}`" not in text]
    assert not [c for c in EXIT_CODES if f"| {c} |" not in text]
    assert not [e for e in ALL_ERRORS if f"`{e.code}`" not in text]
    assert {e.exit_code for e in ALL_ERRORS} <= EXIT_CODES.keys()


@pytest.mark.parametrize("key", sorted({f.name.removesuffix("_bytes") for f in dataclasses.fields(Config)} | {f.name.removesuffix("_s") for f in dataclasses.fields(TargetConfig)} - {"name", "options"}))
def test_every_setting_is_documented(key):
    assert f"`{key}`" in read("docs/reference/config.md")


def environment_variables() -> set[str]:
    """Every STOKER_* that our code reads or sets, as whole words in its strings."""
    found = set()
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                found |= set(re.findall(r"\bSTOKER_[A-Z_]*[A-Z]\b", text))
    return found


@pytest.mark.parametrize("name", sorted(environment_variables()))
def test_every_variable_is_documented(name):
    assert f"`{name}`" in read("docs/reference/config.md")


def test_every_file_of_the_run_folder_is_documented():
    text = read("docs/reference/run-folder.md")
    names = {v for k, v in vars(rundir).items() if k.isupper() and isinstance(v, str)}
    assert not [n for n in sorted(names) if n not in text]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in LINK.findall(PAGES[page]):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        path = ((REPO / page).parent / file).resolve() if file else REPO / page
        assert path.exists(), f"{page} links to {target}"
        on_the_site = path.is_relative_to(REPO / "docs") and path.is_file()
        assert on_the_site or not page.startswith("docs/"), f"{page} links to {target}, which is not on the site"
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), f"{page} links to {target}, which has no such heading"


def anchors(text: str) -> set[str]:
    """The anchors that headings get."""
    heads = re.findall(r"^#+ +(.*)$", CODE_BLOCK.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def test_pages_speak_of_files_that_exist():
    missing = []
    for page, text in PAGES.items():
        for name in re.findall(r"`((?:src|docs|tests|benchmarks|examples|\.ci)/[\w./-]+)`", text):
            missing += [f"{page}: {name}"] * (not (REPO / name).exists() and "NAME" not in name)
    assert not missing, "\n".join(missing)


def test_every_page_is_in_the_navigation_and_reached_from_the_index():
    nav = re.findall(r"^ +- .*?([\w/-]+\.md)$", read("mkdocs.yml").partition("\nnav:")[2], re.M)
    pages = [p.removeprefix("docs/") for p in PAGES if p.startswith("docs/")]
    assert sorted(nav) == sorted(pages), "the list in mkdocs.yml is not the pages of docs/"
    index = read("docs/index.md")
    assert not [p for p in pages if f"({p})" not in index and p != "index.md" and not p.startswith("decisions/")]


def test_a_list_begins_after_an_empty_line():
    """On the site it would be a part of the paragraph otherwise."""
    wrong = []
    for page in (p for p in PAGES if p.startswith("docs/")):
        for before, line in pairwise(CODE_BLOCK.sub("", PAGES[page]).splitlines()):
            wrong += [f"{page}: {line}"] * bool(ITEM.match(line) and before.strip() and not ITEM.match(before) and not before.startswith(" "))
    assert not wrong, "\n".join(wrong)


def test_no_code_in_a_table_holds_a_bar():
    """The site would show its backslash, too."""
    lines = ((page, line) for page, text in PAGES.items() if page.startswith("docs/") for line in text.splitlines())
    assert not [f"{page}: {line}" for page, line in lines if any("\\|" in code for code in line.split("`")[1::2])]


def test_the_readme_is_short_and_the_changelog_has_its_form():
    assert read("README.md").count("\n") <= 150
    changelog = read("CHANGELOG.md")
    kinds = set(re.findall(r"^### (.*)$", changelog, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert re.findall(r"^## (.*)$", changelog, re.M)[-1].startswith("[0.1.0] - ")
    assert changelog.partition("## [0.1.0]")[2].count("\n") <= 60


def typed_commands() -> list[tuple[str, list[str]]]:
    """(page, words) of every `stoker ...` line that a reader may type from a code block, up to the run's own command."""
    found = []
    for page, text in PAGES.items():
        for block in FENCE.findall(text):
            for line in block.splitlines():
                typed = re.match(r"^(?:\$ )?stoker( .*)?$", line)
                if typed:
                    found.append((page, re.split(r"\s{2,}#|\s{3,}| \| ", (typed[1] or "").strip())[0].split()))
    return found


def test_the_commands_in_the_pages_exist():
    known = listing().splitlines()
    verbs = {line.removeprefix("stoker ").split()[0] for line in known if line != "stoker"} - {"-V", "--version"}
    wrong = []
    for page, words in typed_commands():
        if not words or words[0].startswith("-"):
            continue
        if words[0] not in verbs:
            wrong.append(f"{page}: stoker {' '.join(words)}: no such verb")
            continue
        flags = {f for line in known if line.startswith(f"stoker {words[0]} ") for f in line.split() if f.startswith("-")}
        for word in words[1:]:
            if word == "--" or (words[0] in ("run", "tune") and not word.startswith("-") and word.endswith((".py", "python", "python3"))):
                break
            if word.startswith("--") and word.split("=")[0] not in flags:
                wrong.append(f"{page}: stoker {' '.join(words)}: no flag {word}")
    assert typed_commands()
    assert not wrong, "\n".join(wrong)


def test_no_page_installs_a_release_before_there_is_one():
    if "There is no release yet" in read("CHANGELOG.md"):
        told = {name: re.findall(r"^pip install (?:--upgrade )?stoker\b.*$", "".join(FENCE.findall(text)), re.M) for name, text in PAGES.items()}
        assert not {name: lines for name, lines in told.items() if lines}, "only a checkout can be installed"


def test_decisions_are_numbered_without_gaps():
    numbers = sorted(int(p.name[:3]) for p in (REPO / "docs/decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_test_folder_and_script_is_python_that_parses():
    for path in python_files():
        assert parse(path), name_of(path)

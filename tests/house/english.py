"""What a user reads: help, messages and reasons from the code, README and docs. For the test that guards its English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
from tree import PACKAGE, REPO, name_of, parse, python_files, texts

LONGEST = 35  # words of a sentence
PATTERNS = {
    "a number, not `so many`": re.compile(r"\bso (many|long|much)\b", re.I),
    "again, or from scratch, not `anew`": re.compile(r"\banew\b", re.I),
    "name Stoker, not `of ours`": re.compile(r"\bof ours\b", re.I),
    "a message says, nobody `is told`": re.compile(r"\b(is|are) told\b", re.I),
    "the status or the reason, not `what became of`": re.compile(r"\bwhat became of\b", re.I),
    "the baseline, not `the measure of all things`": re.compile(r"\bthe measure of all things\b", re.I),
    "says nothing, not `holds its tongue`": re.compile(r"\bholds its tongue\b", re.I),
    "the name, not `call it so`": re.compile(r"\bcall it so\b", re.I),
    "like, not `in the manner of`": re.compile(r"\bin the manner of\b", re.I),
    "finished, not `ran to its end`": re.compile(r"\bran to its end\b", re.I),
}
# Words that every sentence has and no list of names, regular expression or SQL statement does.
_SENTENCE = re.compile(r"\b(a|an|the|is|are|was|no|not|of|to|its?|with|for|by)\b", re.I)
_CODE = re.compile(r"^\s*(import|from|def|try|for|if|exec|eval)\b.*[(:;]", re.M)
_BREAK = re.compile(r"(?<=[.!?])[\"')]*\s+|\n\s*\n")


def faults(where: str, text: str) -> list[str]:
    """"file:line: what is wrong: the text", for each pattern that a text holds and each sentence that is too long."""
    found = [f"{where}: {what}: {_shown(text)}" for what, pattern in PATTERNS.items() if pattern.search(text)]
    for sentence in _BREAK.split(text):
        words = [word for word in sentence.split() if any(map(str.isalnum, word))]
        if len(words) > LONGEST:
            found.append(f"{where}: {len(words)} words in a sentence, {LONGEST} at most: {_shown(sentence)}")
    return found


def _shown(text: str) -> str:
    return " ".join(text.split())[:200]


# --- from the code -----------------------------------------------------------------------------------------------------------

def help_texts() -> Iterator[tuple[str, str]]:
    """(command and option, text) of every help that click prints, from the tree of commands itself."""
    from stoker.cli.main import cli

    yield from _help(cli, "stoker", None)


def _help(command: click.Command, words: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=words.rpartition(" ")[2], parent=parent)
    for text in filter(None, (command.help, command.epilog)):
        for part in _paragraphs(text):
            yield f"{words} --help", part
    for param in command.params:
        if isinstance(param, click.Option) and param.help:
            yield f"{words} {param.opts[-1]}", param.help
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _help(command.get_command(context, name), f"{words} {name}", context)


def _paragraphs(text: str) -> Iterator[str]:
    r"""The paragraphs; of one that begins with \b, the lines: they are examples."""
    for part in re.split(r"\n\s*\n", text):
        yield from part.splitlines() if part.startswith("\b") else [part]


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the string literals of a file that are sentences; `{}` stands for what an f-string fills in. Docstrings are not
    among them: click's are in `help_texts`, the engine's in the docs."""
    todo: list[ast.AST] = [parse(path)]
    while todo:
        node = todo.pop()
        text = _literal(node)
        if len(text.split()) > 2 and _SENTENCE.search(text) and not _CODE.search(text):
            yield node.lineno, text
        if not isinstance(node, ast.JoinedStr):  # its parts are in its text
            todo += [part for part in ast.iter_child_nodes(node) if not _is_docstring(part)]


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _literal(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def sources() -> dict[str, list[Path]]:
    """The files whose string literals a user may read, by room: all of Stoker."""
    found: dict[str, list[Path]] = {}
    for path in python_files("src"):
        if path.is_relative_to(PACKAGE):
            found.setdefault(path.relative_to(PACKAGE).parts[0], []).append(path)
    return found


# --- from the pages ----------------------------------------------------------------------------------------------------------

def pages() -> list[str]:
    """README and the pages of docs, but for decisions, which only developers of Stoker read."""
    return [name for name, _ in texts() if name == "README.md" or re.fullmatch(r"docs/(?!decisions/).*\.md", name)]


def prose(name: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the paragraphs, items and cells of a page. Blocks of code are left out, code within a line is one word."""
    begin, lines, fenced = 1, [], False
    for number, line in enumerate((REPO / name).read_text("utf-8").splitlines(), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        plain = "" if fenced or fence else re.sub(r"`[^`]*`", "CODE", line).strip()
        new = not plain or plain[0] in "|#<>" or re.match(r"([-*+]|\d+\.)\s", plain)
        if new and lines:
            yield begin, " ".join(lines)
            lines = []
        if plain.startswith("|"):
            yield from ((number, cell) for cell in plain.split("|") if cell.strip())
        elif plain:
            begin = begin if lines else number
            lines.append(plain)
    if lines:
        yield begin, " ".join(lines)


def faults_of(path: Path) -> list[str]:
    """Faults of the messages of a source file."""
    return [fault for line, text in messages(path) for fault in faults(f"{name_of(path)}:{line}", text)]

"""Writes three pages of docs/reference from the code:
reference.md, refusals.md and engine-reference.md. `make docs` runs it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from stoker.base.errors import ALL_ERRORS, StokerError
from stoker.base.state import EXIT_CODES, REASONS, STATE_SENTENCES, Reachability, State
from stoker.cli.main import SECTIONS, cli
from stoker.cli.options import Renamed
from stoker.doctor.lints import LINTS

REFERENCE = Path(__file__).with_name("reference")
PAGE = REFERENCE / "reference.md"
REFUSALS_PAGE = REFERENCE / "refusals.md"
ENGINE_PAGE = REFERENCE / "engine-reference.md"
ROOM = Path(__file__).parents[1] / "src" / "stoker" / "engine"
ENGINE_PARTS = {
    "trainer": "Trainer",
    "task": "Task",
    "sched": "Schedules (`stoker.sched`)",
    "ema": "Averaged weights",
    "plain": "Checkpoints of plain loops",
}
INSIDE = ("watched", "parts")  # functions for other files of the room
WORDS_FILE = Path(__file__).parents[1] / "src" / "stoker" / "inside" / "resume" / "core" / "words.py"

REACHABILITY_SENTENCES = {
    Reachability.OK: "the machine answers",
    Reachability.UNREACHABLE: "the machine does not answer. The run continues there; "
    "Stoker shows its last known state",
    Reachability.UNSEEN: "Stoker sees none of the run's processes, because they were started in another "
    "container or on another node. Stoker does not end the run for this reason",
    Reachability.UNKNOWN: "Stoker has not asked the machine yet",
}


def page() -> str:
    """The whole page as text."""
    return "\n".join([
        "# Reference", "",
        "Written by `make docs` from the tables in the code; do not edit this page by hand.", "",
        *_verbs(), *_states(), *_reasons(), *_exit_codes(), *_errors(), *_lints()])


def refusals_page() -> str:
    """docs/reference/refusals.md: every sentence of words.py, in its order."""
    return "\n".join(
        [
            "# Refusals of exact resume",
            "",
            "`make docs` writes this page from `src/stoker/inside/resume/core/words.py`. "
            "Do not edit this page by hand.",
            "",
            (
                "If exact resume refuses a run or an image, `stoker show` prints one of these sentences as "
                "the reason."
            ),
            "[Exact resume](../explanation/resume.md) says what a refusal means for a run.",
            "",
            "In these sentences:",
            "",
            (
                "- An *image* is a copy of the state of the script. An *event* is an "
                "operation that Stoker recorded."
            ),
            (
                "- The *resumed script* repeats its Python code up to the image. It "
                "skips calls of models and loaders."
            ),
            (
                "- `then` is the value in the recording or the image. `now` is the "
                "value in this start of the script."
            ),
            (
                "- Other words in this style, such as `path`, are placeholders for names and values of your "
                "run."
            ),
            (
                '- The first sentence under *Audits* follows the words "not resumable:". The other '
                'sentences under *Audits* follow the words "not audited:".'
            ),
            (
                "- The texts under *Parts of sentences* appear in other sentences in the place of `what` or "
                "`name`."
            ),
            "",
            (
                "If the resumed script differs from the recording, Stoker tries an older image. If "
                "the script differs from every image, the script starts from its beginning."
            ),
            *_refusals(),
        ]
    )


def engine_page() -> str:
    """docs/reference/engine-reference.md: arguments and verbs of Engine, from their docstrings, read without
    importing torch."""
    head = (
        "`make docs` writes this page from the docstrings of `stoker.Engine`. "
        "[The engine](../how-to/engine.md) says how to use the engine."
    )
    lines = ["# Engine reference", "", head, ""]
    for name, kind in (("config", "Config"), ("engine", "Engine")):
        tree = ast.parse((ROOM / f"{name}.py").read_text("utf-8"))
        cls = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
        lines += ["## Arguments of `Engine`" if kind == "Config" else "## Verbs", ""]
        lines += (
            _docstring(cls)
            if kind == "Config"
            else [line for part in cls.body for line in _engine_verb(part)]
        )
    for name, title in ENGINE_PARTS.items():
        tree = ast.parse((ROOM / f"{name}.py").read_text("utf-8"))
        of = "stoker.sched" if name == "sched" else "stoker"
        lines += [f"## {title}", "", *(line for node in tree.body for line in _public(node, of))]
    return "\n".join(lines).rstrip() + "\n"


def _public(node: ast.AST, of: str) -> Iterator[str]:
    """A function of a module, or a class with its methods. of: where users find the function."""
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        made = next(
            (part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"),
            None,
        )
        yield f"### `{node.name}({_arguments(made) if made else ''})`"
        yield ""
        yield from _docstring(node)
        yield from _docstring(made) if made and ast.get_docstring(made) else []
        for part in node.body:
            yield from _engine_verb(part, node.name.lower(), "####")
    elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in INSIDE:
        yield from _engine_verb(node, of, "###")


def _arguments(node: ast.FunctionDef) -> str:
    return ast.unparse(node.args).removeprefix("self").removeprefix(", ")


def _docstring(node: ast.AST) -> list[str]:
    """Its paragraphs; "name: meaning" lines become a list, after a blank line."""
    found: list[str] = []
    for line in (ast.get_docstring(node) or "").splitlines():
        word, colon, rest = line.partition(": ")
        item = colon and re.fullmatch(r"[a-z_]+", word)
        text = f"- `{word}`: {rest}" if item else line
        listed = bool(found) and found[-1].startswith(("- ", "    "))
        goes_on = bool(item) or line.startswith("    ")
        if found and found[-1] and line and listed != goes_on:
            found.append("")
        found.append(text)
    return [*found, ""]


def _engine_verb(node: ast.AST, of: str = "engine", level: str = "###") -> Iterator[str]:
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
        return
    arguments = _arguments(node)
    prop = any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)
    result = f" → {ast.unparse(node.returns)}" if node.returns else ""
    yield f"{level} `{of}.{node.name}{'' if prop else f'({arguments})'}{result}`"
    yield ""
    yield from _docstring(node)


def _refusals() -> Iterator[str]:
    source = WORDS_FILE.read_text("utf-8")
    rows = {number: line for number, line in enumerate(source.splitlines(), 1) if line.startswith("# -- ")}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            rows[node.lineno] = node.value.value
    for _, row in sorted(rows.items()):
        if row.startswith("# -- "):
            yield from ["", f"## {row.removeprefix('# -- ').capitalize()}", ""]
        elif " " in row and not row.endswith(" "):
            yield f"- {row}".replace("!r}", "}").replace("{", "`").replace("}", "`")
    yield ""


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    head = list(head)
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *(
            "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
            for row in rows
        ),
        "",
    ]


def _verbs() -> Iterator[str]:
    yield from ["## Verbs", ""]
    context = click.Context(cli, info_name="stoker")
    for title, names in SECTIONS.items():
        yield from [f"### {title}", ""]
        for name in names:
            command = cli.get_command(context, name)
            if command is not None:
                yield from _verb(command, f"stoker {name}", context)


def _verb(command: click.Command, words: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=words.rpartition(" ")[2], parent=parent)
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    yield from [f"**`{usage}`**", "", _plain(command.help), ""]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    if options:
        yield from _table(
            ("option", "does"), ((_option(p, context), (p.help or "").strip()) for p in options)
        )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _verb(command.get_command(context, name), f"{words} {name}", context)


def _plain(text: str | None) -> str:
    """Help text without the marks and indents that are for the terminal."""
    return "\n".join(line.strip() for line in (text or "").replace("\b\n", "").strip().splitlines())


def _shown_names(option: click.Option) -> list[str]:
    """The names that help lists."""
    return option.opts[:1] if isinstance(option, Renamed) else option.opts


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*_shown_names(option), *option.secondary_opts])
    return names if option.is_flag or option.count else f"{names} {option.make_metavar(context)}"


def _states() -> Iterator[str]:
    yield from [
        "## States",
        "",
        "`pending -> staging -> starting -> running -> stopping -> done | failed | stopped`",
        "",
    ]
    yield from _table(
        ("state", "means", "final"), ((f"`{s}`", STATE_SENTENCES[s], "yes" if s.final else "") for s in State)
    )
    yield from [
        "A run also has a reachability: whether Stoker can see its machine. "
        "Reachability does not change the state. "
        "The values of reachability:",
        "",
    ]
    yield from _table(
        ("reachability", "means"), ((f"`{r}`", REACHABILITY_SENTENCES[r]) for r in Reachability)
    )


def _reasons() -> Iterator[str]:
    yield from [
        "## Reasons",
        "",
        "The reason says why a run ended. [Troubleshooting](../how-to/troubleshooting.md) says what to do. "
        "Words in braces, such as `{code}`, are placeholders for values of the run.",
        "",
    ]
    yield from _table(
        ("reason", "state", "`stoker show` says", "`--restarts` tries again", "type next"),
        (
            (f"`{r.name}`", f"`{r.state}`", r.sentence, "yes" if r.retry else "", r.next)
            for r in REASONS.values()
        ),
    )


def _exit_codes() -> Iterator[str]:
    yield from [
        "## Exit codes",
        "",
        "`stoker run` and `stoker wait` end with the exit code of the run itself (128 + the signal's number",
        "if a signal ended it). Stoker's own codes:",
        "",
    ]
    yield from _table(("code", "means"), EXIT_CODES.items())


def _errors() -> Iterator[str]:
    yield from [
        "## Errors",
        "",
        'With `--json`, an error is one line on stderr: `{"error": ..., "message": ..., "hint": ...}`. '
        "`fields`, if present, names the wrong fields of the request.",
        "",
    ]
    yield from _table(
        ("error", "means", "exit code", "HTTP"),
        (
            (
                f"`{e.code}`",
                (e.__doc__ or StokerError.__doc__ or "").strip().splitlines()[0],
                e.exit_code,
                e.http_status,
            )
            for e in ALL_ERRORS
        ),
    )


def _lints() -> Iterator[str]:
    yield from [
        "## Lints",
        "",
        "`stoker doctor train.py` finds these mistakes in training code. How the doctor finds them:",
        "[doctor](../how-to/doctor.md). A mistake of level `warn` may make the result of a run wrong. "
        "A mistake of level `note` only costs time, memory or comfort.",
        "",
    ]
    yield from _table(
        ("lint", "level", "why", "do", "looks for"),
        (
            (f"`{n.name}`", n.level, n.why, n.do, " ".join((n.rule.__doc__ or "").split()))
            for n in LINTS.values()
        ),
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page())
    elif sys.argv[1:] == ["--print-refusals"]:
        sys.stdout.write(refusals_page())
    elif sys.argv[1:] == ["--print-engine"]:
        sys.stdout.write(engine_page())
    else:
        PAGE.write_text(page(), "utf-8")
        REFUSALS_PAGE.write_text(refusals_page(), "utf-8")
        ENGINE_PAGE.write_text(engine_page(), "utf-8")

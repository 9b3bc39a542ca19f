"""Every verb and flag of the command line, one a line. `python tests/house/cli_flags.py > tests/house/cli_flags.txt` freezes them again."""

from __future__ import annotations

from collections.abc import Iterator

import click

from stoker.cli.main import cli


def flags(command: click.Command, words: str, parent: click.Context | None = None) -> Iterator[str]:
    """"stoker run --time DURATION" and so on, in the order in which help shows them."""
    context = click.Context(command, info_name=words.rpartition(" ")[2], parent=parent)
    yield words
    for param in command.params:
        if isinstance(param, click.Argument):
            yield f"{words} {param.make_metavar(context)}"
        elif isinstance(param, click.Option):
            names = " ".join([*param.opts, *param.secondary_opts])
            yield f"{words} {names}" + ("" if param.is_flag or param.count else f" {param.make_metavar(context)}")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from flags(command.get_command(context, name), f"{words} {name}", context)


def listing() -> str:
    """The whole list as text."""
    return "\n".join(flags(cli, "stoker")) + "\n"


if __name__ == "__main__":
    print(listing(), end="")

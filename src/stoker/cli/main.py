"""The command `stoker`: the table of its verbs. A verb's module is imported only when that verb is used.

`stoker --help` and `stoker ps` are typed all day, so nothing here may import more than click.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from stoker import __version__
from stoker.base.errors import EXIT_OWN_FAILURE, InvalidSpec, StokerError
from stoker.cli import output

# verb: (module under stoker.cli, function, what the list of verbs says)
VERBS: dict[str, tuple[str, str, str]] = {
    "run": ("run.command", "run", "Run a script or any other command."),
    "ps": ("listing", "ps", "List active runs and the ten that ended last."),
    "show": ("show", "show", "Show a run: status, reason, what to type next."),
    "logs": ("runs", "logs", "Print the output of a run; -f: also new output."),
    "plot": ("numbers", "plot", "Draw the metrics of runs as curves."),
    "compare": ("numbers", "compare", "Compare parameters and metrics of runs."),
    "board": ("board", "board", "Show runs in TensorBoard, on this machine."),
    "export": ("export", "export", "Write the metrics of runs to files."),
    "ui": ("ui", "ui", "Open the console in the browser."),
    "attach": ("runs", "attach", "Return to a run: see its output, type input."),
    "wait": ("runs", "wait", "Wait for runs to end; return their exit code."),
    "stop": ("runs", "stop", "Stop runs, gracefully first, then by force."),
    "start": ("runs", "start", "Start an ended run again, as a new attempt."),
    "sweep": ("sweep", "sweep", "Run a script with many combinations of values."),
    "tune": ("tune", "tune", "Find settings that make a training faster."),
    "verify-resume": ("verify", "verify_resume", "Test that a killed script resumes bit for bit."),
    "pull": ("pull", "pull", "Copy the files of a run to this machine."),
    "keep": ("runs", "keep", "Give a run more time, or protect the run from gc."),
    "tag": ("listing", "tag", "Add tags to a run, or print its tags."),
    "note": ("listing", "note", "Write or print the note about a run."),
    "rm": ("runs", "rm", "Delete runs and all that Stoker stored about them."),
    "gc": ("admin", "gc", "Free the disk space of old runs."),
    "top": ("admin", "top", "Watch the machine and its active runs."),
    "machine": ("machines", "machine", "Add, list, check and remove other machines."),
    "ssh": ("doors", "ssh", "Log in to another machine, or run a command there."),
    "open": ("doors", "open_", "Reach a port of another machine, such as Jupyter's."),
    "push": ("doors", "push", "Copy data to another machine."),
    "doctor": ("admin", "doctor", "Check this machine, or a command."),
    "server": ("admin", "server", "Start, stop and inspect the background server."),
    "help": ("main", "help_", "Show this list, or the help of a verb."),
}

SECTIONS: dict[str, tuple[str, ...]] = {
    "Every day": ("run", "ps", "show", "logs", "stop"),
    "Numbers": ("plot", "compare", "sweep", "board", "export", "ui"),
    "Runs": ("attach", "wait", "start", "pull", "tune", "verify-resume", "keep", "tag", "note", "rm"),
    "Machine": ("doctor", "machine", "ssh", "open", "push", "top", "gc", "server", "help"),
}

# what follows their first word belongs to the command
WITH_COMMAND = ("run", "sweep", "tune", "verify-resume")

OTHER_WORDS = {  # what other tools call it
    "ls": "ps",
    "list": "ps",
    "status": "ps",
    "jobs": "ps",
    "queue": "ps",
    "info": "show",
    "inspect": "show",
    "describe": "show",
    "why": "show",
    "log": "logs",
    "tail": "logs -f",
    "follow": "logs -f",
    "output": "logs",
    "kill": "stop",
    "cancel": "stop",
    "terminate": "stop",
    "end": "stop",
    "delete": "rm",
    "remove": "rm",
    "del": "rm",
    "restart": "start",
    "resume": "start",
    "continue": "start",
    "submit": "run -d",
    "exec": "run",
    "launch": "run",
    "train": "run",
    "extend": "keep",
    "fg": "attach",
    "optimize": "tune",
    "profile": "tune",
    "benchmark": "tune",
    "grid": "sweep",
    "search": "sweep",
    "multirun": "sweep",
    "fetch": "pull",
    "download": "pull",
    "get": "pull",
    "sync": "pull",
    "upload": "push",
    "put": "push",
    "curve": "plot",
    "curves": "plot",
    "metrics": "plot",
    "chart": "plot",
    "diff": "compare",
    "tensorboard": "board",
    "web": "ui",
    "gui": "ui",
    "browser": "ui",
    "dashboard": "ui",
    "console": "ui",
    "clean": "gc",
    "cleanup": "gc",
    "prune": "gc",
    "du": "gc",
    "check": "doctor",
    "monitor": "top",
    "version": "--version",
}

HELP = """Run a training; keep its log, exit reason and progress, even if the terminal closes or the machine restarts.

\b
  stoker run train.py --lr 0.1     run here, like python; Ctrl-Z detaches
  stoker run -d -- python a.py     run in the background
  stoker ps                        list active and ended runs
  stoker logs -f NAME              follow the output
"""  # noqa: E501

COMPLETION = """Shell completion of verbs and runs:

\b
  bash   eval "$(_STOKER_COMPLETE=bash_source stoker)"
  zsh    eval "$(_STOKER_COMPLETE=zsh_source stoker)"
  fish   _STOKER_COMPLETE=fish_source stoker | source
"""


class Verbs(click.Group):
    """A group whose commands come from VERBS; each command is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module, function, _ = VERBS[name]
        return (
            help_ if module == "main" else getattr(importlib.import_module(f"stoker.cli.{module}"), function)
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not ctx.resilient_parsing and not name.startswith("-"):
            raise InvalidSpec(f"There is no verb '{output.shown(name)}'.", hint=_meant(args))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, VERBS[name][2]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list:
        from click.shell_completion import CompletionItem

        words = [CompletionItem(name, help=VERBS[name][2]) for name in VERBS if name.startswith(incomplete)]
        return words or click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=Verbs, help=HELP, epilog=COMPLETION, no_args_is_help=False, invoke_without_command=True,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", "-V", message="stoker %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command("help", help="Show the list of verbs, or the help of a verb.")
@click.argument("verb", required=False)
@click.pass_context
def help_(ctx: click.Context, verb: str | None) -> None:
    parent = ctx.parent or ctx
    if verb is None:
        click.echo(parent.get_help())
        return
    _, command, _ = cli.resolve_command(parent, [verb])
    assert command is not None  # an unknown verb has ended in an error
    with command.make_context(verb, ["--help"], parent=parent, resilient_parsing=True) as of_verb:
        click.echo(command.get_help(of_verb))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Every failure prints one sentence and a hint on
    stderr."""
    args = list(sys.argv[1:] if argv is None else argv)
    output.prepare()
    own_failure = EXIT_OWN_FAILURE if args[:1] == ["run"] else None
    try:
        code = cli.main(args=args, prog_name="stoker", standalone_mode=False)
        output.flush()
    except StokerError as e:
        return _fail(e, own_failure, args)
    except click.ClickException as e:
        return _fail(_usage(e), own_failure, args)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        output.close_stdout()
        return output.SIGPIPE_CODE
    except OSError as e:
        if e.filename is None:
            output.close_stdout()
        where = f": {e.filename}" if e.filename else ""
        return _fail(
            StokerError(f"{e.strerror or e}{where}.", hint="Check the disk: stoker doctor"), own_failure, args
        )
    except Exception:  # a mistake of ours: whoever reports it needs all of it
        import traceback

        traceback.print_exc()
        return _fail(StokerError("Internal error; please report the lines above."), own_failure, args)
    return code if isinstance(code, int) else 0


def _fail(error: StokerError, own_failure: int | None, args: Sequence[str]) -> int:
    output.use_json(_json_in(args))
    output.print_error(error)
    return own_failure or error.exit_code


def _usage(error: click.ClickException) -> StokerError:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        return _no_such_option(error.option_name, context)
    message = error.format_message().strip().splitlines()[0]
    words = context.command_path if context else "stoker"
    return InvalidSpec(
        message if message.endswith((".", "?", ")")) else f"{message}.", hint=f"See `{words} --help`."
    )


def _no_such_option(name: str, context: click.Context) -> StokerError:
    from stoker.base.near import near

    known = [
        word
        for p in context.command.get_params(context)
        for word in (*p.opts, *p.secondary_opts)
        if word.startswith("--")
    ]
    meant = [f"--{word}" for word in near(name.lstrip("-"), [word[2:] for word in known], 2)]
    hint = f"Did you mean {' or '.join(meant)}?   See" if meant else "See"
    hint = f"{hint} `{context.command_path} --help`."
    if context.info_name in WITH_COMMAND and not meant:
        hint = (
            f"Write the options of your script after the name of the script: stoker {context.info_name} "
            f"train.py {output.shown(name)} ...   {hint}"
        )
    return InvalidSpec(f"There is no option {output.shown(name)}.", hint=hint)


def _json_in(args: Sequence[str]) -> bool:
    """True if --json stands among Stoker's own words: what comes after a run's first word is the run's."""
    for word in args[1:]:
        if word == "--json":
            return True
        if word == "--" or (args[0] in WITH_COMMAND and not word.startswith("-")):
            return False
    return False


def _meant(args: Sequence[str]) -> str:
    """What to type instead of a verb that does not exist:
    what other tools call the same, a mistyped verb, or a command to run."""
    import shutil

    from stoker.base.near import near

    name = args[0]
    if "." not in name and "/" not in name:
        meant = [OTHER_WORDS[name]] if name in OTHER_WORDS else near(name, VERBS, 2)
        if meant:
            return f"Did you mean {' or '.join(f'`stoker {verb}`' for verb in meant)}?"
        if not shutil.which(name):
            return "`stoker help` lists the verbs."
        return f"To run this command: stoker run -- {output.command_line(args)}"
    return f"To run this script: stoker run {output.command_line(args)}"


if __name__ == "__main__":
    sys.exit(main())

"""`stoker run`: reads the command line, submits the run,
and follows it in the foreground or leaves it in the background."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.base.config import home
from stoker.base.daemon import begin_ahead
from stoker.base.errors import InvalidSpec
from stoker.base.rundir import HOOKS
from stoker.base.spec import inheritance
from stoker.base.state import EXIT_NOTHING_TRAINED, State
from stoker.cli import output
from stoker.cli.options import (
    Duration,
    Gpus,
    Machine,
    Renamed,
    Signal,
    Size,
    Stall,
    Warn,
    find,
    json_option,
    plane,
)
from stoker.cli.run import again, launch, piped, rehearse, tuned

if TYPE_CHECKING:
    from stoker.client import Client

# a `stoker` typed inside a run talks to the same server; the rest of STOKER_* is ours, not the run's
KEPT = ("STOKER_HOME",)

EPILOG = """Put Stoker's options before the command. All options after the first word of the command belong to the command.

\b
  stoker run train.py --lr 0.1
  stoker run -d --name base --time 2h --restarts 3 -- python train.py
  stoker run --copy --gpus 1 train.py

A .py file runs with the first Python that exists: of the active environment, of .venv in this folder, of PATH.
`stoker run` ends with the exit code of the run (128 + N if signal N killed the run). If Stoker itself failed, the exit
code is 125. If Ctrl-C kills the run, `stoker run` also ends by SIGINT, so that a loop in your shell ends too.

As with plain python, the run has a terminal if stdin, stdout and stderr are terminals. `stoker run` passes
the signals INT, TERM, QUIT, USR1 and USR2 on to the run. Ctrl-C sends SIGINT to the run. If the run
ignores SIGINT, press Ctrl-C three times within three seconds. Stoker then sends SIGTERM
and, after the --grace time, SIGKILL. Before the run has started, Ctrl-C cancels the run.

The run continues in the background in three cases: you press Ctrl-Z (`stoker run` ends with exit code 0), the terminal
closes (129), or the program that reads the output exits, such as `| head` (141). To return to the run: stoker attach
"""  # noqa: E501


class Command(click.Argument):
    """The words of the command; the first word completes to a file."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


def _env_file(ctx: click.Context, param: click.Parameter, path: str | None) -> dict[str, str]:
    return parse_env_file(path) if path else {}


@click.command(
    "run",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, cls=Command, metavar="COMMAND...")
@click.option("-d", "--detach", is_flag=True, help="Start in the background and print the run's name.")
@click.option("--name", default="", metavar="NAME",
              help="Name of the run. If an unfinished run has this name and command, Stoker continues "
                   "that run.")
@click.option(
    "--time",
    "time_s",
    type=Duration(),
    metavar="2h",
    help="Stop the run after this much running time, summed over all attempts.",
)
@click.option(
    "--memory",
    type=Size(),
    metavar="8GB",
    help="End the run if all its processes together use more memory than this.",
)
@click.option("--stall", type=Stall(), metavar="10m[:stop|:restart]",
              help="If the run makes no step, output, read or write for this long: warn (default), stop "
                   "the run or restart the run.")
@click.option("--restarts", type=click.IntRange(min=0), default=0, metavar="N",
              help="Restart at most N times after failures that may be temporary.")
@click.option(
    "--backoff",
    type=Duration(),
    metavar="5s",
    help="Delay before the first restart. The delay doubles after each restart, up to 5m.  [default: 5s]",
)
@click.option(
    "--copy", is_flag=True, help="Run in a frozen copy of this folder, so that you can edit your files "
                                 "during the run."
)
@click.option(
    "--gpus",
    type=Gpus(),
    metavar="N|id:0,1",
    help=(
        "With `N`: wait for N free GPUs. With `id:0,1`: use GPU 0 and GPU 1, even if other programs use "
        "them too. The run sees no other GPUs."
    ),
)
@click.option("--ranks", type=click.IntRange(min=1, max=launch.MOST), metavar="N",
              help="Like torchrun: start the script in N processes that train together.")
@click.option(
    "--slots", type=click.IntRange(min=0), default=0, metavar="N", help="Wait for N free CPU slots."
)
@click.option(
    "--priority", type=int, default=0, metavar="N", help="Priority of the run. Of the waiting runs, the "
                                                         "run with the highest number starts first."
)
@click.option("--after", multiple=True, metavar="RUN",
              help="Wait until this run has ended successfully. For several runs, repeat the option.")
@click.option("--mount", multiple=True, metavar="NAME=/PATH",
              help="With --copy: link /PATH as NAME in the working folder. Can be repeated.")
@click.option(
    "--data",
    multiple=True,
    metavar="DIR",
    help="Folder that the script reads. With --on: Stoker sends the folder to the machine once. On the "
         "machine, the script finds the folder at the same relative path. If the script uses another "
         "path, write NAME=DIR: NAME is the path in the script. Can be repeated.",
)
@click.option("--data-rw", multiple=True, metavar="DIR",
              help="Like --data, for a folder that the script also writes to. With --on: each run gets "
                   "its own copy of the folder.")
@click.option("--home", metavar="DIR", help="Set the environment variable HOME for the run.")
@click.option(
    "--env",
    multiple=True,
    metavar="KEY=VALUE",
    help=(
        "Set an environment variable for the run. KEY without =VALUE takes the value from this shell, "
        "also with --on. Can be repeated."
    ),
)
@click.option("--env-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE", callback=_env_file,
              help="Set the environment variables that FILE lists, in the format of python-dotenv.")
@click.option(
    "--python",
    metavar="PYTHON",
    help=(
        "Run the script with this Python: a path, an environment's folder, or a version. With --on: "
        "a path or an environment's folder on that machine, such as ~/env."
    ),
)
@click.option(
    "--install",
    is_flag=True,
    help=(
        "With --on: before the run, install the packages of uv.lock or requirements.txt on the machine. "
        "A later run with the same file uses the same environment. Stoker does not install torch: "
        "the run uses the torch of the machine."
    ),
)
@click.option("--stdin", "stdin_file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="Read standard input from FILE.")
@click.option(
    "--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIR", help="Run in this folder."
)
@click.option(
    "--grace",
    type=Duration(),
    metavar="10s",
    help="Time for the run to exit after each signal, before Stoker sends the next signal.  "
         "[default: 10s]",
)
@click.option(
    "--stop-signal",
    type=Signal(),
    metavar="SIGNAL",
    help="First signal that Stoker sends to stop the run. [default: TERM if the script handles TERM, "
         "otherwise INT]",
)
@click.option("--warn", type=Warn(), metavar="5m[:USR1]",
              help="Before the time limit, send a signal to the script, if the script handles this signal. "
                   "5m:USR1 sends SIGUSR1 5 minutes before the limit.")
@click.option(
    "--tty/--no-tty",
    default=None,
    help="Give the run a terminal (--tty) or pipes (--no-tty). [default: a terminal if stoker runs in a "
         "terminal]",
)
@click.option(
    "--resume",
    type=click.Choice(["auto", "off"]),
    default=None,
    show_default="auto",
    help="auto: record a training, so that `stoker start` can resume the training exactly, without changes "
         "to the script. off: do not record.",
)
@click.option("--audit", is_flag=True, help="Test exact resume during the training, on a spare CPU core.")
@click.option(
    "--no-hooks", is_flag=True, help="Do not load Stoker's hooks (disables exact resume and step timing)."
)
@click.option(
    "--no-settings", is_flag=True, help="Do not apply the settings that `stoker tune` found for this script."
)
@click.option(
    "--rehearse",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help=(
        "Find mistakes in a GPU script: run a few steps on the CPU with N simulated GPUs, in a copy of the "
        "folder."
    ),
)
@click.option("--compat", type=click.Choice(launch.LIBRARIES), default=None,
              help="Use Stoker's engine to run a script that was written for this library. Stoker refuses "
                   "this option if the library itself is installed.")
@click.option(
    "--strict", is_flag=True, help="Exit with code 7 if a training ends without an error but made no step."
)
@click.option(
    "--on",
    "--target",
    "target",
    cls=Renamed,
    type=Machine(),
    default="local",
    metavar="NAME",
    help="Name of the machine on which the run starts. To list the names: stoker machine ls",
)
@click.option(
    "--pull",
    multiple=True,
    metavar="PATTERNS",
    help=(
        "With --on: while the run is active, copy files to this machine if their names match these "
        "patterns, such as '*.pt,logs/**'. Can be repeated."
    ),
)
@click.option("--dry-run", is_flag=True,
              help="Send and start nothing. List the files that Stoker would copy, and the files that "
                   "Stoker would leave out, with the reasons.")
@click.option("--yes", is_flag=True, help="Continue an unfinished run of this command without asking.")
@click.option("--new", is_flag=True, help="Start a new run without asking.")
@json_option("Print the run as JSON. For a run in the foreground, the JSON goes to stderr when the run ends.")
@click.pass_context
def run(ctx: click.Context, command: tuple[str, ...], **o: Any) -> int:
    """Run a command; keep its log, metrics, files and exit reason."""
    if not command:
        raise InvalidSpec(
            "There is no command to run.",
            hint="stoker run train.py   or   stoker run -- python train.py --lr 0.1",
        )
    if o["warn"] and o["time_s"] is None:
        raise InvalidSpec("--warn needs a time limit.", hint="stoker run --time 2h --warn 5m train.py")
    if o["yes"] and o["new"]:
        raise InvalidSpec("--yes and --new cannot be combined.")
    rehearse.check(o)
    env = run_env(os.environ, o["env"], o["env_file"])
    launch.lend_names(o, env)
    spec = make_spec(launch.with_ranks(choose_python(command, o, env), o, env), o)
    rehearse.apply(o, spec, env)
    told = tuned.apply(o, spec, env)
    stdin = _read(o["stdin_file"]) if o["stdin_file"] else None
    if begin_ahead(home()) and not o["detach"]:
        import stoker.client.attach  # noqa: F401  # `follow` needs it, and the server is not ready yet
    client = plane()
    spec["after"] = [find(ref)["id"] for ref in o["after"]]
    limits = {} if o["time_s"] is None else {"time_s": o["time_s"]}
    if o["dry_run"]:
        return _preview(client, spec, limits, env, o)
    unfinished = [] if o["name"] or o["new"] or o["rehearse"] is not None else again.unfinished(client, spec)
    if unfinished and again.continues(unfinished[0], o):
        before = unfinished[0]
        made = client.start(before["id"])
        output.say(f"continuing {output.shown(before['name'])}, attempt {next_attempt(made)}")
    else:
        taken = "refuse" if o["new"] or not o["name"] else "continue"
        waits = "preparing the run: reading the folder" + (
            "" if o["target"] == "local" else f" and contacting {o['target']}"
        )
        with _interrupts_deferred() as pressed, output.slow(f"{output.shown(waits)}. Ctrl-C: cancel"):
            made = client.submit(spec, limits, env, stdin, on_name_taken=taken)
        continued = made.get("continued")
        if pressed and not continued:
            client.stop(made["id"])
            return 130
        if continued:
            name = output.shown(made["name"])
            output.say(f"continuing {name}, attempt {next_attempt(made)}" if continued == "again"
                       else f"{name} is already running this command; no new run was started")
        if unfinished and not output.can_ask():
            output.say(
                f"an unfinished run of this command exists here: {output.shown(unfinished[0]['name'])}. To "
                f"continue that run instead: stoker start {output.type_ref(unfinished[0])}"
            )
        for line in told if not continued else ():
            output.say(line)
    for warning in made.get("warnings") or ():
        output.say(output.shown(warning))
    piped.tell(command, o)
    return _leave(made, o["as_json"]) if o["detach"] else _follow(made, o["as_json"], o["strict"])


def _preview(client: Client, spec: dict, limits: dict, env: Mapping[str, str], o: Mapping[str, Any]) -> int:
    """--dry-run."""
    from stoker.cli.preview import print_preview

    with output.slow(f"reading the folder for {output.shown(o['target'])}. Ctrl-C: cancel"):
        told = client.submit(spec, limits, env, dry_run=True)
    if o["as_json"]:
        output.print_json(told)
    else:
        print_preview(told)
    return 0


def make_spec(command: tuple[str, ...], o: Mapping[str, Any]) -> dict:
    """The spec for these options, as the server expects it. Raises InvalidSpec."""
    from stoker.cli.run.follow import all_terminals, stderr_is_stdout
    from stoker.cli.run.terminal import Terminal

    detached = o["detach"]
    tty = o["tty"] if o["tty"] is not None else not detached and all_terminals() and not o["stdin_file"]
    spec = {
        "command": list(command),
        "name": o["name"],
        "target": o["target"],
        "folder": _folder(o["cwd"]),
        "copy": o["copy"],
        "home": os.path.abspath(os.path.expanduser(o["home"])) if o["home"] else None,
        "mounts": parse_mounts(o["mount"]),
        "hooks": not o["no_hooks"],
        "resume": _resume(o),
        "audit": bool(o.get("audit")),
        "tty": tty,
        "stdin": _stdin_kind(detached, tty, o["stdin_file"]),
        "split_stderr": not detached and not tty and not stderr_is_stdout(),
        "gpus": (o["gpus"] or (0, ()))[0],
        "slots": o["slots"],
        "priority": o["priority"],
        "restarts": o["restarts"],
        "unbuffered": detached,
        "env_names": named_env(o["env"], o["env_file"]),
        "inherit": inheritance() | ({"window": list(Terminal(0).size())} if tty else {}),
    }
    if o.get("install"):
        spec["install"] = True
    if o.get("data") or o.get("data_rw"):
        written = parse_data(o["data_rw"], spec["folder"])
        spec["data"], spec["data_rw"] = parse_data(o["data"], spec["folder"]) | written, sorted(written)
    if o["backoff"] is not None:
        spec["backoff_s"] = o["backoff"]
    if o["grace"] is not None:
        spec["grace_s"] = [o["grace"], o["grace"]]
    if o["stop_signal"]:
        spec["stop_signal"] = o["stop_signal"]
    if o["gpus"] and o["gpus"][1]:
        spec["gpu_ids"] = list(o["gpus"][1])
    if o["memory"]:
        spec["memory_bytes"] = o["memory"]
    if o["stall"]:
        spec["stall_s"], spec["stall_do"] = o["stall"]
    if o.get("pull"):
        spec["pull"] = [
            pattern for each in o["pull"] for pattern in filter(None, map(str.strip, each.split(",")))
        ]
    if o["warn"]:
        spec["warn_s"], spec["warn_signal"] = o["warn"]
    return spec


def _resume(o: Mapping[str, Any]) -> str:
    """Every run is recorded, but for one without hooks, and for a rehearsal, which is over in minutes."""
    if o["no_hooks"] or o.get("rehearse") is not None:
        return "off"
    return o["resume"] or "auto"


def run_env(
    client_env: Mapping[str, str], settings: tuple[str, ...], env_file: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the run: the client's variables without Stoker's own, then those of --env-file and
    of --env.
    Raises InvalidSpec."""
    env = {k: v for k, v in client_env.items() if not k.startswith("STOKER_") or k in KEPT}
    # typed inside a run: that run's hooks are not this one's
    if "STOKER_RUN_DIR" in client_env and "PYTHONPATH" in env:
        outer = os.path.realpath(os.path.join(client_env["STOKER_RUN_DIR"], HOOKS))
        env["PYTHONPATH"] = os.pathsep.join(
            each for each in env["PYTHONPATH"].split(os.pathsep) if each != outer
        )
    env.update(env_file)
    for setting in settings:
        key, found, value = setting.partition("=")
        if not key or not (found or key in client_env):
            raise InvalidSpec(
                (
                    "--env takes KEY=VALUE, or the KEY of a variable that is set in this shell, not "
                    f"'{output.shown(setting)}'."
                ),
                hint="stoker run --env LR=0.1 ...",
            )
        env[key] = value if found else client_env[key]
    return env


def named_env(settings: tuple[str, ...], env_file: Mapping[str, str]) -> list[str]:
    """The variables that --env and --env-file name. Only these are sent to another machine."""
    return sorted({setting.partition("=")[0] for setting in settings} | set(env_file))


def parse_env_file(path: str) -> dict[str, str]:
    """The variables of a file in the format of python-dotenv. Reads the file once, because it may be a
    pipe. Raises InvalidSpec."""
    from io import StringIO

    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    text = _read(path).decode("utf-8", "surrogateescape")
    for line in parse_stream(StringIO(text)):
        if line.error or (line.key and line.value is None):
            number = line.original.line + len(line.original.string) - len(line.original.string.lstrip("\n"))
            raise InvalidSpec(
                f"{path}, line {number}, is not KEY=VALUE.", hint="For an empty value, write `KEY=`."
            )
    return {key: value or "" for key, value in dotenv_values(stream=StringIO(text)).items()}


def choose_python(command: tuple[str, ...], o: Mapping[str, Any], env: dict[str, str]) -> tuple[str, ...]:
    """The command with the Python of --python. Without --python, `env` gets the folder's environment, and
    a message says so. Raises InvalidSpec."""
    from stoker.doctor import environment

    if o["target"] != "local":
        return command if o["python"] is None else _with_python(command, launch.far_python(o), o["target"])
    folder = Path(_folder(o["cwd"]))
    if o["python"] is None:
        found, name = environment.activated(command, folder, env)
        if name:
            output.say(f"using python of {output.shown(name)} (to change: --python)")
        env.update(found)
        return command
    interpreter = launch.near_python(o["python"], command, env)
    own = environment.of_interpreter(interpreter)
    if own is not None:
        env.update(environment.active(own, env))
    return _with_python(command, os.fspath(interpreter), o["target"])


def _with_python(command: tuple[str, ...], python: str, target: str) -> tuple[str, ...]:
    """The command with this interpreter in front of its script. Raises InvalidSpec."""
    first = os.path.basename(command[0])
    if command[0].endswith(".py"):
        return (python, *command)
    if first.startswith("python"):
        return (python, *command[1:])
    raise InvalidSpec(
        f"--python needs a Python script, but {output.shown(first)} is not a Python script.",
        hint="stoker run --python .venv train.py",
    )


def parse_mounts(mounts: tuple[str, ...]) -> dict[str, str]:
    """NAME=/abs as a dict. Raises InvalidSpec."""
    parsed = {}
    for mount in mounts:
        name, _, path = mount.partition("=")
        if not name or not path.startswith("/"):
            raise InvalidSpec(f"--mount takes NAME=/PATH with an absolute path, not '{output.shown(mount)}'.",
                              hint=f"stoker run --copy --mount data={os.path.abspath(path or 'data')} ...")
        parsed[name] = path
    return parsed


def parse_data(given: tuple[str, ...], folder: str) -> dict[str, str]:
    """DIR or NAME=DIR as a dict: relative path in the working folder -> absolute path. Raises InvalidSpec."""
    parsed = {}
    for each in given:
        name, named, place = each.partition("=") if not os.path.isdir(each) else ("", "", each)
        place = os.path.abspath(os.path.expanduser(place if named else each))
        name = os.path.normpath(name) if named else os.path.relpath(place, folder)
        if name.startswith("..") or name in ("", ".") or os.path.isabs(name):
            raise InvalidSpec(
                f"{output.shown(each)} is outside of the working folder.",
                hint=f"If the script reads {output.shown(place)} at the path `data`: "
                     f"--data data={output.shown(place)}",
            )
        parsed[name] = place
    return parsed


def _folder(cwd: str | None) -> str:
    try:
        here = os.getcwd()
    except FileNotFoundError as e:
        raise InvalidSpec(
            "The current folder does not exist any more.",
            hint="Change to an existing folder, or give --cwd DIR.",
        ) from e
    return os.path.abspath(os.path.join(here, os.path.expanduser(cwd))) if cwd else here


def _stdin_kind(detached: bool, tty: bool, stdin_file: str | None) -> str:
    if stdin_file:
        return "file"
    if tty:
        return "attached"
    return "none" if detached or _stdin_is_null() else "attached"


def _stdin_is_null() -> bool:
    """True if stdin is /dev/null (also where it was closed: then it has been opened as that)."""
    seen = os.fstat(0)
    return stat.S_ISCHR(seen.st_mode) and seen.st_rdev == os.stat(os.devnull).st_rdev


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise InvalidSpec(f"{path} cannot be read: {e.strerror}.") from e


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[list[int]]:
    """Ctrl-C between the question and the answer would leave a run that nobody knows of;
    the second one is not deferred."""
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        yield pressed
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def next_attempt(made: dict) -> int:
    """The attempt to follow: a waiting attempt has not begun and does not count. Output of older attempts
    is not shown again."""
    begins = made["state"] == State.STARTING and not made.get("started_at")
    return made["attempts"] + (begins or made["state"] in (State.PENDING, State.STAGING))


def _leave(made: dict, as_json: bool) -> int:
    if as_json:
        output.print_json(made)
        return 0
    print(output.shown(made["name"]))
    if output.is_terminal(sys.stderr):
        ref = output.type_ref(made)
        output.say(f"running in the background. Follow: stoker logs -f {ref}   Stop: stoker stop {ref}")
    return 0


def _follow(made: dict, as_json: bool, strict: bool) -> int:
    from stoker.cli.run.follow import Follower

    follower = Follower(made, attempt=next_attempt(made))
    code = follower.follow()
    if as_json:
        import json

        print(json.dumps(follower.run), file=sys.stderr)
    follower.die_with_it()
    return EXIT_NOTHING_TRAINED if strict and follower.nothing_trained and not code else code

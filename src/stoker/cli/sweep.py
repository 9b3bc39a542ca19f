"""`stoker sweep`: one script with many combinations of values, each in a run of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import click

from stoker.base.errors import InvalidSpec, StateError
from stoker.base.state import State
from stoker.cli import grid, output
from stoker.cli.options import ALL_RUNS, ENDED_EARLY, json_option, plane
from stoker.cli.run import launch, tuned
from stoker.cli.run.command import Command, choose_python, make_spec, run, run_env

EPILOG = """Put Stoker's options before the command. All options after the first word of the command belong to the command.

\b
  stoker sweep --param lr=0.1,0.03,0.01 --param wd=0,1e-4 -- train.py --epochs 5
  stoker sweep --param lr=1e-5..1e-1:log --param width=64..512 --random 40 --gpus 1 -- train.py
  stoker sweep --param lr=0.1,0.01 -- train.py optim.lr={lr}

Stoker adds each value to the end of the command, such as `--lr 0.1`. If the command contains {lr}, Stoker replaces {lr} by
the value instead. NAME=1,2,3 is a list of three values. NAME=0.0..0.5:6 means six values with equal distances.
NAME=1e-4..1:log5 means five values with equal ratios. A range such as NAME=1..8 has no number of values, so it needs --random.
Each run has a frozen copy of the folder.

\b
  stoker ps --tag sweep-1      list the runs of the sweep
  stoker wait @sweep-1         wait for these runs; `stop`, `start` and `rm` also accept @sweep-1

With --halve val_loss, Stoker reads val_loss of each run and ends the worst runs early. The server does this, so you can close
the terminal. Runs that were ended early get the tag ended-early. Stoker does not start these runs again automatically.

To continue a sweep, type its command again, with the name of the sweep as --name. Runs that failed or were stopped then start
again.
"""  # noqa: E501
OF_RUN = (
    "time_s",
    "memory",
    "stall",
    "restarts",
    "backoff",
    "gpus",
    "ranks",
    "slots",
    "priority",
    "mount",
    "home",
    "env",
    "env_file",
    "python",
    "cwd",
    "grace",
    "stop_signal",
    "resume",
    "no_hooks",
    "no_settings",
    "compat",
    "target",
)
REST_OF_RUN = {"detach": True, "tty": False, "copy": True, "stdin_file": None, "warn": None, "rehearse": None}
# a tag, and the beginning of the names of its runs
A_NAME = re.compile(r"[^\s,/@\x00-\x1f\x7f-][^\s,/\x00-\x1f\x7f]{0,29}")
NAME_OF_SWEEP = re.compile(r"sweep-(\d+)")


@click.command(
    "sweep",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, cls=Command, metavar="COMMAND...")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUES",
    help="Parameter, and the values to try. Can be repeated.",
)
@click.option(
    "--random",
    "draws",
    type=click.IntRange(1, grid.RUNS_MAX),
    metavar="N",
    help="Run only N combinations, drawn at random.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Random seed of --random.")
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of the sweep, and the tag of its runs.  [default: sweep-1, sweep-2, ...]",
)
@click.option("--at-once", type=click.IntRange(min=1), metavar="N",
              help="Run at most N runs at the same time.  [default: 1; with --gpus or --slots: as many as "
                   "fit on the machine]")
@click.option(
    "--halve",
    metavar="METRIC",
    help="Compare each run with the other runs after 1, 2, 4, ... values of METRIC. End a run early if it "
         "is in the worse half. METRIC:min means that smaller values are better, METRIC:max that larger "
         "values are better. Needs Optuna.",
)
@click.option("--halve-after", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="With --halve: compare each run after N, 2 N, 4 N, ... values of METRIC.")
@click.option("--dry-run", is_flag=True, help="Print the commands of the runs; start no run.")
@json_option("Print the name of the sweep and its runs as JSON.")
def sweep(command: tuple[str, ...], params: tuple[str, ...], as_json: bool, **o: Any) -> int:
    """Run a command once for each combination of parameter values.

    Limits and resources, such as --time, --memory and --gpus, apply to each run, not to the sweep as a whole.
    """
    if not command:
        raise InvalidSpec("There is no command to run.", hint="stoker sweep --param lr=0.1,0.01 -- train.py")
    if not params:
        raise InvalidSpec(
            "There is no parameter to change.", hint="stoker sweep --param lr=0.1,0.01 -- train.py"
        )
    if o["name"] and not A_NAME.fullmatch(o["name"]):
        raise InvalidSpec(
            (
                f"{o['name']!r} cannot be the name of a sweep. A name has at most 30 characters, and no "
                "space, comma or slash."
            ),
            hint="stoker sweep --name lr-and-wd ...",
        )
    found = grid.combinations([grid.parse(text) for text in params], o["draws"], o["seed"])
    if o["dry_run"]:
        _print_plan([grid.command_of(command, values) for values in found], found, as_json)
        return 0
    return _Sweep({**REST_OF_RUN, **o}).run(command, found, as_json)


sweep.params += [each for each in run.params if each.name in OF_RUN]


class _Sweep:
    """The runs of one sweep: those that are there, and those that are still to be made."""

    def __init__(self, o: dict[str, Any]) -> None:
        self._client = plane()
        runs = self._client.runs(all=True, limit=ALL_RUNS)
        self.name = o["name"] or _free_name(runs)
        self._there = {run["name"]: run for run in reversed(runs)}
        self._o = o
        queued = bool(o["gpus"] or o["slots"])
        # at the same time; None leaves it to the queue
        self._lanes = o["at_once"] if o["at_once"] or queued else 1
        self._warned: set[str] = set()

    def run(self, command: tuple[str, ...], found: list[dict[str, str]], as_json: bool) -> int:
        """Make or continue each run, in order. A run waits for the one that is `lanes` before it."""
        self._halve(())  # a mistake is said before a run is made
        env = run_env(os.environ, self._o["env"], self._o["env_file"])
        launch.lend_names(self._o, env)
        chosen = choose_python(command, self._o, env)
        digits = len(str(len(found)))
        made: list[dict] = []
        with output.slow(f"preparing {len(found)} runs, each with a copy of the folder"):
            for number, values in enumerate(found, 1):
                before = made[-self._lanes]["id"] if self._lanes and len(made) >= self._lanes else None
                run = self._one(
                    f"{self.name}-{number:0{digits}d}", grid.command_of(chosen, values), dict(env), before
                )
                made.append(self._client.label(run["id"], add=[self.name]))
        self._halve([run["id"] for run in made])
        self._tell(made, found, as_json)
        return 0

    def _halve(self, runs: Sequence[str]) -> None:
        """Have the server end the worst of these runs early.
        Raises InvalidSpec where that is not possible, without runs too."""
        if self._o["halve"]:
            self._client.halve(self.name, self._o["halve"], self._o["halve_after"], runs)

    def _one(self, name: str, command: tuple[str, ...], env: dict[str, str], before: str | None) -> dict:
        spec = make_spec(launch.with_ranks(command, self._o, env), {**self._o, "name": name})
        there = self._there.get(name)
        if there is not None:
            return self._again(there, spec)
        told = tuned.apply(self._o, spec, env)
        spec["after_any"] = [before] if before else []
        limits = {} if self._o["time_s"] is None else {"time_s": self._o["time_s"]}
        made = self._client.submit(spec, limits, env, None, on_name_taken="refuse")
        for line in (*told, *(made.get("warnings") or ())):
            self._say_once(output.shown(line))
        return made

    def _again(self, there: dict, spec: dict) -> dict:
        """A run that this sweep has already: left alone, or started again if it did not reach its end.
        Raises StateError."""
        if list(there["command"]) != list(spec["command"]):
            raise StateError(
                f"The run {output.shown(there['name'])} already exists with another command: "
                f"{output.command_line(there['command'])}",
                hint=(
                    "To continue the sweep, type the command that started it. For a new sweep, give "
                    f"another name: --name {self.name}b"
                ),
            )
        if State(there["state"]) in (State.FAILED, State.STOPPED) and ENDED_EARLY not in (
            there.get("tags") or ()
        ):
            return self._client.start(there["id"])
        return there

    def _say_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            output.say(line)

    def _tell(self, made: list[dict], found: list[dict[str, str]], as_json: bool) -> None:
        if as_json:
            output.print_json(
                {
                    "sweep": self.name,
                    "runs": [{**run, "params": values} for run, values in zip(made, found, strict=True)],
                }
            )
            return
        names = list(found[0])
        output.print_table(("NAME", *(output.shown(name) for name in names)),
                           [[output.shown(run["name"]), *(output.shown(values[name]) for name in names)]
                            for run, values in zip(made, found, strict=True)])
        ref = output.shown(f"@{self.name}")
        output.say(
            f"{len(made)} runs. List: stoker ps --tag {self.name}   Wait: stoker wait {ref}   Stop: "
            f"stoker stop {ref}"
        )
        if self._o["halve"]:
            metric = self._o["halve"].removesuffix(":min").removesuffix(":max")
            output.say(f"To see the best run and its command: stoker compare {ref} --sort "
                       f"{output.shown(metric)}")


def _free_name(runs: list[dict]) -> str:
    """sweep-N, where N is one more than the highest number in use (1 if there is none)."""
    matches = (NAME_OF_SWEEP.match(word) for run in runs for word in (run["name"], *(run.get("tags") or ())))
    return f"sweep-{max((int(match[1]) for match in matches if match), default=0) + 1}"


def _print_plan(commands: list[tuple[str, ...]], found: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        output.print_json(
            [
                {"command": list(command), "params": values}
                for command, values in zip(commands, found, strict=True)
            ]
        )
        return
    for command in commands:
        print(output.command_line(command))



"""`stoker machine`: the machines that runs may be started on.
They stand in config.toml, and are reached by the user's own ssh."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import click

from stoker.base import machines
from stoker.base.config import TargetConfig, home, load_config
from stoker.base.errors import InvalidSpec, NotFound, StateError, TargetError
from stoker.base.state import State
from stoker.base.units import format_duration, format_size
from stoker.cli import output
from stoker.cli.options import ALL_RUNS, PLAIN_SSH, Duration, json_option, plane

LOGIN_S = 180.0  # for the one login at which ssh may ask for something
SHM_LOW_BYTES = 512 << 20  # less than that is too little for the workers of a DataLoader
CLOCK_S = 2.0  # a clock that is wrong by less is not told


@click.group("machine", help="Add, list, check and remove the machines that `stoker run --on NAME` can use.")
def machine() -> None:
    pass


@machine.command("add", options_metavar="[OPTIONS] [--]")
@click.argument("name")
@click.argument("address", nargs=-1, required=True)
@click.option(
    "--root", default="", metavar="DIR", help="Folder for runs on that machine.  [default: ~/.stoker on "
                                              "that machine]"
)
@click.option(
    "--gpus", type=click.IntRange(min=0), metavar="N", help="Use at most N GPUs of the machine.  "
                                                            "[default: all]"
)
@click.option("--slots", type=click.IntRange(min=0), metavar="N",
              help="Number of CPU slots on the machine, for `stoker run --slots`.  [default: Stoker does not "
                   "count slots]")
@click.option(
    "--python",
    default="",
    metavar="PATH",
    help="Python that runs scripts on that machine, such as /opt/conda/bin/python.  [default: python3]",
)
@click.option(
    "--off",
    default="",
    metavar="CMD",
    help="Command that switches the machine off. The machine runs this command when all its runs have "
         "ended and all files have been copied here.",
)
@click.option(
    "--off-latest",
    "off_latest_s",
    type=Duration(),
    default=TargetConfig.off_latest_s,
    metavar="12h",
    help="Longest time that the machine stays on after the end of its last run, even if some files have "
         "not been copied yet.  [default: 12h]",
)
@click.option(
    "--off-after",
    "off_after_s",
    type=Duration(zero=True),
    default=TargetConfig.off_after_s,
    metavar="5m",
    help="If all files have been copied, switch the machine off after this much time without a run.  "
         "[default: 5m]",
)
@click.option(
    "--disk-survives",
    is_flag=True,
    help=(
        "Tell Stoker that the disk keeps its files while the machine is off. Stoker then switches the "
        "machine off without waiting for copies."
    ),
)
@click.option(
    "--yes",
    is_flag=True,
    help="Accept the key of an unknown host without asking. Stoker never accepts a changed key.",
)
@json_option("Print the facts about the machine as JSON.")
def add(name: str, address: tuple[str, ...], yes: bool, as_json: bool, **o: Any) -> None:
    """Add a machine. ADDRESS is ssh://USER@HOST:PORT, or what you type after ssh.

    \b
      stoker machine add box ssh://root@connect.example.com:12345 --off "shutdown -h now"
      stoker machine add lab -- -p 2222 me@lab.example.org

    Logs in once with your own ssh, and checks the machine. If the host key is unknown, ssh asks you.
    If the check fails, Stoker does not add the machine.
    The machine needs Python 3.8 or newer; Stoker installs nothing there.
    """
    host = machines.address_of(address[0]) if len(address) == 1 else shlex.join(address)
    machines.add(home(), TargetConfig(name=name, host=host, **o))
    try:
        facts = _first_look(name, host, yes)
    except BaseException:
        machines.remove(home(), name)
        raise
    if as_json:
        output.print_json(facts)
        return
    _print_facts(name, facts)
    output.say(_policy(name, load_config(home()).targets[name]))
    output.say(f"{name} is added. Run there: stoker run --on {name} train.py")


def _first_look(name: str, host: str, yes: bool) -> dict:
    """What is there. Logs in at the terminal first where ssh needs an answer that only the user can give.
    Raises TargetError."""
    if yes:
        _login(host, "-o", "StrictHostKeyChecking=accept-new", "-o", "BatchMode=yes")
    with output.slow(f"asking {output.shown(host)}"):
        try:
            return plane().capacity(name)
        except TargetError:
            if yes or not output.can_ask():
                raise
    output.say(f"logging in to {output.shown(host)} once, by ssh")
    _login(host)
    return plane().capacity(name)


def _login(host: str, *options: str) -> None:
    """One login that runs nothing there; ssh talks to the user.
    What is wrong after it, the check says. Raises InvalidSpec."""
    try:
        words = shlex.split(host)
    except ValueError as e:
        raise InvalidSpec(f"'{host}' is not a valid argument for ssh: {e}.") from e
    try:
        login = [*PLAIN_SSH, "-o", "ConnectTimeout=15", *options, *words, "exit 0"]
        subprocess.run(login, timeout=LOGIN_S, check=False)
    except FileNotFoundError as e:
        raise InvalidSpec("This machine has no ssh.", hint="Install the OpenSSH client.") from e
    except subprocess.TimeoutExpired as e:
        raise TargetError(f"{host} did not finish the login within {format_duration(LOGIN_S)}.") from e


def _policy(name: str, config: TargetConfig) -> str:
    """When the machine is switched off, in a sentence; or that nobody does it."""
    if not config.off:
        return (
            f"{name} has no --off command, so the machine stays on after its last run. A rented machine then "
            "continues to cost money."
        )
    after = f"{format_duration(config.off_after_s)} after" if config.off_after_s else "after"
    drained = (
        "the end of its last run"
        if config.disk_survives
        else "the files of its last run have been copied to this machine"
    )
    return (
        f"{name} will be switched off {after} {drained}, at the latest "
        f"{format_duration(config.off_latest_s)} after the end of its last run. The command that "
        f"switches it off: {output.shown(config.off)}"
    )


@machine.command("ls")
@json_option()
def ls(as_json: bool) -> None:
    """List the machines, the number of their runs, and the time when Stoker will switch off each machine.
    Contacts only machines with an --off command."""
    counts: dict[str, list[int]] = {}
    for run in plane().runs(all=True, limit=ALL_RUNS):
        active, ended = counts.setdefault(run["target"], [0, 0])
        final = State(run["state"]).final
        counts[run["target"]] = [active + (not final), ended + final]
    found = [
        {**each, "active": counts.get(each["name"], [0, 0])[0], "ended": counts.get(each["name"], [0, 0])[1]}
        for each in plane().machines()
    ]
    if as_json:
        output.print_json(found)
        return
    rows = [
        [
            output.shown(each["name"]),
            output.shown(each["address"] or "this machine"),
            str(each["active"]),
            str(each["ended"]),
            _standing(each),
        ]
        for each in found
    ]
    output.print_table(("NAME", "ADDRESS", "ACTIVE", "ENDED", "STATUS"), rows, right=frozenset({2, 3}))


def _standing(machine: dict) -> str:
    """What there is to say about a machine: that it is silent, when it is switched off."""
    if machine["unreachable"]:
        return output.unreachable(machine["unreachable"])
    off = machine["off"]
    if not machine["address"] or off is None:
        return "no --off command" if machine["address"] else ""
    if off["state"] == "waiting" and off["off_at"]:
        return f"will be switched off at {output.local_time(off['off_at'])[11:16]}" + (
            " at the latest" if off["why"] != "drained" else ""
        )
    if off["state"] == "failed":
        return f"the --off command failed (exit code {off['last']['code']})"
    if off["state"] in ("off", "ran"):
        return "the --off command was run"
    return f"will be switched off {format_duration(off['after_s'])} after its last run"


@machine.command("off")
@click.argument("name")
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Switch the machine off without asking, even if some files have not been copied here.",
)
@json_option()
def off(name: str, yes: bool, as_json: bool) -> int:
    """Switch a machine off now, with its --off command.
    Stoker refuses this command while a run is active on the machine or waits to start there."""
    owed: list[dict] = next(
        (each["off"]["owed"] for each in plane().machines() if each["name"] == name and each["off"]), []
    )
    if owed and not yes:
        told = (
            f"The files of {len(owed)} run{'' if len(owed) == 1 else 's'} on {output.shown(name)} have not "
            "been copied to this machine yet."
        )
        if not output.can_ask():
            raise InvalidSpec(
                told,
                hint=(
                    "To copy the files first: stoker pull RUN   To switch the machine off now: "
                    f"stoker machine off --yes {output.shown(name)}"
                ),
            )
        if not output.ask(f"{told} Switch {output.shown(name)} off?", default=False):
            return 1
    done = plane().machine_off(name)
    if as_json:
        output.print_json(done)
    else:
        output.say(f"{output.shown(name)} is being switched off")
    return 0


@machine.command("adopt")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Take over the runs without asking.")
@json_option()
def adopt(name: str, yes: bool, as_json: bool) -> int:
    """Take over a machine's runs that belong to another state folder, such as that of a lost laptop.

    Stoker first lists these runs and asks for confirmation. Then Stoker copies the files of the runs here.
    From then on, only this state folder can stop the runs.
    If the other state folder gave the machine an --off command, Stoker copies and prints this command too.
    """
    with output.slow(f"asking {output.shown(name)}"):
        found = plane().machine_found(name)
    if not as_json:
        rows = [
            [each["id"], output.shown(each["name"]), each["phase"], output.shown(each["owner"] or "-")]
            for each in found
        ]
        output.print_table(("ID", "NAME", "PHASE", "OWNER"), rows)
    if found and not yes:
        if not output.can_ask():
            raise InvalidSpec("No run was taken over, because Stoker needs a terminal to ask for "
                              "confirmation.",
                              hint=f"stoker machine adopt --yes {output.shown(name)}")
        if not output.ask(f"Take over {len(found)} run{'' if len(found) == 1 else 's'}?", default=False):
            return 1
    taken = plane().machine_adopt(name) if found else []
    if as_json:
        output.print_json(taken)
    else:
        output.say(f"Took over {len(taken)} run{'' if len(taken) == 1 else 's'}")
        output.say(_policy(output.shown(name), load_config(home()).targets[name]))
    return 0


@machine.command("check")
@click.argument("name")
@json_option()
def check(name: str, as_json: bool) -> None:
    """Print facts about a machine: CPUs, memory, disk, GPUs and their users, Pythons with torch, system time.

    Looks for Pythons in PATH, in a login shell, in an interactive shell, and among conda and virtual
    environments. Exit code 5 if the machine cannot be reached.
    """
    with output.slow(f"asking {output.shown(name)}"):
        facts = plane().capacity(name, look=True)
    if as_json:
        output.print_json(facts)
    else:
        _print_facts(name, facts)


@machine.command("data")
@click.argument("name")
@click.option(
    "--rm",
    "remove",
    multiple=True,
    metavar="DATA",
    help="Delete this dataset, by its name or id. Can be repeated.",
)
@json_option()
def data(name: str, remove: tuple[str, ...], as_json: bool) -> None:
    """List the datasets that `stoker run --data` sent to a machine, with their sizes."""
    with output.slow(f"asking {output.shown(name)}"):
        found = plane().data(name, remove)
    if as_json:
        output.print_json(found)
        return
    unknown = [each for each in remove if not any(told["removed"] for told in found)]
    if unknown:
        raise NotFound(f"There is no dataset {output.shown(unknown[0])} on {output.shown(name)}.",
                       hint=f"List the datasets: stoker machine data {output.shown(name)}")
    rows = [
        [
            output.shown(each["label"] or "-"),
            each["id"],
            "removed" if each["removed"] else each["state"],
            str(each["files"] if each["files"] is not None else "-"),
            format_size(each["bytes"]) if each["bytes"] is not None else "-",
        ]
        for each in found
    ]
    output.print_table(("NAME", "ID", "STATE", "FILES", "SIZE"), rows, right=frozenset({3, 4}))


@machine.command("rm")
@click.argument("name")
@click.option(
    "-y", "--yes", is_flag=True,
    help="Remove the machine without asking, even if data of ended runs are still on it.",
)
@json_option()
def rm(name: str, yes: bool, as_json: bool) -> int:
    """Remove a machine from the list. All its runs must have ended. Nothing is deleted on the machine."""
    runs = [run for run in plane().runs(all=True, limit=ALL_RUNS) if run["target"] == name]
    active = [run for run in runs if not State(run["state"]).final]
    if active:
        raise StateError(
            (
                f"{output.shown(name)} cannot be removed before all its runs have ended ({len(active)} "
                f"active, such as {output.shown(active[0]['name'])})."
            ),
            hint=f"To stop this run: stoker stop {output.type_ref(active[0])}",
        )
    if runs and not yes:
        count = f"{len(runs)} ended run{'' if len(runs) == 1 else 's'}"
        told = (
            f"{output.shown(name)} has {count}. If you remove the machine, you can later read only the "
            "logs and files that are already copied to this machine."
        )
        if not output.can_ask():
            raise InvalidSpec(
                told,
                hint=(
                    "To delete the runs first: stoker rm RUN...   To remove the machine now: "
                    f"stoker machine rm --yes {output.shown(name)}"
                ),
            )
        if not output.ask(f"{told} Remove {output.shown(name)}?", default=False):
            return 1
    try:
        plane().machine_withdraw(name)
    except TargetError as e:
        output.say(
            f"{output.shown(name)} does not answer, so its --off command stays active on the machine. "
            f"Reason: {output.shown(e.message)}"
        )
    machines.remove(home(), name)
    if as_json:
        output.print_json({"removed": name})
    else:
        output.say(f"{output.shown(name)} is removed from the list; nothing was deleted on the machine")
    return 0


def _print_facts(name: str, facts: dict) -> None:
    """A table of what a machine has, and under it what is wrong with it."""
    python = facts.get("python") or {}
    rows = [
        ("host", str((facts.get("identity") or {}).get("hostname") or "-")),
        ("CPUs", f"{facts['cpus']:g}"),
        ("memory", _of(facts.get("memory_free_bytes"), facts.get("memory_bytes"))),
        ("disk", _of(facts.get("disk_free_bytes"), facts.get("disk_bytes"))),
        ("/dev/shm", format_size(facts["shm_bytes"]) if facts.get("shm_bytes") else "-"),
        ("python", f"{python.get('version', '-')}  {python.get('executable', '')}".rstrip()),
        ("torch", facts.get("torch") or "not installed for this Python"),
        *((f"GPU {gpu.get('index')}", _gpu(gpu, facts)) for gpu in facts.get("gpus") or ()),
    ]
    if not facts.get("gpus"):
        rows.append(("GPUs", "none"))
    if facts.get("inodes_free") is not None:
        rows.append(("inodes", f"{facts['inodes_free']:,} free"))
    rows += [
        (
            "other python",
            f"{each['version']}  {each['python']}  torch {each['torch'] or '-'}  (found in: {each['found']})",
        )
        for each in facts.get("pythons") or ()
        if each["python"] != python.get("executable")
    ]
    wide = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:<{wide}}  {output.shown(value)}")
    offset = facts.get("clock_offset_s")
    if offset is not None and abs(offset) > CLOCK_S:
        output.say(
            f"the machine's clock is {format_duration(abs(offset))} "
            f"{'ahead of' if offset > 0 else 'behind'} the clock of your computer. "
            "Stoker corrects the start and end times of runs, but not the modification times of files"
        )
    for line in _cannot(name, facts):
        output.say(line)
    if not facts.get("inodes_free", 1):
        output.say("the machine's disk has no free inodes, so no new file can be created there")


def _cannot(name: str, facts: dict) -> list[str]:
    """What cannot be done there, and why."""
    chosen, pythons = facts.get("chosen_python"), facts.get("pythons")
    torches = [each["python"] for each in pythons or () if each["torch"]]
    told = []
    if chosen and pythons is not None and chosen not in [each["python"] for each in pythons]:
        told.append(f"scripts run with {output.shown(chosen)}, which config.toml sets")
    if pythons and not chosen and torches and not facts.get("torch"):
        told.append(
            f"python3 has no torch, but {output.shown(torches[0])} has torch. To use that Python for all "
            f"runs on {output.shown(name)}, {machines.setting(home(), name, {'python': torches[0]})}"
        )
    if (facts.get("shm_bytes") or SHM_LOW_BYTES) < SHM_LOW_BYTES:
        told.append(
            f"/dev/shm has {format_size(facts['shm_bytes'])}: DataLoader workers may fail; "
            "use num_workers=0 or --shm-size=8g"
        )
    return told


def _of(free: int | None, total: int | None) -> str:
    return f"{format_size(free)} free of {format_size(total)}" if free is not None and total else "-"


def _gpu(gpu: dict, facts: dict) -> str:
    used = facts.get("gpus_used", {}).get(gpu.get("uuid"))
    memory = f", {format_size(gpu['memory_bytes'])}" if gpu.get("memory_bytes") else ""
    busy = (
        f", used by {used}"
        if used
        else f", {format_size(gpu['used_bytes'])} in use"
        if gpu.get("used_bytes")
        else ""
    )
    return f"{gpu.get('name') or '-'}{memory}{busy}  {gpu.get('uuid') or ''}".rstrip()



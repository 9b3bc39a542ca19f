"""The verbs about the machine: gc top doctor server."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from stoker.base.errors import InvalidSpec, ServerError, StokerError
from stoker.base.units import format_duration, format_size
from stoker.cli import output
from stoker.cli.listing import needed_id, progress_words, short_command
from stoker.cli.options import Duration, Machine, json_option, plane

REFRESH_S = 2.0
TOP_COLUMNS = (
    "NAME",
    "ID",
    "STATE",
    "CPU %",
    "MEMORY",
    "PROCS",
    "GPU",
    "RAN",
    "STEP",
    "RATE",
    "LEFT",
    "COMMAND",
)


@click.command("gc")
@click.option(
    "--older",
    metavar="7d",
    help="Delete only runs that ended longer ago than this time.  [default: 7d]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@json_option("Print the report as JSON.")
def gc(older: str | None, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Show the disk space that ended runs use, and delete these runs after a confirmation.
    Does not delete active runs, or runs that `stoker keep --pin` protects."""
    older_s = None if older is None else Duration(zero=True).convert(older, None, None)
    client = plane()
    report = client.gc(True, older_s=older_s)
    if as_json and not (yes and not dry_run):
        output.print_json(report)
        return 0
    if not as_json:
        _print_gc(report)
    doomed = [r for r in report["runs"] if not r.get("pinned")]
    if dry_run or not doomed:
        return 0
    if not yes:
        if not output.can_ask():
            typed = output.command_line(["stoker", "gc", *(["--older", older] if older else [])])
            raise InvalidSpec("Nothing was deleted, because Stoker needs a terminal to ask for confirmation.",
                              hint=f"To delete: {typed} --yes   To look: {typed} --dry-run")
        which = f"these {len(doomed)} runs" if len(doomed) > 1 else "this run"
        if not output.ask(f"Delete {which}?", default=False):
            return 1
    done = client.gc(False, older_s=older_s)
    if as_json:
        output.print_json(done)
    else:
        output.say(f"freed {format_size(_sum(doomed, 'bytes'))}; deleted {_sum(doomed, 'inodes')} files")
    return 0


def _sum(runs: list[dict], key: str) -> int:
    return sum(r.get(key) or 0 for r in runs)


def _print_gc(report: dict) -> None:
    runs = report["runs"]
    if not runs:
        output.say(
            f"nothing to free: no run ended more than {format_duration(report['older_s'])} ago. "
            "To delete all ended runs: stoker gc --older 0s"
        )
        return
    rows = [
        [
            output.shown(r["name"]),
            needed_id(r),
            r["state"],
            output.ago(r.get("ended_at")),
            format_size(r.get("bytes") or 0),
            str(r.get("inodes") or 0),
            "pinned, not deleted" if r.get("pinned") else "",
        ]
        for r in runs
    ]
    doomed = [r for r in runs if not r.get("pinned")]
    rows.append(["together", "", "", "", format_size(_sum(doomed, "bytes")), str(_sum(doomed, "inodes")), ""])
    header, rows = output.without_empty(("NAME", "ID", "STATE", "ENDED", "SIZE", "FILES", "NOTE"), rows)
    right = frozenset(header.index(title) for title in ("SIZE", "FILES"))
    output.print_table(header, rows, right=right, styles=output.STATE_STYLES)


@click.command("top")
@click.option("--on", "target", type=Machine(), default="", metavar="NAME",
              help="Show the machine NAME, and only the runs on that machine.")
@click.option("--once", is_flag=True, help="Print the table once, then exit.")
@json_option("Print the table once as JSON, then exit.")
def top(target: str, once: bool, as_json: bool) -> None:
    """Watch the machine and its active runs. Press q or Ctrl-C to quit."""
    client = plane()
    if as_json:
        output.print_json(client.top(target))
        return
    if once or not output.is_terminal(sys.stdout):
        columns = shutil.get_terminal_size().columns if output.is_terminal(sys.stdout) else None
        print(
            "\n".join(
                line if columns is None else output.cut_words(line, columns)
                for line in top_lines(client.top(target))
            )
        )
        return
    with _quick_keys(), _other_screen():
        quits = False
        while not quits:
            columns, rows = os.get_terminal_size(1)
            lines = [
                output.cut_words(line, columns) for line in [*top_lines(client.top(target)), "", "q: leave"]
            ][: rows - 1]
            sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
            sys.stdout.flush()
            quits = _quit_within(REFRESH_S)


@contextlib.contextmanager
def _other_screen() -> Iterator[None]:
    """The terminal's second screen, without a cursor; then the first one, as it was."""
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


@contextlib.contextmanager
def _quick_keys() -> Iterator[None]:
    """Keys arrive as they are typed, and are not shown; Ctrl-C stays what it is."""
    import termios
    import tty

    from stoker.cli.run.terminal import Terminal

    if not output.is_terminal(sys.stdin) or not Terminal(0).foreground():
        yield
        return
    before = termios.tcgetattr(0)
    tty.setcbreak(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Was `q` typed? Waits so long for it."""
    from stoker.cli.run.terminal import Terminal

    if not output.is_terminal(sys.stdin) or not Terminal(0).foreground():
        time.sleep(seconds)
        return False
    ready, _, _ = select.select([0], [], [], seconds)
    typed = os.read(0, 64) if ready else b""
    return bool(ready) and (not typed or b"q" in typed)


def top_lines(body: dict) -> list[str]:
    """The lines of the `top` screen."""
    machine = body.get("machine") or {}
    lines = [line for line in _machine_lines(machine) if line]
    runs = body.get("runs") or []
    if not runs:
        return [*lines, "", "no active runs. Start one: stoker run train.py"]
    rows = [_top_row(run) for run in runs]
    return [*lines, "", *output.columns(*output.without_empty(TOP_COLUMNS, rows))]


def _machine_lines(machine: dict) -> list[str]:
    memory = machine.get("memory") or {}
    disk = machine.get("disk") or {}
    lines = [f"{machine.get('hostname', '')}  {machine.get('cpus', '?')} CPUs"]
    load = machine.get("load")
    if load:
        lines[0] += "  load " + " ".join(f"{x:.2f}" for x in load)
    if memory:
        lines.append(
            f"memory  {format_size(memory.get('available_bytes') or 0)} free of "
            f"{format_size(memory.get('total_bytes') or 0)}"
        )
    if disk:
        lines.append(
            f"disk    {format_size(disk.get('free_bytes') or 0)} free, {disk.get('inodes_free') or 0:,} "
            "inodes free"
        )
    for gpu in machine.get("gpus") or ():
        busy = f"{gpu['busy_percent']:.0f} % busy  " if gpu.get("busy_percent") is not None else ""
        memory_words = (
            f"{format_size(gpu.get('used_bytes') or 0)} of {format_size(gpu.get('memory_bytes') or 0)}"
        )
        lines.append(f"GPU {gpu.get('index')}   {busy}{memory_words}  {gpu.get('name')}")
    return lines


def _top_row(run: dict) -> list[str]:
    now = run.get("telemetry") or {}
    gpus = now.get("gpus") or []
    gpu = " ".join(f"{g['busy_percent']:.0f}%" for g in gpus if g.get("busy_percent") is not None) or "-"
    cpu = f"{now['cpu_percent']:.0f}" if now.get("cpu_percent") is not None else "-"
    memory = format_size(now["rss_bytes"]) if now.get("rss_bytes") is not None else "-"
    return [
        output.cut(output.shown(run["name"]), 24),
        needed_id(run),
        run["state"],
        cpu,
        memory,
        str(now.get("processes", "-")),
        gpu,
        format_duration(run["used_s"]) if run.get("used_s") else "-",
        *progress_words(run),
        short_command(run.get("command") or []),
    ]


@click.command(
    "doctor", context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]"
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND...]")
@click.option("--on", "target", type=Machine(), default="local", metavar="NAME",
              help="Check another machine before Stoker sends anything to it.")
@json_option("Print the findings as a JSON list.")
def doctor(command: tuple[str, ...], target: str, as_json: bool) -> int:
    """Check this machine, or check a command before you run it. The exit code is 1 if a check fails."""
    findings = _examine(command) if target == "local" else _examine_there(command, target)
    failed = any(f.level == "fail" for f in findings)
    if as_json:
        output.print_json([f.to_json() for f in findings])
        return int(failed)
    for finding in sorted(findings, key=lambda f: -list(MARKS).index(f.level) if f.level in MARKS else 0):
        _print_finding(finding)
    bad, warned = (sum(f.level == level for f in findings) for level in ("fail", "warn"))
    print(
        f"\n{_count(bad, 'thing')} to fix, {_count(warned, 'warning')}."
        if bad or warned
        else "\nNo problems found."
    )
    return int(failed)


def _examine(command: tuple[str, ...]) -> list:
    from stoker.doctor import examine
    from stoker.doctor.environment import activated

    env, name = activated(command, Path.cwd(), os.environ)
    if name:
        output.say(f"using python of {output.shown(name)}")
    return examine(list(command) or None, Path.cwd(), env)


def _examine_there(command: tuple[str, ...], target: str) -> list:
    from stoker.doctor import there

    def facts_of(modules: list[str], python: str) -> dict:
        with output.slow(f"contacting {output.shown(target)}"):
            return plane().capacity(target, module=modules, python=python)

    def pythons_of(modules: list[str]) -> list[dict]:
        with output.slow(f"listing the Pythons of {output.shown(target)}"):
            return plane().capacity(target, look=True, module=modules)["pythons"]
    return there.examine(target, command, Path.cwd(), facts_of, pythons_of)


MARKS = {"ok": ("ok", "32"), "note": ("note", "36"), "warn": ("warn", "33"), "fail": ("FAIL", "31")}


def _print_finding(finding: Any) -> None:
    word, colour = MARKS.get(finding.level, (finding.level, "0"))
    mark = f"\x1b[{colour}m{word:4}\x1b[0m" if output.is_terminal(sys.stdout) else f"{word:4}"
    line = f":{finding.line}" if finding.line else ""
    where = f"{output.shown(finding.file)}{line}: " if finding.file else ""
    text = f"{finding.topic}: {where}{output.shown(finding.message)}"
    if output.is_terminal(sys.stdout):
        text = "\n      ".join(output.wrapped(text, max(30, shutil.get_terminal_size().columns - 6)))
    print(f"{mark}  {text}")
    if finding.hint:
        print(f"      {output.shown(finding.hint)}")


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


@click.group(
    "server",
    help=(
        "Start, stop and inspect the background server. A command that needs the server starts the server. "
        "Runs continue without the server."
    ),
)
def server() -> None:
    pass


@server.command("start")
@json_option()
def server_start(as_json: bool) -> None:
    """Start the server if it is not running."""
    _print_info(plane().info(), as_json)


@server.command("status")
@json_option()
def server_status(as_json: bool) -> int:
    """Show whether the server is running. If it is not, the exit code is 1."""
    try:
        info = plane(start=False).info()
    except StokerError:
        if as_json:
            output.print_json({"running": False})
        else:
            print("The server is not running. A command that needs the server starts the server.")
        return 1
    _print_info(info, as_json)
    return 0


@server.command("stop")
@json_option()
def server_stop(as_json: bool) -> None:
    """Stop the server. Runs continue. The next command that needs the server starts a new server."""
    info: dict = {}
    with contextlib.suppress(StokerError):
        client = plane(start=False)
        info = client.info()
        client.shutdown()
    until = time.monotonic() + 15
    while info and time.monotonic() < until and _serves(info.get("pid")):
        time.sleep(0.05)
    if info and _serves(info.get("pid")):
        raise ServerError(
            f"The server (process {info['pid']}) did not stop.",
            hint=f"kill -9 {info['pid']}   (runs continue)",
        )
    if as_json:
        output.print_json({"running": False, "stopped": info.get("pid")})
    else:
        print("Server stopped; runs continue." if info else "The server was not running.")


def _serves(pid: int | None) -> bool:
    try:
        return plane(start=False).info().get("pid") == pid
    except StokerError:
        return False


def _print_info(info: dict, as_json: bool) -> None:
    if as_json:
        output.print_json({"running": True, **info})
        return
    started = info.get("started_at")
    since = f" since {output.local_time(started)}" if isinstance(started, str) else ""
    home = output.shown(str(info.get("home")))
    print(
        f"The server is running{since}: version {info.get('version')}, process {info.get('pid')}, state "
        f"folder {home}"
    )


@server.command("enable")
def server_enable() -> None:
    """Start the server at boot and keep it running after logout. Needs systemd."""
    from stoker.cli.unit import enable

    print(enable())


@server.command("disable")
def server_disable() -> None:
    """Undo `enable`: the server no longer starts at boot."""
    from stoker.cli.unit import disable

    print(disable())

"""`stoker pull`: files that a run made or changed, brought into the folder that it was typed in.
The server does it."""

from __future__ import annotations

import sys
import time

import click

from stoker.base.errors import ServerError, TargetError
from stoker.base.units import format_size
from stoker.cli import output
from stoker.cli.options import Patience, find, json_option, plane, ref_argument

FAILED = "failed"


@click.command("pull")
@ref_argument()
@click.argument("files", nargs=-1, metavar="[FILES]...")
@json_option("Print as JSON what Stoker did with each file.")
def pull(ref: str, files: tuple[str, ...], as_json: bool) -> int:
    """Copy a run's output files to the folder where you typed `stoker run`.

    Output files are the files that the run created or modified.
    Works for runs on other machines, and for runs with --copy.
    FILES are paths, folders or patterns ('*.pt'); the default is all files.
    Stoker does not replace a local file that you have changed. It writes the run's version of the
    file to runs/ID/outputs in the state folder, and prints a message.
    If the transfer is interrupted, type the command again. The transfer then continues where it stopped.
    """
    run = find(ref)
    told = _bring(run["id"], files)
    told = {"id": run["id"], "name": run["name"], "target": run["target"], **told}
    if as_json:
        output.print_json(told)
    else:
        _tell(told)
    failed = [each for each in told["files"] if each["result"] == FAILED]
    if failed:
        output.print_error(
            TargetError(
                f"{len(failed)} of {len(told['files'])} files were not copied: {_named(failed)} (reason "
                f"for the first file: {output.shown(failed[0]['why'])}).",
                hint=f"Try again: stoker pull {output.type_ref(run)}",
            )
        )
    if told["cut"]:
        output.say(f"Some files of the run may be missing here. Reason: {output.shown(told['cut'])}.")
    return TargetError.exit_code if failed else 0


def _bring(run_id: str, patterns: tuple[str, ...]) -> dict:
    """What was done with each file. A server that ends is started again, for a while. Raises StokerError."""
    done: dict[str, dict] = {}
    told: dict = {}
    progress, patience = _Progress(), Patience()
    while not told.get("done"):
        try:
            for line in plane().pull(run_id, patterns):
                patience.heard()
                progress(line)
                if "file" in line:
                    before = done.get(line["file"]["path"])
                    done[line["file"]["path"]] = (
                        before if before and before["result"] == "brought" else line["file"]
                    )
                else:
                    told |= line
            if not told.get("done"):
                raise ServerError(
                    "The Stoker server ended while Stoker was copying files.",
                    hint="Repeat the command; nothing is lost.",
                )
        except ServerError:
            pause_s = patience.left_s()
            if not pause_s:
                raise
            time.sleep(pause_s)
        finally:
            progress.end()
    return {
        "folder": told["to"],
        "outputs": told["outputs"],
        "complete": not told["cut"],
        "cut": told["cut"],
        "files": list(done.values()),
    }


class _Progress:
    """At a terminal: how much has come of all, and how fast."""

    def __init__(self) -> None:
        self._on = output.is_terminal(sys.stderr)
        self._first: tuple[float, int] | None = None

    def __call__(self, told: dict) -> None:
        if not self._on or "came" not in told:
            return
        now = time.monotonic()
        began, before = self._first = self._first or (now, told["came"])
        rate = format_size((told["came"] - before) / max(now - began, 0.001))
        line = (
            f"{output.shown(told['path'])}: {format_size(told['came'])} of {format_size(told['whole'])}, "
            f"{rate}/s"
        )
        print(f"\r\x1b[K{output.cut(line, 79)}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._on and self._first:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tell(told: dict) -> None:
    for each in told["files"]:
        if each["result"] == "brought":
            print(f"{output.shown(each['path'])}  {format_size(each['bytes'])}  {each['change']}")
    by = {
        word: [each for each in told["files"] if each["result"] == word]
        for word in ("brought", "here", "kept")
    }
    name, size = output.shown(told["name"]), format_size(sum(each["bytes"] for each in by["brought"]))
    here = f"{_count(by['here'])} already in {output.shown(told['folder'])}" if by["here"] else ""
    brought = (
        f"{_count(by['brought'])} ({size}) copied to {output.shown(told['folder'])}" if by["brought"] else ""
    )
    if not told["files"]:
        output.say(f"{name} did not make or change any file")
    if brought or here:
        output.say(f"{name}: {'; '.join(filter(None, (brought, here)))}")
    if by["kept"]:
        output.say(
            f"{name}: {_count(by['kept'])} put into {output.shown(told['outputs'])}, because your folder "
            f"has files with the same name but different content: {_named(by['kept'])}"
        )


def _count(files: list[dict]) -> str:
    return f"{len(files)} file{'' if len(files) == 1 else 's'}"


def _named(files: list[dict]) -> str:
    return output.shown(", ".join(each["path"] for each in files[:5]) + (", ..." if len(files) > 5 else ""))

"""`stoker pull`: files that a run made or changed, brought into the folder that it was typed in."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from stoker.base.config import home
from stoker.base.errors import ServerError, TargetError
from stoker.base.units import format_size
from stoker.cli import output
from stoker.cli.options import Patience, json_option, plane, ref_argument, say_which

LINE_S = 0.2  # between two lines of progress
FAILED = "failed"


@click.command("pull")
@ref_argument()
@click.argument("files", nargs=-1, metavar="[FILES]...")
@json_option("Print what was done with each file as JSON.")
def pull(ref: str, files: tuple[str, ...], as_json: bool) -> int:
    """Copy the files that a run made or changed into the folder where you typed `stoker run`.

    Works for runs on other machines, and for runs with --copy. FILES are paths, folders or patterns ('*.pt'); the default is all files.
    If you have changed a local file, pull does not replace it: it writes the run's file to the folder runs/ID/outputs in the state folder,
    and says so. If the transfer is interrupted, type the command again: it continues from there.
    """
    from stoker import client_pull

    made = plane().files(ref)
    say_which(ref, made)
    client_pull.check_made(made)
    wanted = client_pull.chosen([f for f in made["files"] if client_pull.is_sound(f)], files, output.shown(made["name"]))
    ground = client_pull.Ground(Path(made["folder"]), home().runs / made["id"])
    with ground.locked():
        done = _bring(made["id"], wanted, ground)
    told = {"id": made["id"], "name": made["name"], "target": made["target"], "folder": made["folder"], "outputs": str(ground.outputs),
            "complete": not made["cut"], "files": done}
    if as_json:
        output.print_json(told)
    else:
        _tell(told)
    failed = [each for each in done if each["result"] == FAILED]
    if failed:
        output.print_error(TargetError(f"{len(failed)} of {len(done)} files were not copied: {_named(failed)} ({failed[0]['why']}).",
                                       hint=f"Try again: stoker pull {output.type_ref(made)}"))
    if made["cut"]:
        output.say(f"The folder of the run is too large to list: {made['cut']}.")
    return TargetError.exit_code if failed else 0


def _bring(run_id: str, wanted: list[dict], ground: object) -> list[dict]:
    """What was done with each file. A stream that breaks is continued, for a while. Raises StokerError."""
    from stoker import client_pull

    done, missing = {}, []
    for file in wanted:
        verdict, kept = ground.verdict(file), None
        if verdict == client_pull.KEEP:
            kept = ground.kept(file)
        if verdict == client_pull.HERE or kept:
            done[file["path"]] = _result(file, verdict, kept or ground.folder / file["path"])
        else:
            missing.append(file)
    client_pull.room_for(missing, ground)
    progress, patience = _Progress(missing), Patience()
    while missing:
        try:
            pieces = plane().send(run_id, [(f["path"], client_pull.offset_of(f, ground)) for f in missing])
            for file, verdict, where in client_pull.receive(pieces, missing, ground, progress):
                patience.heard()
                done[file["path"]] = _result(file, verdict, where)
            break
        except (ServerError, TargetError) as e:
            missing = [f for f in missing if f["path"] not in done]
            pause_s = patience.left_s()
            if not missing or not pause_s or getattr(e, "retry", True) is False:
                raise
            time.sleep(pause_s)
    progress.end()
    for file in missing:
        done.setdefault(file["path"], _result(file, FAILED, "the machine sent no more"))
    return [done[file["path"]] for file in wanted]


def _result(file: dict, verdict: str, where: object) -> dict:
    from stoker import client_pull

    words = {client_pull.PUT: "brought", client_pull.REPLACE: "brought", client_pull.KEEP: "kept", client_pull.HERE: "here"}
    word = words.get(verdict, FAILED)
    told = {"path": file["path"], "bytes": file["size"], "change": file["kind"], "result": word}
    return {**told, "why": str(where)} if word == FAILED else {**told, "at": str(where)}


class _Progress:
    """At a terminal: how much has come of all, and how fast."""

    def __init__(self, files: list[dict]) -> None:
        self._whole = sum(f["size"] for f in files)
        self._came: dict[str, int] = {}
        self._first = 0
        self._on = output.is_terminal(sys.stderr)
        self._began = self._next = time.monotonic()

    def __call__(self, file: dict, count: int) -> None:
        self._came[file["path"]] = count
        now = time.monotonic()
        if not self._on or now < self._next:
            return
        self._next = now + LINE_S
        came = sum(self._came.values())
        self._first = self._first or came
        rate = format_size((came - self._first) / max(now - self._began, 0.001))
        line = f"{output.shown(file['path'])}: {format_size(came)} of {format_size(self._whole)}, {rate}/s"
        print(f"\r\x1b[K{output.cut(line, 79)}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tell(told: dict) -> None:
    for each in told["files"]:
        if each["result"] == "brought":
            print(f"{output.shown(each['path'])}  {format_size(each['bytes'])}  {each['change']}")
    by = {word: [each for each in told["files"] if each["result"] == word] for word in ("brought", "here", "kept")}
    name, size = output.shown(told["name"]), format_size(sum(each["bytes"] for each in by["brought"]))
    here = f"{_count(by['here'])} already in {output.shown(told['folder'])}" if by["here"] else ""
    brought = f"{_count(by['brought'])} ({size}) copied to {output.shown(told['folder'])}" if by["brought"] else ""
    if not told["files"]:
        output.say(f"{name} did not make or change any file")
    if brought or here:
        output.say(f"{name}: {'; '.join(filter(None, (brought, here)))}")
    if by["kept"]:
        output.say(f"{name}: {_count(by['kept'])} put into {output.shown(told['outputs'])}, because your folder has other content there: "
                   f"{_named(by['kept'])}")


def _count(files: list[dict]) -> str:
    return f"{len(files)} file{'' if len(files) == 1 else 's'}"


def _named(files: list[dict]) -> str:
    return output.shown(", ".join(each["path"] for each in files[:5]) + (", ..." if len(files) > 5 else ""))

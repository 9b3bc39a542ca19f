"""The verbs about runs that exist: ps logs attach wait stop start keep rm."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from stoker.base.errors import EXIT_OWN_FAILURE, InvalidSpec, ServerError, StateError, StokerError, TargetError
from stoker.base.state import State
from stoker.base.units import format_duration, from_iso
from stoker.cli import output
from stoker.cli.options import Duration, Patience, exit_code, json_option, plane, ref_argument, refs_argument

ALL_RUNS = 1_000_000
RECENT_RUNS, RECENT_S, LOOKED_AT = 10, 86400.0, 50
WHY_COLUMNS = 56  # of what a run waits for; `show` has all of it
ATTACH_BYTES = 4096  # of the log, shown when one comes back to a run


@click.command("ps")
@click.option("-a", "--all", "all_runs", is_flag=True, help="Also all the runs that ended long ago.")
@json_option("Print a JSON list of runs.")
def ps(all_runs: bool, as_json: bool) -> None:
    """List the runs that live, and the last ten that ended within a day; the newest first."""
    found = plane().runs(all=True, limit=ALL_RUNS) if all_runs else live_and_recent(time.time())
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.say("no runs. Begin one: stoker run train.py" + ("" if all_runs else "   All that ever ran: stoker ps -a"))
        return
    now = time.time()
    rows = [[output.shown(r["name"]), r["id"], state_words(r), when_words(r, now), _time_words(r),
             output.cut(output.command_line(r["command"]), 60)] for r in found]
    output.print_table(("NAME", "ID", "STATE", "SINCE", "RAN", "COMMAND"), rows, styles=output.STATE_STYLES)


def live_and_recent(now: float) -> list[dict]:
    """What one wants to see: all that lives, and what ended a short while ago. Newest first."""
    newest = plane().runs(all=True, limit=LOOKED_AT)
    live = plane().runs(limit=ALL_RUNS) if len(newest) == LOOKED_AT else [r for r in newest if not State(r["state"]).final]
    ended = [r for r in newest if r.get("ended_at") and State(r["state"]).final and now - from_iso(r["ended_at"]) < RECENT_S]
    ended.sort(key=lambda r: r["ended_at"], reverse=True)
    known = {r["id"] for r in live}
    both = [*live, *[r for r in ended if r["id"] not in known][:RECENT_RUNS]]
    return sorted(both, key=lambda r: r["created_at"], reverse=True)


def state_words(run: dict) -> str:
    """The state, with what matters beside it in brackets."""
    state = run["state"]
    extra = []
    if state in (State.FAILED, State.STOPPED) and run.get("reason"):
        extra.append(f"exit {run['exit_code']}" if run["reason"] == "nonzero_exit" else run["reason"].replace("_", " "))
    if state == State.PENDING and run.get("waits_for"):
        extra.append(output.cut(f"waits for {output.shown(run['waits_for'].split(' (`')[0])}", WHY_COLUMNS))
    if state == State.STARTING and run.get("restart_at"):
        extra.append("to be restarted")
    if not State(state).final and run.get("reachability") == "unreachable":
        extra.append("unreachable")
    if run.get("still_s"):
        extra.append(f"no sign of life for {format_duration(run['still_s'])}")
    if run.get("stalled"):
        extra.append("stalled")
    if run.get("pinned"):
        extra.append("pinned")
    return f"{state} ({', '.join(extra)})" if extra else state


def when_words(run: dict, now: float) -> str:
    """Since when it is in its state, in words."""
    state = State(run["state"])
    moment = run.get("ended_at") if state.final else None if state in (State.PENDING, State.STAGING) else run.get("started_at")
    return output.ago(moment or run.get("created_at"), now)


def _time_words(run: dict) -> str:
    return format_duration(run["used_s"]) if run.get("used_s") else "-"


@click.command("logs")
@ref_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the run ends, over its restarts.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin N lines before the end.")
@click.option("--since", type=Duration(), metavar="10m", help="Begin where it was so long ago.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of attempt N instead of the newest.")
@click.option("--err", is_flag=True, help="Its stderr, where that was kept apart.")
def logs(ref: str, follow: bool, err: bool, **where: Any) -> None:
    """Print the output of a run, byte for byte: of its newest attempt, and with -f of those that follow it. Of a run that came back to
    where it was killed, all of it, as one text.

    When the connection to its machine is cut, it goes on at the next byte; after two minutes in vain it ends with exit code 5.
    """
    run = plane().run(ref)
    if not (follow or err or any(value is not None for value in where.values())) and run["attempts"] > 1 and _print_all_lives(run["id"]):
        return
    if where["since"] is not None:
        where["since"] = time.time() - where["since"]
    given, attempt = where["attempt"], where["attempt"] or max(1, run["attempts"])
    if follow:
        _tell_of_attempts(run, given)
    while True:
        _print_log(run["id"], attempt, "err" if err else "out", follow=follow, tail=where["tail"], since=where["since"])
        if not follow or given or not _goes_on(run["id"], attempt):
            break
        attempt += 1
        where["tail"] = where["since"] = None
    if not follow:
        _tell_of_attempts(run, given)
    if not err:
        _tell_of_stderr(run, attempt)


def _print_all_lives(run_id: str) -> bool:
    """The log of a run that came back, over its attempts; False if it never did."""
    from stoker.cli.follow import write_all
    from stoker.cli.lives import whole_log

    shown = plane().show(run_id)
    if not (shown.get("resume") or {}).get("log"):
        return False
    for piece in whole_log(plane(), shown):
        write_all(1, piece)
    return True


def _print_log(run_id: str, attempt: int, stream: str, *, follow: bool, tail: int | None, since: float | None) -> None:
    """The log of one attempt to stdout, over the death of the server where that can be done without doubling anything."""
    from stoker.cli.follow import write_all

    offset, patience = 0, Patience()
    while True:
        try:
            pieces = plane().logs(run_id, attempt=attempt, stream=stream, offset=offset, tail=tail, since=since, follow=follow)
            with contextlib.closing(pieces):
                for piece in pieces:
                    patience.heard()
                    write_all(1, piece)
                    offset += len(piece)
            return
        except ServerError:
            _refuse_unreachable(run_id)
            # An offset is known only for what was read from the beginning: the rest would be doubled or lost.
            if tail is not None or since is not None:
                raise
            pause_s = patience.left_s()
            if not pause_s:
                raise
            time.sleep(pause_s)


def _refuse_unreachable(run_id: str) -> None:
    """Say so if the stream broke off because the server could not reach the run's machine any more."""
    run = plane().run(run_id)
    if run.get("reachability") == "unreachable":
        raise TargetError(f"The connection to {run['target']} was lost, and could not be made again. More output is there.",
                          hint=f"The run goes on. When its machine answers: stoker logs -f {output.type_ref(run)}")


def _goes_on(run_id: str, attempt: int) -> bool:
    """After the end of an attempt: does another one follow? Waits until that is certain."""
    told = False

    def settled(run: dict) -> bool:
        nonlocal told
        if run.get("restart_at") and run["attempts"] == attempt and not told:
            told = True
            output.say(f"attempt {attempt} has ended; attempt {attempt + 1} begins at {output.local_time(run['restart_at'])}")
        return State(run["state"]).final or run["attempts"] > attempt
    run = _until(run_id, settled, step_s=1.0)
    if run["attempts"] > attempt and not told:
        output.say(f"attempt {attempt} has ended; attempt {attempt + 1} follows")
    return run["attempts"] > attempt


def _tell_of_attempts(run: dict, given: int | None) -> None:
    """Whoever reads the newest attempt of several is told, on a terminal, that there are others."""
    count = run["attempts"]
    if count > 1 and given is None and output.is_terminal(sys.stderr):
        output.say(f"attempt {count} of {count}; the one before it: stoker logs --attempt {count - 1} {output.type_ref(run)}")


def _tell_of_stderr(run: dict, attempt: int) -> None:
    """Whoever looks for a traceback in stdout alone is told, on a terminal, where it is."""
    if not output.is_terminal(sys.stderr):
        return
    attempts = plane().show(run["id"]).get("attempts_detail") or ()
    if any(a.get("err_bytes") for a in attempts if a.get("attempt") == attempt):
        output.say(f"its stderr was kept apart: stoker logs --err {output.type_ref(run)}")


@click.command("attach")
@ref_argument()
@click.option("--no-input", is_flag=True, help="Only watch: no keys, no signals.")
def attach(ref: str, no_input: bool) -> int:
    """Come back to a run: see what it prints, type to it.

    Ctrl-C goes to the run, the third within three seconds ends it; Ctrl-Z leaves it running. The exit code is the run's own.
    """
    from stoker.cli.follow import Follower

    run = plane().show(ref)
    if State(run["state"]).final:
        raise StateError(f"{output.shown(run['name'])} has ended: {run.get('sentence') or run['state']}",
                         hint=f"Its output: stoker logs {output.type_ref(run)}   Start it again: stoker start {output.type_ref(run)}")
    if output.is_terminal(sys.stderr):
        output.say(f"attached to {output.shown(run['name'])}" + ("" if no_input else "; Ctrl-C goes to the run, Ctrl-Z leaves it running"))
    return Follower(run, offsets=log_tail(run), take_input=not no_input, visiting=True).follow()


def log_tail(run: dict) -> tuple[int, int]:
    """Offsets shortly before the end of the logs of the newest attempt."""
    newest = (run.get("attempts_detail") or [{}])[-1]
    return max(0, (newest.get("out_bytes") or 0) - ATTACH_BYTES), max(0, (newest.get("err_bytes") or 0) - ATTACH_BYTES)


@click.command("wait")
@refs_argument()
@json_option("Print the runs as JSON when they have ended.")
def wait(refs: tuple[str, ...], as_json: bool) -> int:
    """Wait until all of these have ended. The exit code is the run's; of several, the first that is not 0."""
    ids = [plane().run(ref)["id"] for ref in refs]
    ended = [until_final(run_id, tell=not as_json) for run_id in ids]
    if as_json:
        output.print_json(ended[0] if len(ended) == 1 else ended)
    else:
        for run in ended:
            tell_end(run)
    return next((code for code in map(exit_code, ended) if code), 0)


def until_final(run_id: str, tell: bool = False) -> dict:
    """The run when it has ended. Survives the death of the server; raises ServerError when that lasts. tell: say what it waits for."""
    return _until(run_id, lambda run: State(run["state"]).final, tell)


def _until(run_id: str, enough: Callable[[dict], bool], tell: bool = False, step_s: float = 30.0) -> dict:
    """The run when `enough` says so of it: asked each `step_s`, and when the run has become final."""
    patience, told = Patience(), ""
    timeout_s = 0.0
    while True:
        try:
            run = plane().wait(run_id, timeout_s)
            patience.heard()
            if enough(run):
                return run
            waits = run.get("waits_for") or ""
            if tell and waits and waits != told:  # it may be for something that never comes by itself
                told = waits
                output.say(f"{output.shown(run['name'])} waits for {waits}")
            timeout_s = step_s
        except ServerError:
            pause_s = patience.left_s()
            if not pause_s:
                raise
            time.sleep(pause_s)


def tell_end(run: dict) -> None:
    """One line about how a run ended, on stderr."""
    following = f" Next: {run['next']}" if run.get("next") and run["state"] != State.DONE else ""
    output.say(f"{output.shown(run['name'])}: {output.shown(run.get('sentence') or run['state'])}{following}")


@click.command("stop")
@refs_argument()
@click.option("--grace", type=Duration(), metavar="10s", help="Time to exit after the first signal, and again after SIGTERM.")
@click.option("--force", is_flag=True, help="Kill at once, also when the run's agent does not answer.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has ended.")
@json_option("Print the runs as JSON.")
def stop(refs: tuple[str, ...], grace: float | None, force: bool, no_wait: bool, as_json: bool) -> int:
    """Stop runs, gracefully first, then by force. They can be started again.

    A recorded training saves an image first, for at most half the grace. Then SIGTERM where the script handles it, else SIGINT; then
    SIGTERM to every process of the run, then SIGKILL. Ctrl-C ends the waiting only: the runs are stopped anyway.
    """
    def ask(ref: str) -> dict:
        return plane().stop(ref, grace_s=None if grace is None else [grace, grace], force=force)

    stopped, code = _each(refs, ask)
    if not no_wait:
        stopped = [run if State(run["state"]).final else _until_stopped(run["id"]) for run in stopped]
    if as_json:
        output.print_json(stopped)
    else:
        for run in stopped:
            if State(run["state"]).final:
                tell_end(run)
            else:
                output.say(f"{output.shown(run['name'])}: asked to end")
    return code


def _until_stopped(run_id: str) -> dict:
    """As `until_final`. At a terminal each stage of the ladder is told as it begins."""
    if not output.is_terminal(sys.stderr):
        return until_final(run_id)
    told = ""

    def ended(run: dict) -> bool:
        nonlocal told
        stage = {} if State(run["state"]).final else plane().show(run_id).get("ladder") or {}
        if stage.get("name") and stage["name"] != told:
            told = stage["name"]
            output.say(f"{output.shown(run['name'])}: {ladder_line(stage)}")
        return State(run["state"]).final
    return _until(run_id, ended, step_s=0.5)


def ladder_line(stage: dict) -> str:
    """What a stop does now, and how long it waits for that."""
    name, left = stage.get("name"), stage.get("left_s")
    within = f"; waits at most {format_duration(left)}" if left else ""
    if name == "wait":
        return f"the script has ended; waiting for its remaining processes{within}"
    return f"saving an image of the training first{within}" if name == "image" else f"{name} sent{within}"


@click.command("start")
@ref_argument()
@click.option("-a", "--attach", "follow", is_flag=True, help="Follow it in the foreground.")
@click.option("--edited", is_flag=True, help="Also if its script was edited since its last image: it begins anew.")
@json_option("Print the run as JSON.")
def start(ref: str, follow: bool, edited: bool, as_json: bool) -> int:
    """Start an ended run again, as one more attempt of the same run."""
    from stoker.cli.run import next_attempt

    client = plane()
    resume = client.show(ref).get("resume") or {}
    run = client.start(ref, edited=edited)
    attempt = next_attempt(run)
    if resume.get("dear") and not edited:
        output.say(f"{output.shown(run['name'])}: the way back {output.shown(resume['way_back'])}; {output.shown(resume['dear'])}")
    if follow:
        from stoker.cli.follow import Follower

        try:
            return Follower(run, attempt=attempt).follow()
        except StokerError as e:
            output.print_error(e)
            return EXIT_OWN_FAILURE
    if as_json:
        output.print_json(run)
    else:
        output.say(f"{output.shown(run['name'])}: attempt {attempt}. See it: stoker logs -f {output.type_ref(run)}")
    return 0


@click.command("keep")
@ref_argument()
@click.argument("duration", required=False, type=Duration(), metavar="[3h]")
@click.option("--pin/--unpin", "pin", default=None, help="Keep it from gc for ever, or no longer.")
@json_option("Print the run as JSON.")
def keep(ref: str, duration: float | None, pin: bool | None, as_json: bool) -> None:
    """Let a run go on for 3h from now, whatever its limit was; or pin it, so that gc leaves it alone."""
    if duration is None and pin is None:
        raise InvalidSpec("Keep it for how long?", hint=f"stoker keep {ref} 3h   or   stoker keep {ref} --pin")
    run = plane().keep(ref, seconds=duration, pin=pin)
    if as_json:
        output.print_json(run)
        return
    name = output.shown(run["name"])
    if duration is not None:
        limit = (run.get("limits") or {}).get("time_s")
        ran = run.get("used_s") or 0
        told = f"ends after {format_duration(limit)} of running; it ran {format_duration(ran)} so far" if limit else "it has no time limit"
        output.say(f"{name}: {told}")
    if pin is not None:
        output.say(f"{name}: " + ("pinned, gc leaves it alone" if pin else "not pinned any more"))


@click.command("rm")
@refs_argument()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also runs that live: they are ended first.")
@json_option("Print the deleted runs as JSON.")
def rm(refs: tuple[str, ...], yes: bool, force: bool, as_json: bool) -> int:
    """Delete runs: their logs, their copies, what is known of them. What they wrote into your own folders stays."""
    if not yes and output.can_ask():
        runs = [plane().run(ref) for ref in refs]
        live = next((r for r in runs if not force and not State(r["state"]).final), None)
        if live:
            ref = output.type_ref(live)
            raise StateError(f"{output.shown(live['name'])} is {live['state']}.",
                             hint=f"stoker stop {ref}   first, or end and delete it: stoker rm --force {ref}")
        names = ", ".join(output.shown(r["name"]) for r in runs)
        if not output.ask(f"Delete {names} with logs and copies?", default=False):
            return 1
    gone, code = _each(refs, lambda ref: plane().rm(ref, force=force))
    if as_json:
        output.print_json(gone)
    elif output.is_terminal(sys.stderr):
        for run in gone:
            output.say(f"{output.shown(run['name'])}: deleted")
    return code


def _each(refs: tuple[str, ...], verb: Callable[[str], Any]) -> tuple[list[dict], int]:
    """The verb for each run; an error about one does not keep the others from it. The last error's code, or 0."""
    done, code = [], 0
    for ref in refs:
        try:
            done.append(verb(ref))
        except StokerError as e:
            output.print_error(e)
            code = e.exit_code
    return done, code

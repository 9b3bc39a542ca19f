"""The verbs about runs that exist: logs attach wait stop start keep rm."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from stoker.base.errors import (
    EXIT_OWN_FAILURE,
    InvalidSpec,
    NotFound,
    ServerError,
    StateError,
    StokerError,
    TargetError,
)
from stoker.base.state import State
from stoker.base.units import clock_time, format_duration, from_iso
from stoker.cli import output
from stoker.cli.frames import Frames
from stoker.cli.options import (
    ENDED_EARLY,
    Duration,
    Patience,
    Ref,
    Since,
    exit_code,
    find,
    json_option,
    plane,
    ref_argument,
    refs_argument,
    say_which,
    spread,
    tagged,
)
from stoker.cli.run import arrivals

ATTACH_BYTES = 4096  # of the log, shown when one comes back to a run
# a stop waits this long, beyond its grace, for a machine that cannot be reached; with --force the second
UNREACHABLE_S, UNREACHABLE_FORCED_S = 60.0, 10.0


@click.command("logs")
@click.argument("ref", type=Ref(), metavar="[RUN]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new output until the run ends, including restarts.")
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Print the last N lines.")
@click.option(
    "--since",
    type=Since(),
    metavar="10m",
    help="Print only the output since this time, such as 10m (the last 10 minutes), today or yesterday.",
)
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print the output of attempt N.  [default: the newest attempt]",
)
@click.option("--out", "only", flag_value="out", help="Print standard output only.")
@click.option("--err", "only", flag_value="err", help="Print standard error only.")
@click.option("--raw", is_flag=True, help="Print every byte, including all frames of progress bars.")
def logs(ref: str | None, follow: bool, only: str | None, raw: bool, **where: Any) -> None:
    """Print the output of a run: standard output and standard error in one text. Without RUN: the newest run.

    Prints the output of the newest attempt. With -f, also prints the output of later attempts.
    Exception: if the run resumed exactly, prints the output of all attempts as one text.
    Prints only the last frame of a progress bar.

    If the connection to the machine is lost, stoker connects again, and the output continues at the next
    byte. If this fails for two minutes, stoker gives up with exit code 5.
    """
    run = find(ref) if ref else newest_run()
    stream = only or "both"
    put = Frames(raw, live=follow)
    plain = not (follow or only or any(value is not None for value in where.values()))
    if plain and run["attempts"] > 1 and _print_all_lives(run["id"], put):
        return
    if where["since"] is not None:
        where["since"] = time.time() - where["since"]
        if State(run["state"]).final and run["ended_at"] and from_iso(run["ended_at"]) < where["since"]:
            ended = output.ago(run["ended_at"])
            output.say(f"{output.shown(run['name'])} ended {ended}, before the time of --since")
            return
    given, attempt = where["attempt"], where["attempt"] or max(1, run["attempts"])
    if follow:
        _tell_of_attempts(run, given)
    while True:
        _print_log(run["id"], attempt, stream, put, follow=follow, tail=where["tail"], since=where["since"])
        if not follow or given or not _goes_on(run["id"], attempt):
            break
        attempt += 1
        where["tail"] = where["since"] = None
    if not follow:
        _tell_of_attempts(run, given)


def newest_run(*, active: bool = False) -> dict:
    """The newest run (`active`: that has not ended); prints its name on stderr. Raises NotFound."""
    runs = plane().runs(all=not active, limit=1)
    if not runs and active:
        raise NotFound("There are no active runs.", hint="All runs: stoker ps --all")
    if not runs:
        raise NotFound("There are no runs yet.", hint="stoker run train.py")
    output.say(f"the newest {'active ' if active else ''}run: {output.shown(runs[0]['name'])}")
    return runs[0]


def _print_all_lives(run_id: str, put: Frames) -> bool:
    """The log of a run that came back, over its attempts; False if it never did."""
    from stoker.cli.whole_log import whole_log

    shown = plane().show(run_id)
    if not (shown.get("resume") or {}).get("log"):
        return False
    for piece in whole_log(plane(), shown):
        put.write(piece)
    put.end()
    if any(attempt.get("err_bytes") for attempt in shown.get("attempts_detail") or ()) and output.is_terminal(
        sys.stderr
    ):
        output.say(
            "This is standard output. To see the standard error of an attempt: stoker logs --err "
            f"--attempt 1 {output.type_ref(shown)}"
        )
    return True


def _print_log(
    run_id: str,
    attempt: int,
    stream: str,
    put: Frames,
    *,
    follow: bool,
    tail: int | None,
    since: float | None,
) -> None:
    """The log of one attempt to stdout,
    over the death of the server where that can be done without doubling anything."""
    offset, patience = 0, Patience()
    while True:
        try:
            pieces = plane().logs(
                run_id, attempt=attempt, stream=stream, offset=offset, tail=tail, since=since, follow=follow
            )
            with contextlib.closing(pieces):
                for piece in pieces:
                    patience.heard()
                    put.write(piece)
                    offset += len(piece)
            put.end()
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
        raise TargetError(
            f"The connection to {run['target']} was lost and could not be restored. The log has more output.",
            hint=f"The run continues. When its machine answers: stoker logs -f {output.type_ref(run)}",
        )


def _goes_on(run_id: str, attempt: int) -> bool:
    """After the end of an attempt: does another one follow? Waits until that is certain."""
    told = False

    def settled(run: dict) -> bool:
        nonlocal told
        if run.get("restart_at") and run["attempts"] == attempt and not told:
            told = True
            output.say(
                f"attempt {attempt} ended; attempt {attempt + 1} starts at "
                f"{output.local_time(run['restart_at'])}"
            )
        return State(run["state"]).final or run["attempts"] > attempt
    run = _until(run_id, settled, step_s=1.0)
    if run["attempts"] > attempt and not told:
        output.say(f"attempt {attempt} ended; starting attempt {attempt + 1}")
    return run["attempts"] > attempt


def _tell_of_attempts(run: dict, given: int | None) -> None:
    """Whoever reads the newest attempt of several is told, on a terminal, that there are others."""
    count = run["attempts"]
    if count > 1 and given is None and output.is_terminal(sys.stderr):
        output.say(
            f"attempt {count} of {count}; to see the previous attempt: stoker logs --attempt {count - 1} "
            f"{output.type_ref(run)}"
        )


@click.command("attach")
@click.argument("ref", type=Ref(), metavar="[RUN]", required=False)
@click.option("--no-input", is_flag=True, help="Only watch; send no keys and no signals.")
def attach(ref: str | None, no_input: bool) -> int:
    """Return to a run: see its output and type input. Without RUN: the newest active run.

    Ctrl-C sends SIGINT to the run. If the run ignores SIGINT, press Ctrl-C three times within three seconds.
    Stoker then sends SIGTERM and, after the --grace time, SIGKILL.
    Ctrl-Z detaches. `stoker attach` ends with the exit code of the run.
    """
    from stoker.cli.run.follow import Follower

    run = plane().show(ref or newest_run(active=True)["id"])
    if ref:
        say_which(ref, run)
    if State(run["state"]).final:
        raise StateError(
            f"{output.shown(run['name'])} ended: {run.get('sentence') or run['state']}",
            hint=(
                f"Output: stoker logs {output.type_ref(run)}   Start again: "
                f"stoker start {output.type_ref(run)}"
            ),
        )
    if output.is_terminal(sys.stderr):
        output.say(
            f"attached to {output.shown(run['name'])}"
            + ("" if no_input else "; Ctrl-C sends SIGINT to the run, Ctrl-Z detaches")
        )
    return Follower(run, offsets=log_tail(run), take_input=not no_input, visiting=True).follow()


def log_tail(run: dict) -> tuple[int, int]:
    """Offsets shortly before the end of the logs of the newest attempt."""
    newest = (run.get("attempts_detail") or [{}])[-1]
    return max(0, (newest.get("out_bytes") or 0) - ATTACH_BYTES), max(
        0, (newest.get("err_bytes") or 0) - ATTACH_BYTES
    )


@click.command("wait")
@refs_argument()
@json_option("Print the runs as JSON when they have ended.")
def wait(refs: tuple[str, ...], as_json: bool) -> int:
    """Wait until all these runs have ended. With one run, the exit code is the exit code of the run.
    With several runs, the exit code is the first exit code that is not 0,
    in the order in which you typed the runs.

    For a run on another machine, the command also waits until the run's files are copied here.
    If the machine does not answer, the command does not wait for the files.
    @TAG means all runs with the tag TAG, such as the runs of a sweep.
    A pattern such as 'q-*' means all runs whose names match.
    """
    ids = [find(ref)["id"] for ref in spread(refs)]
    ended = [until_final(run_id, tell=not as_json) for run_id in ids]
    if not as_json:
        for run in ended:
            tell_end(run)
    ended = [arrivals.awaited(run, quiet=as_json) for run in ended]
    if as_json:
        output.print_json(ended[0] if len(ended) == 1 else ended)
    return next(
        (code for run in ended if ENDED_EARLY not in (run.get("tags") or ()) and (code := exit_code(run))), 0
    )


def until_final(run_id: str, tell: bool = False) -> dict:
    """Wait until the run has ended, and return it. Continues after a restart of the server; raises
    ServerError if the server stays away.
    tell: say what the run waits for."""
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
    """Print one line about how a run ended on stderr."""
    following = f" Next: {run['next']}" if run.get("next") and run["state"] != State.DONE else ""
    output.say(f"{output.shown(run['name'])}: {output.shown(run.get('sentence') or run['state'])}{following}")


@click.command("stop")
@refs_argument()
@click.option(
    "--grace",
    type=Duration(),
    metavar="10s",
    help="Time for the run to exit after each signal, before Stoker sends the next signal.  "
         "[default: the --grace of stoker run]",
)
@click.option(
    "--force", is_flag=True, help="Kill all processes of the runs at once, without a warning to the scripts."
)
@click.option("--no-wait", is_flag=True, help="Return at once; do not wait until the runs have ended.")
@json_option("Print the runs as JSON.")
def stop(refs: tuple[str, ...], grace: float | None, force: bool, no_wait: bool, as_json: bool) -> int:
    """Stop runs, gracefully first, then by force. `stoker start` starts a stopped run again.

    If the training is recorded, Stoker first saves an image (a copy of the training's state).
    This takes at most half of the --grace time.
    Stoker then sends signals in this order: SIGTERM to the script (SIGINT if the script does not handle
    SIGTERM), SIGTERM to all processes of the run, SIGKILL to all processes of the run.
    If you press Ctrl-C, stoker no longer waits, but still stops the runs.
    If a machine cannot be reached for a minute (ten seconds with --force), stoker gives up waiting with exit
    code 5. Stoker stops the run when its machine answers.
    @TAG means all runs with the tag TAG.
    A pattern such as 'q-*' means all runs whose names match.
    """
    def ask(ref: str) -> dict:
        return plane().stop(
            find(ref, active=True)["id"], grace_s=None if grace is None else [grace, grace], force=force
        )

    stopped, code = _each(spread(refs), ask)
    if not no_wait:
        names = ", ".join(output.shown(run["name"]) for run in stopped if not State(run["state"]).final)
        hint = "" if force else "; --force: kill at once"
        patience_s = UNREACHABLE_FORCED_S if force else UNREACHABLE_S + 2 * (grace or 0.0)
        with output.slow(f"waiting for {names} to end. Ctrl-C: stop waiting{hint}"):
            stopped = [
                run if State(run["state"]).final else _until_stopped(run["id"], patience_s) for run in stopped
            ]
    if as_json:
        output.print_json(stopped)
    else:
        for run in stopped:
            if State(run["state"]).final:
                tell_end(run)
            elif no_wait:
                output.say(f"{output.shown(run['name'])}: stop requested")
    silent = [] if no_wait else [run for run in stopped if not State(run["state"]).final]
    for run in silent:
        output.print_error(
            TargetError(
                f"{output.shown(run['name'])} is not stopped yet: {_silent_since(run)}.",
                hint=(
                    "Stoker stops the run when the machine answers. To wait for the end: "
                    f"stoker wait {output.type_ref(run)}"
                ),
            )
        )
    return TargetError.exit_code if silent else code


def _silent_since(run: dict) -> str:
    """That its machine cannot be reached, and since when."""
    if run.get("reachability") == "unseen":
        return "Stoker cannot see the run's processes"
    since = (run.get("unreachable") or {}).get("since")
    told = f" since {clock_time(from_iso(since), time.time())}" if since else ""
    return f"{output.shown(run['target'])} cannot be reached{told}"


def _until_stopped(run_id: str, patience_s: float) -> dict:
    """The run when it has ended, or when its machine has been silent for `patience_s`.
    Says what the stop waits for: a machine that cannot be reached, and at a terminal each stage of the ladder
    as it begins."""
    terminal = output.is_terminal(sys.stderr)
    silent_at, told = 0.0, ""

    def enough(run: dict) -> bool:
        nonlocal silent_at, told
        if State(run["state"]).final:
            return True
        silent = run.get("reachability") in ("unreachable", "unseen")
        stage = {} if silent or not terminal else plane().show(run_id).get("ladder") or {}
        name = "silent" if silent else stage.get("name") or told
        if name != told:
            told = name
            output.say(f"{output.shown(run['name'])}: {_silent_line(run) if silent else ladder_line(stage)}")
        silent_at = (silent_at or time.monotonic()) if silent else 0.0
        return silent and time.monotonic() - silent_at >= patience_s
    return _until(run_id, enough, step_s=0.5 if terminal else output.SILENT_S)


def _silent_line(run: dict) -> str:
    if run["reachability"] == "unseen":
        return (
            "Stoker cannot see the run's processes. If the run's container or node still exists, Stoker's "
            "processes there stop the run. "
            f"If the container or node is gone: stoker stop --force {output.type_ref(run)}"
        )
    return f"{output.shown(run['target'])} cannot be reached. Stoker stops the run when the machine answers"


def ladder_line(stage: dict) -> str:
    """What a stop is doing now, and how long it waits for that."""
    name, left = stage.get("name"), stage.get("left_s")
    within = f"; waiting at most {format_duration(left)}" if left else ""
    if name == "wait":
        return f"the script ended; waiting for its remaining processes{within}"
    return f"saving an image first{within}" if name == "image" else f"{name} sent{within}"


@click.command("start")
@ref_argument()
@click.option("-a", "--attach", "follow", is_flag=True, help="Follow the run in the foreground.")
@click.option(
    "--edited",
    is_flag=True,
    help=(
        "Start a run after you have edited its script. The run restarts from scratch, because its image "
        "(saved state) belongs to the old script."
    ),
)
@json_option("Print the run as JSON.")
def start(ref: str, follow: bool, edited: bool, as_json: bool) -> int:
    """Start an ended run again, as a new attempt of the same run.

    @TAG starts all failed or stopped runs that have this tag.
    """
    from stoker.cli.run.command import next_attempt

    if ref.startswith("@"):
        return _start_tagged(ref, follow, edited, as_json)
    client, before = plane(), find(ref)
    resume = client.show(before["id"]).get("resume") or {}
    with output.slow(f"still starting {output.shown(before['name'])}"):
        run = client.start(before["id"], edited=edited)
    attempt = next_attempt(run)
    if resume.get("dear") and not edited:
        output.say(
            f"{output.shown(run['name'])}: time to resume: {output.shown(resume['way_back'])}; "
            f"{output.shown(resume['dear'])}"
        )
    if follow:
        from stoker.cli.run.follow import Follower

        try:
            return Follower(run, attempt=attempt).follow()
        except StokerError as e:
            output.print_error(e)
            return EXIT_OWN_FAILURE
    if as_json:
        output.print_json(run)
    else:
        output.say(
            f"{output.shown(run['name'])}: attempt {attempt} {_begins(resume, edited)}. Follow: "
            f"stoker logs -f {output.type_ref(run)}"
        )
    return 0


def _begins(resume: Mapping[str, Any], edited: bool) -> str:
    """Where an attempt begins, after what is known of the attempts before."""
    step = None if edited else resume.get("resumes_at")
    return "runs the command from its beginning" if step is None else f"resumes at step {step:,}"


def _start_tagged(ref: str, follow: bool, edited: bool, as_json: bool) -> int:
    """Start what has this tag and did not reach its end, oldest first. Raises InvalidSpec with --attach."""
    if follow:
        raise InvalidSpec(
            f"--attach can follow only one run, but {output.shown(ref)} means several runs.",
            hint="Leave out --attach.",
        )
    ended = [
        run["id"]
        for run in reversed(tagged(ref[1:]))
        if State(run["state"]) in (State.FAILED, State.STOPPED)
        and (ref[1:] == ENDED_EARLY or ENDED_EARLY not in run["tags"])
    ]
    started, code = _each(ended, lambda run_id: plane().start(run_id, edited=edited))
    if as_json:
        output.print_json(started)
    else:
        names = ", ".join(output.shown(run["name"]) for run in started)
        output.say(
            f"started again: {names}"
            if started
            else f"nothing to start: no run with the tag {output.shown(ref)} has failed or was stopped"
        )
    return code


@click.command("keep")
@ref_argument()
@click.argument("duration", required=False, type=Duration(), metavar="[3h]")
@click.option(
    "--pin/--unpin", "pin", default=None, help="--pin: `stoker gc` never deletes the run. --unpin: "
                                               "`stoker gc` can delete the run again."
)
@json_option("Print the run as JSON.")
def keep(ref: str, duration: float | None, pin: bool | None, as_json: bool) -> None:
    """Let a run continue for at least 3h from now, even if its time limit was shorter.
    Or pin the run, so that `stoker gc` does not delete it."""
    if duration is None and pin is None:
        raise InvalidSpec(
            "No duration was given.", hint=f"stoker keep {ref} 3h   or   stoker keep {ref} --pin"
        )
    run = plane().keep(find(ref)["id"], seconds=duration, pin=pin)
    if as_json:
        output.print_json(run)
        return
    name = output.shown(run["name"])
    if duration is not None:
        limit = (run.get("limits") or {}).get("time_s")
        ran = run.get("used_s") or 0
        told = (
            f"the run stops after {format_duration(limit)} of running time ({format_duration(ran)} so far)"
            if limit
            else "no time limit"
        )
        output.say(f"{name}: {told}")
    if pin is not None:
        output.say(f"{name}: " + ("pinned; stoker gc does not delete the run" if pin else "unpinned"))


@click.command("rm")
@refs_argument()
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@click.option(
    "--force",
    is_flag=True,
    help=(
        "Stop active runs first, then delete them. If the machine of a run does not answer, delete only "
        "the data of the run that is stored on this machine."
    ),
)
@json_option("Print the deleted runs as JSON.")
def rm(refs: tuple[str, ...], yes: bool, force: bool, as_json: bool) -> int:
    """Delete everything that Stoker stored about runs: run folders, logs, images.

    Does not delete files that the runs wrote into your own folders.

    @TAG means all runs with the tag TAG.
    A pattern such as 'q-*' means all runs whose names match.
    """
    found, code = _each(spread(refs), _the_only)
    if not force and (active := next((run for run in found if not State(run["state"]).final), None)):
        ref = output.type_ref(active)
        raise StateError(f"{output.shown(active['name'])} is {active['state']}.",
                         hint=f"Stop the run first: stoker stop {ref}   "
                              f"Or stop and delete the run: stoker rm --force {ref}")
    if found and not yes:
        if not output.can_ask():
            raise InvalidSpec("Nothing was deleted, because Stoker needs a terminal to ask for confirmation.",
                              hint=f"stoker rm --yes {' '.join(map(output.type_ref, found))}")
        names = ", ".join(output.shown(run["name"]) for run in found)
        if not output.ask(f"Delete {names} with logs and copies?", default=False):
            return 1
    gone, failed = _each([run["id"] for run in found], lambda run_id: plane().rm(run_id, force=force))
    if as_json:
        output.print_json(gone)
        return failed or code
    for run in gone:
        if run.get("left"):
            output.say(f"{output.shown(run['name'])}: deleted only on this machine. "
                       f"{output.shown(run['left'])}")
        elif output.is_terminal(sys.stderr):
            output.say(f"{output.shown(run['name'])}: deleted")
    return failed or code


def _the_only(ref: str) -> dict:
    """The run of this name or id. None is returned if several have this name, because the caller deletes it.
    Raises InvalidSpec."""
    run = plane().run(ref)
    if (run.get("same_name") or 1) > 1:
        raise InvalidSpec(
            f"{run['same_name']} runs have the name {output.shown(ref)}; none was deleted.",
            hint=(
                f"To delete the newest of them: stoker rm {run['id']}   To see all ids: stoker ps --all"
            ),
        )
    return run


def _each(refs: Sequence[str], verb: Callable[[str], Any]) -> tuple[list[dict], int]:
    """The verb for each run; an error about one does not keep the others from it.
    The last error's code, or 0."""
    done, code = [], 0
    for ref in refs:
        try:
            done.append(verb(ref))
        except StokerError as e:
            output.print_error(e)
            code = e.exit_code
    return done, code

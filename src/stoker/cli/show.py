"""`stoker show`: one sentence about a run and what to type next, then the facts."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import click

from stoker.base.config import home, load_config
from stoker.base.errors import StokerError
from stoker.base.state import STATE_SENTENCES, State
from stoker.base.units import format_duration, format_size
from stoker.cli import output, split
from stoker.cli.figures import figure, now_words
from stoker.cli.options import json_option, plane, ref_argument, say_which

FILES_SHOWN = 20
LEFT_NAMED = 5
LINES_SHOWN = 12
LEAST_ROOM = 30  # columns of a text, however narrow the terminal
TO_COPY = ("command", "works in", "run folder", "python")  # never broken into lines
METRICS_SHOWN = 8
PLACES = {"here": "  copied", "outputs": "  copied to runs/ID/outputs", "there": "  not copied"}
NAMES = {"hint_text": "hint"}  # evidence whose field has another name than its row
NO_ROW = ("exception", "tail", "code", "kind", "inodes", "hint")  # evidence that is shown elsewhere


@click.command("show")
@ref_argument()
@json_option("Print the run and its details as one JSON object.")
def show(ref: str, as_json: bool) -> None:
    """Show a run's status, why it ended, what to type next, and its details."""
    run = plane().show(ref)
    say_which(ref, run)
    if as_json:
        output.print_json(run)
        return
    print(_bold(f"{output.shown(run['name'])}: {opening(run)}"))
    if run.get("next"):
        print(f"Next: {output.shown(run['next'])}")
    for warning in run.get("warnings") or ():
        print(f"Note: {output.shown(warning)}")
    for title, rows in sections(run):
        filled = [(output.shown(name), output.shown_lines(text)) for name, text in rows if text]
        if filled:
            print(f"\n{_bold(title)}")
            wide = max(output.width(name) for name, _ in filled)
            for name, text in filled:
                lines = text.split("\n")
                if name not in TO_COPY and output.is_terminal(sys.stdout):
                    room = max(LEAST_ROOM, shutil.get_terminal_size().columns - wide - 4)
                    lines = [part for line in lines for part in output.wrapped(line, room)]
                print(f"  {name}{' ' * (wide - output.width(name))}  " + f"\n  {' ' * wide}  ".join(lines))


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if output.is_terminal(sys.stdout) else text


def opening(run: dict) -> str:
    """The first sentence, for beginners."""
    if run.get("sentence"):
        return output.shown(run["sentence"])
    state = State(run["state"])
    if state is State.PENDING and run.get("waits_for"):
        return f"Waiting for {output.shown(run['waits_for'])}."
    text = STATE_SENTENCES[state]
    return text[0].upper() + text[1:] + "."


def sections(run: dict) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Section titles, each with names and texts; empty texts are left out."""
    yield "Run", list(_facts(run))
    yield "Why", list(_evidence(run.get("evidence") or {}))
    yield "Rehearsal", list(_rehearsal(run.get("rehearsal") or {}))
    yield "Attempts", [_attempt(a) for a in run.get("attempts_detail") or ()]
    live = State(run["state"]) is State.RUNNING
    yield "Training", list(split.training(run.get("training") or {}, live, live and bool(run.get("still"))))
    yield "Numbers", list(_numbers(run.get("numbers") or {}))
    yield "Use" if State(run["state"]) is State.RUNNING else "Last seen use", list(_use(run))
    yield "Tuned", list(_tuned(run))
    engine = run.get("engine") or {}
    yield "Engine", list(_engine(engine))
    yield "Exact resume", [] if engine else list(_resume(run.get("resume") or {}, run.get("hooks") or {}))
    yield "Files", list(_files(run.get("files") or []))
    yield "Settings", list(_settings(run))


def _facts(run: dict) -> Iterator[tuple[str, str]]:
    code = run.get("exit_code")
    yield "id", run["id"]
    yield "command", output.command_line(run["command"])
    yield "tags", output.shown(", ".join(run.get("tags") or ()))
    yield "note", output.shown(run.get("note") or "")
    yield (
        "state",
        ", ".join(
            filter(None, (run["state"], run.get("reason"), f"exit code {code}" if code is not None else ""))
        ),
    )
    yield "created", f"{output.local_time(run['created_at'])} ({output.ago(run['created_at'])})"
    if run.get("started_at"):
        yield "started", f"{output.local_time(run['started_at'])} ({output.ago(run['started_at'])})"
    if run.get("ended_at"):
        yield "ended", f"{output.local_time(run['ended_at'])} ({output.ago(run['ended_at'])})"
    if run.get("restart_at"):
        yield "starts again", output.local_time(run["restart_at"])
    limit = (run.get("limits") or {}).get("time_s")
    if run.get("used_s"):
        yield "ran", format_duration(run["used_s"]) + (f" of {format_duration(limit)}" if limit else "")
    elif limit:
        yield "time limit", format_duration(limit)
    if run.get("waits_for_input"):
        yield "waits for input", f"to type the input: stoker attach {output.type_ref(run)}"
    if run.get("unreachable"):
        yield "reachable", f"no: {output.unreachable(run['unreachable'])}; the facts shown here may be old"
    elif run.get("reachability") == "unreachable":
        yield "reachable", "no: the run's machine does not answer; the facts shown here may be old"
    if run.get("reachability") == "unseen" and not State(run["state"]).final:
        yield (
            "reachable",
            "only the run folder can be read; the run's processes were started in another container or on "
            "another node",
        )
    if run.get("target") != "local":
        yield "target", f"{output.shown(str(run.get('target')))}{_keeps_running(run)}"
    yield "outputs", "\n".join(output.shown(line) for line in (run.get("outputs") or {}).get("lines") or ())
    if run.get("pinned"):
        yield "pinned", "yes; stoker gc does not delete the run"


def _keeps_running(run: dict) -> str:
    """Of a run that has ended on a machine that nobody switches off: that it costs on."""
    with contextlib.suppress(StokerError):
        machine = load_config(home()).targets.get(str(run.get("target")))
        if State(run["state"]).final and machine is not None and machine.host and not machine.off:
            return (
                "; this machine has no --off command, so it stays on. A rented machine then continues to "
                "cost money"
            )
    return ""


def _numbers(told: dict) -> Iterator[tuple[str, str]]:
    """The last and the best value of the metrics that a person looks at first."""
    yield "now", now_words(told.get("now"))
    metrics = [
        (name, each)
        for name, each in (told.get("metrics") or {}).items()
        if not name.endswith((".mean", ".2"))
    ]
    for name, each in metrics[:METRICS_SHOWN]:
        best = f", best {figure(each['best'][1], each['unit'])}" if each["best"] and each["count"] > 1 else ""
        placed = best and each["axis"] in ("step", "epoch", "count")
        where = f" at {each['axis']} {each['best'][0]:,.8g}" if placed else ""
        source = f"{each['count']:,} {output.shown(each['source'])}"
        yield output.shown(name), f"{figure(each['last'][1], each['unit'])}{best}{where}  ({source})"
    if len(metrics) > METRICS_SHOWN:
        yield (
            "...",
            f"{len(metrics) - METRICS_SHOWN} more metrics (to draw them: stoker plot; to list them: stoker "
            "show --json)",
        )


def _engine(told: dict) -> Iterator[tuple[str, str]]:
    """What the script's own Engine said of this attempt."""
    if not told:
        return
    reasons = "; ".join(str(each) for each in told.get("reasons") or ())
    yield "grade", output.shown(f"{told.get('grade')}{f' ({reasons})' if reasons else ''}")
    yield "saved", output.shown(f"step {told.get('step') or 0:,}, in {told.get('folder')}")
    if told.get("resumed") is not None:
        yield "resumed", f"at step {told['resumed']:,}"


def _resume(resume: dict, hooks: dict) -> Iterator[tuple[str, str]]:
    if resume.get("came_back"):
        yield "resumed", output.shown(resume["came_back"])
    if resume.get("began_anew"):
        yield "restarted", output.shown(resume["began_anew"])
    if resume.get("files"):
        yield "files", output.shown(resume["files"])
    if resume.get("sentence"):
        yield "now", output.shown(resume["sentence"])
    if resume.get("way_back"):
        yield (
            "time to resume",
            "\n".join(output.shown(line) for line in (resume["way_back"], resume.get("dear")) if line),
        )
    if resume.get("starts_again"):
        yield "programs", output.shown(resume["starts_again"])
    if resume.get("edited"):
        names = ", ".join(resume["edited"][:8])
        yield (
            "edited",
            output.shown(
                f"{names} (edited after the image was taken). To restart from scratch: stoker start --edited"
            ),
        )
    if resume.get("not_taken"):
        yield "image problems", "\n".join(output.shown(line) for line in resume["not_taken"][:8])
    if hooks.get("why"):
        yield "hooks", output.shown(hooks["why"])


def _tuned(run: dict) -> Iterator[tuple[str, str]]:
    """What `stoker tune` had found, and what the hooks made of it."""
    told = (run.get("hooks") or {}).get("settings") or {}
    if told.get("applied"):
        yield "applied", "\n".join(output.shown(str(each)) for each in told["applied"][:LINES_SHOWN])
    if told.get("left"):
        yield (
            "not applied",
            "\n".join(
                output.shown(f"{knob}: {why}") for knob, why in list(told["left"].items())[:LINES_SHOWN]
            ),
        )
    if (run.get("spec") or {}).get("settings") and not told:
        yield "not yet applied", "the settings of stoker tune; no process has used these settings yet"


def _rehearsal(told: dict) -> Iterator[tuple[str, str]]:
    """What a rehearsal found; the report itself stands in its log."""
    if told.get("lines") is None:  # no torch in it, and no mistake
        return
    yield "verdict", output.shown(str(told.get("verdict") or ""))
    yield "found", "\n".join(output.shown(str(line)) for line in told["lines"])
    yield "warnings", "\n".join(output.shown(str(line)) for line in told.get("warnings") or ())
    yield "not checked", "\n".join(output.shown(str(line)) for line in told.get("not_checked") or ())


def _evidence(evidence: dict) -> Iterator[tuple[str, str]]:
    exception = evidence.get("exception") or {}
    if exception:
        rank = f" on rank {exception['rank']}" if exception.get("rank") is not None else ""
        yield (
            "exception",
            output.shown(f"{exception.get('type')}: {exception.get('message') or ''}".rstrip(": ") + rank),
        )
        if exception.get("file"):
            yield "at", output.shown(f"{exception['file']}:{exception.get('line')}")
    for key, value in evidence.items():
        if key not in NO_ROW and value not in (None, "", [], {}) and not _no_leftovers(key, value):
            name = NAMES.get(key) or key.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
            yield name, _value(key, value)
    if evidence.get("tail") and not exception:
        tail = evidence["tail"]
        lines = tail if isinstance(tail, list) else str(tail).splitlines()
        yield "last output", "\n".join(output.shown(line.replace("\t", " ")) for line in lines[-8:])


def _no_leftovers(key: str, value: Any) -> bool:
    return key == "leftovers" and isinstance(value, dict) and not any(value.values())


def _value(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int | float):
        return format_size(value)
    if key.endswith("_s") and isinstance(value, int | float):
        return format_duration(value)
    if key == "leftovers" and isinstance(value, dict):
        parts = {
            "ended with the run": value.get("found"),
            "still running": value.get("survivors"),
            "left running": value.get("spared"),
        }
        listed = {
            title: ", ".join(f"{p.get('name')} ({p.get('pid')})" for p in found)
            for title, found in parts.items()
            if found
        }
        return output.shown("; ".join(f"{title}: {names}" for title, names in listed.items()))
    if isinstance(value, dict):
        return output.shown(", ".join(f"{k} {v}" for k, v in value.items()))
    return output.shown(str(value))


def _attempt(attempt: dict) -> tuple[str, str]:
    number = str(attempt.get("attempt", "?"))
    parts = [output.local_time(attempt.get("started_at"))]
    if attempt.get("used_s") is not None:
        parts.append(f"ran {format_duration(attempt['used_s'])}")
    if attempt.get("reason"):
        parts.append(output.shown(attempt["reason"]))
    elif attempt.get("phase"):
        parts.append(str(attempt["phase"]))
    if attempt.get("exit_code") is not None:
        parts.append(f"exit code {attempt['exit_code']}")
    elif attempt.get("signal_name"):
        parts.append(output.shown(attempt["signal_name"]))
    left = (attempt.get("leftovers") or {}).get("found") or ()
    if left:
        names = ", ".join(str(p.get("name")) for p in left[:LEFT_NAMED]) + (
            ", ..." if len(left) > LEFT_NAMED else ""
        )
        parts.append(
            f"Stoker ended {len(left)} process{'es' if len(left) > 1 else ''} that the attempt left "
            f"running: {output.shown(names)}"
        )
    spared = (attempt.get("leftovers") or {}).get("spared") or ()
    if spared:
        names = ", ".join(f"{p.get('name')} ({p.get('pid')})" for p in spared[:LEFT_NAMED]) + (
            ", ..." if len(spared) > LEFT_NAMED else ""
        )
        parts.append(f"daemons that still run: {output.shown(names)}")
    if attempt.get("out_bytes") is not None:
        parts.append(f"log {format_size(attempt['out_bytes'])}")
    return number, ", ".join(parts)


def _use(run: dict) -> Iterator[tuple[str, str]]:
    now = run.get("telemetry") or {}
    if now.get("cpu_percent") is not None:
        count = now.get("processes", 1)
        yield "CPU", f"{now['cpu_percent']:.0f} % of one core, {count} process{'es' if count != 1 else ''}"
    if now.get("rss_bytes") is not None:
        yield "memory", format_size(now["rss_bytes"])
    for gpu in now.get("gpus") or ():
        busy = f"{gpu['busy_percent']:.0f} % busy, " if gpu.get("busy_percent") is not None else ""
        yield f"GPU {gpu.get('index')}", f"{busy}{format_size(gpu.get('memory_bytes') or 0)}"
    if now.get("disk_free_bytes") is not None:
        yield "disk free", format_size(now["disk_free_bytes"])
    usage = run.get("usage") or {}
    if usage.get("folder_bytes") is not None:
        yield "run folder", f"{format_size(usage['folder_bytes'])} in {usage.get('folder_files')} files"


def _files(files: list[dict]) -> Iterator[tuple[str, str]]:
    files = sorted(files, key=lambda entry: bool(entry.get("uncertain")))
    for entry in files[:FILES_SHOWN]:
        doubt = "  uncertain" if entry.get("uncertain") else ""
        place = PLACES.get(str(entry.get("place")), "")
        text = f"{format_size(entry.get('bytes') or 0)}  {entry.get('change') or ''}{place}{doubt}"
        yield output.shown(str(entry.get("path"))), text.rstrip()
    if len(files) > FILES_SHOWN:
        yield "...", f"{len(files) - FILES_SHOWN} more files (to list them: stoker show --json)"
    if files and files[-1].get("uncertain"):  # they are the last ones
        yield "", "uncertain: Stoker did not see which program wrote the file"


def _settings(run: dict) -> Iterator[tuple[str, str]]:
    yield "works in", output.shown(str(run.get("workdir") or ""))
    yield "run folder", output.shown(str(run.get("folder") or ""))
    yield "python", output.shown(str(run.get("interpreter") or ""))
    yield "HOME", output.shown(str(run.get("home") or ""))
    yield (
        "mounts",
        ", ".join(f"{output.shown(k)} -> {output.shown(v)}" for k, v in (run.get("mounts") or {}).items()),
    )
    names = run.get("env_names") or []
    yield "environment", f"{len(names)} variables (to list their names: stoker show --json)" if names else ""
    code = run.get("code") or {}
    if isinstance(code, dict) and code.get("commit"):
        yield (
            "code",
            f"commit {output.shown(code['commit'])}"
            + (" with changes" if code.get("dirty") or code.get("diff") else ""),
        )

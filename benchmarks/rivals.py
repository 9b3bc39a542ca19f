"""What other tools say of the same planted faults:
`python benchmarks/rivals.py [--python FILE] [--json FILE] [NAME ...]`.

`traceml-ai`, `loadtune` and two helpers of Lightning go through the dev half of tests/faults, each script
edited as that tool asks for (rival_edits.py), each tool read by what it writes for machines.
They are no part of Stoker's environment: --python names an interpreter that has them and torch.
Where it has none, this says so and ends well. Not a part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks import rival_edits  # noqa: E402
from benchmarks.diagnosis import suite  # noqa: E402

TOOLS = ("traceml-ai", "loadtune", "lightning")  # as their packages are called
# of each script: TraceML sees both of them at least, loadtune takes so many steps a trial
STEPS, SECONDS = 60, 6.0
SHORT_STEPS = 22  # the fewest that TraceML gives a certain answer for
LIMIT_S = float(os.environ.get("RIVALS_LIMIT_S", "120"))  # no tool gets longer with one script

# --- what their words mean, generously
# ---------------------------------------------------------------------------------------

# TraceML names an area, not a cause.
# Every cause of ours that its documentation counts into the area is right.
TRACEML = {
    # "DataLoader workers, transforms, tokenization, collation, or storage"
    "INPUT_BOUND": {
        "sample_work",
        "repeated_work",
        "collate",
        "storage",
        "slow_sample",
        "worker_lock",
        "too_many_workers",
        "worker_start",
    },
    # "Pinned memory, non-blocking copies, batch size, or transfer overlap"
    "H2D_BOUND": {"ping_pong", "tiny_batch"},
    # "Model compute, mixed precision, batch size, or deeper profiling": all that happens within forward,
    # backward and optimizer
    "COMPUTE_BOUND": {
        "precision",
        "double",
        "memory_format",
        "layout",
        "tiny_batch",
        "time_loop",
        "padding",
        "optimizer",
        "replicas",
        "graph_kept",
        "anomaly",
    },
    # "Logging, checkpointing, validation, CPU stalls, or unobserved work": all that happens within a step and
    # outside of these
    "RESIDUAL_HEAVY": {
        "logging",
        "checkpoint",
        "validation",
        "sync",
        "ping_pong",
        "cleanup",
        "per_parameter",
        "zero_grad",
    },
    # "Inspect CPU-side preprocessing or host contention": of the section "system"; never the first word,
    # counted as if it were
    "HIGH_CPU": {"neighbour", "threads", "too_many_workers"},
    # "Retained tensors, logging references, or cached activations": of the section "step memory"
    "CREEP_EARLY": {"graph_kept", "memory_jump"},
    "CREEP_CONFIRMED": {"graph_kept", "memory_jump"},
}
# Said of a script with nothing to win, these are invented. COMPUTE_BOUND is "info" by its own account, and
# what is wanted; so are loads.
TRACEML_FAULTS = {"INPUT_BOUND", "H2D_BOUND", "RESIDUAL_HEAVY"}
# It tries nothing, so nothing can be harmed. Where it lacks a phase it says which: taken as the reason, where
# there is no such loader.
TRACEML_REASONS = {"own_iter", "no_loader"}
TRACEML_HARM = {"INPUT_BOUND": {"workers", "prefetch"}}  # "Increase workers, prefetch, or storage throughput"

# loadtune's settings in the words of `helps`.
LOADTUNE = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch",
    "persistent_workers": "persistent_workers",
    "amp": "bf16",
    "compile": "compile",
    "batch_size": "batch",
    "num_threads": "threads",
    "pin_memory": "pin_memory",
}
LOADER_HELPS = {"workers", "prefetch", "cache", "batched", "stage", "persistent_workers"}


@dataclass
class Said:
    """What one tool made of one script."""

    tool: str
    name: str
    kind: str
    truth: str  # cause or reason
    lines: int  # that a user has to write first
    first: str = ""
    also: list[str] = field(default_factory=list)
    harm: list[str] = field(default_factory=list)  # advised or chosen though it must not be
    right: bool | None = None  # None: not its job
    gain: float | None = None  # the tool's own factor
    how: str = ""
    # False: it came to no answer in time, which on a busy machine says nothing of the tool
    measured: bool = True
    seconds: float = 0.0
    raw: dict = field(default_factory=dict)


# --- one script, one tool
# ----------------------------------------------------------------------------------------------------

def traceml(case: object, room: Path, python: str, short: bool) -> Said:
    """`traceml run` over the edited script, and its final_summary.json."""
    edited = rival_edits.for_traceml(
        case.path.read_text("utf-8"), SHORT_STEPS if short else STEPS, 0 if short else SECONDS
    )
    script = room / "script.py"
    script.write_text(edited.source)
    said = Said("traceml-ai", case.name, case.kind, case.cause or case.reason, edited.lines)
    command = [
        python,
        "-m",
        "traceml_ai.launcher.cli",
        "run",
        str(script),
        "--logs-dir",
        str(room / "logs"),
        "--run-name",
        case.name,
        "--aggregator-port",
        str(_free_port()),
        "--master-port",
        str(_free_port()),
    ]
    said.how, said.seconds, said.raw["tail"] = _run(command, room)
    found = sorted((room / "logs").rglob("final_summary.json"))
    if not found:
        said.how, said.measured = said.how + ", no summary", False
        return said
    summary = json.loads(found[0].read_text())
    issues = {
        part: (summary.get(part) or {}).get("issues") or []
        for part in ("step_time", "system", "process", "step_memory")
    }
    said.first = (summary.get("primary_diagnosis") or {}).get("kind", "")
    said.also = [i.get("kind", "") for part in issues.values() for i in part if i.get("kind") != said.first]
    said.raw = {"primary": summary.get("primary_diagnosis"), "issues": issues,
                "average": (summary.get("step_time") or {}).get("global", {}).get("average")}
    return _traceml_judged(said, case)


def _traceml_judged(said: Said, case: object) -> Said:
    counted = [said.first] if said.first in TRACEML else []
    counted += [word for word in said.also if word in ("HIGH_CPU", "CREEP_EARLY", "CREEP_CONFIRMED")]
    if case.kind == "fault":
        said.right = any(cause in TRACEML[word] for word in counted for cause in (case.cause, *case.accept))
    elif case.kind == "optimal":
        said.right = said.first not in TRACEML_FAULTS
    else:
        forbidden = TRACEML_HARM.get(said.first, set()) & set(case.refuse)
        said.harm = sorted(forbidden)
        said.right = said.first == "INSUFFICIENT_STEP_TIME_DATA" if case.reason in TRACEML_REASONS else None
    return said


def loadtune(case: object, room: Path, python: str, short: bool) -> Said:
    """`loadtune tune` over a Workload made of the script, and the file of --save-raw."""
    source = case.path.read_text("utf-8")
    said = Said("loadtune", case.name, case.kind, case.cause or case.reason, 0)
    mine = set(case.helps) & (LOADER_HELPS | set(LOADTUNE.values()))
    try:
        edited, workload = rival_edits.for_loadtune(source, case.name)
    except rival_edits.CannotEditError as e:
        said.how = str(e)
        return said
    said.lines = edited.lines
    if case.kind == "fault" and not mine:
        said.how = "not its job"
        return said
    (room / "script.py").write_text(edited.source)
    (room / "workload.py").write_text(workload)
    command = [
        python,
        "-m",
        "loadtune.cli",
        "tune",
        str(room / "workload.py"),
        "--workers",
        str(rival_edits.workers(source)),
        "--steps",
        str(SHORT_STEPS if short else STEPS),
        "--auto-batch",
        "--no-plots",
        "--out",
        str(room / "report.md"),
        "--save-raw",
        str(room / "raw.json"),
    ]
    said.how, said.seconds, said.raw["tail"] = _run(command, room)
    if not (room / "raw.json").exists():
        said.measured = said.how.startswith("exit")
        said.right = False if said.measured and case.kind == "fault" else None
        said.how += ", no result"
        return said
    return _loadtune_judged(said, case, json.loads((room / "raw.json").read_text()))


def _loadtune_judged(said: Said, case: object, told: dict) -> Said:
    """Its choice is its own: the cheapest trial within 2 % of the best,
    where that is faster than what was there."""
    base, trials = (
        told["baseline"],
        [t for t in told["trials"] if t["result"] and not t["result"].get("error")],
    )
    said.raw = {
        "baseline": _slim(base),
        "trials": [{**t, "result": _slim(t["result"] or {})} for t in told["trials"]],
        "narrative": told["narrative"],
    }
    said.first = told["narrative"].replace("*", "").partition(":")[0].partition(" (")[0]
    top = max((t["result"]["throughput"] for t in trials), default=0.0)
    near = [t for t in trials if t["result"]["throughput"] >= 0.98 * top]
    best = min(near, key=lambda t: (t["knobs"]["num_workers"], -t["result"]["throughput"]), default=None)
    chosen = []
    if best and best["result"]["throughput"] > base["throughput"]:
        said.gain = round(best["result"]["throughput"] / base["throughput"], 3)
        before = base["knobs"]
        chosen = [word for knob, word in LOADTUNE.items() if best["knobs"].get(knob) != before.get(knob)]
    if "caching decoded samples" in told["narrative"]:  # advice in prose, counted as if it were a setting
        chosen.append("cache")
    said.also = chosen
    if case.kind == "fault":
        said.right = bool(set(chosen) & set(case.helps))
    elif case.kind == "optimal":
        said.right = not chosen
    else:
        said.harm = sorted(set(chosen) & set(case.refuse)) or (chosen if "all" in case.refuse else [])
    return said


def lightning(case: object, room: Path, python: str, short: bool) -> Said:
    """The warning of a loader with few workers, and where a batch size is in question (or nothing is to be
    won) the batch finder."""
    said = Said("lightning", case.name, case.kind, case.cause or case.reason, 0)
    mine = set(case.helps) & (LOADER_HELPS | {"batch"})
    try:
        edited, _ = rival_edits.for_loadtune(case.path.read_text("utf-8"), case.name)
    except rival_edits.CannotEditError as e:
        said.how = str(e)
        return said
    if (case.kind == "fault" and not mine) or (case.kind == "refuse" and "workers" not in case.refuse):
        said.how = "not its job"
        return said
    (room / "script.py").write_text(edited.source)
    finder = "batch" if "batch" in mine or case.kind == "optimal" else "-"
    said.how, said.seconds, tail = _run(
        [python, str(REPO / "benchmarks" / "rival_lightning.py"), str(room / "script.py"), finder], room
    )
    told = next((json.loads(line) for line in reversed(tail.splitlines()) if line.startswith("{")), {})
    said.raw = told or {"tail": tail}  # its lines are not counted: the loop has to become a LightningModule
    said.measured = bool(told)
    said.first = "; ".join(told.get("workers", []))[:200]
    chosen = ["workers"] if told.get("workers") else []
    chosen += ["batch"] if told.get("found", told.get("had")) != told.get("had") else []
    said.also = chosen
    if told:  # a larger batch is what the finder was asked for: it is not invented
        said.right = {
            "fault": bool(set(chosen) & set(case.helps)),
            "optimal": "workers" not in chosen,
            "refuse": None,
        }[case.kind]
    said.harm = sorted(set(chosen) & set(case.refuse))
    return said


def _slim(result: dict) -> dict:
    return {k: v for k, v in result.items() if not k.startswith("step_") or k.startswith("step_time")}


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _run(command: list[str], room: Path) -> tuple[str, float, str]:
    """How it ended, after how long, and its last words.
    All that it started is gone afterwards, in whatever session."""
    scratch = room / "tmp"
    scratch.mkdir()
    env = {"OMP_NUM_THREADS": "1", **os.environ, "TMPDIR": str(scratch)}
    began, output = time.monotonic(), room / "output.txt"
    with output.open("wb") as out:
        proc = subprocess.Popen(
            command, cwd=room, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
        )
        proc.stdin.write(b"\n" * 20)  # to whom asks for defaults
        proc.stdin.close()
        try:
            proc.wait(LIMIT_S)
            how = f"exit {proc.returncode}"
        except subprocess.TimeoutExpired:
            how = f"ended after {LIMIT_S:.0f} s"
        took = time.monotonic() - began
        _end_all(f"TMPDIR={scratch}".encode())
        proc.wait()
    return how, round(took, 1), output.read_text(errors="replace")[-1500:]


def _end_all(mark: bytes) -> None:
    """Kill every process with this word in its environment."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


ASKED = dict(zip(TOOLS, (traceml, loadtune, lightning), strict=True))


# --- the table
# ------------------------------------------------------------------------------------------------------------

def lines(told: list[Said]) -> list[str]:
    """The score, a line a tool and a question."""
    found = []
    for tool in TOOLS:
        mine = [s for s in told if s.tool == tool]
        for kind, question in (
            ("fault", "right first cause"),
            ("optimal", "left alone"),
            ("refuse", "refused with the reason"),
        ):
            asked = [s for s in mine if s.kind == kind]
            if asked:
                judged = [s for s in asked if s.right is not None]
                failed = sum(not s.measured for s in asked)
                found.append(f"{tool}: {question}: {sum(s.right for s in judged)} of {len(judged)}, "
                             f"not its job: {len(asked) - len(judged) - failed}, not measured: {failed}")
        harmed = [f"{s.name} ({', '.join(s.harm)})" for s in mine if s.harm]
        written = [s.lines for s in mine if s.lines]
        if written:
            found.append(
                f"{tool}: advised though it must not be: {', '.join(harmed) or 'nothing'}; "
                f"lines to write {min(written)} to "
                f"{max(written)}; {sum(s.seconds for s in mine):.0f} s in all"
            )
    return found


def installed(python: str) -> dict[str, str]:
    """Those of the tools that this interpreter has, with their versions."""
    code = (
        "import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n    try: "
        "found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    return json.loads(
        subprocess.run(
            [python, "-c", code, *TOOLS, "torch"], capture_output=True, text=True, check=True
        ).stdout
    )


def _told_before(file: Path | None) -> list[Said]:
    if file is None or not file.exists():
        return []
    return [said for said in (Said(**each) for each in json.loads(file.read_text())["said"]) if said.measured]


def _line(said: Said) -> str:
    mark = {True: "right", False: "WRONG", None: "-----"}[said.right]
    more = f" + {', '.join(said.also)}" if said.also else ""
    gain = f" {said.gain}x" if said.gain else ""
    return (
        f"{mark}  {said.tool:<10} {said.name:<16} {said.truth or '(nothing)':<18} said: "
        f"{said.first or '(nothing)'}{more}{gain}"
        f"{' HARM' if said.harm else ''}   [{said.how}, {said.seconds} s]"
    )


def main() -> int:
    """Each script of the dev half, one tool and one script at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter that has the tools and torch"
    )
    parser.add_argument(
        "--tool", action="append", choices=list(TOOLS), help="only this one (may be given again)"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"{SHORT_STEPS} steps: shows that it works, its score says nothing",
    )
    parser.add_argument(
        "--json", type=Path, help="write all that was said here; what stands there already is not asked again"
    )
    o = parser.parse_args()
    there = installed(o.python)
    tools = [t for t in o.tool or TOOLS if t in there]
    if not tools or "torch" not in there:
        print(
            f"{o.python} has none of {', '.join(TOOLS)}, or no torch: nothing was measured. "
            "Make an environment of its own with them, "
            "and name its interpreter: --python"
        )
        return 0
    print(", ".join(f"{k} {v}" for k, v in there.items()), flush=True)
    faults, told = suite(), _told_before(o.json)
    answered = {(s.tool, s.name) for s in told}
    for case in (c for c in faults.cases("dev") if not o.names or c.name in o.names):
        for tool in (t for t in tools if (t, case.name) not in answered):
            with tempfile.TemporaryDirectory(prefix="rivals-") as folder, faults.neighbour(case.neighbour):
                room = Path(folder, "room")
                room.mkdir()
                shutil.copy(faults.HERE / "accelerator.py", folder)
                said = ASKED[tool](case, room, o.python, o.short)
            told.append(said)
            print(_line(said), flush=True)
            if o.json:
                o.json.write_text(
                    json.dumps({"versions": there, "said": [asdict(s) for s in told]}, indent=1) + "\n"
                )
    print("\n".join(lines(told)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

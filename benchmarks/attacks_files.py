"""Attacks by the files of a run folder: a run may write what it likes there.
It and all others are shown, stopped and deleted as ever."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.attacks import Attack, attack
from benchmarks.ground import Ground, memory_bytes, until

ATTACKS: list[Attack] = []
GROUP = "run-folder files"
ANSWER_S = 20.0  # within this a command must answer
MEMORY = 600 << 20  # bytes that the server may have

# name, what `show` must name ("" where the file may well be used), lines of Python; a:
# folder of the attempt, r: of the run
POISONS = (
    ("agent.json of wrong kinds", "agent.json", "put(a / 'agent.json', '{\"run\": 5}')"),
    ("agent.json nested deeply", "agent.json", "put(a / 'agent.json', '[' * 100000)"),
    ("agent.json is a list", "agent.json", "put(a / 'agent.json', '[1, 2]')"),
    ("agent.json is a folder", "agent.json", "gone(a / 'agent.json'); (a / 'agent.json').mkdir()"),
    ("agent.json is deleted", "", "gone(a / 'agent.json')"),
    ("agent.json starts at x", "agent.json", "put(a / 'agent.json', '{\"started_at\": \"x\"}')"),
    ("agent.json starts in the year 30,000", "agent.json", "put(a / 'agent.json', '{\"started_at\": 1e12}')"),
    (
        "agent.json with a number of 10,000 digits",
        "agent.json",
        "put(a / 'agent.json', '{\"run\": {\"pid\": ' + '9' * 10000 + '}}')",
    ),
    ("telemetry.jsonl is a pipe", "", "pipe(a / 'telemetry.jsonl')"),
    (
        "telemetry.jsonl of wrong kinds",
        "",
        'put(a / \'telemetry.jsonl\', \'{"at": "x", "gpus": 5, "cpu_percent": []}\\n\' * 99)',
    ),
    ("heartbeat is a pipe", "", "pipe(a / 'heartbeat')"),
    ("heartbeat of wrong kinds", "", 'put(a / \'heartbeat\', \'{"mono": "x", "used_s": [], "at": {}}\')'),
    ("out.log is a pipe", "", "pipe(a / 'out.log')"),
    ("stop.json is a pipe", "stop.json", "pipe(a / 'stop.json')"),
    ("stop.json is a folder", "stop.json", "(a / 'stop.json').mkdir()"),
    (
        "status.json of wrong kinds",
        "status.json",
        'put(a / \'status.json\', \'{"status": "x", "used_s": {}}\')',
    ),
    ("exit.json is a pipe", "exit.json", "pipe(a / 'exit.json')"),
    (
        "exit.json is a folder with files",
        "exit.json",
        "(a / 'exit.json').mkdir(); put(a / 'exit.json' / 'x', '')",
    ),
    (
        "exit.json of wrong kinds",
        "exit.json",
        'put(a / \'exit.json\', \'{"code": "x", "ended_at": {}, "evidence": 5}\')',
    ),
    ("exit.json of 100 MB", "exit.json", "put(a / 'exit.json', '{\"x\": \"' + 'y' * 10 ** 8 + '\"}')"),
    ("keep.json is /dev/zero", "keep.json", "link(r / 'keep.json', '/dev/zero')"),
    (
        "keep.json of wrong kinds",
        "keep.json",
        'put(r / \'keep.json\', \'{"at": "x", "time_s": [], "seq": {}}\')',
    ),
    ("limits.json is a pipe", "limits.json", "pipe(r / 'limits.json')"),
    ("spec.json is a pipe", "spec.json", "pipe(r / 'spec.json')"),
    (
        "spec.json of wrong kinds",
        "spec.json",
        'put(r / \'spec.json\', \'{"command": 5, "grace_s": "x", "restarts": []}\')',
    ),
    ("env is a pipe", "", "pipe(r / 'env')"),
    ("commit.json is a pipe", "commit.json", "pipe(r / 'code' / 'commit.json')"),
    (
        "commit.json of wrong kinds",
        "commit.json",
        "put(r / 'code' / 'commit.json', '{\"commit\": [1], \"dirty\": {}}')",
    ),
    (
        "manifest.json of the code of wrong kinds",
        "",
        "put(r / 'code' / 'manifest.json', '{\"files\": 5, \"bulk\": 7}')",
    ),
    ("copy.list is a pipe", "", "pipe(r / 'code' / 'copy.list')"),
    (
        "resume/state.json of wrong kinds",
        "state.json",
        (
            'put(r / \'resume\' / \'state.json\', \'{"state": 5, "image": "x", "lives": 7, "resumed": '
            '[1], "points_passed": [2]}\')'
        ),
    ),
    ("resume/state.json is a pipe", "state.json", "pipe(r / 'resume' / 'state.json')"),
    (
        "an image's manifest nested deeply",
        "",
        'put(r / \'resume\' / \'state.json\', \'{"state": "resumable", "image": {"n": 1, "step": 1}}\'); '
        "put(r / 'resume' / 'images' / '1' / 'manifest.json', '{\"code\":' + '[' * 100000)",
    ),
    (
        "an image's manifest that lists /dev/zero as code",
        "",
        'put(r / \'resume\' / \'state.json\', \'{"state": "resumable", "image": {"n": 1, "step": 1}}\'); '
        "put(r / 'resume' / 'images' / '1' / 'manifest.json', '{\"code\": {\"/dev/zero\": \"x\"}}')",
    ),
    (
        "processes.jsonl of wrong kinds",
        "",
        (
            'put(a / \'hooks\' / \'processes.jsonl\', \'[1]\\n5\\n{"role": {}, "pid": [1], "torch": '
            '5, "settings": {"left": 5}}\\n\')'
        ),
    ),
    (
        "steps.jsonl of wrong kinds",
        "",
        'put(a / \'steps.jsonl\', \'{"pid": [], "step": "x"}\\n{"step": 5, "s": "x", "epochs": 5}\\n\')',
    ),
    ("steps.jsonl is a pipe", "", "pipe(a / 'steps.jsonl')"),
    ("an attempt 999999999999", "", "(r / 'attempts' / '999999999999').mkdir()"),
    ("an attempt of a strange digit", "", "(r / 'attempts' / chr(0xb2)).mkdir()"),
    (
        "a folder of attempts that is a pipe",
        "",
        "os.rename(r / 'attempts', r / 'gone'); pipe(r / 'attempts')",
    ),
    ("the run folder without rights", "", "r.chmod(0)"),
)
QUICK = ("resume/state.json of wrong kinds",)

SCRIPT = """
import os, pathlib, shutil, sys, time
r = pathlib.Path(os.environ["STOKER_RUN_DIR"])
a = r / "attempts" / os.environ["STOKER_ATTEMPT"]
def gone(path):
    if path.is_symlink() or path.is_file() or path.is_fifo():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
def put(path, text):
    gone(path)
    path.write_text(text)
def pipe(path):
    gone(path)
    os.mkfifo(path)
def link(path, to):
    gone(path)
    path.symlink_to(to)
time.sleep(0.3)
{lines}
print("poisoned", flush=True)
pathlib.Path(sys.argv[1]).touch()
time.sleep(100)
"""


def _timed(ground: Ground, *words: str) -> str:
    began = time.monotonic()
    done = ground.stoker(*words, timeout_s=3 * ANSWER_S)
    assert time.monotonic() - began < ANSWER_S, (
        f"`stoker {' '.join(words)}` took {time.monotonic() - began:.0f} s"
    )
    assert "Traceback" not in done.err and "Traceback" not in done.out, done.err[-500:]
    assert done.code == 0, f"`stoker {' '.join(words)}`: {done.err.strip()}"
    return done.out


def _healthy(ground: Ground) -> str:
    """The id of a run that does nothing wrong; one for all attacks of a ground."""
    listed = ground.runs()
    live = [
        run["id"]
        for run in listed
        if run["name"].startswith("healthy") and run["state"] in ("starting", "running")
    ]
    run_id = (
        live[0] if live else ground.detach("--name", f"healthy-{len(listed)}", "--", "sleep", "1000")["id"]
    )
    return ground.wait_state(run_id, "running")["id"]


def _poison(ground: Ground, named: str, lines: str) -> None:
    healthy, mark = _healthy(ground), ground.root / "poisoned"
    mark.unlink(missing_ok=True)
    script = ground.script("poison.py", SCRIPT.format(lines=lines))
    run_id = ground.detach("--", "python", "-I", str(script), str(mark))["id"]
    until(mark.exists, 20, "the poison")
    _still_served(ground, healthy, run_id)
    if named:
        until(
            lambda: named in _timed(ground, "show", run_id) or _written_anew(ground, named, run_id),
            10,
            f"{named} in what show tells",
        )
    _timed(ground, "show", run_id, "--json")
    server = ground.server_pid()
    assert memory_bytes(server) < MEMORY, f"the server has {memory_bytes(server) >> 20} MB"
    ground.kill_server()
    _still_served(ground, healthy, run_id)
    _timed(ground, "show", run_id)
    assert memory_bytes(ground.server_pid()) < MEMORY
    _timed(ground, "stop", "--force", run_id)
    _timed(ground, "rm", "-y", "--force", run_id)
    assert not Path(ground.home / "runs" / run_id).exists(), "its folder is left"
    assert ground.show(healthy)["state"] == "running", "the healthy run was harmed"


def _written_anew(ground: Ground, named: str, run_id: str) -> bool:
    """Whether the holder has put its agent.json right before anybody asked:
    then there is nothing left to name."""
    if named != "agent.json":
        return False
    try:
        found = json.loads((ground.home / "runs" / run_id / "attempts" / "1" / named).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "holder" in found


def _still_served(ground: Ground, healthy: str, run_id: str) -> None:
    listed = _timed(ground, "ps", "-a", "--json")
    assert healthy in listed and run_id in listed, "a run is missing in ps"
    _timed(ground, "show", healthy)
    _timed(ground, "logs", healthy)


def _make(name: str, named: str, lines: str) -> None:
    @attack(ATTACKS, GROUP, name, quick=name in QUICK)
    def act(ground: Ground) -> None:
        _poison(ground, named, lines)


for _each in POISONS:
    _make(*_each)

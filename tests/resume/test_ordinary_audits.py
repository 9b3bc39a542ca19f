"""Audits of training scripts as people write them: none may come to another state than its run. `python tests/resume/test_ordinary_audits.py SCRIPT...`
prints what came of the scripts that are named.

The run is stopped while it is audited: these scripts last seconds, and an audit is slower than its run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import FULL, LIFE_S, POLL_S, Pipe, Script, Stage, read, vendored

SCRIPTS = [s for s in (read(p) for p in sorted(Path(__file__).with_name("ordinary").glob("*.py"))) if s.short or FULL]
AUDITS = int(os.environ.get("AUDITS") or 3)   # of one run, at most
BEHIND = 400  # bytes of the log behind an image


def audits_of(script: Script, base: Path, hooks: Path | None = None, every: str = "20steps", **more: str) -> list[dict]:
    """The verdicts on one run; at its end how it stood, where it was not audited at all."""
    stage = Stage(script, base, hooks=hooks, every=every, env={"STOKER_AUDIT": "on"})
    stage.fresh()
    stage.base.joinpath("run", "attempts", "1").mkdir(parents=True)
    name = "script.py" if script.cwd == "." else script.path.name
    argv, cwd, env = [stage.python, name, *script.args], stage.home / script.cwd, stage.environment(1)
    told: list[dict] = []
    with Pipe(stage.base / "run" / "attempts" / "1" / "out.log") as out:
        run = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out.end, stderr=subprocess.DEVNULL, start_new_session=True)
        out.begin()
        try:
            until = time.monotonic() + LIFE_S + script.wait
            while run.poll() is None and len(told) < AUDITS and time.monotonic() < until:
                room = next((p.parent for p in stage.base.glob("resume/audit/*/order.json")), None)
                if room is None:
                    time.sleep(POLL_S)
                    continue
                size = (stage.base / "resume" / "log").stat().st_size
                while run.poll() is None and (stage.base / "resume" / "log").stat().st_size < size + BEHIND:
                    time.sleep(POLL_S)
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGSTOP)
                child = {**env, "STOKER_AUDIT": "child", "STOKER_RESUME_DIR": str(room), "STOKER_HOOKS": str(room / "hooks"), **more}
                child.pop("STOKER_RUN_DIR")
                done = subprocess.run(argv, cwd=cwd, env=child, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIFE_S * 2, check=False)
                try:
                    told.append({**json.loads((room / "order.json").read_text()), **json.loads((room / "verdict.json").read_text())})
                except FileNotFoundError:
                    told.append({"verdict": "no verdict", "why": done.stderr.decode("utf-8", "replace")[-1500:]})
                shutil.rmtree(room)
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGCONT)
        finally:
            try:
                os.killpg(run.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            run.wait()
    return told or [{"verdict": "never", "why": str(stage.said().get("reason") or stage.said().get("points_passed") or "")[:300]}]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_an_ordinary_script_is_audited_bit_exact(script: Script, hooks: Path, short_tmp: Path):
    if missing := script.missing():
        pytest.skip(f"{missing} is not installed")
    told = audits_of(script, short_tmp, hooks)
    print(told)
    assert not [each for each in told if each["verdict"] in ("different", "no verdict")], told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="st-audits-", dir="/tmp") as temp:
        laid_out = vendored(Path(temp) / "hooks")
        for number, path in enumerate(sys.argv[1:]):
            one = read(Path(path))
            if one.missing():
                continue
            for each in audits_of(one, Path(temp) / str(number), laid_out):
                steps = f"{each.get('from_step', 0)} to {each.get('step', 0)}"
                print(f"{one.name:28s} {each['verdict']:12s} {steps:12s} {each.get('values_equal', 0):6d} values  {each['why']}", flush=True)

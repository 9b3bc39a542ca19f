"""How much a run has printed by an image, while its output is on its way from the pipe into the log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "resume"))

from harness import Pipe, vendored

ASKS = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
from stoker_hooks.resume.core import phases; from stoker_hooks.resume.world import journal, printed
phases.attempt, printed._TRIES, total, wrong, known = 1, 20, 0, [], 0
for i in range(60):
    line = b"line %d\\n" % i
    total += os.write(1, line)
    time.sleep(0.0007 * (i % 7))
    try:
        told = printed.place()[1]
    except journal.Impossible:
        continue
    known += 1
    if told != total:
        wrong.append((i, told, total))
print(json.dumps([known, wrong]), file=sys.stderr)
"""


@pytest.mark.parametrize("slow_s", [0.0, 0.004])
def test_what_is_between_the_pipe_and_the_log_is_counted_or_waited_for(short_tmp, slow_s):
    logs = short_tmp / "run" / "attempts" / "1"
    logs.mkdir(parents=True)
    words = [sys.executable, "-c", ASKS, str(vendored(short_tmp / "hooks"))]
    with Pipe(logs / "out.log", slow_s=slow_s) as out:
        child = subprocess.Popen(words, env={"STOKER_RUN_DIR": str(short_tmp / "run")}, stdout=out.end, stderr=subprocess.PIPE)
        out.begin()
        _, told = child.communicate(timeout=60)
    assert child.returncode == 0, told
    known, wrong = json.loads(told)
    assert not wrong
    assert known > 5

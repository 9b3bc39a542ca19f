"""What the hooks write of captured numbers: each call within a second and before any end, nothing in a ghost, and a fault is noted while the script goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import SOURCE

BEGIN = "import os, sys\nsys.path.insert(0, sys.argv[1])\nos.environ['STOKER_HOOKS'] = sys.argv[2]\nfrom inside.numbers import lines\n"


def run(script: str, folder: Path) -> list[dict]:
    subprocess.run([sys.executable, "-c", BEGIN + script, str(SOURCE.parent), str(folder)], check=True, timeout=60)
    path = folder / "numbers.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def test_each_call_is_a_line_and_a_call_without_a_step_is_counted(tmp_path: Path):
    told = run("lines.write('tensorboard', {'loss': 0.5}, 3, folder='runs')\nlines.write('tensorboard', {'loss': float('nan')}, None)\n"
               "lines.write('tensorboard', {'loss': 1.0}, None)\nos._exit(0)", tmp_path)
    assert [(line["step"], line["axis"], line.get("folder")) for line in told[1:]] == [(3, "step", "runs"), (1, "order", None), (2, "order", None)]
    assert "begin" in told[0] and {line["pid"] for line in told} == {told[0]["pid"]}


PATIENT = "lines.SOON_S = lines.BEAT_S = 1e9\n"  # what comes after the first number waits
BURST = "for step in range(5): lines.write('tensorboard', {'loss': float(step)}, step)\n"
WAITS = "assert len(lines._waiting) == 4\n"


def steps(told: list[dict]) -> list[int]:
    return [line["step"] for line in told if "values" in line]


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.execv(sys.executable, [sys.executable, '-c', ''])", "os.execlp('true', 'true')"])
def test_numbers_in_quick_succession_wait_until_the_end_at_most(tmp_path: Path, end: str):
    assert steps(run(PATIENT + BURST + WAITS + end, tmp_path)) == [0, 1, 2, 3, 4]


def test_numbers_that_wait_are_written_when_no_more_come(tmp_path: Path):
    script = "lines.SOON_S = 1e9\n" + BURST + ("import pathlib, signal, time\nend = time.monotonic() + 60\n"
                              "while pathlib.Path(sys.argv[2], 'numbers.jsonl').read_text().count('loss') < 5 and time.monotonic() < end: time.sleep(0.01)\n"
                              "os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(subprocess.CalledProcessError, match="SIGKILL"):
        run(script, tmp_path)
    assert steps(run("", tmp_path)) == [0, 1, 2, 3, 4]


def test_a_child_writes_its_own_numbers_at_once_and_none_of_its_parent(tmp_path: Path):
    child = "    lines.write('tensorboard', {'loss': 7.0}, 7)\n    lines.write('tensorboard', {'loss': 8.0}, 8)\n    os.kill(os.getpid(), 9)\n"
    told = run(PATIENT + BURST + WAITS + "if os.fork() == 0:\n" + child + "os.wait()\n", tmp_path)
    assert sorted(steps(told)) == [0, 1, 2, 3, 4, 7, 8]


def test_several_threads_lose_no_number(tmp_path: Path):
    script = ("import threading\ndef work(n):\n    for step in range(3000): lines.write('tensorboard', {str(n): 1.0}, step)\n"
              "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\nfor each in threads: each.start()\nfor each in threads: each.join()\n")
    told = run(script, tmp_path)
    for n in range(4):
        assert [line["step"] for line in told if str(n) in line.get("values", ())] == list(range(3000))


def test_a_line_is_the_json_that_the_standard_encoder_writes():
    script = ("import json\nvalues = {'a\\u00e9\\ud800\\n\"': 1e-320, 'b': [1, None, True, {'c': float('nan')}], 'd': 10 ** 400, 'e': -float('inf')}\n"
              "assert lines._encode(values) == json.JSONEncoder().encode(values)\n"
              "try: lines._encode({'a': object()})\nexcept TypeError: pass\nelse: raise AssertionError")
    run(script, Path("/nowhere"))


def test_a_ghost_writes_nothing_and_counts_on(tmp_path: Path):
    told = run("import types\nlife = types.SimpleNamespace(phase=3, GHOST=3)\nsys.modules['stoker_hooks.resume.core.phases'] = life\n"
               "lines.write('tensorboard', {'loss': 1.0}, None)\nlife.phase = 4\nlines.write('tensorboard', {'loss': 2.0}, None)", tmp_path)
    assert [(line["step"], line["values"]) for line in told[1:]] == [(2, {"loss": 2.0})]


def test_a_file_that_the_script_closed_is_opened_again(tmp_path: Path):
    told = run("lines.write('tensorboard', {'loss': 1.0}, 1)\nos.closerange(3, 1000)\nlines.write('tensorboard', {'loss': 2.0}, 2)", tmp_path)
    assert [line["values"]["loss"] for line in told if "values" in line] == [1.0, 2.0]


@pytest.mark.parametrize("spoil", ["os.mkdir(os.path.join(sys.argv[2], 'numbers.jsonl'))", "os.symlink('/dev/null', os.path.join(sys.argv[2], 'numbers.jsonl'))"])
def test_a_fault_is_noted_once_and_the_script_goes_on(tmp_path: Path, spoil: str):
    run(f"{spoil}\nfor step in range(3):\n    lines.guarded('tensorboard', lines.write, 'tensorboard', {{'loss': 1.0}}, step)", tmp_path)
    noted = [json.loads(line) for line in (tmp_path / "processes.jsonl").read_text().splitlines()]
    assert len(noted) == 1 and noted[0]["numbers"].startswith(("tensorboard: IsADirectoryError", "tensorboard: OSError"))

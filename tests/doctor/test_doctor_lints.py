"""The lints of the doctor: each known mistake is found at its line, and nothing is said about scripts that are right."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.doctor import lints, source
from stoker.doctor.reader import Surroundings

CORPUS = Path(__file__).parent / "lints"
FAULTY, GOOD = sorted((CORPUS / "faulty").glob("*.py")), sorted((CORPUS / "good").glob("*.py"))
CPUS = 8


def found_in(text, tmp_path, name="train.py"):
    path = tmp_path / name
    path.write_text(text)
    return {(lint.name, lines[0]) for lint, lines in lints.lint_lines(source.load(path), CPUS)}


def marked(path):
    """What the marks in a file say should be found: `# lint: NAME NAME` stands at the first line of each."""
    lines = path.read_text("utf-8").splitlines()
    return {(name, n) for n, line in enumerate(lines, 1) if "# lint:" in line for name in line.split("# lint:")[1].split()}


@pytest.mark.parametrize("path", FAULTY, ids=[p.stem for p in FAULTY])
def test_each_mistake_is_found_at_its_line_and_nothing_else(path):
    expected = marked(path)
    assert expected
    assert {(lint.name, lines[0]) for lint, lines in lints.lint_lines(source.load(path), CPUS)} == expected


@pytest.mark.parametrize("path", GOOD, ids=[p.stem for p in GOOD])
def test_nothing_is_said_about_a_script_that_is_right(path):
    assert not marked(path)
    assert list(lints.lint_lines(source.load(path), CPUS)) == []


def test_the_corpus_knows_each_lint():
    assert {name for path in FAULTY for name, _ in marked(path)} == set(lints.LINTS)
    assert len(FAULTY) >= 30 and len(GOOD) >= 20


@pytest.mark.parametrize("lint", lints.LINTS.values(), ids=list(lints.LINTS))
def test_a_lint_speaks_in_sentences(lint):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", lint.name) and lint.level in ("note", "warn")
    assert re.fullmatch(r"[A-Za-z].*\.", lint.why) and re.fullmatch(r"[A-Za-z].*[.:]", lint.do)
    assert lint.rule.__doc__


def test_the_command_gives_lints_as_json_and_runs_nothing(tmp_path):
    (tmp_path / "train.py").write_text("open('was-run', 'w')\n" + (CORPUS / "faulty" / "no_shuffle.py").read_text())
    env = {**os.environ, "STOKER_HOME": str(tmp_path / "h")}
    done = subprocess.run([sys.executable, "-m", "stoker.cli.main", "doctor", "--json", "--", sys.executable, "train.py"], cwd=tmp_path, env=env,
                          capture_output=True, text=True, timeout=100, check=False)
    told = [f for f in json.loads(done.stdout) if f.get("lint")]
    assert [(f["lint"], f["file"], f["line"]) for f in told] == [("unshuffled", "train.py", 10)]
    assert told[0]["why"] == told[0]["message"] and told[0]["do"] == told[0]["hint"] == lints.LINTS["unshuffled"].do
    assert not (tmp_path / "was-run").exists()


def test_several_lines_of_one_lint_are_one_finding(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\n" + "torch.nn.DataParallel(m)\n" * 9)
    found, = lints.look([source.load(path)], Surroundings(tmp_path, {}), CPUS)
    assert found.line == 2 and "The same problem in lines 3, 4, 5, 6, 7, and more." in found.message


def test_workers_are_counted_against_the_cores_that_are_ours(tmp_path):
    text = "import torch\nfrom torch.utils.data import DataLoader\nDataLoader(x, num_workers=4)\n"
    path = tmp_path / "train.py"
    path.write_text(text)
    read = source.load(path)
    assert [[lint.name for lint, _ in lints.lint_lines(read, cpus)] for cpus in (1, 1.5, 3, 4, 64)] == [
        ["too-many-workers"], ["too-many-workers"], ["too-many-workers"], [], []]
    assert 0 < lints.own_cpus() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["", "x = 1\n", "import torch\n" + "(" * 90 + "torch" + ")" * 90, "import torch\nfor x in " + "[" * 60 + "]" * 60 + ":\n  pass\n",
                                  "import torch\n" + "x = x + 1\n" * 5000, "import torch\ndef f(): return f()\nx = f()\nfor y in x: x.step(); x.backward()\n",
                                  "import torch\na = b\nb = a\nfor i in a: a.step(b); b.backward(); b += a\n",
                                  "import torch\nclass A(A): pass\nclass B(C): pass\nclass C(B): pass\nx = B()\nx.f()\ntorch.save(x)\n",
                                  "import torch\nlambda: (y := 1, y.step(), y.backward())\n", "import torch\nglobal z\nz.backward()\n"])
def test_odd_files_are_read_in_peace(tmp_path, text):
    assert found_in(text, tmp_path) == set()

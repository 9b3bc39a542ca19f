"""How a rehearsed script is started, and what the report says of what its ranks told: no torch in here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import lay_out
from stoker.inside.rehearse import report, style

TORCHRUN = "import os\nrank = int(os.environ['LOCAL_RANK'])\n"
EITHER = "import os\nddp = int(os.environ.get('RANK', -1)) != -1\nif ddp:\n    rank = int(os.environ['RANK'])\n"
SPAWN = "import torch.multiprocessing as mp\nimport os\nos.environ['WORLD_SIZE'] = '2'\nmp.spawn(f, nprocs=2)\n"
SLURM = "import os\nrank = int(os.environ['SLURM_PROCID'])\n"
BOTH = "import os\nif 'SLURM_PROCID' in os.environ:\n    pass\nelif 'RANK' in os.environ:\n    pass\n"
GROUP = "import torch\ntorch.distributed.init_process_group('nccl')\n"


@pytest.mark.parametrize(("text", "ranks", "expected"), [
    (TORCHRUN, 2, style.RANKS), (TORCHRUN, 1, style.RANKS), (EITHER, 2, style.RANKS), (EITHER, 1, style.ALONE), (SPAWN, 2, style.ALONE),
    (SLURM, 2, style.SLURM), (BOTH, 2, style.RANKS), (GROUP, 2, style.RANKS), (GROUP, 1, style.ALONE), ("print('one GPU')\n", 2, style.ALONE)])
def test_the_way_to_start_it_is_read_from_the_script(tmp_path, text, ranks, expected):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert style.plan(["python", str(script), "--lr", "1"], ranks).style == expected


def test_files_that_the_script_imports_are_read_too(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("")
    (tmp_path / "lib" / "setup.py").write_text(TORCHRUN)
    (tmp_path / "train.py").write_text("from lib.setup import rank\n")
    monkeypatch.chdir(tmp_path)
    assert style.plan(["python", "train.py"], 2).style == style.RANKS
    assert style.plan(["python", "-m", "lib.setup"], 2).style == style.RANKS


@pytest.mark.parametrize(("words", "started", "flag"), [
    ("python -m torch.distributed.run --standalone --nproc_per_node 8 train.py --lr 1", ["train.py", "--lr", "1"], ""),
    ("python /bin/torchrun --nnodes=2 --rdzv_backend c10d train.py --lr 1", ["train.py", "--lr", "1"], ""),
    ("python /bin/torchrun --nproc_per_node 8 -m pkg.train", ["-m", "pkg.train"], ""),
    ("python -u -m torch.distributed.launch --nproc_per_node=4 train.py", ["-u", "train.py"], "--local-rank"),
    ("python -m torch.distributed.launch --use_env train.py", ["train.py"], "")])
def test_launchers_are_replaced(words, started, flag):
    plan = style.plan(words.split(), 2)
    assert (plan.words, plan.style, plan.flag) == (started, style.RANKS, flag)


def test_nothing_of_slurm_or_an_outer_launcher_reaches_the_ranks():
    before = {"SLURM_JOB_ID": "7", "RANK": "3", "MASTER_ADDR": "far", "CUDA_VISIBLE_DEVICES": "5", "KEPT": "1", "OMP_NUM_THREADS": "3"}
    env = style.environment(before, style.Plan(["train.py"], style.RANKS), 1, 2, 4321)
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"], env["MASTER_PORT"]) == ("1", "1", "2", "127.0.0.1", "4321")
    assert env["KEPT"] == "1" and env["OMP_NUM_THREADS"] == "3" and not {"SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"} & env.keys()
    alone = style.environment(before, style.Plan(["train.py"], style.ALONE), 0, 2, 4321)
    assert "RANK" not in alone and "MASTER_ADDR" not in alone


def told(rank: int, *events: dict) -> list[dict]:
    joined = {"e": "joined", "rank": rank, "world": 2}
    return [{"t": n, **each} for n, each in enumerate([{"e": "dist", "rank": rank, "world": 2, "backend": "nccl"}, joined, *events])]


def into(n: int, op: str) -> dict:
    return {"e": "into", "n": n, "op": op, "what": "", "at": "train.py:9"}


def judged(heard: dict, ends: dict, found: dict | None = None) -> dict:
    return report.judge(heard, ends, found or {}, plan=style.Plan(["train.py"], style.RANKS), ranks=2, seconds=1.0)


def test_an_error_of_the_script_comes_before_those_it_causes_in_others():
    closed = {"e": "error", "kind": "RuntimeError", "text": "Connection closed by peer [127.0.0.1]:1", "at": "train.py:9", "rank": "0"}
    own = {"e": "error", "kind": "KeyError", "text": "'lr'", "at": "train.py:4", "rank": "1"}
    said = judged({1: told(0, into(1, "all_reduce"), closed), 2: told(1, {"e": "torch"}, {"e": "torch"}, own)}, {0: 1, 1: 1})
    assert said["code"] == report.MISTAKE and said["verdict"] == "the script failed: rank 1: KeyError: 'lr'"


def test_a_rank_that_left_is_named():
    closed = {"e": "error", "kind": "RuntimeError", "text": "Connection closed by peer [127.0.0.1]:1", "at": "train.py:9", "rank": "0"}
    said = judged({1: told(0, into(1, "barrier"), closed), 2: told(1)}, {0: 1, 1: 0})
    assert said["code"] == report.MISTAKE and "a rank waits for another rank" in said["verdict"]
    assert "rank 0 waits in barrier at train.py:9 (collective call number 1 of this rank)" in said["lines"]


def test_two_ranks_on_one_gpu():
    assert report.same_gpu({1: told(0, {"e": "device", "gpu": "0"}), 2: told(1, {"e": "device", "gpu": "0"})}) == ("0", [0, 1])
    assert report.same_gpu({1: told(0, {"e": "device", "gpu": "0"}), 2: told(1, {"e": "device", "gpu": "1"})}) is None


def test_ranks_that_disagree_are_told():
    step, loader = {"e": "step", "n": 4}, {"e": "loader", "sampler": "Odd", "at": ""}
    first = told(0, {**loader, "length": 10}, into(1, "all_reduce"), step, {"e": "done", "steps": 4})
    second = told(1, {**loader, "length": 9}, step, {"e": "done", "steps": 4})
    said = judged({1: first, 2: second}, {0: 0, 1: 0})
    assert said["code"] == report.WELL
    assert any("rank 0 has 10, rank 1 has 9" in w for w in said["warnings"]) and any("collective calls: rank 0: 1, rank 1: 0" in w for w in said["warnings"])


def test_the_report_does_not_depend_on_which_rank_is_heard_first():
    def trained(rank: int, loss: float) -> list[dict]:
        losses = [{"e": "loss", "value": each, "finite": True, "at": ""} for each in (loss, loss / 2)]
        return told(rank, {"e": "batch", "shapes": [f"[{rank}, 3]"], "digest": ""}, *losses, {"e": "step", "n": rank + 1})

    heard = {40: trained(0, 8.0), 7: trained(10, 5.0), 9: trained(2, 3.0), 3: told(-1), 5: [{"e": "torch", "t": 0}]}
    ends = {10: 0, 0: 0, 2: 0}
    said = judged(heard, ends)
    assert "loss: 8 -> 4, finite" in said["lines"] and "first batch: [0, 3]" in said["lines"] and said["steps"] == [1, 3, 11]
    assert judged(dict(reversed(heard.items())), dict(reversed(ends.items()))) == said
    stuck = judged(heard, ends, {"stuck": {7: into(1, "barrier"), 9: {}, 40: {}}, "gone": [5, 4]})["lines"]
    assert [line.partition(" has ended")[0].partition(" does")[0].partition(" waits")[0] for line in stuck[-6:-1]] == ["rank 0", "rank 2", "rank 10", "rank 4", "rank 5"]


def conducted(tmp_path: Path, code: str, ranks: int = 1, home: str = "", run: str = ".") -> subprocess.CompletedProcess[str]:
    records, work = tmp_path / run / "attempts" / "1" / "hooks", tmp_path / run / "work"
    records.mkdir(parents=True)
    work.mkdir(parents=True)
    (work / "train.py").write_text(code)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
    return subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, timeout=60, check=False, cwd=work,
                          env={**kept, "PYTHONPATH": str(lay_out(tmp_path)), "STOKER_HOOKS": str(records), "STOKER_REHEARSE": str(ranks),
                               "STOKER_REHEARSE_FROM": home})


def test_the_exit_code_and_words_of_a_script_that_fails(tmp_path):
    done = conducted(tmp_path, "import sys\nprint('so far')\nsys.exit(5)\n")
    assert done.returncode == 1 and done.stdout == "so far\n" and "the script ended with exit code 5" in done.stderr


def test_files_outside_of_the_copy_are_not_touched(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "log.txt").write_text("before\n")
    code = f"""
import os, shutil
folder = {str(theirs)!r}
with open(folder + '/log.txt', 'a') as f:
    f.write('more')
assert open(folder + '/log.txt').read() == 'before\\nmore'
os.makedirs(folder + '/a/b')
open(folder + '/a/b/c', 'w').write('x')
os.replace(folder + '/a/b/c', folder + '/d')
assert open(folder + '/d').read() == 'x' and os.path.exists(folder + '/d')
os.remove(folder + '/log.txt')
open('inside.txt', 'w').write('kept')
raise SystemExit(1)
"""
    done = conducted(tmp_path, code, home=str(theirs))
    assert "exit code 1;" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "put them into a scratch folder" in done.stderr
    assert sorted(os.listdir(theirs)) == ["log.txt"] and (theirs / "log.txt").read_text() == "before\n"
    assert (tmp_path / "work" / "inside.txt").read_text() == "kept"


BESIDE = """
import glob, os, shutil, sys
from pathlib import Path
sys.path.append('..')
from common import SIZE
assert SIZE == 3
here = Path(__file__).resolve().parent
for there in ('../data', here.parent / 'data', os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, 'data'), b'../data'):
    assert os.path.isdir(there) and len(os.listdir(there)) == 2, there
    assert [e.name for e in os.scandir(there) if e.is_dir()] in (['raw'], [b'raw']), there
assert open('../data/names.txt').read() == (here.parent / 'data/names.txt').read_text() == os.fdopen(os.open('../data/names.txt', os.O_RDONLY)).read() == 'a b'
assert glob.glob('../data/*/*.bin') == ['../data/raw/x.bin'] and [len(files) for _, _, files in os.walk('../data')] == [1, 1]
assert not os.path.exists('../spec.json') and not os.path.exists('../data/none')
assert open('names.txt').read() == 'the copy'
os.makedirs('../out', exist_ok=True)
with open('../out/log.txt', 'w') as f:
    f.write('x')
with open('../data/names.txt', 'a') as f:
    f.write(' c')
shutil.copy('../data/names.txt', '../out/names.txt')
assert sorted(os.listdir('../out')) == ['log.txt', 'names.txt'] and open('../out/names.txt').read() == 'a b c'
os.chdir('..')
assert open('data/raw/x.bin').read() == 'raw' and os.path.exists('out/log.txt')
os.chdir(here)
assert open('names.txt').read() == 'the copy'
"""


def test_what_lies_beside_the_folder_is_found_from_its_copy(tmp_path):
    theirs, run = tmp_path / "theirs", tmp_path / "runs" / "r1"
    (theirs / "data" / "raw").mkdir(parents=True)
    (theirs / "project").mkdir()
    (theirs / "data" / "raw" / "x.bin").write_text("raw")
    (theirs / "data" / "names.txt").write_text("a b")
    (theirs / "common.py").write_text("SIZE = 3\n")
    (theirs / "project" / "names.txt").write_text("the user's")
    run.mkdir(parents=True)
    (run / "spec.json").write_text("{}")
    done = conducted(tmp_path, "open('names.txt', 'w').write('the copy')\n" + BESIDE + "raise SystemExit(1)\n", home=str(theirs / "project"),
                     run="runs/r1")
    assert "exit code 1;" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert str(theirs / "out") in done.stderr, done.stderr
    assert sorted(os.listdir(theirs)) == ["common.py", "data", "project"]
    assert (theirs / "data" / "names.txt").read_text() == "a b" and sorted(os.listdir(run)) == ["attempts", "spec.json", "work"]
    assert "processes.jsonl" not in done.stderr and (run / "attempts" / "1" / "hooks" / "processes.jsonl").exists()
    assert (theirs / "project" / "names.txt").read_text() == "the user's"

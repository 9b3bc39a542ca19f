"""`stoker sweep` against the real server: one run for each combination, in turn, continued by the same words, stopped as one."""

from __future__ import annotations

import itertools
import json

from benchmarks.ground import Ground, until

WAITS = "import os, sys, time\nprint(*sys.argv[1:], flush=True)\nwhile not os.path.exists({path!r}): time.sleep(0.02)\nsys.exit('bad' in sys.argv)\n"


def states(ground: Ground, tag: str) -> list[str]:
    """Oldest first."""
    return [run["state"] for run in reversed(ground.stoker("ps", "--tag", tag, "--json").json())]


def test_one_run_for_each_combination_and_a_failed_one_holds_up_no_other(ground: Ground):
    go = ground.work.parent / "go"
    ground.script("train.py", WAITS.format(path=str(go)))
    words = ("sweep", "--param", "kind=good,bad", "--param", "n=1,2", "--", "train.py", "-v")
    assert ground.stoker("sweep", "--dry-run", *words[1:]).ok().out.splitlines()[2] == "train.py -v --kind bad --n 1"
    made = ground.stoker("sweep", "--json", *words[1:]).json()
    assert made["sweep"] == "sweep-1" and [run["name"] for run in made["runs"]] == [f"sweep-1-{n}" for n in (1, 2, 3, 4)]
    assert [run["params"]["kind"] for run in made["runs"]] == ["good", "good", "bad", "bad"]
    until(lambda: states(ground, "sweep-1") == ["running", "pending", "pending", "pending"], 20, "the first run alone")
    go.touch()
    assert ground.stoker("wait", "@sweep-1").code == 1
    assert states(ground, "sweep-1") == ["done", "done", "failed", "failed"]
    assert ground.stoker("logs", "sweep-1-4").stdout == b"-v --kind bad --n 2\n"
    begun = [ground.stoker("show", "--json", f"sweep-1-{n}").json() for n in (1, 2, 3, 4)]
    assert all(before["ended_at"] <= after["started_at"] for before, after in itertools.pairwise(begun))
    assert len({run["workdir"] for run in begun}) == 4
    again = ground.stoker("sweep", *words[1:], "--other")
    assert again.ok().out.splitlines()[1].startswith("sweep-2-1")


def test_the_runs_of_a_sweep_are_compared_and_the_best_command_is_told(ground: Ground):
    ground.script("train.py", "import sys\nfor epoch in range(1, 4): print(f'Epoch {epoch}/3 loss: {float(sys.argv[2]) / epoch:.4f}', flush=True)\n")
    ground.stoker("sweep", "--name", "rates", "--param", "lr=0.3,0.1,0.2", "--", "train.py").ok()
    ground.stoker("wait", "@rates").ok()
    done = ground.stoker("compare", "@rates", "--sort", "loss").ok()
    assert [line.split()[0] for line in done.out.splitlines()] == ["RUN", "rates-2", "rates-3", "rates-1"]
    assert done.err == "stoker: best loss: rates-2. To repeat this run: stoker run -- train.py --lr 0.1\n"
    assert ground.stoker("compare", "@none").code == 3


def test_the_same_words_continue_a_sweep_and_other_words_are_refused(ground: Ground):
    go = ground.work.parent / "go"
    ground.script("train.py", WAITS.format(path=str(go)))
    words = ("sweep", "--name", "mine", "--at-once", "2", "--param", "n=1,2,3,4", "--", "train.py")
    ground.stoker(*words).ok()
    until(lambda: states(ground, "mine").count("running") == 2, 20, "two at once")
    assert ground.stoker("stop", "@mine").code == 0
    assert states(ground, "mine") == ["stopped"] * 4
    ground.stoker("rm", "--yes", "mine-4").ok()
    ground.stoker(*words).ok()
    until(lambda: states(ground, "mine") == ["running", "running", "pending", "pending"], 20, "two at once again")
    refused = ground.stoker(*words[:-2], "--", "train.py", "--other")
    assert refused.code == 6 and "already exists with another command" in refused.err
    ground.stoker("stop", "--force", "@mine")
    ground.stoker("start", "@mine").ok()
    until(lambda: states(ground, "mine") == ["running", "running", "pending", "pending"], 20, "two at once once more")
    go.touch()
    assert ground.stoker("wait", "@mine").code == 0
    assert ground.stoker("start", "@mine").ok().err == "stoker: nothing to start: no run with the tag @mine has failed or was stopped\n"
    ground.stoker("rm", "--yes", "@mine").ok()
    gone = ground.stoker("wait", "@mine", "--json")
    assert gone.code == 3 and json.loads(gone.err)["message"] == "No run has the tag mine."


def test_what_cannot_be_a_sweep_is_refused_and_makes_no_run(ground: Ground):
    for words, why in ((("--param", "lr=1,2"), "There is no command to run."), (("train.py",), "There is no parameter to change."),
                       (("--param", "lr=0..1", "train.py"), "a range without a number of values"), (("--param", "lr", "train.py"), "takes NAME=VALUES"),
                       (("--name", "a b", "--param", "lr=1", "true"), "cannot be the name of a sweep")):
        refused = ground.stoker("sweep", *words)
        assert refused.code == 2 and why in refused.err, refused.err
    assert ground.stoker("ps", "-a", "--json").json() == []

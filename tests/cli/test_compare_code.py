"""`stoker compare --diff`: the code difference between two runs, out of what was recorded with them, after the folder has changed again."""

from __future__ import annotations

import subprocess

import pytest
from benchmarks.ground import Ground

from stoker.plane.numbers.code import patched, patches

FIRST = "import model\nprint('loss 0.5')\n"
BASE = "".join(f"width_{n} = {n}\n" for n in range(40))


def git(ground: Ground, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=ground.work, check=True, capture_output=True)


def run(ground: Ground, name: str, model: str, *words: str) -> None:
    (ground.work / "model.py").write_text(model)
    ground.stoker("run", "--name", name, *words, "train.py").ok()


@pytest.mark.parametrize("way", ["git", "no repository", "copies"])
def test_the_difference_between_two_runs_is_found_after_a_third_edit(ground: Ground, way: str):
    ground.script("train.py", FIRST)
    (ground.work / "model.py").write_text(BASE)
    if way == "git":
        git(ground, "init", "-q")
        git(ground, "add", ".")
        git(ground, "commit", "-qm", "one")
    words = ("--copy",) if way == "copies" else ()
    run(ground, "a", BASE.replace("width_3 = 3\n", "width_3 = 33\n").replace("width_39 = 39\n", "width_39 = 1"), *words)
    (ground.work / "new.py").write_text("x = 1\n")
    run(ground, "b", BASE.replace("width_20 = 20\n", ""), *words)
    if way == "git":
        git(ground, "commit", "-qam", "two")
    run(ground, "c", "nothing = 0\n", *words)
    done = ground.stoker("compare", "a", "b", "--diff").ok()
    lines = done.out.splitlines()
    assert [line for line in lines if line.startswith(("+", "-"))] == [
        "--- a/model.py", "+++ b/model.py", "-width_3 = 33", "+width_3 = 3", "-width_20 = 20", "-width_39 = 1", "+width_39 = 39",
        "--- a/new.py", "+++ b/new.py", "+x = 1"]
    assert "\\ No newline at end of file" in lines and done.err == ""
    told = ground.stoker("compare", "a", "b", "--diff", "--json").json()["code_diff"]
    assert [(each["path"], each["change"]) for each in told["files"]] == [("model.py", "changed"), ("new.py", "added")]
    assert ground.stoker("compare", "a", "a", "--diff").code == 2
    run(ground, "d", "nothing = 0\n", *words)
    assert ground.stoker("compare", "c", "d", "--diff").ok().err == "stoker: The code of c and d is the same.\n"


def test_a_text_that_cannot_be_found_again_is_named_and_never_guessed(ground: Ground):
    ground.script("train.py", FIRST)
    git(ground, "init", "-q")
    git(ground, "add", ".")
    git(ground, "commit", "-qm", "one")
    run(ground, "a", BASE)
    git(ground, "add", ".")
    git(ground, "commit", "-qm", "two")
    run(ground, "b", BASE + "x = 1\n")
    subprocess.run(["rm", "-rf", ".git"], cwd=ground.work, check=True)
    (ground.work / "model.py").write_text("other = 1\n")
    done = ground.stoker("compare", "a", "b", "--diff").ok()
    assert done.out == "" and done.err == "stoker: model.py: changed; Stoker did not record its content\n"


def test_tags_and_notes_are_columns_and_a_tag_of_all_runs_is_none(ground: Ground):
    ground.script("train.py", "print('loss 0.5')\n")
    for name in ("a", "b"):
        ground.stoker("run", "--name", name, "train.py").ok()
        ground.stoker("tag", name, "all").ok()
    ground.stoker("tag", "b", "good").ok()
    ground.stoker("note", "a", "the first try").ok()
    lines = ground.stoker("compare", "a", "b").ok().out.splitlines()
    assert lines[0].split()[-2:] == ["TAGS", "NOTE"] and lines[1].endswith("the first try") and lines[2].endswith("good")
    assert "all" not in lines[1]


def test_a_patch_that_does_not_fit_gives_no_text():
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@\n a\n-b\n+c\n"
    assert list(patches(patch + b"diff --git a/y b/y\nBinary files differ\n")) == ["x"]
    assert patched(b"1\n2\na\nb\nz\n", patch) == b"1\n2\na\nc\nz\n"
    assert patched(b"1\n", patch) is None

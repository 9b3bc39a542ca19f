"""One rule for names: every verb takes the newest run of a name, `stop` the newest that has not ended, `rm` no guess."""

from __future__ import annotations

from benchmarks.ground import Ground

SLEEPER = "import sys, time\nprint('number', sys.argv[1], flush=True)\ntime.sleep(600 if sys.argv[1] != '3' else 0)\n"


def three(ground: Ground) -> list[dict]:
    """Three runs of one script: the first two go on, the newest has ended."""
    ground.script("three.py", SLEEPER)
    runs = [ground.detach("three.py", str(number)) for number in (1, 2, 3)]
    for number, run in enumerate(runs, 1):
        ground.until_log(run["id"], b"number %d\n" % number)
    return [*runs[:2], ground.wait_state(runs[2]["id"])]


def test_every_verb_takes_the_newest_run_of_a_name(ground: Ground):
    first, second, newest = three(ground)
    assert [run["name"] for run in (first, second, newest)] == ["three", "three-2", "three-3"]
    shown, logs = ground.stoker("show", "three").ok(), ground.stoker("logs", "three").ok()
    assert shown.out.startswith("three-3: ") and logs.out == "number 3\n"
    said = "stoker: 3 runs have the name three; Stoker uses the newest, three-3. All: stoker ps --all\n"
    assert shown.err == logs.err == said
    assert ground.stoker("wait", "three").ok().err.startswith(said)
    assert ground.stoker("start", "three", "--json").json()["id"] == newest["id"]
    assert ground.stoker("keep", "three", "--pin", "--json").json()["id"] == newest["id"]
    assert ground.stoker("show", "--json", "three-2").json()["id"] == second["id"]
    assert ground.stoker("logs", "three-2").ok().err == ""
    assert ground.stoker("logs", first["id"]).ok().out == "number 1\n"
    ground.wait_state(newest["id"])
    assert ground.stoker("stop", "--force", "--json", "three").json()[0]["id"] == second["id"]  # the newest has ended
    assert ground.stoker("stop", "--force", "--json", "three").json()[0]["id"] == first["id"]


def test_an_id_is_shown_only_where_the_name_means_another_run(ground: Ground):
    first, _, newest = three(ground)
    text = ground.stoker("ps").ok().out
    assert first["id"] in text and newest["id"] not in text
    assert ground.stoker("show", first["id"]).ok().out.splitlines()[1] == f"Next: stoker logs -f {first['id']}"
    assert ground.stoker("show", newest["id"]).ok().out.splitlines()[1] == "Next: stoker logs three-3"
    ground.stoker("rm", "--yes", "--force", "three-2", newest["id"]).ok()
    assert ground.stoker("ps").ok().out.splitlines()[0].split() == ["NAME", "STATE", "SINCE", "RAN", "COMMAND"]


def test_rm_asks_and_never_guesses(ground: Ground):
    _, _, newest = three(ground)
    guessed = ground.stoker("rm", "--yes", "--force", "three")
    assert guessed.code == 2 and "3 runs have the name three" in guessed.err and newest["id"] in guessed.err
    unasked = ground.stoker("rm", "three-3")
    assert unasked.code == 2 and "hint: stoker rm --yes three-3" in unasked.err
    assert len(ground.runs()) == 3
    assert [run["id"] for run in ground.stoker("rm", "--yes", "--json", "three-3").json()] == [newest["id"]]
    assert ground.stoker("show", newest["id"]).code == 3


def test_a_run_that_never_started_is_not_offered_to_be_continued(ground: Ground):
    ground.detach("--name", "first", "--", "sleep", "600")
    waiting = ground.detach("--after", "first", "--", "echo", "said")
    assert waiting["state"] == "pending"
    ground.stoker("stop", waiting["id"]).ok()
    done = ground.stoker("run", "--", "echo", "said").ok()
    assert done.out == "said\n" and "stoker start" not in done.err
    assert [run["state"] for run in ground.runs()] == ["done", "stopped", "running"]

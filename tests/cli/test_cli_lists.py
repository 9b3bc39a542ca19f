"""`ps`, `tag` and `note`: which runs are listed, what is said of those that are not, and how a row fits a terminal."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import pytest
from benchmarks.ground import Ground, until

from stoker.cli import admin, output
from stoker.cli.listing import fit, short_command
from stoker.cli.output import NAME_COLUMNS, cut, cut_words, wrapped
from stoker.cli.output import columns as listed

STEPS = """
import json, os, time
folder = os.path.join(os.environ["STOKER_RUN_DIR"], "attempts", "1")
for i in (1, 2):
    with open(os.path.join(folder, "steps.jsonl"), "a") as f:
        f.write(json.dumps({"pid": 1, "at": 100.0 * i, "step": 1500 * i, "s": 100.0, "steps": 1500, "done": 0.25 * i}) + "\\n")
print("begun", flush=True)
time.sleep(600)
"""


def names(ground: Ground, *words: str) -> list[str]:
    return [run["name"] for run in ground.stoker("ps", "--json", *words).json()]


def test_ps_lists_what_was_asked_for_and_says_what_it_left_out(ground: Ground):
    for number in range(3):
        ground.stoker("run", "--name", f"old-{number}", "--", "sh", "-c", f"exit {number}")
    ground.detach("--name", "active", "--", "sleep", "600")
    assert names(ground) == ["active", "old-2", "old-1", "old-0"]
    assert names(ground, "-n", "1") == ["active", "old-2"]
    left_out = ground.stoker("ps", "--state", "failed").ok()
    assert left_out.err == "" and "old-1" in left_out.out and "active" not in left_out.out
    assert ground.stoker("ps", "-n", "1").ok().err == "stoker: 2 more runs. All: stoker ps --all\n"
    assert ground.stoker("ps", "-n", "1", "--json").ok().err == ""
    assert ground.stoker("ps", "--state", "failed", "-n", "1").ok().err == "stoker: 1 more run matches. To list all of them, add --all\n"
    assert ground.stoker("ps", "--grep", "old-", "-n", "0").ok().err == "stoker: 3 more runs match. To list all of them, add --all\n"
    assert ground.stoker("ps").ok().err == ""
    assert ground.stoker("ps", "--state", "failed", "--all").ok().err == ""
    assert ground.stoker("ps", "--grep", "nothing", "--all").ok().err == "stoker: no run matches\n"
    assert names(ground, "--grep", "EXIT 2") == ["old-2"]
    assert names(ground, "--since", "yesterday") == names(ground, "--since", "1d") == ["active", "old-2", "old-1", "old-0"]
    assert [run["name"] for run in ground.stoker("compare", "old-*", "--json").json()["runs"]] == ["old-2", "old-1", "old-0"]
    ground.stoker("run", "--name", "old-trial", "--env", "STOKER_VERIFY=1", "--", "true")
    assert [run["name"] for run in ground.stoker("compare", "old-*", "--json").json()["runs"]] == ["old-2", "old-1", "old-0"]
    ground.stoker("rm", "--yes", "old-trial").ok()
    assert "Write it as 90s" in (wrong := ground.stoker("ps", "--since", "2026-11-28").err) and "today or yesterday" in wrong
    assert "No run has a name like new-*" in ground.stoker("compare", "new-*").err
    assert ground.stoker("logs", "old-0", "--since", "1s").err.endswith(", before the time of --since\n")
    ground.stoker("tag", "old-1", "lr-study", "keep").ok()
    ground.stoker("note", "old-1", "too slow, see the loader").ok()
    assert names(ground, "--tag", "lr-study") == names(ground, "--grep", "loader") == ["old-1"]
    assert "lr-study, keep" in ground.stoker("ps").ok().out
    assert ground.stoker("tag", "old-1", "--remove", "keep", "--json").json()["tags"] == ["lr-study"]
    assert ground.stoker("tag", "old-1").ok().out == "lr-study\n"
    shown = ground.stoker("show", "old-1").ok().out
    assert "lr-study" in shown and "too slow, see the loader" in shown
    assert ground.stoker("tag", "old-1", "a b").code == 2
    ground.stoker("rm", "--yes", "old-1").ok()
    assert ground.stoker("ps", "--tag", "lr-study").ok().err.startswith("stoker: no run matches. All runs (3): stoker ps --all")


def test_a_name_beside_others_means_the_run_that_is_called_so(ground: Ground):
    for _ in range(3):
        ground.stoker("run", "--new", "--", "true").ok()
    assert names(ground) == ["true-3", "true-2", "true"]
    both = ground.stoker("compare", "true", "true-3", "--json").json()["runs"]
    assert sorted(run["name"] for run in both) == ["true", "true-3"]
    one = ground.stoker("compare", "true").ok()
    assert one.err.startswith("stoker: 3 runs have the name true; Stoker uses the newest, true-3. To compare all these runs: stoker compare 'true*'\n")
    ground.stoker("rm", "--yes", "true", "true-3").ok()
    assert names(ground) == ["true-2"]


def test_ps_shows_step_rate_and_time_left(ground: Ground):
    ground.script("gpt.py", STEPS)
    run = ground.detach("--name", "gpt", "--", sys.executable, str(ground.work / "gpt.py"), "--steps", "6000")
    ground.until_log(run["id"], b"begun")
    until(lambda: ground.show("gpt")["state"] == "running", 30, "the run")
    row = ground.stoker("ps").ok().out.splitlines()
    assert row[0].split() == ["NAME", "STATE", "SINCE", "RAN", "STEP", "RATE", "LEFT", "COMMAND"]
    assert row[1].split()[-7:-4] == ["3,000", "15/s", "3m"] or "3,000" in row[1]
    assert "15/s" in row[1] and f"{os.path.basename(sys.executable)} gpt.py --steps 6000" in row[1]
    assert "3,000" in ground.stoker("top", "--once").ok().out


def test_rehearsals_and_verifications_are_not_listed(ground: Ground):
    ground.detach("--name", "trial", "--env", "STOKER_VERIFY=1", "--", "true")
    ground.detach("--name", "mine", "--", "true")
    assert names(ground) == ["mine"]
    assert names(ground, "--all") == ["mine", "trial"]
    assert ground.stoker("ps").ok().err == "stoker: 1 more run. All: stoker ps --all\n"
    assert ground.stoker("ps", "--grep", "mine").ok().err == ""
    assert ground.stoker("ps", "--grep", "tri").ok().err == "stoker: 1 more run matches. To list all of them, add --all\n"
    term = ground.terminal("ps")
    assert term.wait() == 0 and b"1 more run. All: stoker ps --all" in term.seen
    term.close()


def test_doctor_prints_failures_first(ground: Ground):
    ground.script("train.py", "import no_such_package_at_all\n")
    marks = [line.split()[0] for line in ground.stoker("doctor", "train.py").out.splitlines() if line[:4].strip() in ("ok", "note", "warn", "FAIL")]
    order = ["FAIL", "warn", "note", "ok"]
    assert marks and marks == sorted(marks, key=order.index) and marks[0] == "FAIL"


def test_the_hint_of_an_error_is_a_row_of_show(ground: Ground) -> None:
    ground.script("ask.py", "input('name? ')\n")
    ground.detach("--name", "ask", "ask.py")
    ground.stoker("wait", "ask")
    shown = ground.stoker("show", "ask").ok().out
    assert [line.split()[0] for line in shown.splitlines() if "--stdin" in line and "Next:" not in line] == ["hint"] and "hint text" not in shown


def test_labels_of_several_runs(ground: Ground) -> None:
    ground.script("a.py", "pass\n")
    for name in ("q-1", "q-2", "other"):
        ground.stoker("run", "--name", name, "a.py").ok()
    ground.stoker("tag", "q-*", "lr-study").ok()
    assert sorted(names(ground, "--tag", "lr-study")) == ["q-1", "q-2"]
    assert ground.stoker("tag", "q-*").ok().out == "q-2: lr-study\nq-1: lr-study\n"
    assert ground.stoker("tag", "@lr-study", "--remove", "lr-study", "late").ok().out == "q-2: late\nq-1: late\n"
    ground.stoker("note", "q-*", "too slow").ok()
    assert ground.stoker("note", "q-*").ok().out == "q-2: too slow\nq-1: too slow\n"
    assert [run["note"] for run in ground.stoker("note", "q-*", "--json").json()] == ["too slow", "too slow"]
    assert ground.stoker("note", "other").ok().out == "" and ground.stoker("tag", "x-*", "y").code == 3


def test_a_command_is_shortened_and_cut_between_words():
    assert short_command(["/usr/bin/python3.11", "/data/me/gpt.py", "--lr", "0.1"]) == "python3.11 gpt.py --lr 0.1"
    assert short_command(["./train.sh", "5"]) == "./train.sh 5" and short_command(["bash", "train.sh"]) == "bash train.sh"
    assert short_command(["/bin/bash", "/data/me/train.sh"]) == "bash train.sh" and short_command(["python", "./gpt.py"]) == "python ./gpt.py"
    assert short_command(["make", "--file=/data/own.py"]) == "make --file=/data/own.py" and short_command([]) == ""
    assert short_command(["/data/train.py"]) == "train.py" and short_command(["make", "all"]) == "make all"
    assert cut_words("python gpt.py --lr 0.1", 16) == "python gpt.py …" and cut_words("short", 16) == "short"
    assert cut_words("averyveryverylongword", 8) == "averyve…" and json.dumps(cut_words("a b c", 5)) == '"a b c"'


HEADER = ["NAME", "ID", "STATE", "SINCE", "RAN", "STEP", "RATE", "LEFT", "COMMAND"]
ROWS = [["base", "", "running", "13s ago", "13s", "46", "5.52/s", "5m 28s", "train.py --epochs 40 --lr 0.1"],
        ["w", "medu-peto", "failed (out of memory)", "13m ago", "4s", "", "", "", "w.py"]]


@pytest.mark.parametrize(("columns", "left_out"), [(160, set()), (90, {"RATE"}), (80, {"RATE", "RAN"})])
def test_a_narrow_list_leaves_columns_out_and_never_the_command(columns, left_out):
    header, rows = fit(HEADER, ROWS, columns)
    assert set(HEADER) - set(header) == left_out and all(row[-1] for row in rows)
    assert rows[0][-1].startswith("train.py") and max(map(len, listed(header, rows))) <= columns


def test_a_long_name_is_cut_only_where_the_terminal_is_too_narrow():
    row = ["a-name-of-a-run-with-many-words-in-it", "", "running", "1s ago", "1s", "", "", "", "train.py --epochs 40 --lr 0.1"]
    assert fit(HEADER, [row], 160)[1][0][0] == row[0] and fit(HEADER, [row], 160)[1][0][-1] == row[-1]
    _, rows = fit(HEADER, [row], 80)  # the cut name leaves room to the command
    assert rows[0][0] == cut(row[0], NAME_COLUMNS) and rows[0][-1] == row[-1]
    waits = [row[0], "", "pending (waits for base to end)", *row[3:]]
    assert waits[2] in fit(HEADER, [waits], 110)[1][0]


def test_tags_and_numbers_leave_a_narrow_list_before_the_command_is_unreadable():
    header = ["NAME", "STATE", "SINCE", "NUMBERS", "TAGS", "COMMAND"]
    rows = [["a-name-of-a-run-with-many-words-in-it", "pending (waits for sweep-1-1 to end)", "23s ago", "epoch 15", "sweep-1", "train.py --lr 0.1"]]
    header, rows = fit(header, rows, 80)
    assert "TAGS" not in header and rows[0][-1].startswith("train.py") and max(map(len, listed(header, rows))) <= 80


def test_a_finding_of_the_doctor_is_indented_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(output, "is_terminal", lambda _: True)
    admin._print_finding(SimpleNamespace(level="warn", topic="cuda", file="", line=0, message="word " * 15 + "end", hint=""))
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("word") and len(rest) == 1 and rest[0].startswith("      word") and len(rest[0]) <= 60


def test_texts_are_broken_at_spaces_and_long_words_stay_whole():
    assert wrapped("one two three", 7) == ["one two", "three"] and wrapped("short", 80) == ["short"]
    assert wrapped("/a/very/long/path and more", 8) == ["/a/very/long/path", "and more"]
    assert wrapped("  3.5 %  bar", 80) == ["  3.5 %  bar"] and wrapped("  3.5 %  bar", 9) == ["  3.5 % ", "bar"]


@pytest.mark.parametrize(("state", "short"), [
    ("running (unreachable since 08:24, next try in 32s)", "running (unreachable …)"),
    ("pending (waits for 1 GPU: GPU 1 is used by the …)", "pending (waits for 1 …)"), ("failed (exit 1)", "failed (exit 1)")])
def test_a_long_state_gives_way_to_the_other_columns(state, short):
    row = ["base-long-name-run", "suki-kuto", state, "13s ago", "13s", "", "", "", "train.py --epochs 40 --lr 0.1"]
    header, rows = fit(HEADER, [row], 80)
    assert rows[0][2] == short and rows[0][-1].startswith("train.py") and max(map(len, listed(header, rows))) <= 80
    assert fit(HEADER, [row], 200)[1][0][2] == state

"""Names and ids, requests field by field, and the words of the run object: all pure."""

import re

import pytest

from stoker.base.errors import InvalidSpec
from stoker.base.spec import Limits, Spec
from stoker.base.state import REASONS, State
from stoker.plane import names, present
from stoker.plane.record import Run
from stoker.plane.request import read_limits, read_spec


@pytest.mark.parametrize(("command", "stem"), [
    (["train.py", "--lr", "1"], "train"), (["python", "train.py"], "train"), (["python3.11", "-u", "src/train.py"], "train"),
    (["/usr/bin/python", "-m", "pkg.train"], "train"), (["python", "-c", "print(1)"], "python"), (["python", "-W", "ignore", "a.py"], "a"),
    (["torchrun", "--nproc_per_node=2", "main.py"], "main"), (["./run.sh"], "run"), (["/bin/ls"], "ls"), (["bash", "x.sh", "8"], "x"), (["bash", "-lc", "echo"], "bash"), (["sh", "-e", "x.sh"], "x"),
    (["名前.py"], "名前"), (["a b.py"], "a b"), ([".py"], "run"), (["..."], "run"), (["\udcff.py"], "_"), (["x" * 300], "x" * 72),
    (["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ddp.py"], "ddp"), (["python"], "python"), (["accelerate", "launch", "t.py"], "t"), (["torchrun", "--nproc_per_node", "2", "-m", "pkg.main", "x.py"], "main"), (["python", "\t.py"], "_"),
])
def test_what_a_run_is_called(command, stem):
    assert names.stem(command) == stem


def test_ids_are_speakable_and_not_taken():
    seen = {names.new_id(lambda i: False) for _ in range(200)}
    assert all(re.fullmatch(r"([bdfgklmnprstvz][aeiou]){2}-([bdfgklmnprstvz][aeiou]){2}", i) for i in seen) and len(seen) > 195
    asked = []
    assert names.new_id(lambda i: asked.append(i) or len(asked) < 5) == asked[4]


def test_numbers():
    assert [names.numbered("train", n) for n in (1, 2, 10)] == ["train", "train-2", "train-10"]


def test_a_name_that_is_not_text_is_refused():
    with pytest.raises(InvalidSpec, match="not UTF-8 text"):
        names.check_given("\udcff")


GOOD = {"command": ["x"], "folder": "/"}


def test_what_the_client_may_not_say_is_passed_over():
    spec = read_spec({**GOOD, "id": "mine", "argv": ["y"], "retry_reasons": ["exited"], "created_at": "never"})
    assert (spec.id, spec.argv, spec.retry_reasons, spec.created_at) == ("", (), (), "")
    assert read_spec(Spec(command=("x",), mounts={"a": "/b"}, grace_s=(1.0, 2.0)).to_json()).grace_s == (1.0, 2.0)


@pytest.mark.parametrize("more", [
    {"command": [1]}, {"command": None}, {"after": "x"}, {"copy": 1}, {"tty": "yes"}, {"gpus": 1.5}, {"slots": 10**9}, {"restarts": -1}, {"mounts": []},
    {"mounts": {"a": 1}}, {"grace_s": [1, "2"]}, {"grace_s": [1, float("nan")]}, {"backoff_s": -1}, {"priority": 10**9}, {"home": 4}, {"name": " a"},
    {"folder": None}, {"unknown": 1}, {"kind": "instance"}, {"unbuffered": 0},
])
def test_fields_of_the_wrong_kind(more):
    with pytest.raises(InvalidSpec):
        read_spec({**GOOD, **more})


def test_limits():
    assert read_limits({}) == Limits() and read_limits({"time_s": 5, "seq": 9}) == Limits(seq=1, time_s=5.0)
    for value in (0, -1, "5", True, float("inf"), float("nan")):
        with pytest.raises(InvalidSpec):
            read_limits({"time_s": value})


# -- the run object


def a_run(state=State.RUNNING, **more):
    spec = Spec(command=("x",), id="tavo-miku", folder="/w")
    return Run(**{"id": "tavo-miku", "name": "train", "spec": spec, "state": state, "created_at": 1.0, "started_at": 2.0, "reachability": "ok", **more})


@pytest.mark.parametrize("reason", list(REASONS))
def test_each_reason_has_a_sentence_without_holes_and_a_next_step(reason):
    evidence = {"code": 3, "signal_name": "SIGSEGV", "limit": 7200, "detail": "no such file"}
    body = present.run_object(a_run(REASONS[reason].state, reason=reason, evidence=evidence, ended_at=3.0), None)
    assert body["sentence"].endswith(".") and "unknown" not in body["sentence"] and "{" not in body["sentence"] + body["next"]
    assert "2h" in body["sentence"] if reason == "limit_time" else True
    assert (body["reason"], body["ended_at"]) == (reason, "1970-01-01T00:00:03.000Z")


@pytest.mark.parametrize("state", [s for s in State if not s.final])
def test_each_state_has_a_sentence_and_a_next_step(state):
    body = present.run_object(a_run(state), None)
    assert re.fullmatch(r"[A-Z].*\.", body["sentence"]) and "train" in body["next"]


def test_sentences_that_say_more():
    assert present.sentence(a_run(State.PENDING), "base to end") == "Waiting for base to end."
    assert "restarts at 1970-01-01T00:00:09.000Z" in present.sentence(a_run(State.STARTING, restart_at=9.0))
    assert present.sentence(a_run(reachability="unreachable")).endswith("The machine cannot be reached; this is the last known state.")
    assert present.run_object(a_run(reachability="unreachable", target="box"), None)["next"] == "stoker machine check box"
    far = a_run(State.FAILED, reason="nonzero_exit", target="box", evidence={"exception": {"type": "ModuleNotFoundError"}})
    assert present.next_step(far, "train").startswith("stoker doctor --on box -- ")
    unseen = present.run_object(a_run(reachability="unseen"), None)
    assert unseen["sentence"].endswith("They may still be running.") and unseen["next"].startswith("stoker stop --force train")
    assert present.sentence(a_run(State.STAGING, evidence={"retrying": "The disk is full."})).endswith("Stoker retries, because the last try failed: The disk is full.")
    both = present.sentence(a_run(State.STAGING, evidence={"retrying": "No answer. ssh box true"}), None, present.Silence(1.0, 2.0, "no answer"))
    assert both.endswith("Stoker keeps trying. The last try failed: No answer. ssh box true")  # a command is last
    assert present.sentence(a_run(State.STOPPED, reason="stopped_by_user", started_at=None)) == "Stopped by you before the run started."
    assert present.sentence(a_run(State.STOPPED, reason="limit_time", limits=Limits(time_s=2.0))) == "Reached its time limit of 2s."
    assert present.sentence(a_run(State.FAILED, reason="eaten")).startswith("Ended for a reason that this version of Stoker does not know")


def test_attempts_are_those_that_have_begun():
    assert [present.begun(a_run(s, attempt=2)) for s in State] == [1, 1, 2, 2, 2, 2, 2, 2]


def test_used_time_is_the_newest_known():
    assert present.run_object(a_run(used_s=5.0), None, used_s=7.25)["used_s"] == 7.25
    assert present.run_object(a_run(used_s=5.0), None, used_s=1.0)["used_s"] == 5.0

"""`decide` over every combination of state, wish, phase and attempt; `admit` and the order of the queue."""

from dataclasses import dataclass
from itertools import product

import pytest

from stoker.base.spec import Limits, Spec
from stoker.base.state import REASONS, State
from stoker.plane.capacity import Admission, Room, Usage, admit, admit_queue, usage_of, waits_after
from stoker.plane.control.lifecycle import PHASES, decide, exit_code, stop_order
from stoker.plane.record import WISH_RM, WISH_RUN, WISH_STOP, Run

NOW = 1_000_000.0
LIVE = (State.STAGING, State.STARTING, State.RUNNING, State.STOPPING)


@dataclass
class Seen:
    phase: str
    attempt: int | None = None
    started_at: float | None = NOW - 40
    used_s: float | None = 5.0
    exit: dict | None = None
    keep: dict | None = None
    telemetry: dict | None = None


def a_run(state=State.RUNNING, wish=WISH_RUN, attempt=2, restarts=0, **more):
    asked = {} if wish == WISH_RUN else {"stop_asked": 1}
    spec = Spec(command=("x",), restarts=restarts, id="tavo-miku", name="train")
    known = {"first_attempt": attempt, "reachability": "ok", "limits_written": 1, "gpu_uuids": ("GPU-1",)}
    return Run(id="tavo-miku", name="train", spec=spec, state=state, wish=wish, attempt=attempt, **{**known, **asked, **more})


def seen_of(phase, attempt):
    exit_ = {"code": 1, "reason": "nonzero_exit", "ended_at": NOW - 10, "used_s": 9.0, "evidence": {"code": 1}}
    if phase == "absent":
        return Seen("absent", None)
    if phase == "staged":
        return Seen("staged", None, started_at=None)
    if phase == "waiting":
        exit_["restart"] = {"attempt": attempt + 1, "at": NOW + 20}
    return Seen(phase, attempt, exit=exit_ if phase in ("ended", "waiting") else None)


def steps(actions):
    return [a.do for a in actions]


def facts_of(actions):
    return {k: v for a in actions for k, v in a.facts.items()}


EXPECTED = {  # (wish is run, phase, attempt seen minus attempt wanted) -> the steps that touch the machine, the state after
    (True, "absent", 0): {"staging": (["stage"], None), "*": ([], State.FAILED)},
    (True, "staged", 0): {"staging": (["start"], State.STARTING), "starting": (["start"], State.STARTING), "*": ([], State.FAILED)},
    (True, "claimed", 0): {"staging": ([], State.STARTING), "*": ([], None)},
    (True, "running", 0): {"stopping": ([], None), "*": ([], State.RUNNING)},
    (True, "stopping", 0): {"*": ([], State.STOPPING)},
    (True, "ended", 0): {"*": ([], State.FAILED)},
    (True, "waiting", 0): {"*": ([], State.STARTING)},
    (True, "abandoned", 0): {"*": (["stop"], State.STOPPING)},
    (True, "unseen", 0): {"*": ([], None)},
    (False, "absent", 0): {"staging": ([], State.STOPPED), "*": ([], State.FAILED)},
    (False, "staged", 0): {"staging": ([], State.STOPPED), "*": (["stop"], State.STOPPING)},
    (False, "claimed", 0): {"*": (["stop"], State.STOPPING)},
    (False, "running", 0): {"*": (["stop"], State.STOPPING)},
    (False, "stopping", 0): {"*": (["stop"], State.STOPPING)},
    (False, "ended", 0): {"*": ([], State.FAILED)},
    (False, "waiting", 0): {"*": (["stop"], State.STOPPING)},
    (False, "abandoned", 0): {"*": (["stop"], State.STOPPING)},
    (False, "unseen", 0): {"*": (["stop"], State.STOPPING)},
}


@pytest.mark.parametrize(("state", "wish", "phase"), list(product(LIVE, (WISH_RUN, WISH_STOP, WISH_RM), PHASES)))
def test_each_state_wish_and_phase_of_the_wanted_attempt(state, wish, phase):
    run = a_run(state, wish, attempt=1)
    actions = decide(run, seen_of(phase, 1), NOW)
    row = EXPECTED[wish == WISH_RUN, phase, 0]
    machine, after = row.get(state.value, row.get("*"))
    final = after is not None and after.final
    removed = ["remove"] if wish == WISH_RM and final else []
    assert [s for s in steps(actions) if s != "set"] == machine + removed
    assert facts_of(actions).get("state", state) == (after or state)
    if final:
        assert facts_of(actions)["reason"] in REASONS and facts_of(actions)["gpu_uuids"] == ()


@pytest.mark.parametrize(("state", "phase"), list(product(LIVE, [p for p in PHASES if p not in ("absent", "staged")])))
def test_an_older_attempt_never_ends_the_run_nor_starts_a_second_one_beside_it(state, phase):
    """The wanted attempt is 2, seen is attempt 1: an old observation, or an agent that is still busy with it."""
    actions = decide(a_run(state, WISH_RUN, attempt=2), seen_of(phase, 1), NOW)
    machine = [s for s in steps(actions) if s != "set"]
    assert machine == {"ended": ["start"], "abandoned": ["stop"]}.get(phase, [])
    assert not facts_of(actions).get("state", state).final


@pytest.mark.parametrize(("state", "phase"), list(product(LIVE, [p for p in PHASES if p not in ("absent", "staged")])))
def test_a_later_attempt_is_adopted(state, phase):
    """The agent restarted it by itself."""
    facts = facts_of(decide(a_run(state, WISH_RUN, attempt=2), seen_of(phase, 3), NOW))
    assert facts["attempt"] == 3
    assert facts.get("state", state) == {"claimed": State.STARTING, "running": State.RUNNING, "stopping": State.STOPPING, "ended": State.FAILED,
                                         "waiting": State.STARTING, "abandoned": State.STOPPING,
                                         "unseen": state}[phase]


def test_what_cannot_be_seen_from_here_changes_nothing_but_reachability():
    run = a_run(started_at=NOW - 40)
    told = decide(run, seen_of("unseen", 2), NOW)
    assert steps(told) == ["set"] and told[0].facts == {"reachability": "unseen"}
    assert facts_of(decide(run.with_(reachability="unseen"), seen_of("running", 2), NOW)) == {"reachability": "ok"}


@pytest.mark.parametrize(("phase", "grace", "gone"), [("unseen", None, False), ("unseen", (5.0, 5.0), False), ("unseen", (0.0, 0.0), True),
                                                      ("running", (0.0, 0.0), False)])
def test_only_a_stop_by_force_says_that_the_machine_of_an_unseen_run_is_gone(phase, grace, gone):
    assert stop_order(a_run(wish=WISH_STOP, stop_grace=grace), seen_of(phase, 2)) == ("stopped_by_user", 2, gone)
    assert stop_order(a_run(stop_grace=grace), seen_of(phase, 2)) == ("agent_lost",)


@pytest.mark.parametrize(("state", "wish"), list(product(State, (WISH_RUN, WISH_STOP, WISH_RM))))
def test_a_machine_that_cannot_be_reached_changes_nothing_but_reachability(state, wish):
    run = a_run(state, wish)
    actions = decide(run, None, NOW)
    if state.final or state is State.PENDING:
        assert "stop" not in steps(actions) and "start" not in steps(actions)
    elif state is State.STAGING and wish != WISH_RUN:  # nobody was told to start it: it ends without its machine
        assert facts_of(actions)["state"] is State.STOPPED and "stop" not in steps(actions)
    else:
        assert steps(actions) == ["set"] and actions[0].facts == {"reachability": "unreachable"}


@pytest.mark.parametrize("phase", PHASES)
def test_final_runs_rest_until_they_shall_go(phase):
    for state in (State.DONE, State.FAILED, State.STOPPED):
        assert decide(a_run(state), seen_of(phase, 2), NOW) == []
        assert steps(decide(a_run(state, WISH_RM), seen_of(phase, 2), NOW)) == ["remove"]


def test_a_waiting_run_rests_and_is_stopped_without_its_machine():
    assert decide(a_run(State.PENDING), None, NOW) == []
    actions = decide(a_run(State.PENDING, WISH_STOP, attempt=1), None, NOW)
    assert facts_of(actions) == {"state": State.STOPPED, "reason": "stopped_by_user", "ended_at": NOW, "attempt": 0, "gpu_uuids": ()}
    assert steps(decide(a_run(State.PENDING, WISH_RM), None, NOW)) == ["set", "remove"]


def test_no_wish_is_told_twice_and_a_second_stop_is():
    run = a_run(wish=WISH_STOP, stop_sent=1, state=State.STOPPING, started_at=NOW - 40)
    assert decide(run, seen_of("stopping", 2), NOW) == []
    again = run.with_(stop_asked=2)
    assert facts_of(decide(again, seen_of("stopping", 2), NOW)) == {"stop_sent": 2}


def test_a_stop_that_an_automatic_restart_has_overtaken_is_told_to_the_new_attempt():
    run = a_run(wish=WISH_STOP, stop_sent=1, state=State.STOPPING, attempt=2, started_at=NOW - 40)
    for seen in (seen_of("running", 2), seen_of("running", 3)):
        assert steps(decide(run, seen, NOW))[-1] == "stop"


def test_nothing_new_means_nothing_to_do():
    run = a_run(started_at=NOW - 40)
    assert decide(run.with_(started_at=NOW - 40), seen_of("running", 2), NOW) == []


def test_an_abandoned_attempt_is_settled_and_the_restart_policy_followed():
    run = a_run(restarts=2, attempt=1, first_attempt=1)
    settle = decide(run, seen_of("abandoned", 1), NOW)
    assert steps(settle) == ["set", "stop"] and settle[0].facts["settled_attempt"] == 1
    lost = Seen("ended", 1, exit={"code": None, "reason": "agent_lost", "used_s": 3.0, "evidence": {}})
    settled = run.with_(**settle[0].facts)
    planned = facts_of(decide(settled, lost, NOW))
    assert (planned["state"], planned["restart_at"]) == (State.STARTING, NOW + 5.0)
    pausing = settled.with_(**planned)
    assert decide(pausing, lost, NOW + 4) == []
    again = decide(pausing, lost, NOW + 5)
    assert steps(again) == ["set", "start"] and again[0].facts == {"attempt": 2, "restart_at": None, "started_at": None}
    stopped = decide(pausing.with_(wish=WISH_STOP, stop_asked=1), lost, NOW + 1)
    assert facts_of(stopped)["state"] is State.FAILED


@pytest.mark.parametrize(("reason", "settled", "restarts", "limit", "again"), [
    ("rebooted", 0, 1, None, True),
    ("agent_lost", 1, 1, None, True),
    ("nonzero_exit", 1, 1, None, True),  # its planned restart died with the agent
    ("nonzero_exit", 0, 1, None, False),  # the agent was there and decided against it
    ("gpu_oom", 1, 1, None, False),
    ("agent_lost", 1, 0, None, False),
    ("agent_lost", 1, 1, 3.0, False),  # its time is used up
])
def test_who_follows_the_restart_policy(reason, settled, restarts, limit, again):
    run = a_run(restarts=restarts, attempt=1, settled_attempt=settled, limits=Limits(seq=1, time_s=limit))
    ended = Seen("ended", 1, exit={"code": 1, "reason": reason, "used_s": 3.0, "evidence": {}})
    assert (facts_of(decide(run, ended, NOW))["state"] is State.STARTING) == again
    assert facts_of(decide(run.with_(wish=WISH_STOP, stop_asked=1), ended, NOW))["state"].final


@pytest.mark.parametrize("reason", list(REASONS))
def test_each_reason_leads_to_its_state(reason):
    ended = Seen("ended", 2, exit={"code": 7, "reason": reason, "used_s": 3.0, "evidence": {"detail": "x"}, "ended_at": NOW - 10})
    facts = facts_of(decide(a_run(gpu_uuids=("GPU-1",)), ended, NOW))
    assert (facts["state"], facts["reason"], facts["exit_code"], facts["gpu_uuids"]) == (REASONS[reason].state, reason, 7, ())
    assert facts["ended_at"] == NOW - 10 and facts["evidence"]["detail"] == "x"


def test_a_reason_that_the_table_lacks_is_told_as_unknown():
    facts = facts_of(decide(a_run(), Seen("ended", 2, exit={"code": 7, "reason": "eaten_by_dog"}), NOW))
    assert (facts["state"], facts["reason"]) == (State.FAILED, "unknown")
    assert facts["evidence"]["reason_told"] == "eaten_by_dog"


def test_a_start_is_written_down_before_it_is_sent_and_a_stop_ends_what_may_be_on_its_way():
    run = a_run(State.STAGING, attempt=1)
    sent = decide(run, seen_of("staged", 0), NOW)
    assert [(a.do, a.facts) for a in sent] == [("set", {"state": State.STARTING}), ("start", {"started_at": NOW})]
    stopped = run.with_(wish=WISH_STOP, stop_asked=1)
    assert facts_of(decide(stopped, seen_of("staged", 0), NOW))["state"] is State.STOPPED  # nothing was sent
    for state in (State.STARTING, State.STOPPING):
        for seen in (seen_of("staged", 0), seen_of("ended", 1)):
            told = stopped.with_(state=state, attempt=2, stop_sent=1)
            assert steps(decide(told, seen, NOW))[-1] == "stop"
    assert facts_of(decide(stopped.with_(state=State.STOPPING), seen_of("ended", 1), NOW))["state"].final


def test_limits_are_written_before_a_start_and_while_it_runs():
    run = a_run(State.STAGING, attempt=1, limits=Limits(seq=3, time_s=9))
    assert steps(decide(run, seen_of("staged", 0), NOW)) == ["set", "limits", "start"]
    assert steps(decide(run.with_(state=State.RUNNING, started_at=NOW - 40), seen_of("running", 1), NOW)) == ["limits"]


def test_a_keep_typed_on_the_machine_is_obeyed_once():
    seen = seen_of("running", 2)
    seen.keep = {"at": NOW - 5, "time_s": 7200, "seq": 1}
    run = a_run(started_at=NOW - 40)
    facts = facts_of(decide(run, seen, NOW))
    assert facts["limits"] == Limits(seq=2, time_s=7200.0)
    assert decide(run.with_(limits=facts["limits"], kept_at=facts["kept_at"], limits_written=2), seen, NOW) == []
    assert decide(run.with_(limits=Limits(seq=2, time_s=9.0), limits_written=2), seen, NOW) == []  # a newer one came from here


@pytest.mark.parametrize(("body", "code"), [({"code": 3}, 3), ({"code": 0}, 0), ({"code": None, "signal": 9}, 137), ({}, None)])
def test_the_exit_code_is_what_a_shell_would_say(body, code):
    assert exit_code(body) == code


# -- admission


ROOM = Room(gpus=("GPU-a", "GPU-b"), slots=4)


def test_admission():
    assert admit(0, 0, Usage({"GPU-a": "x", "GPU-b": "y"}, 4, ("x",)), ROOM) == Admission("yes")
    assert admit(1, 0, Usage({"GPU-a": "x"}), ROOM) == Admission("yes", gpus=("GPU-b",))
    full = admit(1, 0, Usage({"GPU-a": "base", "GPU-b": "train"}), ROOM)
    assert (full.verdict, full.why) == ("wait", "1 GPU: 2 of 2 are used by base, train")
    slots = admit(2, 3, Usage({"GPU-a": "base"}, 2, ("base",)), ROOM)
    assert (slots.verdict, slots.why) == ("wait", "2 GPUs: 1 of 2 is used by base and 3 CPU slots: 2 of 4 are used by base")
    assert admit(3, 0, Usage(), ROOM) == Admission("never", "3 GPUs; the machine has 2")
    assert admit(1, 0, Usage(), Room()) == Admission("never", "1 GPU; the machine has none")
    assert admit(0, 5, Usage(), ROOM).verdict == "never"
    assert admit(0, 500, Usage(), Room()).verdict == "yes"  # not counted there
    assert admit(1, 0, Usage(), Room(gpus=None)).verdict == "wait"


def test_gpus_of_a_run_found_again_are_learnt_and_none_is_given_away_until_then():
    lost = a_run(gpus=1, gpu_uuids=())
    assert admit(1, 0, usage_of([lost]), ROOM).why == "1 GPU: Stoker does not know yet which GPUs are used by train"
    seen = seen_of("running", 2)
    seen.telemetry = {"gpus": [{"uuid": "GPU-b", "index": 1}]}
    assert facts_of(decide(lost, seen, NOW))["gpu_uuids"] == ("GPU-b",)
    assert admit(1, 0, usage_of([lost.with_(gpu_uuids=("GPU-b",))]), ROOM).gpus == ("GPU-a",)


def waiting(name, gpus=0, slots=0, priority=0, age=0.0):
    run = a_run(State.PENDING, gpu_uuids=())
    return run.with_(id=name, name=name, gpus=gpus, slots=slots, priority=priority, queued_at=NOW - age)


def test_priority_then_age_and_nobody_overtakes_for_what_the_one_before_wants():
    queue = [waiting("young", gpus=1, age=1), waiting("old", gpus=1, age=9), waiting("first", gpus=1, priority=5)]
    assert [(r.name, g) for r, g in admit_queue(queue, Usage(), ROOM)] == [("first", ("GPU-a",)), ("old", ("GPU-b",))]
    large = [waiting("large", gpus=2, age=9), waiting("small", gpus=1, age=1), waiting("cpu", slots=1)]
    assert [r.name for r, _ in admit_queue(large, Usage({"GPU-a": "x"}), ROOM)] == ["cpu"]
    both = [waiting("both", gpus=1, slots=4, age=9), waiting("cpu", slots=1), waiting("gpu", gpus=1)]
    assert admit_queue(both, Usage({}, 1, ("x",)), ROOM) == []


def test_one_that_can_never_start_does_not_block_the_others():
    queue = [waiting("huge", gpus=9, age=9), waiting("small", gpus=1)]
    assert [r.name for r, _ in admit_queue(queue, Usage(), ROOM)] == ["small"]


def test_no_gpu_is_given_twice():
    queue = [waiting(f"w{i}", gpus=1 + i % 2) for i in range(9)]
    given = [g for _, gpus in admit_queue(queue, Usage(), Room(gpus=tuple(f"G{i}" for i in range(8)))) for g in gpus]
    assert len(given) == len(set(given))


def test_usage_counts_what_is_held():
    held = usage_of([waiting("a", gpus=1).with_(gpu_uuids=("GPU-a",)), waiting("b", slots=3)])
    assert held == Usage({"GPU-a": "a"}, 3, ("b",))


def test_what_a_run_after_another_waits_for():
    live, failed = waiting("base"), a_run(State.FAILED)
    assert waits_after([("base", live)], "me") == "base to end"
    text = waits_after([("tavo-miku", failed), ("gone", None)], "me")
    assert text == ("train, which ended as failed (to retry that run: `stoker start tavo-miku`; to start this run anyway: `stoker start me`), "
                    "and for gone, which was removed, so the wait never ends (to start this run anyway: `stoker start me`)")

"""state.json: what was refused stays refused, whoever else has something to tell at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
HEAD = """
import _thread, json, os, signal, sys, threading, time, types
from stoker.inside.resume.core import outcome, own, phases, words; from stoker.inside.resume.world import journal
phases.folder = sys.argv[1]
def told():
    with open(phases.folder + "/state.json") as f:
        return json.load(f)
def seconds_later(s):
    real = outcome._monotonic
    outcome._monotonic = lambda: real() + s
"""
IMAGE = "{'n': 1, 'step': 5, 'at': 1.0}"


def run(folder: Path, body: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", HEAD + textwrap.dedent(body), str(folder)], env=env, capture_output=True, text=True,
                          timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_lose_nothing_of_each_other(tmp_path: Path) -> None:
    run(tmp_path, """
        ends = []
        def tell(name):
            for i in range(150):
                outcome.write_state(**{name: i})
            ends.append(name)
        for name in "abc":
            _thread.start_new_thread(tell, (name,))
        for i in range(150):
            outcome.write_state(main=i)
            assert phases.depth == 0
        while len(ends) < 3:
            time.sleep(0.01)
        found = told()
        assert [found[name] for name in ("a", "b", "c", "main")] == [149] * 4, found
        assert os.listdir(phases.folder) == ["state.json"]
    """)


def test_what_another_thread_refuses_is_done_by_the_main_one(tmp_path: Path) -> None:
    run(tmp_path, """
        from stoker.inside.resume.core import log
        phases.log = log.Log(phases.folder + "/log")
        phases.phase = phases.RECORD
        phases.log.open()
        thread = threading.Thread(target=outcome.refuse, args=("a thread wrote",))
        thread.start()
        thread.join()
        assert phases.phase == phases.RECORD and not outcome.stopped
        time.sleep(2 * log.FLUSH_S)
        phases.log.put(phases.log.kind("value"), 1)
        assert phases.phase == phases.OFF and (told()["state"], told()["reason"]) == ("not resumable", "a thread wrote")
    """)


def test_an_image_that_comes_late_does_not_take_a_refusal_back(tmp_path: Path) -> None:
    run(tmp_path, f"""
        phases.phase = phases.RECORD
        outcome.write_state(state="recording", reason="", image=None)
        outcome.refuse("why")
        assert (told()["state"], told()["reason"]) == ("not resumable", "why")
        outcome.write_state(state="resumable", reason="", image={IMAGE})
        assert (told()["state"], told()["reason"]) == ("resumable", "why"), told()
        with open(phases.folder + "/refused", "w") as f:
            f.write("by another process")
        outcome.write_state(state="resumable", reason="", image={IMAGE})
        assert (told()["state"], told()["reason"]) == ("not resumable", "by another process"), told()
    """)


def test_files_that_cannot_be_put_back_are_said_until_the_next_image(tmp_path: Path) -> None:
    run(tmp_path, f"""
        phases.phase = phases.RECORD
        outcome.write_state(state="resumable", reason="", image={IMAGE})
        journal.begin(1)
        journal.give_up("a program wrote")
        assert (told()["state"], told()["reason"]) == ("not resumable", "a program wrote"), told()
        journal.begin(2)
        outcome.write_state(state="resumable", reason="", image={IMAGE})
        assert (told()["state"], told()["reason"]) == ("resumable", ""), told()
    """)


def test_a_signal_handler_may_tell_in_the_middle_of_telling(tmp_path: Path) -> None:
    run(tmp_path, """
        import signal
        signal.signal(signal.SIGALRM, lambda *a: outcome.write_state(inner=outcome._wanted))
        real, inside = own._replace, []
        def replace(*paths):
            if not inside:
                inside.append(1)
                os.kill(os.getpid(), signal.SIGALRM)
                for _ in range(10):
                    pass
            return real(*paths)
        own._replace = replace
        outcome.write_state(outer=1)
        found = told()
        assert found["outer"] == 1 and found["inner"] == 1, found
    """)


def test_points_that_are_none_are_said_while_the_run_is_young(tmp_path: Path) -> None:
    run(tmp_path, f"""
        from stoker.inside.resume.core import pace
        phases.phase = phases.RECORD
        os.environ["STOKER_IMAGE_EVERY"] = "auto"
        outcome.write_state(state="recording", reason="", image=None)
        pace.begin()
        outcome.pass_point("x is in the way")
        outcome.pass_point("x is in the way")
        outcome.pass_point("y")
        outcome.no_image_yet()
        seconds_later(31)
        outcome.no_image_yet()
        assert told()["state"] == "recording"
        seconds_later(26)
        outcome.no_image_yet()
        assert told()["state"] == "not resumable" and told()["reason"].endswith("so far: x is in the way"), told()
        assert phases.phase == phases.RECORD  # it goes on trying
        outcome.write_state(state="resumable", reason="", image={IMAGE})
        seconds_later(100)
        outcome.no_image_yet()
        assert (told()["state"], told()["reason"]) == ("resumable", ""), told()
    """)


def test_steps_that_never_count_are_said_too(tmp_path: Path) -> None:
    run(tmp_path, """
        from stoker.inside.resume.core import pace
        phases.phase = phases.RECORD
        os.environ["STOKER_IMAGE_EVERY"] = "40steps"
        outcome.write_state(state="recording", reason="", image=None)
        pace.begin()
        phases.steps = 39
        outcome.no_image_yet()
        seconds_later(60)
        outcome.no_image_yet()
        assert told()["state"] == "recording"  # none is due yet
        phases.steps = 0
        outcome.no_image_yet()
        seconds_later(60)
        outcome.no_image_yet()
        assert told()["state"] == "not resumable" and words.NO_POINT in told()["reason"], told()
    """)


def test_a_dear_try_that_came_to_nothing_is_made_again_when_it_is_a_fiftieth_of_the_time(tmp_path: Path) -> None:
    run(tmp_path, """
        from stoker.inside.resume.core import pace
        now = [100.0]
        pace._clock = lambda: now[0]
        os.environ["STOKER_IMAGE_EVERY"] = "auto"
        pace.begin()
        now[0] += 40
        assert pace.due()
        now[0] += 3
        pace.passed(now[0] - 3)
        now[0] += 149
        assert not pace.due()
        now[0] += 2
        assert pace.due()
    """)

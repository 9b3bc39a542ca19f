"""Which signal an end begins with, and who gets it; the warning before a limit."""

from __future__ import annotations

import signal
import sys

import pytest
from agentkit import Running, kill, wait_for

from stoker.base.vendor import lay_out

PY = sys.executable
SAVES = """
import os, signal, sys, time
def save(number, frame):
    os.write(1, b"saves at %d\\n" % number)
    time.sleep(0.5)
    os.write(1, b"saved\\n")
    sys.exit(0)
for name in {names}:
    signal.signal(getattr(signal, name), save)
print("up", flush=True)
while True:
    time.sleep(0.05)
"""
SAVES_ON_TERM = SAVES.format(names=("SIGTERM",))
NO_HANDLER = "import time\ntry: print('up', flush=True); time.sleep(100)\nexcept KeyboardInterrupt: print('interrupted')"


@pytest.fixture
def hooked(new_run):
    """As new_run, with Stoker's hooks in its Python processes."""
    def make(argv: list[str], **spec: object) -> Running:
        run = new_run(argv, hooks=True, resume="auto", **spec)
        (run.dir / "hooks").symlink_to(lay_out(run.dir).name)
        return run
    return make


def stages(run: Running) -> list[str]:
    return [e["stage"] for e in run.events() if e["event"] == "ladder"]


def test_a_script_that_handles_term_is_asked_with_term(hooked):
    run = hooked([PY, "-c", SAVES_ON_TERM], grace_s=[20, 20])
    run.start()
    run.wait_out(b"up")
    run.stop()
    end = run.end()
    assert run.out() == b"up\nsaves at 15\nsaved\n" and (end["code"], end["reason"]) == (0, "stopped_by_user") and stages(run)[0] == "TERM"


def test_a_limit_begins_with_term_too_and_is_no_good_end(hooked):
    run = hooked([PY, "-c", SAVES_ON_TERM], grace_s=[20, 20], time_s=2.0)
    run.start()
    end = run.end()
    assert run.out() == b"up\nsaves at 15\nsaved\n" and (end["code"], end["reason"]) == (0, "limit_time")


@pytest.mark.parametrize("then", ["signal.signal(signal.SIGTERM, signal.SIG_DFL)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_handler_that_was_taken_back_does_not_count(hooked, then):
    body = "import signal\nsignal.signal(signal.SIGTERM, print)\n" + then + "\n" + NO_HANDLER
    run = hooked([PY, "-c", body])
    run.start()
    run.wait_out(b"up")
    run.stop()
    run.end()
    assert run.out() == b"up\ninterrupted\n" and stages(run)[0] == "INT"


@pytest.mark.parametrize("whose", ["threading", "torch"])
def test_handlers_of_libraries_that_forward_signals_do_not_count(hooked, tmp_path, whose):
    """As torchrun's: the caller's file tells whose it is."""
    folder = tmp_path / "site-packages" / whose if whose == "torch" else tmp_path / "lib"
    body = f"import signal\nname = {str(folder / 'run.py')!r}\n" if whose == "torch" else "import signal, threading\nname = threading.__file__\n"
    run = hooked([PY, "-c", body + "exec(compile('import signal; signal.signal(signal.SIGTERM, print)', name, 'exec'))\n" + NO_HANDLER])
    run.start()
    run.wait_out(b"up")
    run.stop()
    run.end()
    assert run.out() == b"up\ninterrupted\n" and stages(run)[0] == "INT"


def test_a_shell_around_the_script_is_not_told_and_ends_after_it(hooked, tmp_path):
    (tmp_path / "train.py").write_text(SAVES_ON_TERM)
    run = hooked(["sh", "-c", f"{PY} train.py; echo code $?"], grace_s=[20, 20])
    run.start()
    run.wait_out(b"up")
    run.stop()
    assert run.end()["reason"] == "stopped_by_user" and run.out() == b"up\nsaves at 15\nsaved\ncode 0\n"


def test_a_shell_that_goes_on_after_the_script_is_ended_soon(hooked, tmp_path):
    (tmp_path / "train.py").write_text(SAVES_ON_TERM)
    run = hooked(["sh", "-c", f"{PY} train.py; sleep 100"], grace_s=[60, 60])
    run.start()
    run.wait_out(b"up")
    run.stop()
    assert run.end()["reason"] == "stopped_by_user" and run.out() == b"up\nsaves at 15\nsaved\n" and stages(run) == ["TERM", "TERM"]


def test_a_trap_of_a_shell_is_a_handler(new_run):
    run = new_run(["sh", "-c", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"])
    run.start()
    run.wait_out(b"up")
    run.stop()
    end = run.end()
    assert run.out() == b"up\nsaved\n" and (end["code"], end["reason"]) == (0, "stopped_by_user")


def test_a_forked_copy_with_the_same_handler_is_not_told(hooked):
    body = "if os.fork() == 0:\n    signal.signal(signal.SIGINT, signal.SIG_DFL); time.sleep(100)\n"
    run = hooked([PY, "-c", SAVES_ON_TERM.replace("print(", body + "print(")], grace_s=[20, 20])
    run.start()
    run.wait_out(b"up")
    run.stop()
    run.end()
    assert run.out() == b"up\nsaves at 15\nsaved\n"


@pytest.mark.parametrize("hooks", [True, False])
def test_the_signal_that_was_asked_for_comes_first(hooked, new_run, hooks):
    run = (hooked if hooks else new_run)([PY, "-c", SAVES.format(names=("SIGTERM", "SIGUSR1"))], stop_signal="USR1", grace_s=[20, 20])
    run.start()
    run.wait_out(b"up")
    run.stop()
    assert run.end()["reason"] == "stopped_by_user" and run.out() == b"up\nsaves at 10\nsaved\n" and stages(run)[0] == "USR1"


def test_a_warning_comes_before_the_limit_and_a_good_end_after_it_is_the_limits(hooked):
    run = hooked([PY, "-c", SAVES.format(names=("SIGUSR1",))], time_s=60.0, warn_s=58.0, warn_signal="USR1")
    run.start()
    end = run.end()
    assert run.out() == b"up\nsaves at 10\nsaved\n" and (end["code"], end["reason"]) == (0, "limit_time") and end["used_s"] < 30
    assert end["evidence"]["limit"] == "1m"


def test_a_warning_is_remembered_by_the_next_caretaker(hooked):
    run = hooked([PY, "-c", SAVES.format(names=("SIGUSR1",)).replace("sleep(0.5)", "sleep(3)")], time_s=60.0, warn_s=58.0)
    run.start()
    run.wait_out(b"saves at 10")
    kill(run.agent(), signal.SIGKILL)
    end = run.end()
    assert (end["code"], end["reason"]) == (0, "limit_time") and run.out().count(b"saves") == 1


def test_a_warning_that_nobody_handles_is_not_sent_and_that_is_said(hooked):
    run = hooked([PY, "-c", "import time; print('up', flush=True); time.sleep(4)"], time_s=60.0, warn_s=59.0, warn_signal="USR1")
    run.start()
    end = run.end()
    assert (end["code"], end["reason"]) == (0, "exited") and "SIGUSR1" in end["evidence"]["not_warned"]


def test_another_limit_is_warned_of_again(hooked):
    body = SAVES.format(names=("SIGUSR1",)).replace("    sys.exit(0)\n", "")
    run = hooked([PY, "-c", body], time_s=60.0, warn_s=57.0)
    run.start()
    run.wait_out(b"saved")
    (run.dir / "limits.tmp").write_text('{"seq": 2, "time_s": 61}')
    (run.dir / "limits.tmp").replace(run.dir / "limits.json")
    wait_for(lambda: run.out().count(b"saved") == 2, "the second warning")
    run.stop("--grace", 0, 0)
    run.end()

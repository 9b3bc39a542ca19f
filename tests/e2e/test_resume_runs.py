"""A training script that nobody changed is killed and started again: weights, text and files are those of a run nobody disturbed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until
from training import PAUSE, TRAIN, made, python_with_torch

from real.sshd import Sshd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EPOCHS = 25


@pytest.fixture(scope="module")
def python() -> str:
    return python_with_torch()


@pytest.fixture(scope="module")
def plain(python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, str]]:
    """What the script prints and writes when nobody disturbs it, and Stoker is not there."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(TRAIN)
    done = subprocess.run([python, "train.py", str(EPOCHS)], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
                          timeout=120, check=True)
    return done.stdout, made(folder)


@pytest.fixture
def straight(ground: Ground, plain: tuple[bytes, dict[str, str]]) -> tuple[bytes, dict[str, str]]:
    """The end of an undisturbed run; the script lies in the folder of the test."""
    (ground.work / "train.py").write_text(TRAIN)
    return plain


@pytest.mark.real("sshd")
def test_on_an_ssh_machine_it_is_killed_and_comes_back_and_its_files_at_home_are_those_of_a_plain_run(
        ground: Ground, sshd: Sshd, python: str, straight: tuple[bytes, dict[str, str]]):
    settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
    ground.home.mkdir(exist_ok=True)
    (ground.home / "config.toml").write_text(f'[targets.box]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n')
    run = begin(ground, python, "--on", "box", "--pull", "best.pt")
    kill_after_an_image(ground, run, 1, behind=130)
    assert ground.stoker("wait", run["id"]).code == 128 + signal.SIGKILL
    assert (ground.work / "best.pt").exists() and not (ground.work / "last.pt").exists()  # of a run that was killed, too
    ground.stoker("start", run["id"]).ok()
    ground.stoker("wait", run["id"]).ok()
    shown = ground.show(run["id"])
    assert shown["resume"]["resumed"]["attempt"] == 2 and shown["resume"]["resumed"]["grade"] == "bit-exact", shown["resume"]
    assert made(ground.work) == straight[1] and ground.stoker("logs", run["id"]).stdout == straight[0]
    assert {each["path"]: each["place"] for each in shown["files"]} == dict.fromkeys(("log.csv", "best.pt", "last.pt"), "here")


def begin(ground: Ground, python: str, *options: str) -> dict:
    return ground.detach(*options, *words_of(python))


def words_of(python: str) -> list[str]:
    return ["--env", "STOKER_IMAGE_EVERY=30steps", "--env", "OMP_NUM_THREADS=1", "--", python, "train.py", str(EPOCHS)]


def kill_after_an_image(ground: Ground, run: dict, attempt: int, behind: int = 0) -> None:
    """SIGKILL the script once this attempt has gone on for a while behind an image of its own, and behind step `behind`."""
    state = Path(run["folder"]) / "resume" / "state.json"

    def trainer() -> int:
        try:
            told = json.loads(state.read_bytes())
            lines = (Path(run["folder"]) / "attempts" / str(attempt) / "hooks" / "processes.jsonl").read_text().splitlines()
        except (OSError, ValueError):
            return 0
        image = told.get("image") or {}
        came_back = attempt == 1 or (told.get("resumed") or {}).get("attempt") == attempt
        fresh = image.get("step", 0) > max(seen["step"], behind) and came_back
        return json.loads(lines[-1])["pid"] if fresh else 0

    seen = {"step": (json.loads(state.read_bytes()).get("image") or {}).get("step", 0) if state.exists() else 0}
    try:
        pid = until(trainer, 90, "an image")
    except AssertionError as e:
        raise AssertionError(f"{e}; attempt {attempt}: {state.read_text() if state.exists() else 'no state.json'}") from e
    size = (Path(run["folder"]) / "resume" / "log").stat().st_size
    until(lambda: (Path(run["folder"]) / "resume" / "log").stat().st_size > size + 200, 30, "a tail behind the image")
    os.kill(pid, signal.SIGKILL)


def test_killed_and_started_again_it_ends_as_if_nothing_had_happened(ground: Ground, python: str, straight: tuple[bytes, dict[str, str]]):
    run = begin(ground, python)
    kill_after_an_image(ground, run, 1, behind=130)  # it has printed, and written best.pt
    assert ground.wait_state(run["id"], timeout_s=60)["reason"] == "killed"
    told = ground.stoker("start", run["id"]).ok().err
    ended = ground.wait_state(run["id"], timeout_s=120)
    shown = ground.show(run["id"])
    assert ended["state"] == "done", shown
    assert shown["resume"]["resumed"]["attempt"] == 2, shown["resume"]
    assert f"attempt 2 resumes at step {shown['resume']['resumed']['step']:,}. Follow:" in told
    assert "grade: bit-exact" in ground.stoker("show", run["id"]).ok().out
    assert made(ground.work) == straight[1]
    assert ground.stoker("logs", run["id"]).ok().stdout == straight[0]
    resume = Path(run["folder"]) / "resume"
    until(lambda: not any((resume / name).exists() for name in ("images", "log")), 10, "images and log to go: it ended well")
    assert shown["resume"]["sentence"] == "finished; nothing to resume"
    assert "attempt 3 runs the command from its beginning. Follow:" in ground.stoker("start", run["id"]).ok().err
    assert ground.wait_state(run["id"], timeout_s=120)["attempts"] == 3
    again = ground.show(run["id"])["resume"]
    assert again["resumed"] is None and not again.get("tried"), again  # begun anew, as was asked
    assert ground.stoker("logs", run["id"]).ok().stdout == straight[0] and made(ground.work) == straight[1]


def test_the_log_of_a_terminal_is_one_text_too(ground: Ground, python: str, straight: tuple[bytes, dict[str, str]]):
    run = begin(ground, python, "--tty")
    for attempt, step in ((1, 130), (2, 300)):
        kill_after_an_image(ground, run, attempt, behind=step)
        assert ground.wait_state(run["id"], timeout_s=60)["reason"] == "killed"
        ground.stoker("start", run["id"]).ok()
    assert ground.wait_state(run["id"], timeout_s=120)["state"] == "done"
    assert ground.show(run["id"])["resume"]["resumed"]["attempt"] == 3
    assert ground.stoker("logs", run["id"]).ok().stdout == straight[0]


def test_a_run_that_ended_well_before_its_first_image_keeps_no_log_of_values(ground: Ground, python: str):
    (ground.work / "train.py").write_text(TRAIN)
    run = ground.detach("--env", "STOKER_IMAGE_EVERY=3600s", "--", python, "train.py", "10")
    log = Path(run["folder"]) / "resume" / "log"
    until(log.exists, 60, "the recording")
    assert ground.wait_state(run["id"], timeout_s=60)["state"] == "done"
    until(lambda: not log.exists(), 10, "the log of values to go")


def test_an_edited_script_does_not_cost_the_image(ground: Ground, python: str, straight: tuple[bytes, dict[str, str]]):
    run = begin(ground, python)
    kill_after_an_image(ground, run, 1)
    ground.wait_state(run["id"], timeout_s=60)
    (ground.work / "train.py").write_text(TRAIN + "print('edited')\n")
    for words, code in ((["start", run["id"]], 6), (["run", "--name", run["name"], *words_of(python)], 125)):
        refused = ground.stoker(*words)
        assert refused.code == code and "train.py was edited after the image at step " in refused.err, refused.err
        assert f"stoker start --edited {run['name']}" in refused.err and ground.show(run["id"])["attempts"] == 1
    assert "train.py (edited after the image was taken)" in ground.stoker("show", run["id"]).ok().out
    (ground.work / "train.py").write_text(TRAIN)
    assert ground.show(run["id"])["resume"]["edited"] == []
    ground.stoker("start", run["id"]).ok()
    assert ground.wait_state(run["id"], timeout_s=120)["state"] == "done"
    assert ground.show(run["id"])["resume"]["resumed"]["attempt"] == 2
    assert ground.stoker("logs", run["id"]).ok().stdout == straight[0] and made(ground.work) == straight[1]


def test_an_edited_script_begins_anew_for_who_says_so(ground: Ground, python: str, straight: tuple[bytes, dict[str, str]]):
    run = begin(ground, python)
    kill_after_an_image(ground, run, 1)
    ground.wait_state(run["id"], timeout_s=60)
    (ground.work / "train.py").write_text(TRAIN + "print('edited')\n")
    ground.stoker("start", "--edited", run["id"]).ok()
    assert ground.wait_state(run["id"], timeout_s=120)["state"] == "done"
    told = ground.show(run["id"])["resume"]
    assert told["resumed"] is None and "train.py was edited after the recording" in str(told["not_taken"]), told
    assert ground.log(run["id"], attempt=2).endswith(b"edited\n")


def test_a_way_back_that_costs_much_is_said_before_it_is_gone(ground: Ground, python: str):
    """Most of a step is the script's own Python, which a ghost does again."""
    (ground.work / "train.py").write_text(TRAIN.replace(f"        {PAUSE}\n", "        for number in range(160_000): total += number * 0.0\n"))
    run = ground.detach("--env", "STOKER_IMAGE_EVERY=500steps", "--env", "OMP_NUM_THREADS=1", "--", python, "train.py", "20")
    kill_after_an_image(ground, run, 1)
    ground.wait_state(run["id"], timeout_s=60)
    foretold, text = ground.show(run["id"])["resume"], ground.stoker("show", run["id"]).ok().out
    assert foretold["image"]["back_s"] > 1 and foretold["dear"], foretold
    assert all(each in text for each in ("to resume", foretold["way_back"], foretold["dear"], "% overhead")), text
    with ground.start_stoker("start", "-a", run["id"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as started:
        assert foretold["dear"] in started.stderr.readline()
        on_its_way = re.compile(r"(?<!resuming, )(?<!Resuming: )[rR]esuming: step [\d,]+ of 500")
        until(lambda: on_its_way.search(ground.show(run["id"])["sentence"]), 240, "progress in show")
        assert on_its_way.search(ground.stoker("ps").ok().out)
        assert on_its_way.search(started.stderr.readline())
        ground.stoker("stop", "--force", run["id"]).ok()
        started.communicate(timeout=60)
    ground.stoker("start", run["id"]).ok()
    back = until(lambda: (told := ground.show(run["id"])["resume"])["resumed"] or told.get("tried"), 240, "the way back")
    assert type(back) is dict, back
    print(f"foretold {foretold['image']['back_s']} s, it took {back['seconds']} s")


def test_three_kills_and_three_automatic_restarts(ground: Ground, python: str, straight: tuple[bytes, dict[str, str]]):
    run = begin(ground, python, "--restarts", "3", "--backoff", "1s")
    for attempt in range(1, 4):
        kill_after_an_image(ground, run, attempt)
    ended = ground.wait_state(run["id"], timeout_s=180)
    assert (ended["state"], ended["attempts"]) == ("done", 4), ground.show(run["id"])
    assert ground.show(run["id"])["resume"]["resumed"]["attempt"] == 4
    assert made(ground.work) == straight[1]
    assert ground.stoker("logs", run["id"]).ok().stdout == straight[0]


def test_without_hooks_nothing_is_recorded(ground: Ground, python: str):
    (ground.work / "a.py").write_text("import os; print(os.environ.get('STOKER_HOOKS'), os.environ.get('PYTHONPATH'))")
    run = ground.detach("--no-hooks", "--", python, "a.py")
    ground.wait_state(run["id"])
    assert ground.log(run["id"]) == b"None None\n"
    assert ground.show(run["id"])["hooks"] is None


def test_verify_resume_proves_it(ground: Ground, python: str):
    (ground.work / "train.py").write_text(TRAIN)
    done = ground.stoker("verify-resume", "--json", "--kills", "1", "--image-every", "190steps", "--", python, "train.py", "20", timeout_s=240,
                         env={"OMP_NUM_THREADS": "1"})
    report = json.loads(done.stdout)
    assert (done.code, report["exit_code"]) == (0, 0), report
    assert "bit-exact" in report["verdict"] and not report["trials"][0]["different"]
    assert ground.runs() == []
    assert sorted(p.name for p in ground.work.iterdir()) == ["train.py"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_verify_resume_that_is_ended_leaves_nothing_behind(ground: Ground, python: str, number: int):
    (ground.work / "train.py").write_text(TRAIN)
    verifying = ground.start_stoker("verify-resume", "--", python, "train.py", "5000", env={"OMP_NUM_THREADS": "1"})
    until(lambda: any(run["state"] == "running" for run in ground.runs()), 60, "the first run")
    verifying.send_signal(number)
    assert verifying.wait(60) == 128 + number
    assert ground.runs() == []


def test_verify_resume_tells_a_script_that_never_ends_the_same(ground: Ground, python: str):
    (ground.work / "train.py").write_text(TRAIN.replace("torch.manual_seed(1)", "torch.seed()"))
    done = ground.stoker("verify-resume", "--json", "--kills", "1", "--", python, "train.py", "3", timeout_s=240, env={"OMP_NUM_THREADS": "1"})
    report = json.loads(done.stdout)
    assert done.code == 1 and report["verdict"].startswith("the script is not deterministic")


def test_verify_resume_tells_of_a_path_that_leads_out_of_the_copy(ground: Ground, python: str):
    (ground.work.parent / "beside").write_text("1")
    (ground.work / "train.py").write_text('open("../beside")\n' + TRAIN)
    done = ground.stoker("verify-resume", "--kills", "1", "--", python, "train.py", "3", timeout_s=240, env={"OMP_NUM_THREADS": "1"})
    assert done.code == 125 and b"Traceback" not in done.stderr
    assert b"uses ../beside, which is outside of this folder" in done.stderr and b"sh -c 'cd " in done.stderr


def test_a_stopped_run_comes_back_where_it_stopped(ground: Ground, python: str, straight: tuple[bytes, dict[str, str]]):
    """The stop itself asks for the image: no other is due for an hour."""
    run = ground.detach("--env", "STOKER_IMAGE_EVERY=3600s", "--env", "OMP_NUM_THREADS=1", "--grace", "60s", "--", python, "train.py", str(EPOCHS))
    until(lambda: b"epoch 5" in ground.log(run["id"]), 90, "some epochs")
    ground.stoker("stop", run["id"], timeout_s=90).ok()
    assert ground.show(run["id"])["reason"] == "stopped_by_user"
    ground.stoker("start", run["id"]).ok()
    assert ground.wait_state(run["id"], timeout_s=120)["state"] == "done"
    back = ground.show(run["id"])["resume"]["resumed"]
    assert back["attempt"] == 2 and back["step"] >= 5 * 40, back
    assert ground.stoker("logs", run["id"]).ok().stdout == straight[0] and made(ground.work) == straight[1]

"""What every way to the plane promises: the service in this process, and the client over HTTP to a real server."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, NotFound, StateError
from stoker.base.state import State

FIELDS = ("id name kind state reason exit_code attempts target created_at started_at ended_at folder workdir command argv priority waits_for reachability "
          "billing limits used_s still_s pinned sentence unreachable next warnings tty restart_at").split()
SHOWN = "evidence telemetry attempts_detail files code usage waits_for_input interpreter env_names".split()
FOREVER = "import time; print('begun', flush=True); time.sleep(600)"
PATIENCE_S = 40.0


def until(condition: Callable, what: str, timeout_s: float = PATIENCE_S):
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.02)
    return value


class Plane:
    """A plane on a state folder of its own, with short words for what the tests do again and again."""

    def __init__(self, verbs, root: Path) -> None:
        self.verbs, self.root, self.home, self.work = verbs, root, root / "h", root / "w"

    def __getattr__(self, name: str):
        return getattr(self.verbs, name)

    def spec(self, *command: str, **more) -> dict:
        return {"command": list(command), "folder": str(self.work), **more}

    def run_it(self, *command: str, limits: dict | None = None, env: dict | None = None, stdin: bytes | None = None, taken: str = "refuse", **more) -> dict:
        return self.verbs.submit(self.spec(*command, **more), limits or {}, {**self.env(), **(env or {})}, stdin, on_name_taken=taken)

    def python(self, text: str, **more) -> dict:
        return self.run_it(sys.executable, "-c", text, **more)

    def env(self) -> dict:
        return {"PATH": os.environ["PATH"], "HOME": str(self.root), "SECRET": "abc"}

    def in_state(self, ref: str, *states: str, timeout_s: float = PATIENCE_S) -> dict:
        def look():
            run = self.verbs.run(ref)
            assert run["state"] in states or not State(run["state"]).final, run
            return run if run["state"] in states else None
        return until(look, f"{ref} in {states}", timeout_s)

    def final(self, ref: str) -> dict:
        deadline = time.monotonic() + PATIENCE_S
        while not State((run := self.verbs.wait(ref, 10))["state"]).final:
            assert time.monotonic() < deadline, run
        return run

    def log(self, ref: str, **more) -> bytes:
        return b"".join(self.verbs.logs(ref, **more))

    def begun(self, ref: str, text: bytes = b"begun", attempt: int = 1) -> None:
        path = Path(self.verbs.run(ref)["folder"], "attempts", str(attempt), "out.log")
        until(lambda: path.exists() and text in path.read_bytes(), f"{text!r} in {path}")

    def end_all(self) -> None:
        for run in self.verbs.runs(all=True, limit=10_000):
            if not State(run["state"]).final:
                self.verbs.stop(run["id"], force=True)
        for run in self.verbs.runs(all=True, limit=10_000):
            self.final(run["id"])


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sp-", dir="/tmp"))
    (folder / "w").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["service", pytest.param("client", marks=pytest.mark.slow)])
def plane(request, root) -> Iterator[Plane]:
    where = Home(root / "h")
    if (config := getattr(request.function, "config", None)) is not None:
        where.path.mkdir(mode=0o700)
        where.config.write_text(config)
    if request.param == "service":
        from stoker.plane.service import Service
        verbs = Service(where)
        close = verbs.close
    else:
        from stoker.client import connect
        verbs = connect(where)
        close = verbs.shutdown
    plane = Plane(verbs, root)
    try:
        yield plane
        plane.end_all()
    finally:
        close()
    until(lambda: not _left(root), "the end of every process of the test", 20)


def _left(root: Path) -> list[str]:
    """Command lines of processes that work in the test's folder or speak of it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(root) in line and int(pid) != os.getpid():
            found.append(f"{pid} {line!r}")
    return found


def configured(text: str) -> Callable:
    """The test runs with this config.toml."""
    def mark(function: Callable) -> Callable:
        function.config = text
        return function
    return mark


# -- the life of a run


def test_a_run_from_submit_to_its_exit(plane):
    run = plane.python("print('hello'); open('made.txt', 'w').write('12345')", name="base line")
    assert set(FIELDS) <= set(run) and (run["name"], run["kind"], run["target"], run["reason"]) == ("base line", "job", "local", None)
    ended = plane.final(run["id"])
    assert (ended["state"], ended["reason"], ended["exit_code"], ended["attempts"]) == ("done", "exited", 0, 1)
    assert ended["created_at"] <= ended["started_at"] <= ended["ended_at"] and ended["ended_at"].endswith("Z")
    assert plane.log("base line") == b"hello\n"
    shown = plane.show(run["id"][:6])
    assert set(FIELDS) | set(SHOWN) <= set(shown)
    assert [(f["path"], f["bytes"]) for f in shown["files"]] == [("made.txt", 5)]
    assert "SECRET" in shown["env_names"] and "abc" not in json.dumps(shown)
    assert shown["attempts_detail"][0]["reason"] == "exited" and shown["attempts_detail"][0]["out_bytes"] == 6
    assert [e["state"] for e in shown["history"]][-1] == "done"


def test_a_failure_has_a_reason_and_evidence(plane):
    run = plane.final(plane.python("raise ValueError('no such layer')")["id"])
    assert (run["state"], run["reason"], run["exit_code"]) == ("failed", "nonzero_exit", 1)
    assert "exit code 1" in run["sentence"] and run["name"] in run["next"]
    assert plane.show(run["id"])["evidence"]["exception"]["message"] == "no such layer"


def test_stop_then_start_adds_an_attempt_to_the_same_run(plane):
    run = plane.python(FOREVER)
    plane.begun(run["id"])
    assert plane.stop(run["id"])["id"] == run["id"]
    stopped = plane.final(run["id"])
    assert (stopped["state"], stopped["reason"], stopped["attempts"]) == ("stopped", "stopped_by_user", 1)
    plane.start(run["id"])
    plane.begun(run["id"], attempt=2)
    again = plane.in_state(run["id"], "running")
    assert (again["attempts"], again["reason"], again["ended_at"]) == (2, None, None)
    assert [c["id"] for c in plane.candidates(str(plane.work), run["command"])] == []


def test_stop_of_what_has_ended_is_harmless_and_start_of_what_lives_is_refused(plane):
    done = plane.final(plane.python("pass")["id"])
    assert plane.stop(done["id"])["state"] == "done"
    live = plane.python(FOREVER)
    plane.begun(live["id"])
    with pytest.raises(StateError):
        plane.start(live["id"])
    with pytest.raises(StateError, match=live["name"]):
        plane.rm(live["id"])
    assert plane.in_state(live["id"], "running")["attempts"] == 1


def test_rm_takes_folder_and_row_and_with_force_the_process(plane):
    done, live = plane.final(plane.python("pass")["id"]), plane.python(FOREVER)
    plane.begun(live["id"])
    pid = plane.show(live["id"])["run_pid"]
    assert plane.rm(done["id"])["id"] == done["id"]
    plane.rm(live["id"], force=True)
    for run in (done, live):
        assert not Path(run["folder"]).exists()
        with pytest.raises(NotFound):
            plane.run(run["id"])
    assert not Path(f"/proc/{pid}").exists()
    assert plane.runs(all=True) == []


def test_a_second_stop_without_grace_ends_what_ignores_the_first(plane):
    run = plane.python("import signal, time; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN); print('begun', flush=True)\n"
                       "while True: time.sleep(1)", grace_s=[300, 300])
    plane.begun(run["id"])
    plane.stop(run["id"])
    plane.in_state(run["id"], "stopping")
    plane.stop(run["id"], force=True)
    assert plane.final(run["id"])["reason"] == "stopped_by_user"


def test_automatic_restarts(plane):
    text = "import os, sys; n = os.environ['STOKER_ATTEMPT']; print('attempt', n); sys.exit(n != '3')"
    run = plane.final(plane.python(text, restarts=3, backoff_s=0.1)["id"])
    assert (run["state"], run["attempts"]) == ("done", 3)
    assert [plane.log(run["id"], attempt=n) for n in (1, 2, 3)] == [b"attempt %d\n" % n for n in (1, 2, 3)]
    assert [a["exit_code"] for a in plane.show(run["id"])["attempts_detail"]] == [1, 1, 0]


def test_a_stop_calls_a_planned_restart_off(plane):
    run = plane.python("raise SystemExit(1)", restarts=3, backoff_s=300)
    waiting = until(lambda: r if (r := plane.run(run["id"]))["restart_at"] else None, "a planned restart")
    assert waiting["state"] == "starting"
    plane.stop(run["id"])
    ended = plane.final(run["id"])
    assert ended["state"] in ("failed", "stopped") and ended["attempts"] == 1 and ended["restart_at"] is None


def test_the_time_limit_holds_and_keep_moves_it(plane):
    short = plane.final(plane.python(FOREVER, limits={"time_s": 1.0})["id"])
    assert (short["state"], short["reason"]) == ("stopped", "limit_time") and "1s" in short["sentence"]
    with pytest.raises(StateError, match="time limit"):
        plane.start(short["id"])
    assert plane.keep(short["id"], seconds=3600)["limits"]["time_s"] > 3600
    assert plane.start(short["id"])["attempts"] == 1
    plane.begun(short["id"], attempt=2)
    plane.keep(short["id"], seconds=7200)
    limits = Path(short["folder"], "limits.json")
    until(lambda: json.loads(limits.read_bytes())["time_s"] > 7200, "the limit in the run folder")
    free = plane.python(FOREVER)
    assert plane.keep(free["id"], seconds=5, pin=True)["limits"]["time_s"] is None
    assert plane.run(free["id"])["pinned"] is True


# -- names, places, code


def test_names_are_picked_and_refs_found(plane):
    Path(plane.work, "train.py").write_text("print(1)")
    first, second = (plane.run_it("train.py") for _ in range(2))
    assert (first["name"], second["name"]) == ("train", "train-2")
    assert plane.run("train-2")["id"] == second["id"] == plane.run(second["id"][:7])["id"]
    for ref in ("nosuch", "", "%", "_"):
        with pytest.raises(NotFound):
            plane.run(ref or "-")


def test_a_name_means_its_newest_run(plane):
    first, second = plane.run_it("true"), plane.run_it("true")
    assert (first["name"], second["name"]) == ("true", "true-2")
    shown = plane.show("true")
    assert (shown["id"], shown["same_name"], shown["ref"]) == (second["id"], 2, "true-2")
    assert plane.run("true")["id"] == plane.show("true-2")["id"] == second["id"]
    assert plane.show("true-2")["same_name"] == 1
    assert plane.show(first["id"])["ref"] == first["id"]
    plane.final(first["id"])
    plane.final(second["id"])
    with pytest.raises(InvalidSpec, match="Several"):
        plane.rm("true")
    plane.rm(first["id"])
    assert plane.show("true")["id"] == second["id"]


@pytest.mark.parametrize("name", ["a b", "'\"", "名前", "r-f", "🚀", "50%", "train-1"])
def test_any_name_can_be_given(plane, name):
    run = plane.python("pass", name=name)
    assert plane.run(name)["id"] == run["id"] and plane.final(name)["state"] == "done"


def test_a_taken_name_is_refused_or_continued(plane):
    first = plane.python(FOREVER, name="mine")
    with pytest.raises(StateError, match="already used"):
        plane.python(FOREVER, name="mine")
    with pytest.raises(StateError, match="already used"):
        plane.python("other", name="mine", taken="continue")
    assert plane.python(FOREVER, name="mine", taken="continue")["id"] == first["id"]  # it lives: that one is meant
    plane.begun("mine")
    plane.stop("mine", force=True)
    plane.final("mine")
    assert [c["id"] for c in plane.candidates(str(plane.work), [sys.executable, "-c", FOREVER])] == [first["id"]]
    assert plane.python(FOREVER, name="mine", taken="continue")["id"] == first["id"]
    plane.begun("mine", attempt=2)


def test_in_place_beside_another_is_warned_about_and_a_copy_is_frozen(plane):
    Path(plane.work, "train.py").write_text("import time\nprint('old', flush=True)\ntime.sleep(600)\n")
    Path(plane.work, "later.py").write_text("import os; print(os.getcwd()); open('made', 'w')")
    place = plane.run_it("python3", "train.py")
    plane.begun(place["id"], b"old")
    beside = plane.run_it("python3", "later.py")
    assert place["warnings"] == [] and any("--copy" in w for w in beside["warnings"])
    copy = plane.run_it("python3", str(plane.work / "later.py"), copy=True, mounts={"data/in": str(plane.root)})
    assert not any("--copy" in w for w in copy["warnings"])
    plane.final(beside["id"])
    ended = plane.final(copy["id"])
    assert plane.log(copy["id"]).decode().strip() == ended["workdir"] == f"{ended['folder']}/work"
    assert ended["argv"][1] == f"{ended['folder']}/work/later.py"
    assert os.readlink(f"{ended['workdir']}/data/in") == str(plane.root)
    assert "made" in [f["path"] for f in plane.show(copy["id"])["files"]]


def test_a_run_that_only_waits_is_no_reason_for_a_warning(plane):
    """Neither for the run that waits nor for the next training; trainings beside trainings are still warned about."""
    first = plane.python(FOREVER, name="first")
    tells = [plane.run_it("sh", "-c", "while sleep 600; do echo told; done", name=f"tell-{n}") for n in range(6)]
    Path(plane.work, "train.sh").write_text("sleep 600\n")
    second = plane.run_it("sh", "train.sh", name="second")
    assert not any("--copy" in warning for run in (first, *tells) for warning in run["warnings"])
    said = [w for w in second["warnings"] if "--copy" in w]
    assert said == ["first writes to this folder too; files with the same name may be overwritten. To use a separate copy: --copy"]


def test_standard_input_from_a_file(plane):
    run = plane.python("import sys; print(sys.stdin.read())", stdin=b"a\nb", **{})
    assert plane.log(plane.final(run["id"])["id"]) in (b"\n", b"a\nb\n")
    run = plane.run_it("cat", stdin=b"\x00\xff\n", **{"name": "cat"})
    plane.final(run["id"])
    spec = plane.spec("cat") | {"stdin": "file"}
    run = plane.submit(spec, {}, plane.env(), b"\x00\xff\n")
    assert plane.final(run["id"])["state"] == "done" and plane.log(run["id"]) == b"\x00\xff\n"


# -- the queue


@configured("slots = 2\n")
def test_slots_priority_age_and_what_is_waited_for(plane):
    first = plane.python(FOREVER, slots=2, name="first")
    Path(plane.work, "say.py").write_text("print('frozen')")
    old = plane.run_it("say.py", slots=1, name="old")
    urgent = plane.run_it("say.py", slots=2, priority=5, name="urgent")
    assert (old["state"], urgent["state"]) == ("pending", "pending")
    assert old["waits_for"] == "1 CPU slot: 2 of 2 are used by first" and old["workdir"].endswith("/work")
    assert "first" in old["sentence"]
    assert plane.final(plane.python("pass")["id"])["state"] == "done"  # what wants nothing does not wait
    Path(plane.work, "say.py").write_text("print('changed')")
    plane.begun("first")
    plane.stop("first", force=True)
    ended = [plane.final(n) for n in ("old", "urgent")]
    assert ended[1]["started_at"] < ended[0]["started_at"]
    assert plane.log(old["id"]) == plane.log(urgent["id"]) == b"frozen\n"
    assert plane.final(first["id"])["state"] == "stopped"
    with pytest.raises(InvalidSpec, match="3 CPU slots"):
        plane.python("pass", slots=3)


def test_more_gpus_than_the_machine_has(plane):
    with pytest.raises(InvalidSpec, match="64 GPUs"):
        plane.python("pass", gpus=64)
    assert plane.runs(all=True) == []


def test_after_waits_for_the_good_end(plane):
    first = plane.python(FOREVER, name="first")
    plane.begun("first")
    second = plane.python("print('second')", after=["first"])
    third = plane.python("print('third')", after=[second["id"]])
    assert second["state"] == "pending" and second["waits_for"] == "first to end" and third["waits_for"].endswith(" to end")
    plane.stop("first", force=True)
    plane.final("first")
    held = plane.run(second["id"])
    assert held["state"] == "pending" and "ended as stopped" in held["waits_for"] and f"stoker start {second['id']}" in held["waits_for"]
    plane.start(second["id"])
    assert [plane.final(r["id"])["state"] for r in (second, third)] == ["done", "done"]
    with pytest.raises(NotFound):
        plane.python("pass", after=["nosuch"])
    assert plane.final(first["id"])["state"] == "stopped"


@configured("slots = 1\n")
def test_a_waiting_run_is_stopped_and_removed_without_a_machine(plane):
    plane.python(FOREVER, slots=1)
    waiting = plane.python("pass", slots=1)
    stopped = plane.stop(waiting["id"])
    assert (stopped["state"], stopped["reason"], stopped["attempts"], stopped["started_at"]) == ("stopped", "stopped_by_user", 0, None)
    assert plane.start(waiting["id"])["state"] == "pending"
    plane.rm(waiting["id"], force=True)
    assert len(plane.runs(all=True)) == 1
    assert os.listdir(plane.home / "spool") == []


@configured("slots = 3\n")
def test_many_waiting_runs_all_end_right(plane):
    runs = [plane.run_it("true", slots=1) for _ in range(25)]
    until(lambda: all(r["state"] == "done" for r in plane.runs(all=True)), "the end of all", 90)
    assert {(r["reason"], r["attempts"]) for r in plane.runs(all=True)} == {("exited", 1)} and len(runs) == 25


# -- logs


def test_logs_by_offset_tail_and_since(plane):
    text = ("import time, sys\nfor i in range(1000): print('line', i)\nsys.stdout.flush(); time.sleep(5)\n"
            "for i in range(1000, 1010): print('line', i)\nsys.stdout.flush(); sys.stdout.buffer.write(b'\\xff\\xfe no newline')\n")
    run = plane.python(text)
    plane.begun(run["id"], b"line 999\n")
    first = b"".join(b"line %d\n" % i for i in range(1000))
    assert plane.log(run["id"]) == first and plane.log(run["id"], offset=len(first) - 4) == first[-4:]
    ended = plane.final(run["id"])
    whole = first + b"".join(b"line %d\n" % i for i in range(1000, 1010)) + b"\xff\xfe no newline"
    assert plane.log(run["id"]) == whole
    assert plane.log(run["id"], tail=3) == b"line 1008\nline 1009\n\xff\xfe no newline"
    assert plane.log(run["id"], tail=0) == b"" and plane.log(run["id"], tail=100_000) == whole
    began = time.mktime(time.strptime(ended["started_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    late = plane.log(run["id"], since=began + 4.5)
    assert whole.endswith(late) and b"line 1005\n" in late and b"line 10\n" not in late
    assert plane.log(run["id"], since=began - 100) == whole
    with pytest.raises(InvalidSpec):
        plane.log(run["id"], stream="all")
    with pytest.raises(NotFound):
        plane.log(run["id"], attempt=7)


def test_the_tail_of_a_log_that_grows_is_as_long_as_was_asked(plane):
    run = plane.python("import itertools\nfor i in itertools.count(): print('line', i, flush=True)\n")
    plane.begun(run["id"], b"line 1000\n")
    for _ in range(5):
        assert plane.log(run["id"], tail=3).count(b"\n") <= 3
    plane.stop(run["id"])
    plane.final(run["id"])


def test_a_large_log_without_a_newline_is_tailed_quickly(plane):
    run = plane.final(plane.python("import sys\nfor _ in range(80): sys.stdout.write('x' * 1000000)")["id"])
    assert len(plane.log(run["id"], tail=5)) == 1 << 20
    assert len(plane.log(run["id"], offset=79_999_000)) == 1000


def test_a_follower_gets_the_last_byte_and_can_be_closed(plane):
    run = plane.python("import time\nfor i in range(20): print(i, flush=True); time.sleep(0.05)")
    assert plane.log(run["id"], follow=True) == b"".join(b"%d\n" % i for i in range(20))
    endless = plane.python(FOREVER)
    plane.begun(endless["id"])
    pieces = plane.logs(endless["id"], follow=True)
    assert next(iter(pieces)) == b"begun\n"
    threading.Timer(0.2, pieces.close).start()
    assert list(pieces) == []


def test_logs_of_what_has_not_begun(plane):
    first = plane.python(FOREVER)
    waiting = plane.python("print('at last')", after=[first["id"]])
    with pytest.raises(StateError, match="has not started"):
        plane.log(waiting["id"])
    closed = plane.logs(waiting["id"], follow=True)
    threading.Timer(0.3, closed.close).start()
    assert list(closed) == []
    threading.Timer(0.3, plane.start, (waiting["id"],)).start()
    assert plane.log(waiting["id"], follow=True) == b"at last\n"


# -- lists, gc, machine


def test_lists(plane):
    done, live = plane.final(plane.python("pass")["id"]), plane.python(FOREVER)
    assert [r["id"] for r in plane.runs()] == [live["id"]]
    assert [r["id"] for r in plane.runs(all=True)] == [live["id"], done["id"]] and len(plane.runs(all=True, limit=1)) == 1
    assert plane.runs(all=True, folder="/elsewhere") == [] and len(plane.runs(all=True, folder=str(plane.work))) == 2


def test_gc_keeps_what_lives_and_what_is_pinned(plane):
    old, pinned, live = plane.python("pass"), plane.python("pass", name="pinned"), plane.python(FOREVER)
    for run in (old, pinned):
        plane.final(run["id"])
    plane.keep("pinned", pin=True)
    report = plane.gc(True, older_s=0)
    assert {r["id"]: r["pinned"] for r in report["runs"]} == {old["id"]: False, pinned["id"]: True}
    assert all(r["bytes"] > 0 and r["inodes"] > 5 for r in report["runs"]) and report["bytes"] > 0
    assert plane.gc(True)["runs"] == []  # not old enough
    assert plane.gc(False, older_s=0)["removed"] == [old["id"]]
    assert {r["id"] for r in plane.runs(all=True)} == {pinned["id"], live["id"]} and not Path(old["folder"]).exists()


def test_machine_and_server(plane):
    live = plane.python(FOREVER)
    plane.begun(live["id"])
    top = plane.top()
    assert [r["id"] for r in top["runs"]] == [live["id"]] and top["machine"]["cpus"] >= 1 and top["machine"]["memory"]["total_bytes"] > 0
    assert plane.capacity()["cpus"] >= 1
    info = plane.info()
    assert {"version", "pid", "started_at", "home"} <= set(info) and info["home"] == str(plane.home)


def test_events_tell_of_each_change(plane):
    events = plane.events()
    seen: list[dict] = []
    reader = threading.Thread(target=lambda: seen.extend(iter_until_closed(events)))
    reader.start()
    run = plane.final(plane.python("pass")["id"])
    until(lambda: any(e.get("run", {}).get("state") == "done" for e in list(seen)), "the news of the end")
    plane.rm(run["id"])
    until(lambda: {"removed": run["id"]} in seen, "the news of the removal")
    events.close()
    reader.join(10)
    assert not reader.is_alive()


def iter_until_closed(events) -> Iterator[dict]:
    yield from (e for e in events if e)


@pytest.mark.parametrize("plane", ["service"], indirect=True)  # over a WebSocket it is made of messages: tests/client
def test_attach_streams_frames_until_the_exit(plane):
    run = plane.python("print('hello')")
    plane.final(run["id"])
    stream = plane.attach(run["id"])
    with stream:
        data = b""
        while piece := stream.stdout.read(65536):
            data += piece
    assert data[:1] == b"m" and b"hello\n" in data and b'"reason"' in data


# -- what is refused


@pytest.mark.parametrize(("more", "error"), [
    ({"command": []}, InvalidSpec), ({"command": [""]}, InvalidSpec), ({"command": ["a\0b"]}, InvalidSpec), ({"command": "true"}, InvalidSpec),
    ({"command": ["no-such-program-here"]}, (InvalidSpec, NotFound)), ({"folder": "relative"}, InvalidSpec), ({"folder": "/no/such/folder"}, NotFound),
    ({"name": "a/b"}, InvalidSpec), ({"name": 5}, InvalidSpec), ({"target": "moon"}, InvalidSpec), ({"gpus": -1}, InvalidSpec), ({"gpus": True}, InvalidSpec),
    ({"grace_s": [1]}, InvalidSpec), ({"backoff_s": float("1e99")}, InvalidSpec), ({"nonsense": 1}, InvalidSpec), ({"kind": "instance"}, InvalidSpec),
    ({"mounts": {"../x": "/tmp"}}, InvalidSpec), ({"mounts": {"x": "tmp"}}, InvalidSpec), ({"mounts": {"x": "/no/such"}}, NotFound),
    ({"home": "here"}, InvalidSpec), ({"stdin": "tape"}, InvalidSpec),
])
def test_what_cannot_be_run_is_refused_and_leaves_nothing(plane, more, error):
    with pytest.raises(error) as caught:
        plane.submit({**plane.spec("true"), **more}, {}, plane.env(), None)
    assert caught.value.message.endswith(".") and caught.value.hint
    assert plane.runs(all=True) == [] and os.listdir(plane.home / "spool") == []


def test_bad_limits_and_graces(plane):
    for limits in ({"time_s": 0}, {"time_s": "2h"}, {"time_s": -1}):
        with pytest.raises(InvalidSpec):
            plane.python("pass", limits=limits)
    run = plane.python(FOREVER)
    for grace in (-1, [1], [1, -2]):
        with pytest.raises(InvalidSpec):
            plane.stop(run["id"], grace_s=grace)
    with pytest.raises(InvalidSpec):
        plane.keep(run["id"], seconds=-5)

"""What every back end promises. A new back end adds one line to `KINDS` and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_leaf import leaf_of_the_page

from real.sshd import wait_for
from stoker.backends.base import Backend, Observation
from stoker.backends.core import Core
from stoker.backends.leaf import Leaf
from stoker.backends.process import ProcessLeaf
from stoker.base import rundir
from stoker.base.errors import InvalidSpec, NotFound, StateError, TargetError
from stoker.base.spec import Limits, Spec
from stoker.hosts.local import LocalHost
from stoker.hosts.ssh import SshHost

KINDS: dict[str, Callable[[pytest.FixtureRequest, Path], Leaf]] = {
    "process-local": lambda request, folder: ProcessLeaf(LocalHost()),
    "process-ssh": lambda request, folder: ProcessLeaf(SshHost("127.0.0.1", options=request.getfixturevalue("sshd").options)),
    "namespace": lambda request, folder: leaf_of_the_page(LocalHost(), folder / "namespaces"),
}
LOUD = "import sys\nfor i in range(20000): sys.stdout.write('line %d \\xe9\\n' % i)\nsys.stdout.flush(); sys.stdout.buffer.write(bytes(range(256)))"
LOUD_BYTES = b"".join(b"line %d \xc3\xa9\n" % i for i in range(20000)) + bytes(range(256))


class Bench:
    """A back end with a root folder, a spool, and runs that are ended at the end."""

    def __init__(self, folder: Path, leaf: Leaf) -> None:
        self.folder, self.leaf, self.host, self.root = folder, leaf, leaf.host, folder / "root"
        self.backend: Backend = self.another(str(self.root))
        self.lost = ("agent_lost",) if isinstance(leaf, ProcessLeaf) else ("agent_lost", "rebooted")  # elsewhere the reason may be unknown
        self.made: list[str] = []

    def another(self, root: str) -> Backend:
        """A backend of the same kind on the same host."""
        return Core(self.host, root, self.leaf)

    def spool(self, run_id: str, *argv: str, **spec: object) -> Path:
        """A spooled run folder, as the plane lays it down."""
        path = self.folder / "spool" / run_id
        path.mkdir(parents=True, mode=0o700)
        (self.folder / "w").mkdir(exist_ok=True)
        body = Spec(id=run_id, command=argv, argv=argv, folder=str(self.folder / "w"), grace_s=(1.0, 1.0), **spec)
        rundir.write_json(path / rundir.SPEC, body.to_json())
        rundir.write_json(path / rundir.LIMITS, Limits().to_json())
        rundir.write_whole(path / rundir.ENV, rundir.pack_env({"PATH": "/usr/local/bin:/usr/bin:/bin", "ODD": "a b\n中'\"", "LC_ALL": "C.UTF-8"}), 0o600)
        self.made.append(run_id)
        return path

    def start(self, run_id: str, *argv: str, **spec: object) -> None:
        self.backend.stage(run_id, self.spool(run_id, *argv, **spec))
        self.backend.start(run_id, 1)

    def see(self, run_id: str) -> Observation:
        return self.backend.poll([run_id])[run_id]

    def until(self, run_id: str, phase: str) -> Observation:
        wait_for(lambda: self.see(run_id).phase == phase, 30, f"{run_id} is not {phase}")
        return self.see(run_id)

    def out(self, run_id: str, **how: object) -> bytes:
        with self.backend.read(run_id, 1, "out", **how) as stream:
            return read_all(stream.stdout)

    def close(self) -> None:
        for run_id in self.made:
            with contextlib.suppress(NotFound):
                self.backend.stop(run_id, (0.0, 0.0), "stopped_by_user")
        for run_id in self.made:
            wait_for(lambda run_id=run_id: self.see(run_id).phase in ("absent", "staged", "ended"), 20, f"{run_id} does not end")
            self.backend.release(run_id)
        self.backend.close()


PROCESSES = ["process-local", pytest.param("process-ssh", marks=pytest.mark.real("sshd"))]
everywhere = pytest.mark.parametrize("bench", [*PROCESSES, pytest.param("namespace", marks=pytest.mark.real("unshare", "nsenter"))], indirect=True)


@pytest.fixture(params=PROCESSES)
def bench(request: pytest.FixtureRequest, short_tmp: Path) -> Iterator[Bench]:
    """On every host; tests of what a leaf can change are marked `everywhere` and have every leaf too."""
    made = Bench(short_tmp, KINDS[request.param](request, short_tmp))
    yield made
    made.close()


def read_all(stream: object) -> bytes:
    pieces = []
    while data := stream.read(1 << 20):
        pieces.append(data)
    return b"".join(pieces)


def frame(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack(">I", len(payload)) + payload


def frames(stream: object) -> Iterator[tuple[bytes, bytes]]:
    """(kind, payload) until the stream ends."""
    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count and (more := stream.read(count - len(data))):
            data += more
        return data

    while head := exactly(5):
        yield head[:1], exactly(struct.unpack(">I", head[1:])[0])


class TestStage:
    def test_brings_the_whole_folder(self, bench: Bench) -> None:
        spool = bench.spool("r1", "true", copy=True)
        (spool / "work" / "空 folder").mkdir(parents=True)
        (spool / "work" / "run.sh").write_text("x")
        (spool / "work" / "run.sh").chmod(0o755)
        bench.backend.stage("r1", spool)
        there = bench.root / "runs" / "r1"
        assert (there / "work" / "空 folder").is_dir() and os.access(there / "work" / "run.sh", os.X_OK)
        assert (there / "env").stat().st_mode & 0o777 == 0o600 and bench.root.stat().st_mode & 0o077 == 0
        assert bench.see("r1").phase == "staged"

    def test_twice_is_harmless(self, bench: Bench) -> None:
        spool = bench.spool("r1", "true")
        bench.backend.stage("r1", spool)
        (bench.root / "runs" / "r1" / "mine").write_text("x")
        bench.backend.stage("r1", spool)  # whether or not the spool still stands
        assert (bench.root / "runs" / "r1" / "mine").exists()
        assert os.listdir(bench.root / "runs") == ["r1"]

    def test_nothing_to_stage(self, bench: Bench) -> None:
        with pytest.raises(NotFound):
            bench.backend.stage("r1", bench.folder / "no")

    @pytest.mark.parametrize("run_id", ["", "..", "a/b", ".x", "a\0b"])
    def test_what_is_not_an_id(self, bench: Bench, run_id: str) -> None:
        with pytest.raises(InvalidSpec):
            bench.backend.stage(run_id, bench.folder)


class TestRun:
    @everywhere
    def test_to_completion_with_every_byte(self, bench: Bench) -> None:
        bench.start("r1", sys.executable, "-c", LOUD)
        assert bench.out("r1", follow=True) == LOUD_BYTES
        seen = bench.until("r1", "ended")
        assert seen.exit["code"] == 0 and seen.exit["reason"] == "exited" and seen.attempts == (1,)
        assert seen.out_bytes == len(LOUD_BYTES)
        assert bench.out("r1", offset=10, limit=100) == LOUD_BYTES[10:110]
        bench.backend.fetch("r1", "attempts/1/out.log", bench.folder / "log")
        assert (bench.folder / "log").read_bytes() == LOUD_BYTES

    @everywhere
    def test_start_twice_is_one_attempt(self, bench: Bench) -> None:
        bench.start("r1", "sh", "-c", "echo once; exec sleep 60")
        ids: list[str] = []
        threads = [threading.Thread(target=lambda: ids.append(bench.backend.start("r1", 1))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(ids)) == 1 and len(ids) == 4
        bench.until("r1", "running")
        bench.backend.stop("r1", (0.0, 0.0), "stopped_by_user")
        bench.until("r1", "ended")
        assert bench.out("r1") == b"once\n"

    @everywhere
    def test_a_second_attempt(self, bench: Bench) -> None:
        bench.start("r1", "sh", "-c", "echo $STOKER_ATTEMPT; exit 3")
        assert bench.until("r1", "ended").exit["code"] == 3
        bench.backend.start("r1", 2)
        wait_for(lambda: bench.see("r1").attempt == 2 and bench.see("r1").phase == "ended", 20, "no second attempt")
        with bench.backend.read("r1", 2, "out") as stream:
            assert read_all(stream.stdout) == b"2\n"

    def test_no_second_attempt_while_one_lives(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        with pytest.raises(StateError):
            bench.backend.start("r1", 2)

    def test_a_command_that_cannot_start_is_an_observation(self, bench: Bench) -> None:
        bench.start("r1", "/no/such/program")
        assert bench.until("r1", "ended").exit["reason"] == "start_failed"

    @everywhere
    def test_a_run_that_was_never_staged(self, bench: Bench) -> None:
        with pytest.raises(NotFound):
            bench.backend.start("nobody", 1)


class TestPoll:
    @everywhere
    def test_unknown_and_known_at_once(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        seen = bench.backend.poll(["nobody", "r1", "-rf"])
        assert {key: each.phase for key, each in seen.items()} == {"nobody": "absent", "r1": "running", "-rf": "absent"}
        assert bench.backend.poll([]) == {}

    def test_a_folder_that_somebody_deleted(self, bench: Bench) -> None:
        bench.start("r1", "true")
        bench.until("r1", "ended")
        bench.host.run(["rm", "-r", str(bench.root / "runs" / "r1")])
        assert bench.see("r1").phase == "absent"

    def test_when_even_the_agent_was_deleted(self, bench: Bench) -> None:
        bench.start("r1", "true")
        bench.until("r1", "ended")
        bench.host.run(["rm", "-r", str(bench.root / "agent")])
        assert bench.see("r1").phase == "ended"

    @everywhere
    def test_caretakers_that_were_killed(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        for pid in caretakers(bench.root):
            os.kill(pid, signal.SIGKILL)
        bench.until("r1", "abandoned")
        bench.backend.stop("r1", (0.0, 0.0), "agent_lost")
        assert bench.until("r1", "ended").exit["reason"] in bench.lost
        wait_for(lambda: not processes(b"sleep\x0060", bench.folder), 60, "what it left behind is not ended")


class TestWatch:
    def test_wakes_at_a_change(self, bench: Bench) -> None:
        bench.start("r1", "sh", "-c", "read line; exit 4", stdin="attached")
        with bench.backend.watch() as stream:
            lines: list[dict] = []
            reader = threading.Thread(target=lambda: lines.extend(json.loads(line) for line in read_all(stream.stdout).splitlines()))
            first = json.loads(read_line(stream.stdout))
            assert first["id"] == "r1" and first["phase"] == "running"
            reader.start()
            with bench.backend.attach("r1", 1) as attached:
                attached.stdin.write(frame(b"i", b"go\n"))
                assert [kind for kind, _ in frames(attached.stdout)][-1] == b"x"
            bench.until("r1", "ended")
            bench.start("r2", "true")
            bench.until("r2", "ended")
            stream.stdin.close()
            reader.join(10)
            assert not reader.is_alive() and stream.wait(10) == 0
        ended = {each["id"]: each["exit"]["code"] for each in lines if each["phase"] == "ended"}
        assert ended.get("r1") == 4

    def test_of_an_empty_machine(self, bench: Bench) -> None:
        with bench.backend.watch() as stream:
            stream.stdin.close()
            assert read_all(stream.stdout) == b"" and stream.wait(10) == 0


def read_line(stream: object) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := stream.read(1)):
        line += byte
    return line


class TestStop:
    @everywhere
    def test_twice_and_when_over(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        bench.backend.stop("r1", (1.0, 1.0), "stopped_by_user")
        bench.backend.stop("r1", (1.0, 1.0), "stopped_by_user")
        seen = bench.until("r1", "ended")
        assert seen.exit["reason"] == "stopped_by_user"
        bench.backend.stop("r1", (1.0, 1.0), "limit_budget")
        assert bench.see("r1").exit == seen.exit

    @everywhere
    def test_one_that_will_not_go(self, bench: Bench) -> None:
        bench.start("r1", "sh", "-c", "trap '' INT TERM; echo on; while :; do sleep 0.1; done")
        wait_for(lambda: bench.out("r1") == b"on\n", 10, "it does not run")
        bench.backend.stop("r1", (300.0, 300.0), "stopped_by_user")
        bench.backend.stop("r1", (0.1, 0.1), "stopped_by_user")  # the newest wish wins
        assert bench.until("r1", "ended").exit["signal"] == signal.SIGKILL

    @everywhere
    def test_when_never_started_or_gone(self, bench: Bench) -> None:
        bench.backend.stop("nobody", (1.0, 1.0), "stopped_by_user")
        bench.backend.stage("r1", bench.spool("r1", "true"))
        bench.backend.stop("r1", (1.0, 1.0), "stopped_by_user")
        assert bench.see("r1").phase == "staged"

    @everywhere
    def test_an_attempt_that_has_not_begun_is_ended_before_its_start_comes(self, bench: Bench) -> None:
        bench.backend.stop("nobody", (1.0, 1.0), "stopped_by_user", 1)
        assert bench.see("nobody").phase == "absent"
        bench.backend.stage("r1", bench.spool("r1", "sh", "-c", "echo $STOKER_ATTEMPT"))
        bench.backend.stop("r1", (1.0, 1.0), "stopped_by_user", 1)
        assert (bench.see("r1").phase, bench.see("r1").exit["reason"]) == ("ended", "stopped_by_user")
        bench.backend.start("r1", 1)  # too late
        assert (bench.see("r1").phase, bench.see("r1").run_pid, bench.out("r1")) == ("ended", None, b"")
        bench.backend.start("r1", 2)
        wait_for(lambda: bench.see("r1").attempt == 2 and bench.see("r1").phase == "ended", 20, "no second attempt")
        assert bench.see("r1").exit["code"] == 0
        bench.backend.stop("r1", (1.0, 1.0), "stopped_by_user", 2)
        assert bench.see("r1").exit["code"] == 0

    def test_the_attempt_that_is_meant_may_live(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        bench.backend.stop("r1", (1.0, 1.0), "stopped_by_user", 1)
        assert bench.until("r1", "ended").attempts == (1,)


class TestTalk:
    def test_input_output_and_exit(self, bench: Bench) -> None:
        bench.start("r1", "sh", "-c", "cat; echo bad >&2; exit 5", stdin="attached", split_stderr=True)
        with bench.backend.attach("r1", 1) as stream:
            stream.stdin.write(frame(b"i", b"one\n\0\xff") + frame(b"e", b""))
            got = list(frames(stream.stdout))
        assert got[0][0] == b"m" and json.loads(got[0][1])["attempt"] == 1
        assert b"".join(data for kind, data in got if kind == b"o") == b"one\n\0\xff"
        assert b"".join(data for kind, data in got if kind == b"r") == b"bad\n"
        assert got[-1][0] == b"x" and json.loads(got[-1][1])["code"] == 5

    def test_from_an_offset_after_the_end(self, bench: Bench) -> None:
        bench.start("r1", "printf", "0123456789")
        bench.until("r1", "ended")
        with bench.backend.attach("r1", 1, out=4, input=False) as stream:
            got = list(frames(stream.stdout))
        assert b"".join(data for kind, data in got if kind == b"o") == b"456789" and got[-1][0] == b"x"

    def test_leaving_does_not_end_the_run(self, bench: Bench) -> None:
        bench.start("r1", "sh", "-c", "read line; echo got $line", stdin="attached")
        with bench.backend.attach("r1", 1) as stream:
            stream.stdout.read(5)
        assert bench.see("r1").phase == "running"
        with bench.backend.attach("r1", 1) as stream:
            stream.stdin.write(frame(b"i", b"me\n"))
            assert list(frames(stream.stdout))[-1][0] == b"x"
        assert bench.out("r1") == b"got me\n"

    @everywhere
    def test_a_signal(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        with bench.backend.attach("r1", 1) as stream:
            stream.stdin.write(frame(b"s", b"INT"))
            got = list(frames(stream.stdout))
        assert json.loads(got[-1][1])["signal"] == signal.SIGINT

    def test_follow_ends_when_nobody_reads(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        stream = bench.backend.read("r1", 1, "out", follow=True)
        stream.close()
        mark = str(bench.root).encode()
        wait_for(lambda: not any(b"\0read\0" in words and mark in words for words in command_lines()), 15, "a reader is left on the machine")

    @everywhere
    def test_enter_runs_where_the_run_is(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        done = bench.host.run([*bench.backend.enter("r1"), "sh", "-c", 'pwd; printf %s "$ODD"; echo; cat "$STOKER_RUN_DIR/spec.json"'])
        folder, rest = done.out.split(b"\n", 1)
        assert (done.code, folder) == (0, os.fsencode(bench.folder / "w"))
        assert rest.startswith("a b\n中'\"\n".encode()) and b'"r1"' in rest
        assert bench.host.run([*bench.backend.enter("r1"), "no-such-program"]).code == 127


def command_lines() -> Iterator[bytes]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield Path(entry.path, "cmdline").read_bytes()


def processes(words: bytes, root: Path) -> list[int]:
    """The pids here, whatever namespace they are in, of processes with these words that have to do with `root`."""
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            line = Path(entry.path, "cmdline").read_bytes()
            if words in line and os.fsencode(root) in line + Path(entry.path, "environ").read_bytes():
                found.append(int(entry.name))
    return found


def caretakers(root: Path) -> list[int]:
    found = processes(b"\0_hold\0", root)
    assert len(found) == 2
    return found


class TestRest:
    @everywhere
    def test_capacity(self, bench: Bench) -> None:
        has = bench.backend.capacity()
        assert 0 < has.cpus <= os.cpu_count() and has.memory_bytes > 1 << 26 and has.disk_free_bytes > 0 and has.identity["hostname"]
        assert all(set(gpu) >= {"index", "uuid", "name", "memory_bytes", "used_bytes"} for gpu in has.gpus)

    def test_limits_are_written_and_echoed(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        bench.backend.write_limits("r1", Limits(seq=5, time_s=3600))
        wait_for(lambda: bench.see("r1").limits_seq == 5, 15, "the agent does not echo the limits")
        bench.backend.write_limits("r1", Limits(seq=6, time_s=0.1))
        assert bench.until("r1", "ended").exit["reason"] == "limit_time"

    def test_limits_of_a_run_that_is_gone(self, bench: Bench) -> None:
        with pytest.raises(NotFound):
            bench.backend.write_limits("nobody", Limits())
        assert bench.see("nobody").phase == "absent"

    @everywhere
    def test_remove(self, bench: Bench) -> None:
        bench.start("r1", "sleep", "60")
        with pytest.raises(StateError):
            bench.backend.remove("r1")
        bench.backend.stop("r1", (0.0, 0.0), "stopped_by_user")
        bench.until("r1", "ended")
        bench.backend.remove("r1")
        bench.backend.remove("r1")
        assert bench.see("r1").phase == "absent" and os.listdir(bench.root / "runs") == []

    def test_fetch(self, bench: Bench) -> None:
        bench.backend.stage("r1", bench.spool("r1", "true"))
        bench.backend.fetch("r1", "spec.json", bench.folder / "spec")
        assert json.loads((bench.folder / "spec").read_bytes())["id"] == "r1"
        with pytest.raises(NotFound):
            bench.backend.fetch("r1", "no", bench.folder / "x")
        for name in ("", "/etc/passwd", "../r1/env"):
            with pytest.raises(InvalidSpec):
                bench.backend.fetch("r1", name, bench.folder / "x")

    def test_a_root_that_cannot_be_made(self, bench: Bench) -> None:
        (bench.folder / "file").write_text("")
        with pytest.raises(TargetError) as raised:
            bench.another(str(bench.folder / "file" / "root")).capacity()
        assert not raised.value.retry and "config.toml" in raised.value.hint

    def test_a_root_with_an_odd_name(self, bench: Bench) -> None:
        odd = bench.folder / "my 'runs' 训练 🚂\n-rf"
        backend = bench.another(str(odd))
        backend.stage("r1", bench.spool("r1", "printf", "x"))
        backend.start("r1", 1)
        wait_for(lambda: backend.poll(["r1"])["r1"].phase == "ended", 20, "it does not end")
        with backend.read("r1", 1, "out") as stream:
            assert read_all(stream.stdout) == b"x"

    def test_a_new_version_lies_beside_the_old(self, bench: Bench) -> None:
        bench.backend.capacity()
        bench.backend.capacity()
        names = os.listdir(bench.root / "agent")
        assert len(names) == 1 and names[0].startswith("agent-")

    @pytest.mark.parametrize("lost", ["__main__.py", "observing.py", ""])
    def test_an_agent_that_somebody_took_files_from_is_put_there_again(self, bench: Bench, lost: str) -> None:
        bench.start("r1", "sleep", "100")
        agent, = (bench.root / "agent").iterdir()
        shutil.rmtree(agent / "__pycache__")
        (agent / lost).unlink() if lost else shutil.rmtree(agent)
        assert bench.see("r1").phase == "running"
        assert [path.name for path in (bench.root / "agent").iterdir()] == [agent.name] and (agent / lost).exists()

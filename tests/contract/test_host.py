"""What every host promises. A new host adds one line to `host` and nothing else."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import socketserver
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.sshd import wait_for
from stoker.base.errors import NotFound, TargetError
from stoker.hosts.base import ANSWER_MAX, Host
from stoker.hosts.local import LocalHost
from stoker.hosts.ssh import SshHost

ODD = ["plain", "with space", "it's \"quoted\"", "模型 训练", "🚂", "-rf", "new\nline", "$HOME `id`", "back\\slash", "!bang", "*", " lead", "tail "]
MB = 1 << 20


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.real("sshd"))])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    made = LocalHost() if request.param == "local" else SshHost("127.0.0.1", options=request.getfixturevalue("sshd").options)
    yield made
    made.close()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, within_s: float = 15) -> None:
    wait_for(lambda: not lives(pid), within_s, f"process {pid} still lives")


class TestRun:
    def test_gives_output_errors_and_code(self, host: Host) -> None:
        done = host.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        assert (done.code, done.out, done.err) == (7, b"out\n", b"err\n")

    @pytest.mark.parametrize("code", [0, 1, 124, 126, 127, 137, 255])
    def test_any_code_is_the_commands_own(self, host: Host, code: int) -> None:
        assert host.run(["sh", "-c", f"exit {code}"]).code == code

    def test_a_signal_is_told_as_a_shell_tells_it(self, host: Host) -> None:
        assert host.run(["sh", "-c", "kill -TERM $$"]).code == 143

    def test_a_missing_program_is_not_an_error_of_the_host(self, host: Host) -> None:
        done = host.run(["no-such-program-here", "x"])
        assert done.code == 127 and "no-such-program-here" in done.message

    def test_a_file_that_is_no_program(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("x")
        assert host.run([str(tmp_path / "data")]).code == 126

    def test_words_arrive_unchanged(self, host: Host) -> None:
        words = [*ODD, "", "a\tb", os.fsdecode(bytes(range(1, 256)))]
        done = host.run(["printf", "%s\\0", *words])
        assert done.out.split(b"\0")[:-1] == [os.fsencode(word) for word in words]

    def test_binary_stdin_and_stdout(self, host: Host) -> None:
        data = os.urandom(3 * MB) + bytes(range(256))
        assert host.run(["cat"], stdin=data).out == data

    def test_stdin_that_nobody_reads(self, host: Host) -> None:
        assert host.run(["true"], stdin=b"x" * MB).code == 0

    def test_stdin_is_empty_by_default(self, host: Host) -> None:
        assert host.run(["cat"]).out == b""

    def test_time_out_is_an_error_and_ends_the_command(self, host: Host, tmp_path: Path) -> None:
        with pytest.raises(TargetError) as raised:
            host.run(["sh", "-c", f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 300"], timeout_s=1)
        assert raised.value.retry and raised.value.hint
        gone(int((tmp_path / "pid").read_text()))

    @pytest.mark.parametrize("where", ["1", "2"])
    def test_an_answer_without_end_is_cut_off(self, host: Host, tmp_path: Path, where: str) -> None:
        """What we hold stays small. The command ends as it hears of it, or by its own clock: nobody tells who prints to stderr far away."""
        flood = f"echo $$ > {tmp_path}/pid; exec head -c 2000000000 /dev/zero >&{where}"
        before = peak_bytes()
        with pytest.raises(TargetError, match="sent more than 32 MB") as raised:
            host.run(["sh", "-c", flood])
        assert not raised.value.retry and peak_bytes() - before < 8 * ANSWER_MAX
        pid = int((tmp_path / "pid").read_text())
        if where == "2":
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        gone(pid)

    def test_commands_start_in_the_home_folder(self, host: Host) -> None:
        assert host.run(["pwd", "-P"]).out == os.fsencode(os.path.realpath(host.home())) + b"\n"

    def test_from_many_threads_at_once(self, host: Host) -> None:
        answers: dict[int, bytes] = {}

        def ask(i: int) -> None:
            answers[i] = host.run(["echo", str(i)]).out

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == {i: b"%d\n" % i for i in range(12)}

    def test_python_is_new_enough(self, host: Host) -> None:
        done = host.run([host.python(), "-I", "-S", "-c", "import sys; print(sys.version_info >= (3, 8))"])
        assert os.path.isabs(host.python()) and done.out == b"True\n"


class TestOpen:
    def test_duplex(self, host: Host) -> None:
        with host.open(["cat"]) as stream:
            for word in (b"one", b"\0\xff\n", "火车".encode()):
                stream.stdin.write(word)
                assert read_exactly(stream.stdout, len(word)) == word
            stream.stdin.close()
            assert stream.stdout.read(1) == b"" and stream.wait(10) == 0

    def test_a_hundred_megabytes_both_ways(self, host: Host) -> None:
        block = os.urandom(MB)
        with host.open(["cat"]) as stream:
            def feed() -> None:
                for _ in range(100):
                    stream.stdin.write(block)
                stream.stdin.close()

            writer = threading.Thread(target=feed)
            writer.start()
            for _ in range(100):
                assert read_exactly(stream.stdout, MB) == block
            assert stream.stdout.read(1) == b""
            writer.join()
            assert stream.wait(10) == 0

    def test_stderr_and_code(self, host: Host) -> None:
        with host.open(["sh", "-c", "echo sorry >&2; exit 3"]) as stream:
            assert stream.stdout.read(1) == b"" and stream.wait(10) == 3
            assert stream.stderr_tail() == "sorry\n"

    def test_wait_does_not_wait_for_ever(self, host: Host) -> None:
        with host.open(["cat"]) as stream:
            assert stream.wait(0.05) is None

    def test_close_ends_both_sides(self, host: Host) -> None:
        stream = host.open(["sh", "-c", "echo $$; exec cat"])
        far = int(stream.stdout.read(100))
        assert lives(far)
        stream.close()
        stream.close()
        assert not lives(stream.pid)
        gone(far)

    def test_close_wakes_a_reader_in_another_thread(self, host: Host) -> None:
        stream = host.open(["cat"])
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(stream.stdout.read(1)))
        reader.start()
        stream.close()
        reader.join(10)
        assert not reader.is_alive() and got in ([b""], [])

    def test_killing_the_local_process_ends_the_far_one(self, host: Host) -> None:
        with host.open(["sh", "-c", "echo $$; exec cat"]) as stream:
            far = int(stream.stdout.read(100))
            os.kill(stream.pid, 9)
            gone(far)
            assert stream.stdout.read(1) == b""

    def test_ten_streams_at_once(self, host: Host) -> None:
        streams = [host.open(["cat"]) for _ in range(12)]
        try:
            for i, stream in enumerate(streams):
                stream.stdin.write(b"%02d" % i)
            assert [read_exactly(stream.stdout, 2) for stream in streams] == [b"%02d" % i for i in range(12)]
        finally:
            for stream in streams:
                stream.close()


def read_exactly(stream: object, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := stream.read(count - len(data))):
        data += more
    return data


def make_tree(root: Path) -> Path:
    """Everything a folder may hold."""
    root.mkdir(parents=True)
    for i, name in enumerate(ODD):
        (root / name).write_bytes(os.urandom(i * 1000))
    (root / ("n" * 250)).write_text("long name")
    (root / os.fsdecode(b"not\xfftext")).write_text("x")
    deep = root.joinpath(*["d" * 30] * 10)
    deep.mkdir(parents=True)
    (deep / "leaf").write_text("deep")
    (root / "empty folder").mkdir()
    (root / "script.sh").write_text("#!/bin/sh\n")
    (root / "script.sh").chmod(0o751)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    (root / "read-only").mkdir()
    (root / "read-only" / "f").write_text("f")
    (root / "dangling").symlink_to("/no/where 到")
    (root / "link to folder").symlink_to("read-only")
    os.link(root / "secret", root / "hard link")
    os.utime(root / "script.sh", ns=(1_600_000_000_123_456_789, 1_500_000_000_987_654_321))
    os.utime(root / "dangling", ns=(1, 1_400_000_000_000_000_001), follow_symlinks=False)
    (root / "read-only").chmod(0o555)
    os.utime(root, ns=(1, 1_300_000_000_000_000_007))
    return root


def picture(root: Path) -> dict[bytes, tuple]:
    """Path -> kind, mode, time, content of everything below."""
    seen: dict[bytes, tuple] = {}

    def look(path: bytes, rel: bytes) -> None:
        info = os.lstat(path)
        kind, mode = stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode)
        if kind == stat.S_IFLNK:
            seen[rel] = (kind, info.st_mtime_ns, os.readlink(path))
        elif kind == stat.S_IFREG:
            seen[rel] = (kind, mode, info.st_mtime_ns, Path(os.fsdecode(path)).read_bytes())
        else:
            seen[rel] = (kind, mode, info.st_mtime_ns)
            for name in os.listdir(path):
                look(path + b"/" + name, rel + b"/" + name)

    look(os.fsencode(root), b"")
    return seen


class TestFiles:
    @pytest.mark.parametrize("name", ODD)
    def test_a_file_of_any_name(self, host: Host, tmp_path: Path, name: str) -> None:
        source = tmp_path / "source" / name
        source.parent.mkdir()
        source.write_bytes(b"\0\xff" + os.urandom(5000))
        host.put(source, f"{tmp_path}/far/{name}")
        host.get(f"{tmp_path}/far/{name}", tmp_path / "back" / name)
        assert picture(source) == picture(tmp_path / "far" / name) == picture(tmp_path / "back" / name)
        assert os.listdir(tmp_path / "far") == os.listdir(tmp_path / "back") == [name]

    def test_a_folder_with_everything(self, host: Host, tmp_path: Path) -> None:
        source = make_tree(tmp_path / "source")
        expected = picture(source)
        host.put(source, str(tmp_path / "far"))
        host.get(str(tmp_path / "far"), tmp_path / "back")
        assert picture(tmp_path / "far") == expected
        assert picture(tmp_path / "back") == expected
        assert sorted(os.listdir(tmp_path)) == ["back", "far", "source"]
        assert (tmp_path / "far" / "secret").stat().st_nlink == 1

    def test_a_relative_target_counts_from_home(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        name = f".stoker-test-{os.getpid()}"
        try:
            host.put(tmp_path / "f", name)
            assert Path(host.home(), name).read_text() == "x"
            host.get(name, tmp_path / "g")
        finally:
            Path(host.home(), name).unlink(missing_ok=True)

    def test_a_file_replaces_a_file(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "new").write_text("new")
        (tmp_path / "far").write_text("old and longer")
        host.put(tmp_path / "new", str(tmp_path / "far"))
        assert (tmp_path / "far").read_text() == "new"

    def test_a_folder_replaces_nothing(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "source").mkdir()
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("precious")
        source = str(tmp_path / "source")
        for there in (tmp_path / "empty", tmp_path / "file"):
            for carry in (lambda there: host.put(Path(source), str(there)), lambda there: host.get(source, there)):
                with pytest.raises(TargetError) as raised:
                    carry(there)
                assert not raised.value.retry and there.name in raised.value.message
        assert sorted(os.listdir(tmp_path)) == ["empty", "file", "source"]

    def test_a_file_does_not_replace_a_folder(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        (tmp_path / "far").mkdir()
        with pytest.raises(TargetError):
            host.put(tmp_path / "file", str(tmp_path / "far"))

    def test_nothing_there(self, host: Host, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            host.put(tmp_path / "no", str(tmp_path / "far"))
        with pytest.raises(NotFound):
            host.get(str(tmp_path / "no"), tmp_path / "back")
        assert os.listdir(tmp_path) == []

    def test_where_we_may_not_write(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(TargetError) as raised:
            host.put(tmp_path / "file", f"{tmp_path}/file/below")
        assert not raised.value.retry

    def test_a_file_that_is_larger_than_it_may_be(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "big").write_bytes(bytes(5 * MB))
        with pytest.raises(TargetError, match="more than 2 MB"):
            host.get(f"{tmp_path}/big", tmp_path / "back", 2 * MB)
        assert os.listdir(tmp_path) == ["big"]
        host.get(f"{tmp_path}/big", tmp_path / "back", 5 * MB)
        assert (tmp_path / "back").stat().st_size == 5 * MB

    def test_pipes_and_sockets_are_left_out(self, host: Host, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        os.mkfifo(source / "pipe")
        (source / "file").write_text("x")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(source / "sock"))
            host.put(source, str(tmp_path / "far"))
        assert os.listdir(tmp_path / "far") == ["file"]

    def test_the_source_may_be_a_link(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "f").write_text("x")
        (tmp_path / "link").symlink_to("real")
        host.put(tmp_path / "link", str(tmp_path / "far"))
        assert not (tmp_path / "far").is_symlink() and (tmp_path / "far" / "f").read_text() == "x"

    def test_what_a_killed_writer_left_is_removed(self, host: Host, tmp_path: Path) -> None:
        left = tmp_path / ".far.part-1-abc"
        (left / "sub").mkdir(parents=True)
        (left / "sub").chmod(0o500)
        (tmp_path / "source").mkdir()
        host.put(tmp_path / "source", str(tmp_path / "far"))
        assert sorted(os.listdir(tmp_path)) == ["far", "source"]

    def test_give_brings_it_there(self, host: Host, tmp_path: Path) -> None:
        expected = picture(make_tree(tmp_path / "source"))
        host.give(tmp_path / "source", str(tmp_path / "a" / "far"))
        assert picture(tmp_path / "a" / "far") == expected

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_an_interrupted_copy_leaves_nothing(self, host: Host, tmp_path: Path, number: int) -> None:
        """A Ctrl-C cleans up; after a SIGKILL the target is absent, and what may lie beside it goes with the next put."""
        source, far = tmp_path / "source", tmp_path / "far"
        source.mkdir()
        for i in range(400):
            (source / str(i)).write_bytes(os.urandom(50_000))
        expected = picture(source)
        child = os.fork()
        if child == 0:
            try:
                host.put(source, str(far))
            finally:
                os._exit(0)
        wait_for(lambda: far.exists() or any(name.startswith(".far.part-") for name in os.listdir(tmp_path)), 20, "it never began")
        os.kill(child, number)
        os.waitpid(child, 0)
        if number == signal.SIGINT or isinstance(host, SshHost):
            wait_for(lambda: set(os.listdir(tmp_path)) <= {"source", "far"}, 10, f"left behind: {os.listdir(tmp_path)}")
        if far.exists():  # it was quicker than the signal
            assert picture(far) == expected
            return
        host.put(source, str(far))
        assert picture(far) == expected and sorted(os.listdir(tmp_path)) == ["far", "source"]


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


class TestForward:
    @pytest.fixture(params=["port", "socket"])
    def echo(self, request: pytest.FixtureRequest, short_tmp: Path) -> Iterator[str]:
        unix = request.param == "socket"
        kind = socketserver.ThreadingUnixStreamServer if unix else socketserver.ThreadingTCPServer
        with kind(str(short_tmp / "echo") if unix else ("127.0.0.1", 0), _Echo) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,)).start()
            yield str(server.server_address if unix else server.server_address[1])
            server.shutdown()

    def test_reaches_it_both_ways(self, host: Host, echo: str) -> None:
        data = os.urandom(2 * MB)
        with host.forward(echo) as path:
            for _ in range(2):
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(str(path))
                    sender = threading.Thread(target=s.sendall, args=(data,))
                    sender.start()
                    got = b""
                    while len(got) < len(data) and (more := s.recv(65536)):
                        got += more
                    sender.join()
                    assert got == data
        if not Path(echo).exists():
            assert not path.exists()

    def test_nobody_there(self, host: Host) -> None:
        with host.forward("1") as path, socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            assert s.recv(1) == b""


def test_close_leaves_no_process_and_may_be_used_again(host: Host) -> None:
    host.run(["true"])
    stream = host.open(["cat"])
    stream.close()
    host.close()
    host.close()
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert [pid for pid in mine if b"ControlMaster" in Path(f"/proc/{pid}/cmdline").read_bytes()] == []
    assert host.run(["echo", "again"]).out == b"again\n"

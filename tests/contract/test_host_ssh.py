"""What only a far machine can do to us: refuse, be silent, be cut off, be noisy, be odd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from real.sshd import Sshd, free_port, wait_for
from stoker.base.errors import InvalidSpec, TargetError
from stoker.hosts.ssh import SshHost, parse_destination, script
from stoker.hosts.ssh_says import explain

pytestmark = pytest.mark.real("sshd")


@pytest.fixture
def host(sshd: Sshd) -> Iterator[SshHost]:
    made = SshHost("127.0.0.1", options=sshd.options)
    yield made
    made.close()


@pytest.fixture
def other_sshd(short_tmp: Path) -> Iterator[Callable[..., Sshd]]:
    """Starts an sshd with settings of its own."""
    made: list[Sshd] = []

    def start(*settings: str) -> Sshd:
        made.append(Sshd(short_tmp / f"d{len(made)}", settings=settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


def refusal(options: tuple[str, ...], where: str = "127.0.0.1") -> TargetError:
    host = SshHost(where, options=options)
    try:
        with pytest.raises(TargetError) as raised:
            host.run(["true"])
        with pytest.raises(TargetError):
            host.open(["true"])
        return raised.value
    finally:
        host.close()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[TargetError]]:
    """Start the work; the TargetError that it raises lands in the list."""
    errors: list[TargetError] = []

    def run() -> None:
        try:
            work()
        except TargetError as e:
            errors.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


class TestRefused:
    def test_nothing_listens(self, sshd: Sshd) -> None:
        error = refusal(sshd.with_option("Port", str(free_port())))
        assert error.retry and "ssh 127.0.0.1 true" in error.hint

    def test_somebody_else_listens(self, sshd: Sshd) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()

            def hang_up() -> None:
                for _ in range(2):
                    s.accept()[0].close()

            thread = threading.Thread(target=hang_up)
            thread.start()
            error = refusal(sshd.with_option("Port", str(s.getsockname()[1])))
            thread.join(10)
        assert error.retry

    def test_it_says_nothing(self, sshd: Sshd) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            host = SshHost("127.0.0.1", options=("ConnectTimeout=1", *sshd.with_option("Port", str(s.getsockname()[1]))))
            with pytest.raises(TargetError) as raised:
                host.run(["true"])
        assert raised.value.retry

    def test_a_queue_of_callers_waits_once(self, sshd: Sshd) -> None:
        """Ten threads that ask a silent machine are done after one time-out, or two, not ten."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            host = SshHost("127.0.0.1", options=("ConnectTimeout=2", *sshd.with_option("Port", str(s.getsockname()[1]))))
            asked = [in_thread(lambda: host.run(["true"])) for _ in range(10)]
            for thread, _ in asked:
                thread.join(15)
                assert not thread.is_alive()
            assert all(errors and errors[0].retry for _, errors in asked)

    def test_wrong_key(self, sshd: Sshd) -> None:
        error = refusal(sshd.with_option("IdentityFile", f"{sshd.folder}/stranger_key"))
        assert not error.retry and "ssh-copy-id 127.0.0.1" in error.hint

    def test_unknown_host_key(self, sshd: Sshd) -> None:
        """Whether to trust it is the user's decision: nothing is learned behind their back."""
        error = refusal(sshd.with_option("UserKnownHostsFile", f"{sshd.folder}/nobody"))
        assert not error.retry and "Answer yes only" in error.hint
        assert (sshd.folder / "nobody").read_text() == ""

    def test_changed_host_key(self, sshd: Sshd, tmp_path: Path) -> None:
        key = " ".join((sshd.folder / "stranger_key.pub").read_text().split()[:2])
        (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {key}\n")
        error = refusal(sshd.with_option("UserKnownHostsFile", str(tmp_path / "known")))
        assert not error.retry and "ssh-keygen -R" in error.hint

    def test_an_account_without_a_shell(self, other_sshd: Callable[..., Sshd]) -> None:
        error = refusal(other_sshd("ForceCommand=echo This account is currently not available.; exit 1").options)
        assert not error.retry and "did not run the command" in error.message

    def test_no_ssh_on_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        error = refusal(())
        assert not error.retry and "openssh-client" in error.hint


class TestCut:
    def test_while_a_command_runs(self, host: SshHost, sshd: Sshd, tmp_path: Path) -> None:
        thread, errors = in_thread(lambda: host.run(["sh", "-c", f"touch {tmp_path}/here; exec sleep 5"]))
        wait_for((tmp_path / "here").exists, 10, "the command did not start")
        sshd.cut()
        thread.join(10)
        assert len(errors) == 1 and errors[0].retry and errors[0].hint
        assert host.run(["echo", "back"]).out == b"back\n"

    def test_while_a_stream_is_open(self, host: SshHost, sshd: Sshd) -> None:
        with host.open(["sh", "-c", "echo $$; exec cat"]) as stream:
            far = int(stream.stdout.read(100))
            sshd.cut()
            assert stream.stdout.read(1) == b""
            with pytest.raises(TargetError) as raised:
                stream.wait(10)
            assert raised.value.retry
            wait_for(lambda: not Path(f"/proc/{far}").exists(), 10, "the far command still lives")

    @pytest.mark.parametrize("way", ["put", "get"])
    def test_while_a_file_travels(self, host: SshHost, sshd: Sshd, tmp_path: Path, way: str) -> None:
        with open(tmp_path / "big", "wb") as f:
            f.truncate(4 << 30)
        carry = {"put": lambda: host.put(tmp_path / "big", f"{tmp_path}/to"), "get": lambda: host.get(f"{tmp_path}/big", tmp_path / "to")}
        thread, errors = in_thread(carry[way])
        wait_for(lambda: any(n.startswith(".to.part-") for n in os.listdir(tmp_path)), 10, "it never began")
        sshd.cut()
        thread.join(10)
        assert len(errors) == 1 and errors[0].retry
        wait_for(lambda: os.listdir(tmp_path) == ["big"], 10, f"left behind: {os.listdir(tmp_path)}")


class TestSilent:
    """A machine that says nothing any more, as when its cable is out: what serves the connection stands still."""

    @pytest.fixture
    def silent(self, sshd: Sshd) -> Iterator[tuple[SshHost, Callable[[], None]]]:
        host = SshHost("127.0.0.1", options=("ServerAliveInterval=1", "ServerAliveCountMax=1", *sshd.options))
        stopped: list[int] = []

        def hush() -> None:
            for pid in sshd.connections():
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)

        yield host, hush
        host.close()
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def test_a_question_is_asked_again_over_a_new_connection_and_runs_once(self, silent: tuple[SshHost, Callable[[], None]], sshd: Sshd,
                                                                           tmp_path: Path) -> None:
        host, hush = silent
        host.run(["true"])
        hush()
        assert host.run(["sh", "-c", f"echo once >> {tmp_path}/f"], timeout_s=60).code == 0
        for pid in sshd.connections():
            with contextlib.suppress(ProcessLookupError):  # the new connection is ending by itself
                os.kill(pid, signal.SIGCONT)
        assert host.run(["cat", f"{tmp_path}/f"]).out == b"once\n"

    def test_a_question_that_has_little_time(self, silent: tuple[SshHost, Callable[[], None]]) -> None:
        host, hush = silent
        host.run(["true"])
        hush()
        with pytest.raises(TargetError) as raised:
            host.run(["true"], timeout_s=0.3)
        assert raised.value.retry and "within 0.3 s" in raised.value.message

    def test_a_stream(self, silent: tuple[SshHost, Callable[[], None]]) -> None:
        host, hush = silent
        with host.open(["cat"]) as stream:
            hush()
            assert stream.stdout.read(1) == b""
            with pytest.raises(TargetError):
                stream.wait(10)


class TestConnection:
    def test_one_log_in_for_everything(self, other_sshd: Callable[..., Sshd], tmp_path: Path) -> None:
        sshd = other_sshd()
        host = SshHost("127.0.0.1", options=sshd.options)
        (tmp_path / "f").write_text("x")
        with host.open(["cat"]):
            host.run(["true"])
            host.put(tmp_path / "f", str(tmp_path / "g"))
        assert sshd.logins() == 1
        host.close()
        wait_for(lambda: not sshd.connections(), 10, "the connection is still open")

    def test_a_machine_that_allows_few_sessions(self, other_sshd: Callable[..., Sshd]) -> None:
        host = SshHost("127.0.0.1", options=other_sshd("MaxSessions=2").options)
        streams = [host.open(["cat"]) for _ in range(4)]
        try:
            assert host.run(["echo", "x"]).out == b"x\n"
        finally:
            for stream in streams:
                stream.close()
            host.close()

    def test_killing_us_leaves_nothing(self, sshd: Sshd) -> None:
        text = f"""import sys; from stoker.hosts.ssh import SshHost
host = SshHost("127.0.0.1", options={sshd.options!r})
stream = host.open(["sh", "-c", "echo $$; exec cat"])
print(int(stream.stdout.read(100)), stream.pid, host._master.pid, flush=True)
sys.stdin.read()"""
        child = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pids = [int(word) for word in child.stdout.readline().split()]
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert len(pids) == 3
        for pid in pids:
            wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 10, f"process {pid} still lives")

    def test_the_control_folder_is_private(self, host: SshHost) -> None:
        host.run(["true"])
        folder = Path(f"/tmp/stoker-{os.getuid()}")
        assert folder.stat().st_mode & 0o777 == 0o700
        mine = [p for p in folder.iterdir() if p.name.startswith(f"m{os.getpid()}-")]
        assert mine
        host.close()
        assert not any(p.exists() for p in mine)

    def test_a_noisy_login(self, other_sshd: Callable[..., Sshd], tmp_path: Path) -> None:
        """A .bashrc that prints is common; nothing of it gets into an answer."""
        sshd = other_sshd('ForceCommand=echo Welcome; exec sh -c "$SSH_ORIGINAL_COMMAND"')
        host = SshHost("127.0.0.1", options=sshd.options)
        data = os.urandom(100_000)
        assert host.run(["cat"], stdin=data).out == data
        (tmp_path / "f").write_bytes(data)
        host.put(tmp_path / "f", str(tmp_path / "g"))
        host.get(str(tmp_path / "g"), tmp_path / "h")
        assert (tmp_path / "h").read_bytes() == data
        with host.open(["cat"]) as stream:
            stream.stdin.write(b"x")
            assert stream.stdout.read(10) == b"x"
        host.close()

    @pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "tcsh", "fish"])
    def test_any_login_shell(self, other_sshd: Callable[..., Sshd], tmp_path: Path, shell: str) -> None:
        """What stands in the user's passwd entry reads one fixed line; no word of ours."""
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        host = SshHost("127.0.0.1", options=other_sshd(f'ForceCommand=exec {shell} -c "$SSH_ORIGINAL_COMMAND"').options)
        words = ["it's", "a\\b", "!x", "$HOME", "a\nb", "{a,b}", "*", "", "火车", "(x)", "~"]
        assert host.run(["printf", "%s\\0", *words]).out == "\0".join([*words, ""]).encode()
        (tmp_path / "f").write_bytes(b"\0x")
        host.put(tmp_path / "f", str(tmp_path / "g"))
        assert (tmp_path / "g").read_bytes() == b"\0x" and host.home() and host.python()
        host.close()

    def test_the_users_own_config(self, sshd: Sshd, short_tmp: Path) -> None:
        """Names and keys come from it; what it sets for a person at a terminal does not disturb us."""
        options = "".join(f"  {each.replace('=', ' ', 1)}\n" for each in sshd.options)
        (short_tmp / "config").write_text(
            f"Host box\n  HostName 127.0.0.1\n{options}  RemoteCommand echo no\n  RequestTTY force\n  LogLevel QUIET\n"
            f"  ControlMaster auto\n  ControlPath {short_tmp}/theirs\n  ControlPersist yes\n  LocalForward {free_port()} 127.0.0.1:1\n")
        host = SshHost(f"-F {short_tmp}/config box")
        assert host.run(["tty"]).out == b"not a tty\n"
        host.close()
        assert not (short_tmp / "theirs").exists()

    def test_through_a_jump_host(self, sshd: Sshd, short_tmp: Path) -> None:
        options = "".join(f"  {each.replace('=', ' ', 1)}\n" for each in sshd.options)
        (short_tmp / "config").write_text(f"Host hop box\n  HostName 127.0.0.1\n{options}Host box\n  ProxyJump hop\n")
        host = SshHost(f"-F {short_tmp}/config box")
        before = sshd.logins()
        assert host.run(["echo", "there"]).out == b"there\n"
        assert sshd.logins() == before + 2
        host.close()


@pytest.mark.parametrize(("where", "words"), [
    ("box", ["box"]),
    ("me@10.0.0.7", ["me@10.0.0.7"]),
    ("-p 12345 root@connect.example.com", ["-p", "12345", "root@connect.example.com"]),
    ("-p12345 -J 'hop' box", ["-p12345", "-J", "hop", "box"]),
])
def test_what_one_types_after_ssh(where: str, words: list[str]) -> None:
    assert parse_destination(where) == words


@pytest.mark.parametrize("where", ["", "-p", "-i key", "-oProxyCommand=x", "box ls", "-R 1:2 box", "'", "-N box", "-p 22"])
def test_what_is_not_a_machine(where: str) -> None:
    with pytest.raises(InvalidSpec):
        parse_destination(where)


def test_the_times_of_a_machine_come_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh takes the first value of a setting: `-o ServerAliveInterval=1` of a machine counts, its RemoteCommand does not."""
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\nexit 255\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host = SshHost("-o ServerAliveInterval=1 -o RemoteCommand=ls box")
    with pytest.raises(TargetError):
        host.run(["true"])
    words = (tmp_path / "words").read_text().split("\n")
    assert words.index("ServerAliveInterval=1") < words.index("ServerAliveInterval=5") < words.index("box")
    assert words.index("RemoteCommand=none") < words.index("RemoteCommand=ls")


def test_words_of_a_command_are_quoted() -> None:
    assert script(["echo", "$HOME; 'x'"], b"M", 7).decode() == (
        "printf '%s\\n' M\ncd 2>/dev/null\nset --\nif timeout -k 1 9 true 2>/dev/null; then set -- timeout -k 5 7; fi\n"
        "\"$@\" echo '$HOME; '\"'\"'x'\"'\"''\nprintf '\\n%s %d\\n' M $? >&2")


@pytest.mark.parametrize(("said", "code", "retry", "words"), [
    ("ssh: connect to host box port 22: Connection refused", 255, True, "refused the connection"),
    ("ssh: connect to host box port 22: Connection timed out", 255, True, "does not answer"),
    ("ssh: connect to host box port 22: No route to host", 255, True, "does not answer"),
    ("ssh: Could not resolve hostname box: Name or service not known", 255, False, "no machine with the name"),
    ("ssh: Could not resolve hostname box: Temporary failure in name resolution", 255, True, "name lookup for"),
    ("me@box: Permission denied (publickey,password).", 255, False, "refused the ssh key"),
    ("Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures", 255, False, "refused the ssh key"),
    ("Host key verification failed.", 255, False, "is unknown"),
    ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", 255, False, "has changed"),
    ("/home/me/.ssh/config: line 3: Bad configuration option: foo", 255, False, "configuration"),
    ("Unable to negotiate with 1.2.3.4 port 22: no matching host key type found.", 255, False, "no common algorithm"),
    ("kex_exchange_identification: Connection closed by remote host", 255, True, "cannot be reached"),
    ("client_loop: send disconnect: Broken pipe", 255, True, "cannot be reached"),
    ("", 255, True, "cannot be reached"),
    ("This account is currently not available.", 1, False, "did not run the command"),
])
def test_what_ssh_says(said: str, code: int, retry: bool, words: str) -> None:
    error = explain(said, "box", code)
    assert error.retry is retry and words in error.message and "{" not in error.message + error.hint
    options = "-o Port=42 -i key me@box"
    error = explain(said, options, code)
    assert "Port=42" not in error.message and options in error.hint

"""A real sshd on loopback, with keys and known hosts of its own, under a temp folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path


def program() -> str | None:
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class Sshd:
    """`.options` are what SshHost needs to reach it; `.log` counts the log-ins; `cut()` ends all its connections."""

    def __init__(self, folder: Path, *, settings: tuple[str, ...] = (), address: str = "127.0.0.1", inside: tuple[str, ...] = (),
                 variables: tuple[str, ...] = ()) -> None:
        """`inside`: the words before sshd's that put it elsewhere; `variables`: NAME=VALUE for what it starts."""
        self.folder = folder
        self.address = address
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.port = free_port()
        for name in ("host_key", "user_key", "stranger_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "keys").write_bytes((folder / "user_key.pub").read_bytes())
        key = " ".join((folder / "host_key.pub").read_text().split()[:2])
        (folder / "known").write_text(f"[{address}]:{self.port} {key}\n")
        (folder / "nobody").write_text("")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self._log = folder / "log"
        argv = [*inside, program(), "-D", "-f", "/dev/null", "-E", self._log]
        for each in (f"Port={self.port}", f"ListenAddress={address}", f"HostKey={folder}/host_key", f"AuthorizedKeysFile={folder}/keys",
                     "StrictModes=no", "UsePAM=no", "PasswordAuthentication=no", f"PidFile={folder}/pid",
                     f"SetEnv={' '.join((f'HOME={self.home}', *variables))}", "LogLevel=VERBOSE", "MaxStartups=100", *settings):
            argv += ["-o", each]
        self._process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL)
        wait_for(lambda: accepts(self.port, self.address), 10, f"sshd does not listen: {self.log()}")

    @property
    def options(self) -> tuple[str, ...]:
        return (f"Port={self.port}", f"IdentityFile={self.folder}/user_key", "IdentitiesOnly=yes",
                f"UserKnownHostsFile={self.folder}/known", "GlobalKnownHostsFile=/dev/null")

    def with_option(self, name: str, value: str) -> tuple[str, ...]:
        """The options with one of them another."""
        return tuple(f"{name}={value}" if each.startswith(name + "=") else each for each in self.options)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def logins(self) -> int:
        return self.log().count("Accepted publickey")

    def connections(self) -> list[int]:
        """The pids of the processes that serve a connection."""
        return children(self._process.pid)

    def cut(self) -> None:
        """Kill what serves the connections, as a machine that goes away would; sshd itself goes on."""
        for pid in self.connections():
            for each in [*children(pid), pid]:
                if _is_sshd(each):
                    _kill(each)

    def listens(self) -> bool:
        """False after `halt`, until `again`."""
        return self._process.poll() is None

    def halt(self) -> None:
        """End sshd with all its connections, as a machine that is switched off; what it started goes on."""
        serving = self.connections()
        self._process.terminate()
        self._process.wait(10)
        for pid in [each for top in serving for each in (*children(top), top)]:
            if _is_sshd(pid):
                _kill(pid)

    def again(self) -> None:
        """After `halt`: let it listen again."""
        self._process = subprocess.Popen(self._process.args, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL)
        wait_for(lambda: accepts(self.port, self.address), 10, f"sshd does not listen: {self.log()}")

    def close(self) -> None:
        self.cut()
        self._process.terminate()
        self._process.wait(10)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def accepts(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as s:
        return s.connect_ex((address, port)) == 0


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_for(condition, timeout_s: float, why: str) -> None:
    """Return when `condition()` is true; fail with `why` after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.01)


def _is_sshd(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")
    except OSError:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass

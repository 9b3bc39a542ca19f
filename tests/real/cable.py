"""A far machine with a cable that can be pulled out: sshd in a network namespace of its own, joined to this one by a veth pair.

Needs root. The namespace is a network only: files, processes and the clock are this machine's. Names begin with `st-PID-`, so that what a
killed test left behind is removed by the next one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
import time
from pathlib import Path

from real.sshd import Sshd, wait_for

NETWORK = ipaddress.ip_network("198.18.0.0/15")  # for tests of network devices, RFC 2544: no machine of the internet
PREFIX = "st-"
KEEP_ALIVE = ("ServerAliveInterval=1", "ServerAliveCountMax=2", "ConnectTimeout=2")  # a cut is noticed after 2 to 3 s


class Far:
    """A machine at the other end of a cable; `.options` are what ssh needs to reach it at `.address`. Close it, whatever happens.

    `before`: shell commands that its sshd, and all that it starts, see the results of (mounts). `variables`: NAME=VALUE for all it starts.
    """

    def __init__(self, folder: Path, *, before: str = "", variables: tuple[str, ...] = (), settings: tuple[str, ...] = ()) -> None:
        _sweep()
        self.name, self._near, far, here, there = _free_names()
        self.address, self._far = there, far
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", self._near, "type", "veth", "peer", "name", far, "netns", self.name)
            _ip("addr", "add", f"{here}/30", "dev", self._near)
            _ip("link", "set", self._near, "up")
            _ip("-n", self.name, "addr", "add", f"{there}/30", "dev", far)
            _ip("-n", self.name, "link", "set", "lo", "up")
            self.plug_in()
            self.sshd = Sshd(folder, address=there, inside=self._inside(before), variables=variables, settings=settings)
        except BaseException:
            self.close()
            raise
        self.home, self.options = self.sshd.home, (f"HostName={there}", *self.sshd.options)

    def _inside(self, before: str) -> tuple[str, ...]:
        shell = ("sh", "-c", f'{before}\nexec "$@"', "sh") if before else ()
        return ("ip", "netns", "exec", self.name, *shell)

    def pull_out(self) -> None:
        """The cable is out: packets are lost both ways, and nobody is told."""
        _ip("-n", self.name, "link", "set", self._far, "down")

    def plug_in(self) -> None:
        """The cable is in."""
        _ip("-n", self.name, "link", "set", self._far, "up")

    def slow(self, megabits: float) -> None:
        """At most so many megabits a second from now on, each way; 0: as fast as it can."""
        for where, link in (((), self._near), (("-n", self.name), self._far)):
            subprocess.run(["tc", *where, "qdisc", "del", "dev", link, "root"], capture_output=True, check=False)
            if megabits:
                limit = ("rate", f"{round(megabits * 1000)}kbit", "burst", "16kb", "latency", "50ms")
                subprocess.run(["tc", *where, "qdisc", "add", "dev", link, "root", "tbf", *limit], check=True)

    def pids(self) -> list[int]:
        """All that runs there: sshd, caretakers, runs."""
        return [int(each) for each in _ip("netns", "pids", self.name).split()]

    def power_off(self) -> None:
        """SIGKILL all that runs there, at once."""
        _kill_all(self.name)

    def boot(self, before: str = "") -> None:
        """After `power_off`: sshd again, with other mounts."""
        inside = self._inside(before)
        argv = list(self.sshd._process.args)
        self.sshd._process.wait(10)
        self.sshd._process.args = [*inside, *argv[next(i for i, word in enumerate(argv) if str(word).endswith("/sshd")):]]
        self.sshd.again()

    def close(self) -> None:
        """End all that runs there, and remove the network."""
        sshd = getattr(self, "sshd", None)
        _kill_all(self.name)
        if sshd is not None:
            sshd._process.wait(10)
        _remove(self.name)


def settings(far: Far, extra: tuple[str, ...] = KEEP_ALIVE) -> list[str]:
    """The words after `ssh` that reach the machine, with times of keep-alive that tests can wait for."""
    words = [word for each in (*far.options, *extra) for word in ("-o", each)]
    return [*words, "box"]


def _free_names() -> tuple[str, str, str, str, str]:
    """(namespace, near link, far link, near address, far address) that nobody uses."""
    taken = set(_ip("netns", "list").split())
    addresses = _ip("-o", "-4", "addr", "show")
    for n in range(1000):
        block = (os.getpid() * 64 + n) % (NETWORK.num_addresses // 4)
        here, there = (str(NETWORK[4 * block + i]) for i in (1, 2))
        name = f"{PREFIX}{os.getpid()}-{n}"
        if name not in taken and f" {here}/" not in addresses:
            return name, f"st{block:x}a", f"st{block:x}b", here, there
    raise AssertionError("no free address for a namespace")


def _sweep() -> None:
    """Remove namespaces of tests that are gone."""
    for name in {word for word in _ip("netns", "list").split() if word.startswith(PREFIX)}:
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _kill_all(name)
            _remove(name)


def _kill_all(name: str) -> None:
    """SIGKILL whatever runs in a namespace, until nothing does."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        pids = [int(each) for each in done.stdout.split()]
        if all(map(_is_over, pids)):
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _is_over(pid: int) -> bool:
    """Gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _remove(name: str) -> None:
    """Remove a namespace; its links go with it, the kernel takes a moment for that."""
    links = [word.partition("@")[0] for word in _ip("-o", "link", "show", "type", "veth").split() if word.startswith("st")]
    inside = subprocess.run(["ip", "-n", name, "-o", "link", "show", "type", "veth"], capture_output=True, text=True, check=False).stdout
    mine = [link for link in links if f" {link.removesuffix('a')}b@" in inside]
    for link in mine:
        subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    wait_for(lambda: name not in _ip("netns", "list").split(), 10, f"the namespace {name} stays")


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

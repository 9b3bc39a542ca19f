"""Attacks over the wires: a far machine that lies, floods and is cut off;
requests that are malformed, huge, or never end."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from benchmarks.attacks import Attack, Skipped, attack
from benchmarks.ground import NUMBERED, REPO, Ground, cmdline, memory_bytes, numbered, until

ATTACKS: list[Attack] = []
MEMORY_MAX = 600 << 20  # of the server, whatever is sent to it

# What stands in the place of the agent on a far machine, as sh.
ANSWERS = {
    "garbage": "head -c 100000 /dev/urandom",
    "escapes": 'printf \'\\033]0;owned\\007\\033[2J{"error": "\\033[31mred", "detail": "x\\ny"}\\n\'; exit 1',
    "brackets": "head -c 200000 /dev/zero | tr '\\0' '['",
    "a flood": "exec cat /dev/zero",
    "a flood of lines": 'exec yes \'{"id": "x", "phase": "running"}\'',
    "a flood of errors": "exec cat /dev/zero >&2",
    "silence": "exec sleep 600",
    "an exit": "exit 255",
}


# -- ssh


@contextlib.contextmanager
def _far(ground: Ground) -> Iterator[object]:
    """A real sshd on loopback, which is the target "far" of the ground while this lasts."""
    if not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin"):
        raise Skipped("sshd is not installed")
    spec = importlib.util.spec_from_file_location("real_sshd", REPO / "tests" / "real" / "sshd.py")
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    folder = ground.root / f"sshd-{time.monotonic_ns()}"
    sshd = real.Sshd(folder)
    words = "\n".join(option.replace("=", " ", 1) for option in sshd.options)
    (folder / "ssh_config").write_text(f"Host far\n HostName 127.0.0.1\n{words}\n")
    ground.home.mkdir(mode=0o700, exist_ok=True)
    (ground.home / "config.toml").write_text(
        f'[targets.far]\nhost = "-F {folder}/ssh_config far"\nroot = "{folder}/root"\n'
    )
    try:
        yield sshd
    finally:
        ground.end_runs()
        (ground.home / "config.toml").unlink()
        sshd.close()


@attack(ATTACKS, "ssh", "the connection of logs -f is cut six times")
def followed(ground: Ground) -> None:
    with _far(ground) as sshd:
        run = ground.detach(
            "--target", "far", "--", "python3", "-c", NUMBERED, "80", "0.1", "/dev/null", timeout_s=90
        )
        out = ground.root / "followed"
        with open(out, "wb") as file:
            reader = ground.start_stoker("logs", "-f", run["id"], stdout=file)
        for cut in range(1, 7):
            until(lambda cut=cut: out.read_bytes().count(b"\n") >= 10 * cut, 60, f"{10 * cut} lines")
            sshd.cut()
        code = reader.wait(90)
        assert (code, out.read_bytes()) == (0, numbered(80)), (code, len(out.read_bytes()))


@attack(ATTACKS, "ssh", "the machine is gone for good in the middle of logs -f")
def gone(ground: Ground) -> None:
    with _far(ground) as sshd:
        run = ground.detach(
            "--target", "far", "--", "python3", "-c", NUMBERED, "100", "0.1", "/dev/null", timeout_s=90
        )
        out = ground.root / "gone"
        with open(out, "wb") as file:
            reader = ground.start_stoker("logs", "-f", run["id"], stdout=file)
        until(lambda: out.read_bytes().count(b"\n") >= 5, 60, "some lines")
        sshd.halt()
        assert reader.wait(240) == 5, reader.returncode
        sshd.again()
        ground.wait_state(run["id"], timeout_s=120)
        assert ground.stoker("logs", run["id"]).ok().stdout == numbered(100)


@attack(ATTACKS, "ssh", "the connection is cut while the code travels, and during the run")
def cut_often(ground: Ground) -> None:
    (ground.work / "big").write_bytes(bytes(30_000_000))
    with _far(ground) as sshd:
        runs = [
            ground.detach(
                "--target", "far", "--", "python3", "-c", NUMBERED, "40", "0.1", "/dev/null", timeout_s=90
            )
            for _ in range(3)
        ]
        for _ in range(6):
            until(sshd.connections, 90, "a connection")
            sshd.cut()
            time.sleep(1)
        for run in runs:
            assert ground.wait_state(run["id"], timeout_s=180)["state"] == "done"
            assert ground.stoker("logs", run["id"]).ok().stdout == numbered(40)
    (ground.work / "big").unlink()


@attack(ATTACKS, "ssh", "names that a shell would read")
def names(ground: Ground) -> None:
    with _far(ground):
        mark = ground.root / "owned"
        words = [
            f"$(touch {mark})",
            f"`touch {mark}`",
            f"; touch {mark} #",
            f"'\"\n touch {mark}\n",
            "-oProxyCommand=x",
            "--",
            "*",
        ]
        run = ground.detach("--target", "far", "--", "printf", "%s\\n", *words, timeout_s=90)
        ended = ground.wait_state(run["id"], timeout_s=90)
        assert ended["state"] == "done" and not mark.exists(), ended
        assert ground.stoker("logs", run["id"]).ok().out == "".join(f"{word}\n" for word in words)


def _lies(answer: str) -> Callable[[Ground], None]:
    def act(ground: Ground) -> None:
        with _far(ground) as sshd:
            run = ground.detach("--target", "far", "--", "sleep", "600", timeout_s=90)
            ground.wait_state(run["id"], "running", timeout_s=90)
            agents = Path(sshd.folder) / "root" / "agent"
            # the far machine is somebody else's now: what is asked there answers so
            for agent in agents.glob("agent-*/__main__.py"):
                agent.rename(agent.with_suffix(".true"))
                agent.write_text(f"import os\nos.execv('/bin/sh', ['sh', '-c', {answer!r}])\n")
            peak, until_ = 0, time.monotonic() + 8
            while time.monotonic() < until_:
                peak = max(peak, memory_bytes(ground.server_pid()))
                time.sleep(0.1)
            assert peak < MEMORY_MAX, f"the server took {peak >> 20} MB"
            shown = ground.stoker("show", run["id"], timeout_s=150)
            assert b"\x1b" not in shown.stdout and "Traceback" not in shown.err
            assert [each["id"] for each in ground.stoker("ps", "--json").ok().json()].count(run["id"]) == 1
            for agent in agents.glob("agent-*/__main__.py"):
                agent.with_suffix(".true").rename(agent)
            ground.stoker("stop", "--force", "--no-wait", run["id"]).ok()
            # a question that was never answered is given up after a minute
            ground.wait_state(run["id"], timeout_s=240)
            until(
                lambda: not any(cmdline(pid).startswith("timeout ") for pid in ground.processes()),
                100,
                "the far clocks end what hangs",
            )
    return act


for _name, _answer in ANSWERS.items():
    attack(ATTACKS, "ssh", f"a far machine that answers with {_name}")(_lies(_answer))


# -- HTTP


def _send(ground: Ground, data: bytes, timeout_s: float = 60) -> tuple[int, bytes]:
    """Status and body of the answer to raw bytes; 0 when the server hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout_s)
        link.connect(str(ground.home / "server" / "sock"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(data)
        answer = HTTPResponse(link)
        try:
            answer.begin()
            return answer.status, answer.read()
        except (HTTPException, ConnectionResetError):
            return 0, b""


def _post(body: bytes, path: str = "/v1/runs") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()  # noqa: E501
        + body
    )


MALFORMED = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x00\xff\xfe\r\n\r\n",
    b"GET /v1/runs HTTP/1.1\r\n\r\n",
    b"GET /v1/runs/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/runs/%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/runs/%ff%fe/show HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/runs?limit=-1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/runs?limit=1e999 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PUT /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",  # noqa: E501
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    b"GET /v1/runs/x/attach HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    _post(b"{"),
    _post(b"[]"),
    _post(b"null"),
    _post(b"[" * 100_000),
    _post(b'{"spec": 5}'),
    _post(b'{"spec": {"command": 5}}'),
    _post(b'{"spec": {"command": []}}'),
    _post(b'{"spec": {"command": ["x"], "folder": "x"}}'),
    _post(b'{"spec": {"command": ["x"], "folder": "/", "id": "../../x"}}'),
    _post(b'{"spec": {"command": ["\\u0000"], "folder": "/"}}'),
    _post(b'{"spec": {"command": ["x"], "folder": "/"}, "env": {"A": 1}}'),
    _post(b'{"spec": {"command": ["x"], "folder": "/"}, "stdin": "%"}'),
    _post(b'{"spec": {"command": ["x"], "folder": "/", "grace_s": [1e999, -1]}}'),
    _post(b'{"grace_s": NaN}', "/v1/runs/x/stop"),
    _post(b'{"seconds": 1e999}', "/v1/runs/x/keep"),
    _post(b'{"older_s": "x"}', "/v1/gc"),
    _post(b"x" * (2 << 20), "/v1/gc"),
    _post(b'{"pid": 1}', "/v1/server/stop"),
]


@attack(ATTACKS, "HTTP", f"{len(MALFORMED)} malformed requests", quick=True)
def malformed(ground: Ground) -> None:
    ground.stoker("ps").ok()
    server = ground.server_pid()
    for data in MALFORMED:
        status, body = _send(ground, data)
        assert status < 500 and b"Traceback" not in body, (data[:60], status, body[:200])
        assert status != 200 or data.startswith(b"GET /v1/runs"), (data[:60], status)
    assert ground.server_pid() == server and "Traceback" not in ground.server_log()


@attack(ATTACKS, "HTTP", "twenty bodies of 62 MB at once")
def bodies(ground: Ground) -> None:
    ground.stoker("ps").ok()
    server = ground.server_pid()
    data = _post(json.dumps({"spec": {"nonsense": 1}, "stdin": "A" * (62 << 20)}).encode())
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: _send(ground, data, 120)[0], range(20)))
    assert set(answers) <= {400, 503}, sorted(set(answers))
    peak = memory_bytes(server, "VmHWM")
    assert peak < MEMORY_MAX, f"the server took {peak >> 20} MB"


@attack(ATTACKS, "HTTP", "500 half-open connections, and bodies that stand still")
def half_open(ground: Ground) -> None:
    ground.stoker("ps").ok()
    body = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n" + b"x" * 1000
    halves = [b"", b"G", b"GET /v1/runs HTTP/1.1\r\nHo", body]
    links = []
    try:
        for number in range(500):
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            links.append(link)
            link.settimeout(60)
            link.connect(str(ground.home / "server" / "sock"))
            link.sendall(halves[number % len(halves)])
        ground.stoker("ps").ok()
        for link in links:
            answer = link.recv(4096)
            assert not answer or answer.startswith(b"HTTP/1.1 408"), answer[:80]
    finally:
        for link in links:
            link.close()
    peak = memory_bytes(ground.server_pid(), "VmHWM")
    assert peak < MEMORY_MAX, f"the server took {peak >> 20} MB"

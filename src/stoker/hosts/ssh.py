"""Any machine that the user reaches by typing `ssh NAME`:
their own OpenSSH, their config, keys, agent and jump hosts.

One connection (a private control master) carries everything.
The login shell there, which may be fish or csh, sees one fixed line;
what to run follows on stdin, so no word of ours is ever read by a shell that we do not know.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import secrets
import select
import shlex
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from stoker.base.config import private_folder
from stoker.base.errors import InvalidSpec, NotFound, StokerError, TargetError
from stoker.hosts import parcel, tree
from stoker.hosts.base import (
    SCARCE,
    Finished,
    HashOf,
    Host,
    Progress,
    Stream,
    converse,
    end_group,
    scarce,
    silent,
    spawn,
    timed_out,
    too_much,
)
from stoker.hosts.local import explain_tree_error
from stoker.hosts.ssh_says import explain

OPTIONS = (
    "RemoteCommand=none",
    "RequestTTY=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlPersist=no",
    "BatchMode=yes",
    "LogLevel=INFO",
)
# a machine's own `-o` comes before these
TIMES = ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
CONNECT_S = 30.0  # from asking for a connection to a running command there, name look-up and log-in included
# an ssh that has closed its stdout is about to end:
# this long for its reason to arrive, on a machine that is busy
SAY_S = 5.0
# our ssh is killed, not asked: it misses a TERM that comes just before it sleeps,
# and the far end hears the same
AT_ONCE_S = 0.0
LAY_OUT_S = 600.0  # for the far end of a transfer to lay out what came
FAR_GRACE_S = 5  # the far side's clock ends a command this long after ours gave up
# What a login shell of any kind reads first. Some machines give commands no PATH, or one that leads nowhere.
_SHELL = (
    "exec /bin/sh -c 'command -v dd >/dev/null 2>&1 || export "
    "PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin; "
)
_FIND_PYTHON = """
try() { "$1" -I -S -c 'import sys; sys.exit(1) if sys.version_info < (3, 8) else print(sys.executable)' 2>/dev/null; }
for p in python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python "$HOME/miniconda3/bin/python" \
    "$HOME/anaconda3/bin/python" /usr/libexec/platform-python; do try "$p" && exit; done
try "$("${SHELL:-sh}" -lc 'command -v python3' 2>/dev/null </dev/null | tail -n 1)"
"""  # noqa: E501
_BOOT = (
    "import os,sys\nn=int(sys.argv[1]); b=b''\nwhile len(b)<n: b+=os.read(0,n-len(b)) or "
    "sys.exit(6)\nexec(compile(b,'tree.py','exec'))"
)
_PARCEL_BOOT = """import os,sys
def take(n):
    b=b''
    while len(b)<n: b+=os.read(0,n-len(b)) or sys.exit(6)
    return b
tree=type(sys)('tree'); exec(compile(take(int(sys.argv[1])),'tree.py','exec'),tree.__dict__)
exec(compile(take(int(sys.argv[2])),'parcel.py','exec'))"""
_numbers = itertools.count(1)


class SshHost(Host):
    """A machine reached by ssh. `where` holds the arguments of `ssh`; `options` are further `-o` settings."""

    few_streams = True

    def __init__(self, where: str, *, options: Sequence[str] = ()) -> None:
        self.name = where
        self._destination = parse_destination(where)
        self._options, self._times = _settings((*options, *OPTIONS)), _settings(TIMES)
        self._lock = threading.Lock()
        self._master: Stream | None = None
        self._control = ""
        self._failure: tuple[float, TargetError] = (0.0, TargetError())
        self._python = self._home = ""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Finished:
        mark = _mark()
        far = script(argv, mark, math.ceil(timeout_s) + FAR_GRACE_S)
        with self._client(far) as process:
            try:
                out, err = converse(
                    process, far + stdin, timeout_s, f"'{os.path.basename(argv[0])}' on {self.name}"
                )
            except subprocess.TimeoutExpired:
                end_group(process, AT_ONCE_S)
                raise timed_out(argv, self.name, timeout_s) from None
            except BaseException:
                end_group(process, AT_ONCE_S)
                raise
        _, found, out = out.partition(mark + b"\n")
        if not found:
            raise explain(err.decode("utf-8", "replace"), self.name, process.returncode)
        ends = list(re.finditer(rb"\n" + mark + rb" (\d+)\n", err))
        if not ends:
            raise _cut(self.name)
        return Finished(int(ends[-1][1]), out, err[:ends[-1].start()] + err[ends[-1].end():])

    def open(self, argv: Sequence[str]) -> Stream:
        mark = _mark()
        far = script(argv, mark)
        stream = Stream(self._client(far), self.name, mark, AT_ONCE_S)
        try:
            with contextlib.suppress(BrokenPipeError):
                stream.stdin.write(far)
            answered = _read_mark(stream.stdout, mark + b"\n", CONNECT_S)
        except BaseException:
            stream.close()
            raise
        if answered:
            return stream
        stream.said(SAY_S)
        stream.close()
        raise explain(stream.stderr_tail(), self.name, 255)

    def put(self, source: Path, target: str) -> None:
        if not os.path.exists(source):
            raise NotFound(f"There is no file or folder {source}.", hint="Check the path.")
        with self._tree("receive", target) as stream:
            failure = None
            try:
                tree.pack(source, stream.stdin)
                stream.stdin.close()
            except BrokenPipeError:
                pass  # the far end gave up, and says why
            except OSError as e:
                failure = e
            if failure is not None:
                raise explain_tree_error(failure) from failure
            _check(stream, f"{self.name}:{target}")

    def get(self, source: str, target: Path, limit: int | None = None) -> None:
        with self._tree("send", source) as stream:
            try:
                tree.unpack(
                    stream.stdout
                    if limit is None
                    else _Limited(stream.stdout, limit, f"{self.name}:{source}"),
                    target,
                )
            except tree.Torn as e:
                _check(stream, f"{self.name}:{source}")
                raise explain_tree_error(e) from e
            except (OSError, tree.Exists) as e:
                raise explain_tree_error(e) from e
            _check(stream, f"{self.name}:{source}")

    def deliver(self, source: Path, target: str, *, shared: str, cache: str, leave: Container[str] = (),
                tell: Progress = silent, hash_of: HashOf = parcel.hash_file) -> None:
        inside = source / shared
        if not inside.is_dir():
            self.give(source, target)
            return
        own = parcel.survey(
            source, lambda path, seen: "", lambda name: name.split("/")[0] != shared and name not in leave
        )
        entries, top = parcel.survey(inside, hash_of), inside.stat()
        hello = {
            "parcel": parcel.name_of(entries),
            "own": own,
            "top": [stat.S_IMODE(top.st_mode) & 0o777, top.st_mtime_ns],
        }
        # content there that is no more what its name says was deleted: once more, with the list
        for whole in (False, True):
            with self._parcels("deliver", cache, target, shared) as (stream, wire):
                wire.tell({**hello, "whole": whole})
                for each in own:
                    if each[0] == parcel.FILE:
                        wire.send((source / each[1]).read_bytes())
                missing = wire.hear()["missing"]
                if missing is None:
                    wire.tell(entries)
                    missing = wire.hear()["missing"]
                parcel.Sender(wire, inside, entries, tell).send(missing)
                stream.stdin.close()
                code = stream.wait(LAY_OUT_S)
                if code != parcel.EXIT_CHANGED or whole:
                    _check(stream, f"{self.name}:{target}")
                    return

    def missing(self, entries: Sequence[list], cache: str) -> list[list]:
        with self._parcels("ask", cache) as (_stream, wire):
            wire.tell(list(entries))
            return wire.hear()["missing"]

    def keep_data(
        self, source: Path, data: str, hash_of: Callable, tell: Progress = silent, expected: str = ""
    ) -> tuple[str, str]:
        entries = [] if expected else parcel.survey(source, hash_of)
        name = expected or parcel.name_of(entries, times=False)
        with self._parcels("keep", data) as (stream, wire):
            wire.tell({"parcel": name, "label": os.path.basename(source)})
            answer = wire.hear()
            if answer["missing"] is None:
                entries = entries or parcel.survey(source, hash_of)
                if parcel.name_of(entries, times=False) != name:
                    raise parcel.Changed(source)
                wire.tell(entries)
                parcel.Sender(wire, source, entries, tell).send(wire.hear()["missing"])
                answer = wire.hear()
            stream.stdin.close()
            return name, answer["at"]

    def ask_parcels(self, verb: str, folder: str, *words: str) -> dict:
        with self._parcels(verb, folder, *words) as (_stream, wire):
            return wire.hear()

    @contextmanager
    def _parcels(self, verb: str, cache: str, *words: str) -> Iterator[tuple[Stream, parcel.Wire]]:
        """The far end of parcel.py, sent ahead after that of tree.py.
        A failure there is raised as what it says."""
        texts = [Path(str(each.__file__)).read_bytes() for each in (tree, parcel)]
        argv = [
            self.python(),
            "-I",
            "-S",
            "-c",
            _PARCEL_BOOT,
            *(str(len(text)) for text in texts),
            verb,
            cache,
            *words,
        ]
        with self.open(argv) as stream:
            wire = parcel.Wire(stream.stdout, stream.stdin)
            try:
                wire.send(b"".join(texts))
                yield stream, wire
            except (BrokenPipeError, tree.Torn) as e:
                _check(stream, f"{self.name}:{words[0] if words else cache}")
                raise _cut(self.name) from e
            except parcel.Changed as e:
                raise TargetError(
                    f"{e} has changed since the run began, or since Stoker listed the files to send.",
                    hint="Wait until no program changes the folder. Then start a new run with --new.",
                    retry=False,
                ) from e
            except OSError as e:
                raise explain_tree_error(e) from e

    @contextmanager
    def forward(self, port_or_socket: str) -> Iterator[Path]:
        far = (
            f"127.0.0.1:{port_or_socket}"
            if port_or_socket.isdigit()
            else os.path.join(self.home(), port_or_socket)
        )
        self._connect()
        control = self._control
        path = f"{control}-{next(_numbers)}"
        self._ask(control, "forward", f"{path}:{far}")
        try:
            yield Path(path)
        finally:
            with contextlib.suppress(TargetError):
                self._ask(control, "cancel", f"{path}:{far}")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def python(self) -> str:
        if not self._python:
            lines = self.run(["sh", "-c", _FIND_PYTHON]).out.decode("utf-8", "surrogateescape").splitlines()
            if not lines or not lines[-1].startswith("/"):
                raise TargetError(f"{self.name} has no Python 3.8 or newer.", retry=False,
                                  hint=f"Install Python there: ssh {self.name}, then apt-get install python3")
            self._python = lines[-1]
        return self._python

    def home(self) -> str:
        if not self._home:
            found = os.fsdecode(self.run(["sh", "-c", 'printf %s "$HOME"']).out)
            if not found.startswith("/"):
                raise TargetError(
                    f"{self.name} does not report its home folder.",
                    hint=f"ssh {self.name} 'echo $HOME'",
                    retry=False,
                )
            self._home = found
        return self._home

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _connect(self) -> None:
        """A living control master, or TargetError.
        Its own command is a `cat` that ends with our end of its stdin, however we end."""
        asked = time.monotonic()
        with self._lock:
            if self._master is not None and self._master.wait(0) is None:
                return
            failed_at, failure = self._failure
            # somebody tried while we waited for the lock:
            # do not let a queue of callers try one after the other
            if failed_at > asked:
                raise TargetError(failure.message, hint=failure.hint, retry=failure.retry)
            self._hang_up()
            self._control = str(
                private_folder(Path(f"/tmp/stoker-{os.getuid()}")) / f"m{os.getpid()}-{next(_numbers)}"
            )
            try:
                self._master = self._log_in()
            except TargetError as e:
                self._failure = (time.monotonic(), e)
                raise

    def _log_in(self) -> Stream:
        mark = _mark()
        stream = Stream(
            self._spawn("yes", f"{_SHELL}echo {mark.decode()}; exec cat >/dev/null'"),
            self.name,
            patience_s=AT_ONCE_S,
        )
        answered = False
        try:
            answered = _read_mark(stream.stdout, mark + b"\n", CONNECT_S)
            if not answered:
                code = stream.said(SAY_S)
                raise explain(stream.stderr_tail(), self.name, code)
        finally:
            if not answered:
                stream.close()
        return stream

    def _hang_up(self) -> None:
        if self._master is not None:
            self._master.close()
            self._master = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._control)

    def _client(self, far: bytes) -> subprocess.Popen[bytes]:
        self._connect()
        return self._spawn("no", f"{_SHELL}eval \"$(dd bs=1 count={len(far)} 2>/dev/null)\"'")

    def _spawn(self, master: str, command: str) -> subprocess.Popen[bytes]:
        ours = [*self._options, *_settings((f"ControlMaster={master}", f"ControlPath={self._control}"))]
        *theirs, place = self._destination
        argv = ["ssh", *ours, *theirs, *self._times, place, command]  # ssh takes the first value of a setting
        try:
            return spawn(argv)
        except OSError as e:
            if e.errno in SCARCE:
                raise scarce(e) from e
            raise TargetError(
                "The program `ssh` cannot be started on this machine.",
                hint="Install it: apt-get install openssh-client",
                retry=False,
            ) from e

    def _ask(self, control: str, verb: str, forwarding: str) -> None:
        argv = [
            "ssh",
            "-F",
            "/dev/null",
            "-o",
            f"ControlPath={control}",
            "-O",
            verb,
            "-L",
            forwarding,
            self._destination[-1],
        ]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=CONNECT_S, check=False
        )
        if done.returncode:
            raise explain(done.stderr.decode("utf-8", "replace"), self.name, 255)

    @contextmanager
    def _tree(self, verb: str, path: str) -> Iterator[Stream]:
        """The far end of a transfer: the same file as the near end, sent ahead."""
        text = Path(tree.__file__).read_bytes()
        with self.open([self.python(), "-I", "-S", "-c", _BOOT, str(len(text)), verb, path]) as stream:
            with contextlib.suppress(BrokenPipeError):
                stream.stdin.write(text)
            yield stream


class _Limited:
    """A stream of bytes that may not be longer than so."""

    def __init__(self, stream: BinaryIO, limit: int, what: str) -> None:
        self._stream, self._limit, self._what = stream, limit, what
        self._left = limit + tree.CHUNK  # for the frame around a file

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise too_much(self._what, self._limit)
        return data


def _settings(options: Sequence[str]) -> list[str]:
    """Settings of ssh_config as words of a command line."""
    return [word for each in options for word in ("-o", each)]


def parse_destination(where: str) -> list[str]:
    """Split the arguments of ssh: "box", "me@10.0.0.7", "-p 12345 root@host". Raises InvalidSpec."""
    try:
        words = shlex.split(where)
    except ValueError as e:
        raise InvalidSpec(f"'{where}' is not a valid argument for ssh: {e}.") from e
    hint = (
        "Write the same arguments as for ssh, such as me@10.0.0.7 or -p 12345 root@host. Put other "
        "settings into ~/.ssh/config."
    )
    if not words or words[-1].startswith("-") or not words[-1]:
        raise InvalidSpec(f"'{where}' does not name a machine.", hint=hint)
    options = iter(words[:-1])
    for word in options:
        if re.fullmatch(r"-[piJloF]", word):
            if next(options, None) is None:
                raise InvalidSpec(f"'{where}' does not name a machine.", hint=hint)
        elif not re.fullmatch(r"-([piJloF].+|[46C]+)", word):
            raise InvalidSpec(f"Stoker does not support the ssh option '{word}' in '{where}'.", hint=hint)
    return words


def script(argv: Sequence[str], mark: bytes, timeout_s: int = 0) -> bytes:
    """Text for sh: report that the login worked, run the arguments unchanged, and print the exit code on
    stderr."""
    clock = (
        f"if timeout -k 1 9 true 2>/dev/null; then set -- timeout -k {FAR_GRACE_S} {timeout_s}; fi\n"
        if timeout_s
        else ""
    )
    hello, ended = b"printf '%s\\n' " + mark, b"printf '\\n%s %d\\n' " + mark + b" $? >&2"
    command = b'"$@" ' + os.fsencode(shlex.join(argv))
    return hello + b"\ncd 2>/dev/null\nset --\n" + clock.encode() + command + b"\n" + ended


def _cut(host: str) -> TargetError:
    return TargetError(
        f"The connection to {host} was cut.",
        hint="Try again; runs on that machine are not affected.",
        retry=True,
    )


def _check(stream: Stream, where: str) -> None:
    """Raise what the far end of a transfer tells by its exit code."""
    code = stream.wait(CONNECT_S)
    if code == 0:
        return
    said = (stream.stderr_tail().strip().splitlines() or ["no reason given"])[-1]
    raise _transfer_error(code, where, said)


def _transfer_error(code: int | None, where: str, said: str) -> StokerError:
    if code == tree.EXIT_NO_SOURCE:
        return NotFound(f"There is no file or folder {where}.", hint="Check the path.")
    if code == tree.EXIT_EXISTS:
        return TargetError(f"{where} exists already; Stoker did not replace it.",
                           hint="Remove that file or folder, or choose another name.", retry=False)
    if code in (tree.EXIT_TORN, None):
        return TargetError(
            f"The copy to or from {where} was interrupted.",
            hint="The partial copy was removed; try again.",
            retry=True,
        )
    return TargetError(f"The copy to or from {where} failed: {said}.",
                       hint="Check the free space and the owner of the folder there.", retry=False)


def _mark() -> bytes:
    """A word that no login message holds by chance: our output begins after it."""
    return b"stoker-" + secrets.token_hex(8).encode()


def _read_mark(stdout: BinaryIO, mark: bytes, timeout_s: float) -> bool:
    """Read up to and including the mark, a byte at a time so that nothing after it is taken.
    False when the stream ended before."""
    deadline = time.monotonic() + timeout_s
    seen = b""
    poller = select.poll()  # select() cannot watch a descriptor above 1023
    poller.register(stdout, select.POLLIN)
    while not seen.endswith(mark):
        ready = poller.poll(1000 * max(0.0, deadline - time.monotonic()))
        data = os.read(stdout.fileno(), 1) if ready else b""
        if not data:
            return False
        seen = (seen + data)[-len(mark):]
    return True

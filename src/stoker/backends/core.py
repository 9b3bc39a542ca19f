"""What is true of every backend, finished: run folders, the agent and its verbs.
A leaf only says where the agent is started.

Every verb but `start` is asked on the host itself, so the run folder must have the same path on the host and
where the run is.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.backends.answers import (
    agent_is_gone,
    is_answers,
    nonsense,
    only,
    parse_answer,
    parse_observations,
    problem,
)
from stoker.backends.base import Backend, Capacity, GpuTaken, LogStream, NotYours, Observation
from stoker.backends.carried import ENTRY, AgentFolder
from stoker.backends.channel import Channels
from stoker.backends.leaf import GONE, Leaf
from stoker.base import rundir, vendor
from stoker.base.errors import InvalidSpec, NotFound, StateError, TargetError
from stoker.base.spec import Limits
from stoker.hosts import parcel
from stoker.hosts.base import HashOf, Host, Progress, Stream, silent

LEAVE = (f"{rundir.CODE}/{rundir.COPY_LIST}",)  # of a run folder: it may be deleted while the folder is sent
PROBE_S = 90.0  # nvidia-smi without persistence mode takes its time
# Arguments: the root, the name of the agent's folder, the names of its files. A folder that lacks one is put
# aside and made anew.
_MAKE_ROOM = """
umask 077
mkdir -p "$1/agent" "$1/runs" || exit
agent=$1/agent/$2
shift 2
for name; do
    if ! test -f "$agent/$name"; then
        if test -e "$agent"; then mv "$agent" "$agent.torn.$$" && rm -rf "$agent.torn.$$"; fi
        echo lacks
        exit
    fi
done
echo has
"""
_ENTER = """
import json, os, sys
run, command = sys.argv[1], sys.argv[2:]
with open(run + "/env", "rb") as f:
    env = dict(item.split(b"=", 1) for item in f.read().split(b"\\0") if b"=" in item)
with open(run + "/spec.json") as f:
    spec = json.load(f)
env[b"STOKER_RUN_DIR"] = os.fsencode(run)
if spec.get("home"):
    env[b"HOME"] = spec["home"].encode("utf-8", "surrogateescape")
os.chdir(os.path.join(run, "work") if spec.get("copy") else spec["folder"].encode("utf-8", "surrogateescape"))
try:
    os.execvpe(command[0], command, env)
except OSError as e:
    sys.stderr.write("%s: %s\\n" % (command[0], e.strerror))
    sys.exit(127 if isinstance(e, FileNotFoundError) else 126)
"""


class Core(Backend):
    """Backend for `host` that uses `leaf` to start runs, with run folders in `root`/runs. A relative `root`
    is relative to the home folder of the machine.
    `owner`: id and hint of this state folder; runs of other state folders are not touched. `order`: how
    the machine is switched off."""

    def __init__(
        self,
        host: Host,
        root: str,
        leaf: Leaf,
        *,
        owner: Mapping[str, str] | None = None,
        order: Mapping | None = None,
    ) -> None:
        self._host, self._leaf = host, leaf
        self._given_root = root
        self._owner, self._order = owner, order
        self._lock = threading.Lock()
        self._channels = Channels(lambda: self._open("follow", self._root()))
        self._agent = AgentFolder()
        self._pushed = False
        self._hooks_there: set[str] = set()

    def stage(self, run_id: str, folder: Path, tell: Progress = silent) -> None:
        self._push_agent()
        target = self._run_dir(run_id)
        if self._exists(target):
            return
        if (rundir.read_json(folder / rundir.SPEC) or {}).get("hooks"):
            self._link_hooks(folder)
        if self._owner:
            rundir.write_json(folder / rundir.OWNED, dict(self._owner))
        try:
            self._host.deliver(
                folder,
                target,
                shared=rundir.WORK,
                cache=f"{self._root()}/cache",
                leave=LEAVE,
                tell=tell,
                hash_of=_recorded(folder),
            )
        except TargetError:
            if not self._exists(target):  # somebody else staged it meanwhile
                raise

    def keep_data(
        self, source: Path, hash_of: Callable, tell: Progress = silent, expected: str = ""
    ) -> tuple[str, str]:
        return self._host.keep_data(source, f"{self._root()}/data", hash_of, tell, expected)

    def data(self, remove: Sequence[str] = ()) -> list[dict]:
        return self._host.ask_parcels("data", f"{self._root()}/data", *remove)["data"]

    def copy_data(self, run_id: str, number: int, at: str) -> str:
        return self._host.ask_parcels(
            "copy", f"{self._root()}/data", at, f"{self._run_dir(run_id)}/data/{number}"
        )["at"]

    def missing(self, entries: Sequence[list]) -> list[list]:
        return self._host.missing(entries, f"{self._root()}/cache")

    def ask(self, program: str, *words: str, python: str = "", timeout_s: float = 60.0) -> object:
        if python.startswith("~/"):
            python = os.path.join(self._host.home(), python[2:])
        interpreter = [python] if python else [self._host.python(), "-I", "-S"]
        done = self._host.run([*interpreter, "-c", program, *words], timeout_s=timeout_s)
        if done.code:
            raise TargetError(
                f"{interpreter[0]} on {self._host.name} does not run: {done.message}.",
                retry=False,
                hint="See the Pythons of a machine: stoker machine check NAME",
            )
        try:
            return json.loads(done.out.splitlines()[-1])
        except (ValueError, IndexError) as e:
            raise nonsense(self._host.name, done.out.decode("utf-8", "replace")) from e

    def start(
        self,
        run_id: str,
        attempt: int,
        gpus: Sequence[str] = (),
        again: bool = False,
        *,
        leases: Sequence[str] = (),
    ) -> str:
        devices = [
            *(["--gpus", ",".join(gpus)] if gpus else []),
            *(["--lease", ",".join(leases)] if leases else []),
        ]
        stdin = json.dumps(self._order).encode("ascii") if self._order else b""
        more = [*(["--again"] if again else []), *(["--order"] if stdin else [])]
        there = (run_id, attempt)
        try:
            answer = only(
                self._ask(
                    "start", self._run_dir(run_id), str(attempt), *devices, *more, stdin=stdin, there=there
                )
            )
        except (NotFound, StateError, GpuTaken):
            self._let_go(there)
            raise
        if answer.get("attempt") != attempt:
            raise nonsense(self._host.name, json.dumps(answer))
        return self._leaf.find([run_id]).get(there, f"{run_id}/{attempt}")

    def poll(self, ids: Sequence[str]) -> dict[str, Observation]:
        if not ids:
            return {}
        found = {
            seen.id: seen
            for seen in parse_observations(self._ask("poll", self._root(), *ids), self._host.name)
        }
        missing = [each for each in ids if each not in found]
        if missing:
            raise nonsense(self._host.name, f"no answer about {missing[0]}")
        return {seen.id: seen for seen in self._judged(list(found.values()))}

    def look(self, asked: Mapping[str, Sequence[Sequence]]) -> dict[str, tuple[Observation, list[dict]]]:
        if not asked:
            return {}
        lines = self._ask("look", self._root(), stdin=json.dumps(asked).encode("ascii"))
        seen = self._judged(parse_observations([line.get("seen") for line in lines], self._host.name))
        found: dict[str, tuple[Observation, Any]] = {
            one.id: (one, line.get("answers")) for one, line in zip(seen, lines, strict=True)
        }
        if found.keys() != asked.keys() or not all(is_answers(answers) for _, answers in found.values()):
            raise nonsense(self._host.name, "some runs are missing in the answer")
        return found

    def watch(self) -> Stream:
        return self._open("watch", self._root())

    def stop(
        self,
        run_id: str,
        grace_s: tuple[float, float],
        reason: str,
        attempt: int | None = None,
        gone: bool = False,
    ) -> None:
        held = self._leaf.find([run_id])
        gone = gone or self._is_gone(held)
        meant = [*([] if attempt is None else ["--attempt", str(attempt)]), *(["--gone"] if gone else [])]
        grace = [f"{each:g}" for each in grace_s]
        answer = only(self._ask("stop", self._run_dir(run_id), *meant, "--grace", *grace, "--reason", reason))
        forced = grace_s == (0.0, 0.0) and reason != "agent_lost" and answer.get("phase") == "unseen"
        if held and (forced or answer.get("phase") == "ended"):
            self._leaf.stop(list(held.values()))

    def attach(self, run_id: str, attempt: int, out: int = 0, err: int = 0, input: bool = True) -> Stream:
        quiet = [] if input else ["--no-input"]
        return self._open(
            "attach", self._run_dir(run_id), str(attempt), "--out", str(out), "--err", str(err), *quiet
        )

    def read(  # noqa: PLR0917
        self,
        run_id: str,
        attempt: int,
        which: str,
        offset: int = 0,
        limit: int | None = None,
        follow: bool = False,
        *,
        tail: int | None = None,
        begins: tuple[int, int] = (0, 0),
    ) -> LogStream:
        if follow and limit is None and which != "both" and self._host.few_streams:
            return self._channels.follow(run_id, attempt, which, offset)
        options = [*([] if limit is None else ["--limit", str(limit)]), *(["--follow"] if follow else [])]
        if which == "both":
            options += ["--from", *map(str, begins)] if tail is None else ["--tail", str(tail)]
        return self._open("read", self._run_dir(run_id), str(attempt), which, str(offset), *options)

    def send(self, run_id: str, wanted: Sequence[tuple[str, int]]) -> Stream:
        stream = self._open("send", self._run_dir(run_id))
        left = memoryview(json.dumps(wanted).encode("ascii") + b"\n")
        try:
            while left:
                left = left[stream.stdin.write(left):]
        except BrokenPipeError:
            pass  # its end says why
        except BaseException:
            stream.close()
            raise
        return stream

    def enter(self, run_id: str) -> list[str]:
        native = _newest(self._leaf.find([run_id]))
        return [
            *self._leaf.inside_argv(native),
            self._host.python(),
            "-I",
            "-S",
            "-c",
            _ENTER,
            self._run_dir(run_id),
        ]

    def capacity(self) -> Capacity:
        before = time.time()
        answer = only(self._ask("probe", self._root(), timeout_s=PROBE_S))
        if isinstance(answer.get("at"), int | float):
            answer["clock_offset_s"] = round(answer["at"] - (before + time.time()) / 2, 3)
        try:
            found = Capacity.from_json(answer)
        except (KeyError, TypeError) as e:
            raise nonsense(self._host.name, json.dumps(answer)) from e
        return self._leaf.capacity(found)

    def write_limits(self, run_id: str, limits: Limits) -> None:
        folder = self._run_dir(run_id)
        if not self._exists(folder):
            raise NotFound(f"The folder of run {run_id} is missing on {self._host.name}.")
        with _file(json.dumps(limits.to_json()).encode() + b"\n") as temp:
            self._host.put(temp, f"{folder}/{rundir.LIMITS}")

    def fetch(self, run_id: str, name: str, target: Path, limit: int | None = None) -> None:
        if not name or os.path.isabs(name) or ".." in Path(name).parts:
            raise InvalidSpec(f"{name!r} is not a path inside a run folder.")
        self._host.get(f"{self._run_dir(run_id)}/{name}", target, limit)

    def remove(self, run_id: str) -> None:
        with contextlib.suppress(NotYours):
            self._ask("rm", self._run_dir(run_id))
            self.release(run_id)

    def release(self, run_id: str) -> None:
        held = self._leaf.find([run_id])
        if held:
            self._leaf.release(list(held.values()))

    def power(self, what: str, body: Mapping | None = None) -> dict:
        return only(self._ask("off", what, self._root(), stdin=json.dumps(dict(body or {})).encode("ascii")))

    def everything(self) -> list[Observation]:
        return parse_observations(self._ask("poll", self._root()), self._host.name)

    def adopt(self, ids: Sequence[str]) -> list[str]:
        body = {"owner": dict(self._owner or {}), "runs": list(ids)}
        return (
            only(self._ask("adopt", self._root(), stdin=json.dumps(body).encode("ascii"))).get("taken") or []
        )

    def close(self) -> None:
        self._channels.close()
        self._host.close()

    def _let_go(self, there: tuple[str, int]) -> None:
        """Give back what was made for an attempt that the agent refused to begin."""
        with contextlib.suppress(TargetError):
            run_id, attempt = there
            native = self._leaf.find([run_id]).get(there)
            if native and attempt not in self.poll([run_id])[run_id].attempts:
                self._leaf.release([native])

    def _judged(self, seen: list[Observation]) -> list[Observation]:
        """Unseen runs whose allocation is gone by the leaf's word are abandoned;
        all are asked about at once."""
        unseen = [each.id for each in seen if each.phase == "unseen"]
        held = self._leaf.find(unseen) if unseen else {}
        newest = {each.id: held.get((each.id, each.attempt), "") for each in seen
                  if each.phase == "unseen" and each.attempt is not None}
        asked = [native for native in newest.values() if native]
        states = self._leaf.states(asked) if asked else {}
        lost = {run_id for run_id, native in newest.items() if states.get(native) == GONE}
        return [replace(each, phase="abandoned") if each.id in lost else each for each in seen]

    def _is_gone(self, held: Mapping[tuple[str, int], str]) -> bool:
        native = _newest(held)
        return bool(native) and self._leaf.states([native]).get(native) == GONE

    def _root(self) -> str:
        return os.path.join(self._host.home(), self._given_root.removeprefix("~/"))

    def _run_dir(self, run_id: str) -> str:
        if not run_id or "/" in run_id or "\0" in run_id or run_id.startswith("."):
            raise InvalidSpec(f"{run_id!r} is not a run id.")
        return f"{self._root()}/runs/{run_id}"

    def _exists(self, path: str) -> bool:
        return self._host.run(["test", "-e", path]).code == 0

    def _push_agent(self) -> None:
        """See that the machine has our version of the agent; asked once."""
        with self._lock:
            if self._pushed:
                return
            self._host.python()  # first: where there is none, nothing is left behind
            done = self._host.run(
                ["sh", "-c", _MAKE_ROOM, "sh", self._root(), self._agent.name, *self._agent.files()]
            )
            if done.code:
                raise TargetError(
                    f"The folder {self._root()} cannot be created on {self._host.name}: {done.message}.",
                    retry=False,
                    hint="Choose another `root` for this target in config.toml.",
                )
            if not done.out.endswith(b"has\n"):
                self._put_folder(self._agent.lay_out, self._agent_path())
            self._pushed = True

    def _link_hooks(self, folder: Path) -> None:
        """See that the machine has our version of the hooks, and that the run folder will keep to it."""
        name = vendor.hooks_name()
        with self._lock:
            path = f"{self._root()}/agent/{name}"
            if name not in self._hooks_there and not self._exists(path):
                self._put_folder(vendor.lay_out, path)
            self._hooks_there.add(name)
        link = folder / rundir.HOOKS
        if not link.is_symlink():
            link.symlink_to(f"../../agent/{name}")

    def _put_folder(self, lay_out: Callable[[Path], Path], path: str) -> None:
        with tempfile.TemporaryDirectory(prefix="stoker-") as temp:
            try:
                self._host.put(lay_out(Path(temp)), path)
            except TargetError:
                if not self._exists(path):  # somebody else put it there meanwhile
                    raise

    def _agent_path(self) -> str:
        return f"{self._root()}/agent/{self._agent.name}"

    def _argv(self, *words: str) -> list[str]:
        return [self._host.python(), "-I", "-S", f"{self._agent_path()}/{ENTRY}", *self._asker(), *words]

    def _asker(self) -> list[str]:
        return ["--owner", self._owner["id"]] if self._owner else []

    def _ask(
        self, *words: str, stdin: bytes = b"", timeout_s: float = 60.0, there: tuple[str, int] | None = None
    ) -> list[dict]:
        """The JSON lines that a verb of the agent prints. `there`:
        asked in the allocation of that attempt."""
        self._push_agent()
        argv = self._argv(*words) if there is None else self._leaf.start_argv(self._argv(*words), *there)
        done = self._host.run(argv, stdin=stdin, timeout_s=timeout_s)
        if agent_is_gone(done):
            # do not make it anew and then take every run for lost
            if not self._exists(f"{self._root()}/runs"):
                raise problem("away", f"the folder {self._root()} does not exist", self._host.name)
            self._pushed = False
            self._push_agent()
            done = self._host.run(argv, stdin=stdin, timeout_s=timeout_s)
        return parse_answer(done, words[0], self._host.name)

    def _open(self, *words: str) -> Stream:
        self._push_agent()
        return self._host.open(self._argv(*words))


def _recorded(folder: Path) -> HashOf:
    """Hashes of the files in the frozen copy of a run folder, as they were recorded when it was made; a file
    that is not as it was then is read."""
    known, begin = rundir.code_hashes(folder), len(os.fsencode(folder / rundir.WORK)) + 1

    def hash_of(path: bytes, seen: os.stat_result) -> str:
        key = (os.fsdecode(path[begin:]), seen.st_size, seen.st_mtime_ns)
        return known.get(key) or parcel.hash_file(path)
    return hash_of


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
        path = Path(folder) / "x"
        path.write_bytes(content)
        yield path


def _newest(held: Mapping[tuple[str, int], str]) -> str:
    """The native id of the newest attempt of one run; "" when nothing is held for the run."""
    return held[max(held)] if held else ""

"""What was asked: the spec is frozen when a run is made, the limits may change while it runs.

Their fields are declared here and nowhere else: base/decode.py reads the annotations.
"""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stoker.base import decode
from stoker.base.errors import InvalidSpec
from stoker.base.units import MAX_DURATION_S

NAME_MAX = 80
SIGNALS = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "WINCH", "CONT")
# Characters that no name holds: controls of both kinds (C0, C1), line ends, what changes the direction of
# writing, and "/".
NOT_IN_NAMES = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069/"
_CONTROL = re.compile(f"[{NOT_IN_NAMES}]")
_NOT_THE_RUN = frozenset(
    {
        "id",
        "name",
        "created_at",
        "argv",
        "retry_reasons",
        "tty",
        "stdin",
        "split_stderr",
        "unbuffered",
        "inherit",
        "machine_env",
        "settings",
        "after_any",
        "pull",
        "pull_limit_bytes",
    }
)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The request for one run. `to_json` is spec.json in the run folder. It never contains the
    environment."""

    command: tuple[str, ...]  # as the user typed it
    argv: tuple[str, ...] = ()  # what is executed: the interpreter resolved to an absolute path
    id: str = ""
    name: str = ""  # unique among the runs that exist; "" = the server picks one
    kind: str = "job"
    target: str = "local"
    folder: str = ""  # absolute: where the user stood
    copy: bool = False  # True: run from a frozen copy in <run folder>/work, else in `folder`
    home: str | None = None  # HOME of the run; None = as in its environment
    # name inside the working folder -> absolute path (needs copy)
    mounts: dict[str, str] = field(default_factory=dict)
    # relative path in the working folder -> absolute path of a folder here
    data: dict[str, str] = field(default_factory=dict)
    data_rw: tuple[str, ...] = ()  # of these names the run gets copies of its own that it may write to
    tty: bool = False  # a pseudo-terminal for all three streams
    # "none" | "attached" (bytes come from whoever is attached) | "file" (<run folder>/stdin)
    stdin: str = "none"
    split_stderr: bool = False  # stderr goes to err.log instead of out.log
    memory_bytes: int = 0  # what all its processes may use; 0 = no limit of its own
    gpus: int = 0
    # indices or UUIDs: these GPUs; without `gpus` it holds them by CUDA_VISIBLE_DEVICES, and waits for none
    gpu_ids: tuple[str, ...] = ()
    slots: int = 0  # CPU slots; 0 = does not count against capacity
    priority: int = 0  # higher starts first
    after: tuple[str, ...] = ()  # ids that must have ended well first
    after_any: tuple[str, ...] = ()  # ids that must have ended first, however they did; again at each start
    restarts: int = 0  # automatic restarts at most, for reasons that the table marks
    retry_reasons: tuple[str, ...] = ()  # the table's answer, for the agent
    backoff_s: float = 5.0  # before the first automatic restart; doubles up to 300 s
    grace_s: tuple[float, float] = (10.0, 10.0)  # after the first signal, after SIGTERM
    stop_signal: str = ""  # the first signal of a stop; "" = TERM where the script handles it, else INT
    warn_s: float = 0.0  # before the time limit, the script gets warn_signal; 0 = it is not warned
    warn_signal: str = "USR1"
    # without a step, output, reads and writes; 0 = as the agent judges, and nothing is done
    stall_s: float = 0.0
    stall_do: str = "warn"  # "warn" | "stop" | "restart"
    unbuffered: bool = False  # PYTHONUNBUFFERED=1 is added
    hooks: bool = False  # our sitecustomize stands in its PYTHONPATH
    # "off" | "auto": unmodified training scripts are recorded, and come back where they were (needs hooks)
    resume: str = "off"
    # with resume: now and then a child lives the time between two images once more, and is compared
    audit: bool = False
    # found by `stoker tune`, for the hooks; the same in all attempts
    settings: dict = field(default_factory=dict)
    # variables that were named one by one; a run on another machine gets only these
    env_names: tuple[str, ...] = ()
    # they are added to what a login there has, instead of being the whole environment
    machine_env: bool = False
    # what a process has from its shell besides the environment; see `inheritance`
    inherit: dict = field(default_factory=dict)
    install: bool = False  # on another machine: its requirements are installed there first
    pull: tuple[str, ...] = ()  # patterns of files that come home while it goes on, from another machine
    pull_limit_bytes: int = 0  # of its other files so many bytes come home when it has ended
    created_at: str = ""

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict) -> "Spec":
        """Decode a stored spec of any version. Raises InvalidSpec if there is no command."""
        return decode.written(cls, body, "spec")

    @classmethod
    def from_request(cls, body: dict) -> "Spec":
        """Decode the spec of a request, which has no fields that Stoker itself sets. Raises InvalidSpec
        with the wrong fields."""
        return decode.asked(
            cls, {name: value for name, value in body.items() if name not in _GIVEN_BY_US}, "spec"
        ).check()

    def check(self) -> "Spec":
        """Return self if the run is possible. Raises InvalidSpec with what to change."""
        if not self.command or not self.command[0]:
            raise InvalidSpec(
                "There is no command to run.",
                hint="stoker run train.py   or   stoker run -- python train.py --lr 0.1",
                fields=["command"],
            )
        if any("\0" in part for part in self.command):
            raise InvalidSpec(
                "The command contains a NUL byte, which programs cannot receive.", fields=["command"]
            )
        for name, known in _ONE_OF.items():
            if getattr(self, name) not in known:
                raise InvalidSpec(f"'{getattr(self, name)}' is not a valid value of {name}.", fields=[name],
                                  hint=f"Valid values: {', '.join(filter(None, known))}.")
        if self.audit and (self.resume != "auto" or not self.hooks):
            raise InvalidSpec(
                "--audit needs exact resume, but exact resume is off.",
                hint="stoker run --audit train.py   (leave out --resume off and --no-hooks)",
                fields=["audit"],
            )
        for name, (least, most, words, hint) in _RANGES.items():
            value = getattr(self, name)
            if not all(least <= each <= most for each in (value if isinstance(value, tuple) else (value,))):
                raise InvalidSpec(f"{name} must be {words}.", hint=hint or None, fields=[name])
        if self.gpu_ids and len(self.gpu_ids) != self.gpus:
            raise InvalidSpec(
                "`gpus` must equal the number of GPUs in `gpu_ids`.",
                hint="--gpus id:0,1",
                fields=["gpus", "gpu_ids"],
            )
        _check_inheritance(self.inherit)
        check_name(self.name)
        return self

    def with_(self, **changes: Any) -> "Spec":
        """A copy with some fields changed."""
        return replace(self, **changes)

    def fingerprint(self) -> str:
        """Equal for two requests of the same run: covers every field except identity and time."""
        body = {k: v for k, v in self.to_json().items() if k not in _NOT_THE_RUN}
        return hashlib.sha256(
            json.dumps(body, sort_keys=True).encode("utf-8", "surrogateescape")
        ).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Settings that may change during a run. `to_json` is limits.json; only the reconciler writes it, and
    the agent reports its `seq`."""

    seq: int = 1
    time_s: float | None = None  # running seconds over all attempts; None = no limit

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict) -> "Limits":
        """Decode stored limits of any version."""
        return decode.written(cls, body, "limits")


_GIVEN_BY_US = ("id", "argv", "retry_reasons", "created_at", "pull_limit_bytes")
_ONE_OF = {
    "kind": ("job",),
    "stdin": ("none", "attached", "file"),
    "resume": ("off", "auto"),
    "stall_do": ("warn", "stop", "restart"),
    "stop_signal": ("", *SIGNALS),
    "warn_signal": ("", *SIGNALS),
}
_COUNT = (0, 100_000, "an integer from 0 to 100000", "")
_SECONDS = (0, MAX_DURATION_S, "a number of seconds, at least 0", "")
_RANGES = {  # field -> least, most, how it reads after "must be", hint
    "gpus": _COUNT, "slots": _COUNT, "restarts": _COUNT,
    "priority": (-1_000_000, 1_000_000, "between -1000000 and 1000000", ""),
    "memory_bytes": (0, (1 << 60) - 1, "a number of bytes, at least 0", "--memory 8GB"),
    "grace_s": (
        0, MAX_DURATION_S,
        "two numbers of seconds, at least 0: the time after the first signal, and the time after SIGTERM",
        "--grace 30s sets both times",
    ),
    "backoff_s": _SECONDS, "warn_s": _SECONDS, "stall_s": _SECONDS,
}


RLIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")


def inheritance() -> dict:
    """What a child process inherits besides the environment, so that a run starts as from the shell.
    `{"host": str, "umask": int, "nice": int, "cpus": [int], "rlimits": {"NOFILE": soft}}`; -1 means no
    limit. All values except the umask apply only on this host."""
    import resource
    umask = os.umask(0o022)
    os.umask(umask)
    soft = {
        name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        for name in RLIMITS
        if hasattr(resource, f"RLIMIT_{name}")
    }
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        "host": os.uname().nodename,
        "umask": umask,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cpus": cpus,
        "rlimits": soft,
    }


def _check_inheritance(body: object) -> None:
    kinds = {"host": str, "umask": int, "nice": int, "cpus": list, "rlimits": dict, "window": list}
    if not (
        isinstance(body, dict)
        and all(k in kinds and isinstance(v, kinds[k]) for k, v in body.items())
        and all(
            isinstance(v, int)
            for v in (*body.get("cpus", ()), *body.get("window", ()), *body.get("rlimits", {}).values())
        )
    ):
        raise InvalidSpec(
            "The field `inherit` of the spec is not valid: a name is unknown, or a value has the wrong type.",
            fields=["inherit"],
        )


def check_name(name: str) -> None:
    """Check the name of a run. Spaces, quotes and all scripts are allowed; characters in NOT_IN_NAMES, a
    leading "-" and names of only dots are not."""
    if not name:
        return
    if (
        len(name) > NAME_MAX
        or _CONTROL.search(name)
        or name.strip() != name
        or name.startswith("-")
        or set(name) == {"."}
    ):
        raise InvalidSpec(
            (
                f"{name!r} cannot be the name of a run. A name has at most {NAME_MAX} characters, no '/', "
                "no control character, no leading '-', and no space at its start or end."
            ),
            hint="stoker run --name baseline-1 ...",
            fields=["name"],
        )

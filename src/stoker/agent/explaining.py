"""Why an attempt ended, in one word and its evidence. The sentence of each word is in base/state.py."""

from __future__ import annotations

import os
import re
import signal
import time

from .machine import is_local, kills_in, memory_limit, mount_of, mounts, oom_counters
from .reading import first_number, read_json, read_tail, size_of
from .standstill import told_begins, told_ends
from .tracebacks import LastWords, clean_lines
from .words import (
    AGENT, ASKING, ERR, INTERRUPT_S, OUT, SPEC, TAIL_BYTES, format_duration, number, signal_name,
)
from .writing import log_exception

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt

CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP")
GPU_OOM = (
    "CUDA out of memory",
    "OutOfMemoryError",
    "CUDA error: out of memory",
    "HIP out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED: Out of memory",
)
GPU_FAULTS = (
    "illegal memory access was encountered",
    "uncorrectable ECC error",
    "unspecified launch failure",
    "NVRM: Xid",
    "fallen off the bus",
    "GPU is lost",
    "misaligned address",
    "illegal instruction was encountered",
    "hardware stack error",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA-capable device(s) is/are busy or unavailable",
    "launch timed out and was terminated",
)
DISK_FULL = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
# of a worker of a DataLoader: it wrote to memory that /dev/shm could not give
SHM_FULL = "is killed by signal: Bus error"
DISK_WRITERS = ("PytorchStreamWriter failed", "file write failed", "iostream error", "unexpected pos")

HINTS = (  # text in the last words -> what it certainly means
    ("Torch not compiled with CUDA enabled", "The script needs CUDA, but this torch is a CPU build."),
    (
        "Cannot access accelerator device when none is available",
        "The script needs a GPU, but torch sees no GPU on this machine.",
    ),
    ("No CUDA GPUs are available", "The script needs a GPU, but torch sees no GPU on this machine."),
    ("Found no NVIDIA driver on your system", "This machine or container has no visible NVIDIA driver."),
    (
        "device-side assert triggered",
        "A value is out of range, often a label or an index. To see where: CUDA_LAUNCH_BLOCKING=1",
    ),
    (
        "torchvision::nms does not exist",
        "The versions of torch and torchvision do not match; install matching versions.",
    ),
    (
        "Dataset not found or corrupted",
        "The data set is not at the path that the script uses; download it or change the path.",
    ),
    ("URL fetch failure on", "A download failed: this machine cannot reach the address."),
    (
        "EOF when reading a line",
        "The script asked for input, but has no input: use --stdin FILE, or run the script in the "
        "foreground.",
    ),
    (
        "No API key configured. Use `wandb login`",
        "wandb has no API key. To run without a key: WANDB_MODE=offline",
    ),
    (
        "Too many open files",
        "The limit of open files was reached: raise the limit (ulimit -n 65536), or use fewer workers.",
    ),
    (
        "use default_factory",
        "This code needs Python 3.10 or older: Python 3.11 rejects one of its dataclass defaults.",
    ),
    (
        "param 'initial_lr' is not specified in param_groups[0]",
        "The scheduler resumes, but the optimizer has no saved state. Load the optimizer's state before you "
        "create the scheduler.",
    ),
    (
        "Expected more than 1 value per channel when training",
        "The last batch has only one sample, but BatchNorm needs more: use drop_last=True in the DataLoader.",
    ),
    (
        "Address already in use",
        "The port is in use, often by another torchrun on this machine: choose another --master_port.",
    ),
    (
        "environment variable RANK expected",
        "The script expects a launcher: start the script with `stoker run --ranks N`, or with torchrun.",
    ),
    ("Unable to locate sufficient", "The script needs more GPUs than this machine has."),
)


def conclude(
    att: Attempt,
    status: dict | None,
    reason: str,
    *,
    used_s: float,
    interrupt: dict | None = None,
    limit_s: float | None = None,
    gaps: list | None = None,
    leftovers: dict | None = None,
) -> dict:
    """The body of exit.json. `reason` is ours if we ended it ("" if it ended by itself).

    `ended_at` is `started_at` plus monotonic time, `used_s` the time of this attempt. `gaps`: `[{"bytes",
    "offset" or null, "log", "why"?}]`. `restart`: `{"attempt", "at"}` or null. `leftovers`: see
    tree.leftovers. `input_read`: bytes of input that the run read from a pipe, where this is known.
    """
    record = att.json(AGENT) or {}
    started = number(record.get("started_at"), time.time())
    raw = (status or {}).get("status")
    code = sig = None
    if isinstance(raw, int):
        if os.WIFSIGNALED(raw):
            sig = os.WTERMSIG(raw)
        else:
            code = os.WEXITSTATUS(raw)
    failed_start = (status or {}).get("start_failed")
    if failed_start is not None:
        code = sig = None
    body = {
        "attempt": att.n,
        "code": code,
        "signal": sig,
        "signal_name": signal_name(sig) if sig else None,
        "reason": "",
        "evidence": {},
        "started_at": started,
        "ended_at": started + used_s,
        "used_s": round(used_s, 3),
        "leftovers": leftovers or {"found": [], "survivors": [], "spared": []},
        "out_bytes": size_of(att.path(OUT)),
        "err_bytes": size_of(att.path(ERR)),
        "gaps": gaps or [],
        "restart": None,
    }
    if status and "input_read" in status:
        body["input_read"] = status["input_read"]
    try:
        found, evidence = explain(
            att, body, record, failed_start=failed_start, reason=reason, interrupt=interrupt
        )
    except Exception:  # an odd log must not cost us the last words
        log_exception()
        found, evidence = (
            reason or ("exited" if code == 0 else "nonzero_exit" if code is not None else "killed"),
            {},
        )
    if found == "limit_time" and limit_s is not None:
        evidence["limit"] = format_duration(limit_s)
    evidence.setdefault("code", code)
    evidence.setdefault("signal_name", body["signal_name"])
    body["reason"], body["evidence"] = found, {k: v for k, v in evidence.items() if v is not None}
    return body


def explain(
    att: Attempt, body: dict, record: dict, *, failed_start: str | None, reason: str, interrupt: dict | None
) -> tuple[str, dict]:
    """Reason and evidence of an end."""
    if failed_start is not None and not reason:
        return "start_failed", {"detail": failed_start}
    evidence: dict = {}
    if body["code"] == 0 and not reason:
        return "exited", evidence
    out, err = read_tail(att.path(OUT), TAIL_BYTES), read_tail(att.path(ERR), TAIL_BYTES)
    lines = clean_lines(out) + clean_lines(err)
    spec = read_json(os.path.join(att.run_dir, SPEC)) or {}
    words = LastWords(
        lines,
        stderr_at=len(clean_lines(out)),
        cwd=cwd_of(att, record),
        ends=told_ends(att),
        hooked=told_begins(att),
        pid=(record.get("run") or {}).get("pid"),
        in_order=bool(spec.get("unbuffered")),
    )
    lines = lines[words.handled:]
    text = "\n".join(lines[-400:])
    evidence["exception"] = words.exception
    evidence["hint_text"] = next(
        (hint for sign, hint in HINTS if sign in words.said or (not words.exception and sign in text)), None
    )
    if body["code"] != 0:
        evidence["tail"] = "\n".join(
            (clean_lines(err[-4096:]) if err.strip() else clean_lines(out[-4096:]))[-20:]
        )[-2000:]
    if reason:
        return reason, evidence
    return explain_failure(
        att, body, record, words=words, lines=lines, interrupt=interrupt, evidence=evidence
    ), evidence


def cwd_of(att: Attempt, record: dict) -> str:
    """The working folder of the run, by agent.json: `work/` with `copy`, else `spec.folder`."""
    return record["cwd"] if isinstance(record.get("cwd"), str) else att.run_dir


def explain_failure(
    att: Attempt,
    body: dict,
    record: dict,
    *,
    words: LastWords,
    lines: list[str],
    interrupt: dict | None,
    evidence: dict,
) -> str:
    """The reason of an end that was not ours and not exit code 0. Adds what it found to the evidence."""
    code, name = body["code"], body["signal_name"]
    text = "\n".join(lines[-400:])
    cwd = cwd_of(att, record)
    last_signal = name or signal_name(words.child_signal)
    if (
        interrupt
        and interrupt.get("signal") not in ASKING
        and number(interrupt.get("mono")) <= time.monotonic()
    ):
        sig = interrupt.get("signal")
        soon = time.monotonic() - number(interrupt.get("mono")) < INTERRUPT_S
        if body["signal"] == sig or code == 128 + int(number(sig)) or (soon and code):
            evidence["interrupted"] = signal_name(sig)
            return "stopped_by_user"
    if kills_in(record.get("memory_group")):
        limit = (read_json(os.path.join(att.run_dir, SPEC)) or {}).get("memory_bytes")
        peak = first_number(record["memory_group"], "memory.peak") or first_number(
            record["memory_group"], "memory.max_usage_in_bytes"
        )
        evidence.update(kind="memory", limit_bytes=limit, used_bytes=peak or limit)
        return "host_oom"
    before, after = record.get("log_before") or {}, oom_counters()
    source = "cgroup_oom_kill" if after.get("cgroup_oom_kill") is not None else "vmstat_oom_kill"
    told, tells = number(before.get(source), -1), number(after.get(source), -1)
    killed = last_signal == "SIGKILL" or code == 137 or "killed by signal: Killed" in text
    if killed and 0 <= told < tells:
        evidence.update(
            oom_kill_before=int(told), oom_kill_after=int(tells), oom_source=source, **memory_limit()
        )
        return "host_oom"
    if name == "SIGHUP":
        return "hangup"
    # The final exception decides. Only where there is none (a crash in compiled code, a shell, another
    # language) is the text searched.
    said = words.said or text[-8192:]
    worded = any(sign in said for sign in (*DISK_FULL, SHM_FULL))
    where = full_disk(att, said, cwd)
    if worded or (where and (where["log"] or (where["full"] and any(sign in said for sign in DISK_WRITERS)))):
        if where:
            evidence.update(
                {
                    k: where[k]
                    for k in ("path", "mount", "disk_bytes", "disk_free_bytes", "inodes", "inodes_free")
                }
            )
            evidence["kind"] = kind_of_full(said, where)
        return "disk_full"
    if "device-side assert" not in said:
        if any(sign in said for sign in GPU_OOM):
            return "gpu_oom"
        if any(sign in said for sign in GPU_FAULTS):
            return "gpu_fault"
    if last_signal == "SIGABRT" and words.exception and (name is None or words.aborted_after(lines)):
        evidence["code"] = 128 + signal.SIGABRT if code is None else code
        return "nonzero_exit"
    if name is None and words.child_signal:
        evidence.update(signal_name=last_signal, rank=words.root_rank)
    if name in CRASHES or (name is None and last_signal in CRASHES):
        evidence["signal_name"] = last_signal
        return "crashed"
    return "killed" if name or words.child_signal else "nonzero_exit"


def full_disk(att: Attempt, said: str, cwd: str) -> dict | None:
    """Which path has no room left: the one that the message names, else a full one of those that runs use,
    else any full disk of this machine, else the working folder. None when nothing speaks of a full disk.

    `log` tells that the log's own disk is full, which is proof without any words.
    """
    if SHM_FULL in said or re.search(r"shared memory|shm_open|</torch_\d", said):
        return room_at("/dev/shm", att.run_dir)
    named = re.search(r"(?:No space left on device|Disk quota exceeded): ['\"]([^'\"\n]+)['\"]", said)
    if named:
        return room_at(os.path.join(cwd, named.group(1)), att.run_dir)
    usual = [p for p in (att.run_dir, cwd, "/tmp", "/dev/shm") if p == att.run_dir or is_local(p)]
    worded = any(sign in said for sign in DISK_FULL)
    for place in usual + ([mount for mount, _ in mounts() if is_local(mount)] if worded else []):
        facts = room_at(place, att.run_dir)
        if facts and facts["full"]:
            return dict(facts, log=place == att.run_dir)
    return room_at(cwd, att.run_dir) if worded else None


def room_at(place: str, trusted: str) -> dict | None:
    """Bytes and inodes free where a path is, or would be.
    A remote file system other than the trusted one is not asked:
    it may hang."""
    facts = {
        "path": place,
        "mount": mount_of(place)[0],
        "disk_bytes": None,
        "disk_free_bytes": None,
        "inodes": None,
        "inodes_free": None,
        "full": False,
        "log": False,
    }
    if place != trusted and not is_local(place):
        return facts
    at = place
    while at not in ("", "/") and not os.path.exists(at):
        at = os.path.dirname(at)
    try:
        s = os.statvfs(at or "/")
    except OSError:
        return None
    free, inodes = s.f_bavail * s.f_frsize, s.f_favail if s.f_files else None
    full = s.f_blocks > 0 and not s.f_flag & os.ST_RDONLY and (free < 1 << 18 or inodes == 0)
    return dict(
        facts,
        disk_bytes=s.f_blocks * s.f_frsize,
        disk_free_bytes=free,
        inodes=s.f_files or None,
        inodes_free=inodes,
        full=full,
    )


def kind_of_full(said: str, where: dict) -> str:
    """What was used up: "shm", "quota", "inodes" or "disk"."""
    if where["mount"] == "/dev/shm":
        return "shm"
    if "Disk quota exceeded" in said or "[Errno 122]" in said:
        return "quota"
    return "inodes" if where["inodes_free"] == 0 and where["disk_free_bytes"] else "disk"

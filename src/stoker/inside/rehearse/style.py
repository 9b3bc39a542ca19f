"""How a script means to be started: by torchrun, by itself with processes of its own, on Slurm,
or as one process."""

from __future__ import annotations

import os
import re

ALONE, RANKS, SLURM = "alone", "ranks", "slurm"
_SPAWNS = re.compile(
    r"\bmp\.spawn\b|multiprocessing\.spawn\b|\bstart_processes\b|\bmp\.Process\b|multiprocessing import "
    r".*\bspawn\b|\bspawn\("
)
_ENV = re.compile(r"""["'](?:LOCAL_RANK|RANK|WORLD_SIZE)["']|local[_-]rank\b|\btorchrun\b""")
_HARD = re.compile(
    r"""environ\[\s*["'](?:LOCAL_RANK|RANK|WORLD_SIZE)["']\s*\]|int\(\s*os\.getenv\(\s*["'](?:LOCAL_RANK|RANK)["']\s*\)"""
)
_SOFT = re.compile(
    r"""(?:environ\.get|getenv)\(\s*["'](?:LOCAL_RANK|RANK|WORLD_SIZE)["']|["'](?:LOCAL_RANK|RANK|WORLD_SIZE)["']\s+(?:not\s+)?in\s+os\.environ"""
)
_SLURM = re.compile(r"""["']SLURM_(?:PROCID|LOCALID|NTASKS)["']""")
_GROUP = re.compile(r"\binit_process_group\b|\bAccelerator\(")
_LOCAL_IMPORT = re.compile(r"^\s*(?:from\s+(\.*[\w.]+)\s+import|import\s+([\w., ]+))", re.M)
# options of torchrun that take no value
_FLAGS = frozenset(
    "--standalone --use-env --use_env --no-python --no_python --run-path --run_path -m --module".split()
)
_DROPPED = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
)


class Plan:
    """words: what to start (without the interpreter); style; flag:
    "--local-rank" if the old launcher hands the number over as a word."""

    def __init__(self, words: list, style: str, flag: str = "", launcher: str = "") -> None:
        self.words, self.style, self.flag, self.launcher = words, style, flag, launcher


def plan(words: list, ranks: int) -> Plan:
    """What to start, for a command line that begins with the interpreter."""
    options, rest = _interpreter_options(words[1:])
    name = os.path.basename(rest[0]) if rest else ""
    if options[-1:] == ["-m"] and rest and rest[0] in ("torch.distributed.run", "torch.distributed.launch"):
        return _torchrun(options[:-1], rest[1:], old=rest[0].endswith("launch"))
    if name == "torchrun" and options[-1:] != ["-m"]:
        return _torchrun(options, rest[1:], old=False)
    text = _text(rest[0], module=options[-1:] == ["-m"]) if rest else ""
    return Plan(words[1:], _style(text, ranks))


def environment(before: dict, chosen: Plan, rank: int, ranks: int, port: int) -> dict:
    """The environment of one rank."""
    env = {
        k: v for k, v in before.items() if k not in _DROPPED and not k.startswith(("SLURM_", "TORCHELASTIC_"))
    }
    env["STOKER_REHEARSE_PORT"] = str(port)
    env.setdefault("WANDB_MODE", "offline")
    # it counts what an early end leaves
    env.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    env.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // ranks)))
    if chosen.style == RANKS:
        env.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_WORLD_SIZE=str(ranks),
            GROUP_RANK="0",
            ROLE_RANK=str(rank),
            ROLE_WORLD_SIZE=str(ranks),
            GROUP_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            TORCHELASTIC_RUN_ID="rehearsal",
            TORCHELASTIC_RESTART_COUNT="0",
            TORCHELASTIC_MAX_RESTARTS="0",
        )
    if chosen.style == SLURM:
        env.update(
            SLURM_PROCID=str(rank),
            SLURM_LOCALID=str(rank),
            SLURM_NTASKS=str(ranks),
            SLURM_NNODES="1",
            SLURM_JOB_NUM_NODES="1",
            SLURM_NODEID="0",
            SLURM_NODELIST="127.0.0.1",
            SLURM_JOB_NODELIST="127.0.0.1",
            SLURM_JOB_ID="1",
            SLURM_JOBID="1",
            SLURM_NTASKS_PER_NODE=str(ranks),
            SLURM_GPUS_ON_NODE=str(ranks),
            SLURM_CPUS_PER_TASK="1",
            SLURM_LAUNCH_NODE_IPADDR="127.0.0.1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    return env


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _interpreter_options(words: list) -> tuple:
    """(options, the rest): `-m` ends the options."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] in ("-m", "-c"):
            return words[: at + 1], words[at + 1 :]
        at += 2 if words[at] in ("-W", "-X") else 1
    return words[:at], words[at:]


def _torchrun(options: list, words: list, old: bool) -> Plan:
    at, module, env = 0, False, not old
    while at < len(words) and words[at].startswith("-"):
        module |= words[at] in ("-m", "--module")
        env |= words[at] in ("--use-env", "--use_env")
        at += 1 if words[at] in _FLAGS or "=" in words[at] else 2
    started = words[at:]
    return Plan(
        [*options, *(["-m"] if module else []), *started],
        RANKS,
        "" if env else "--local-rank",
        "torch.distributed.launch" if old else "torchrun",
    )


def _style(text: str, ranks: int) -> str:
    hard = bool(_HARD.search(text)) and (ranks > 1 or not _SOFT.search(text))
    if _SLURM.search(text) and not _ENV.search(text):
        return SLURM
    if _SPAWNS.search(text):
        return ALONE
    if hard or (ranks > 1 and (_ENV.search(text) or _GROUP.search(text))):
        return RANKS
    return ALONE


def _text(script: str, module: bool) -> str:
    """The script and the files beside it that it imports, a few levels deep."""
    start = script.replace(".", os.sep) + ".py" if module else script
    if module and not os.path.exists(start):
        start = os.path.join(script.replace(".", os.sep), "__main__.py")
    roots = {os.path.dirname(os.path.abspath(start)), os.getcwd()}
    waiting, done, texts = [os.path.abspath(start)], set(), []
    while waiting and len(done) < 60:
        path = waiting.pop(0)
        if path in done:
            continue
        done.add(path)
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read(1 << 20)
        except OSError:
            continue
        texts.append(_code(text))
        for one, many in _LOCAL_IMPORT.findall(text):
            for name in [one] if one else many.split(","):
                parts = name.split(" as ")[0].strip().strip(".").split(".")
                for root in {*roots, os.path.dirname(path)}:
                    waiting += [
                        p
                        for p in (
                            os.path.join(root, *parts) + ".py",
                            os.path.join(root, *parts, "__init__.py"),
                        )
                        if os.path.isfile(p)
                    ]
    return "\n".join(texts)


def _code(text: str) -> str:
    """Without what stands in comments: they often speak of torchrun."""
    return "\n".join(
        line.partition("#")[0] if "'" not in line and '"' not in line else line for line in text.splitlines()
    )

"""The pages in Chinese: no English is left on them, whatever ended a run, whatever a run waits for, and on errors."""

from __future__ import annotations

import ast
import html
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_place import WAITS, Reader, start_console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground

from stoker.base.state import KINDS, REASONS, sentence, what_next
from stoker.base.units import format_size
from stoker.console import words
from stoker.plane.capacity import Room, Usage, admit, shared_gpus, waits_after

SOURCE = Path(words.__file__).parents[1]
CHINESE = words.language("zh", "")
ENDS = """
import os, sys
way = sys.argv[1]
print("last line", flush=True)
if way == "exits":
    sys.exit(3)
if way == "raises":
    raise ValueError("nichts")
os.kill(os.getpid(), int(way))
"""
# names, units and code: what stays as it is in Chinese
KEPT = set("""Stoker stoker CPU GPU GPUs CPUs English ssh git torch rank worker workers DataLoader Python TensorBoard python py pip uv
    SIGKILL SIGSEGV SIGHUP sshd cpu  ValueError nichts ends waits exits raises local far nothing nobody bold MB GB kB TB MiB ms stderr cgroup
    raised killed crashed silent holds wants behind halted late away batch USER HOST ulimit linger nvidia-smi timedatectl CUDA_VISIBLE_DEVICES FILE id config toml inode CUDA lr GET runs sd ps all show ui sweep""".split())


def left(text: str) -> set[str]:
    """The English words of a text: not names, paths, commands or options."""
    text = re.sub(r"`[^`]*`|stoker [a-z-]+( +(-\S+|[\w.-]+))*|ssh( +[\w@.:-]+)+|\S*[/=]\S*|(?<!\w)--?[a-z][\w-]*|[\w.()]*[a-zA-Z0-9][._][a-z][\w.()]*|“[^”]*”", " ", text, flags=re.A)
    return set(re.findall(r"[A-Za-z](?:[A-Za-z_-]*[A-Za-z])", text)) - KEPT


def said(page: str) -> str:
    """What a page says, without what a user wrote: code, logs, and the message of an exception."""
    page = re.sub(r"<head>.*?</head>|<(code|pre|script)\b.*?</\1>|<p class=\"note\" lang=\"en\">.*?</p>", " ", page, flags=re.S)
    told = re.findall(r'(?:aria-label|title|placeholder|data-(?:empty|more|confirm|none|cut|console|server|gone))="([^"]*)"', page)
    return html.unescape(" \n".join([re.sub(r"<[^>]*>", " ", page), *told]))


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Ground, Reader]]:
    """Runs in all the ways that runs end and wait, and a console."""
    ground = Ground()
    try:
        ground.home.mkdir()
        (ground.home / "config.toml").write_text('slots = 1\n[targets.far]\nhost = "-p 1 nobody@127.0.0.1"\n')
        ground.script("ends.py", ENDS)
        ground.script("waits.py", WAITS)
        for name, way in (("exits", "exits"), ("raised", "raises"), ("killed", "9"), ("crashed", "11")):
            ground.detach("--name", name, "--", "python", "ends.py", way)
            ground.wait_state(name, "failed")
        ground.detach("--name", "late", "--time", "1s", "--", "python", "waits.py")
        ground.detach("--name", "halted", "--", "python", "waits.py")
        ground.wait_state("halted", "running")
        ground.stoker("stop", "halted").ok()
        ground.wait_state("late", "stopped")
        ground.detach("--name", "holds", "--slots", "1", "--", "python", "waits.py")
        ground.wait_state("holds", "running")
        ground.detach("--name", "wants", "--slots", "1", "--", "python", "waits.py")
        ground.detach("--name", "behind", "--after", "holds", "--", "python", "waits.py")
        ground.detach("--name", "away", "--on", "far", "--", "python", "waits.py")
        _, reader = start_console(ground)
        yield ground, reader.enter()
    finally:
        behind = ground.close()
    assert not behind, "processes were left: " + "; ".join(behind)


@pytest.mark.parametrize(("path", "status", "holds"), [
    ("/runs", 200, "等待 1 个 CPU 槽位：1 个中有 1 个正由 holds 使用"), ("/runs?grep=zzz", 200, "没有符合条件的运行"),
    ("/runs/exits", 200, "失败，退出码 3；最后的输出：“last line”。"), ("/runs/raised", 200, "失败，退出码 1：ValueError: nichts（ends.py，第 "),
    ("/runs/killed", 200, "被杀死，信号为 SIGKILL（不是 Stoker 发送的）。"), ("/runs/crashed", 200, "已崩溃，信号为 SIGSEGV："),
    ("/runs/late", 200, "到达时间限制 1s。"), ("/runs/halted", 200, "已被你停止。"), ("/runs/holds", 200, "运行中。"),
    ("/runs/wants", 200, "正在等待 1 个 CPU 槽位"), ("/runs/behind", 200, "正在等待 holds 结束。"), ("/runs/away", 200, ""),
    ("/runs/raised/code", 200, "代码"), ("/compare?run=exits&run=killed", 200, "比较"), ("/compare", 404, "没有选择运行"),
    ("/sweeps", 200, "还没有参数扫描"), ("/sweeps/new?from=exits", 200, "新建参数扫描"), ("/machines", 200, "机器"),
    ("/machines/local", 200, "磁盘"), ("/machines/far", 502, "拒绝连接"), ("/machines/nothing", 400, "没有机器“nothing”"), ("/reports", 200, "本机"),
    ("/runs/nothing", 404, "没有名为“nothing”的运行"), ("/nothing", 404, "没有页面"),
])
def test_no_english_is_left_on_a_page(place, path: str, status: int, holds: str):
    page = said(place[1].get(path, status, Accept_Language="zh-CN"))
    assert holds in page
    for name in (*(run["id"] for run in place[0].runs()), os.uname().nodename):
        page = page.replace(name, " ")
    assert not left(page), page


def evidence() -> Iterator[tuple[str, dict]]:
    """Each reason, with each kind of it, of a run of one process and of a rank."""
    for reason in REASONS:
        for kind in [None, *(kind for known, kind in KINDS if known == reason)]:
            for rank in ({}, {"rank": 3}):
                yield reason, {"kind": kind, "signal_name": "SIGKILL", "limit": "1h", "detail": "7", "code": 3, "tail": "", "mount": "/d", "path": "/d/a",
                               "inodes": 7, "used_bytes": 7e9, "limit_bytes": 7e9, "disk_bytes": 7e9, "disk_free_bytes": 0, **rank}


@pytest.mark.parametrize(("reason", "facts"), list(evidence()), ids=lambda value: value if isinstance(value, str) else f"{value['kind']}-{value.get('rank')}")
def test_how_a_run_ended_and_what_to_do_next(reason: str, facts: dict):
    assert not left(CHINESE.sentence(sentence(reason, facts)))
    following = what_next(reason, facts, "lr-1")
    assert not left(CHINESE.sentence(following))


@pytest.mark.parametrize("seconds", ["5m", "1h 3m"])
@pytest.mark.parametrize(("exception", "meant"), [
    ({"type": "ValueError", "message": "no luck. and, that: is it", "file": "/w/ends.py", "line": 3}, "：ValueError: no luck. and, that: is it（ends.py，第 3 行）。"),
    ({"type": "ValueError", "message": "Killed", "file": "/w/ends.py", "line": 3, "rank": 2}, "：rank 2 失败：ValueError: Killed（ends.py，第 3 行）。"),
    ({"type": "ValueError", "message": "找不到 数据 Running"}, "：ValueError: 找不到 数据 Running。"),
    ({"type": "ValueError", "message": "Running."}, "：ValueError: Running。"),
])
def test_the_message_of_an_exception_stays_as_it_is(exception: dict, meant: str, seconds: str):
    told = sentence("nonzero_exit", {"code": 1, "exception": exception})
    assert CHINESE.sentence(told) == f"失败，退出码 1{meant}"
    again = CHINESE.sentence(f"{told} Stoker does not restart the run, because every attempt would fail the same way.")
    assert again == f"失败，退出码 1{meant}没有重新启动：每次尝试都会以同样的方式失败。"
    assert not left(CHINESE.sentence(f"Running. The agent, the process that supervises this run, has been silent for {seconds}. Perhaps a signal or "
                                     "a debugger stopped the agent, its machine is paused, or its disk is blocked. "
                                     "While the agent is silent, Stoker does not enforce limits."))


def waits() -> Iterator[str]:
    """What runs wait for."""
    room = Room(("a", "b"), 6, {"b": f"process 7 ({format_size(5e9)} of {format_size(8e10)})"}, {}, {"a": "0", "b": "1"})
    many = Usage(slots=6, slot_holders=tuple("xs-1 xs-2 xs-3 xs-4 xs-5 xs-6".split()))
    yield admit(1, 0, Usage(), Room(None)).why
    yield admit(3, 0, Usage(), room).why
    yield f"more resources on its machine: the run needs {admit(3, 0, Usage(), Room()).why}"
    yield f"more resources on its machine: the run needs {admit(1, 9, Usage(), room).why}"
    yield admit(1, 0, Usage({"a": "xs-1"}), room).why
    yield admit(2, 0, Usage({"a": "xs-1", "b": "xs-2"}), room).why
    yield admit(2, 1, Usage({"a": "xs-1"}, 6, ("xs-2",)), room).why
    yield admit(0, 1, many, room).why
    yield admit(1, 0, Usage(unclear=("xs-1",)), room).why
    yield admit(1, 0, Usage(), Room(("a", "b"), None, {}, {"a": "xs-9", "b": "xs-8"})).why
    yield waits_after([("1f", None)], "2f")


@pytest.mark.parametrize("why", list(waits()))
def test_what_a_run_waits_for(why: str):
    for end in ("", " The machine cannot be reached; this is the last known state.", " box has been unreachable since 14:02; Stoker keeps trying."):
        assert left(CHINESE.sentence(f"Waiting for {why}.{end}")) <= {"xs", "box"}
    assert left(CHINESE.sentence(why)) <= {"xs"}


def test_a_gpu_that_others_use():
    room = Room(("a",), None, {"a": "another program (1.0 GB of 8.0 GB)"}, {}, {"a": "0"})
    assert CHINESE.sentence(shared_gpus(("a",), Usage(), room)[0]) == "GPU 0 也正由其他程序（1.0 GB / 8.0 GB）使用。"


def findings() -> set[str]:
    """The texts of doctor's findings about a machine, with something in the place of each name and value."""
    found = set()
    for name in ("machine", "gpu", "examination"):
        for call in ast.walk(ast.parse((SOURCE / "doctor" / f"{name}.py").read_text("utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding":
                found |= {text for part in call.args[2:4] for text in _texts(part)}
    return found


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from [*_texts(node.body), *_texts(node.orelse)]
    elif isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else _value(ast.unparse(part)) for part in node.values)


def _value(code: str) -> str:
    return "7 GB" if "format_size" in code else "" if "why" in code or "newest" in code else "7"


@pytest.mark.parametrize("text", sorted(findings()))
def test_what_doctor_finds(text: str):
    commands = r"(unset|source|ulimit|export|loginctl|docker run) .*"
    assert re.fullmatch(commands, text) or not left(CHINESE.sentence(text)) 


@pytest.mark.parametrize("reason", ["torch.compile is in use; compiled code cannot be resumed exactly yet", "the script uses the network during training (a.py:3)",
                                    "two processes train (pid 7 and pid 8), but exact resume supports only one training process per run",
                                    "no image was possible so far: a debugger, a profiler or a coverage tool traces this process; exact resume does not support such tools"])
def test_why_a_run_is_not_resumable(reason: str):
    assert left(CHINESE.sentence(f"not resumable: {reason}")) <= {"pid"}

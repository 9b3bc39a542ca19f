"""The agent imports nothing of ours, so it keeps its own copy of the names in the run folder. The two copies must be one."""

from __future__ import annotations

import ast
import re

from tree import AGENT, REPO, parse

from stoker.base import crash, rundir, state


def constants(tree: ast.Module) -> dict[str, str]:
    """NAME = "text" at the top of a module."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= {t.id: node.value.value for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple):
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            found |= {t.id: v.value for t, v in pairs if isinstance(t, ast.Name) and isinstance(v, ast.Constant) and isinstance(v.value, str)}
    return found


NAMES = {k: v for k, v in vars(rundir).items() if k.isupper() and isinstance(v, str)}
NOT_OF_THE_AGENT = {"OUTPUTS", "PULLED", "PARTIAL", "CHECKPOINTS", "METRICS", "STEPS", "CODE", "COMMIT", "DIFF", "COPY_LIST", "ENGINE", "INDEX"}  # written and read by others


def test_the_agent_names_the_files_as_we_do():
    theirs = constants(parse(AGENT / "words.py"))
    for name, value in NAMES.items():
        if name not in NOT_OF_THE_AGENT:
            assert theirs.get(name) == value, f"rundir.{name} is {value!r}, agent.{name} is {theirs.get(name)!r}"


def test_the_agent_gives_only_reasons_that_the_table_knows():
    words = {n.value for path in AGENT.glob("*.py") for n in ast.walk(parse(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    by_agent = {"exited", "nonzero_exit", "host_oom", "gpu_oom", "disk_full", "killed", "crashed", "hangup", "rebooted", "stopped_by_user",
                "limit_time", "start_failed", "agent_lost"}
    assert by_agent <= state.REASONS.keys()
    assert not by_agent - words, f"the agent never gives {sorted(by_agent - words)}"


def test_every_crash_point_is_in_the_list_and_none_besides():
    written = {word for span in re.findall(r"`([^`]*)`", crash.__doc__ or "") for word in span.split()}
    used = set()
    for path in (REPO / "src/stoker").rglob("*.py"):
        for node in ast.walk(parse(path)):
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            if name in ("point", "crash_point", "_crash_point") and node.args and isinstance(node.args[0], ast.Constant):
                used.add(node.args[0].value)
    assert used, f"no call of {crash.point.__name__} was found"
    assert used == written, f"the docstring of base/crash.py: {sorted(used ^ written)} are not in both"


def test_what_else_the_agent_writes_is_documented():
    text = (REPO / "docs/reference/run-folder.md").read_text("utf-8")
    files = {v for v in constants(parse(AGENT / "words.py")).values() if re.fullmatch(r"\.?[a-z]+\.(json|jsonl|log|spare)", v)}
    assert files
    assert not sorted(f for f in files if f not in text)

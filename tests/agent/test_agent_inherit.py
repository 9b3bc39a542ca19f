"""What a run has from its shell besides the environment, whoever started the server: umask, niceness, CPUs, soft limits."""

from __future__ import annotations

import json
import os
import sys

import pytest
from agentkit import pythons

TELL = ("import json, os, resource; m = os.umask(0); print(json.dumps([m, os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), "
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.getrlimit(resource.RLIMIT_CORE)[0]]))")


def told(run) -> list:
    run.start()
    assert run.end()["code"] == 0
    return json.loads(run.out())


@pytest.mark.parametrize("python", pythons())
def test_a_run_has_what_its_shell_has(new_run, python):
    cpu = max(os.sched_getaffinity(0))
    inherit = {"host": os.uname().nodename, "umask": 0o027, "nice": 3, "cpus": [cpu], "rlimits": {"NOFILE": 99, "CORE": 0, "OF_TOMORROW": 1}}
    assert told(new_run([sys.executable, "-c", TELL], python=python, inherit=inherit)) == [0o027, 3, [cpu], 99, 0]


def test_on_another_machine_only_the_umask_counts(new_run):
    here = os.getpriority(os.PRIO_PROCESS, 0)
    inherit = {"host": "elsewhere", "umask": 0o077, "nice": here + 5, "cpus": [4096], "rlimits": {"NOFILE": 99}}
    umask, nice, cpus, files, _ = told(new_run([sys.executable, "-c", TELL], inherit=inherit))
    assert (umask, nice, cpus) == (0o077, here, sorted(os.sched_getaffinity(0))) and files != 99


def test_what_cannot_be_had_is_left_as_it_is(new_run):
    inherit = {"host": os.uname().nodename, "cpus": [4096], "nice": "x", "rlimits": {"NOFILE": 1 << 62, "STACK": None}}
    assert told(new_run([sys.executable, "-c", TELL], inherit=inherit))[2] == sorted(os.sched_getaffinity(0))

"""Bad input: one sentence, a hint, the documented exit code, never a traceback, nothing lost."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest
from benchmarks.ground import Done, Ground
from parts import refused

NAMES = ["two words", "it's \"quoted\"", "训练 一", "🚂🔥", "-rf", "$(reboot)", "a;b&c|d", "*", "--", "%s%n", "\\"]


def test_no_such_file(common: Ground):
    before = common.runs()
    refused(common.stoker("run", "nothere.py"), 125, "nothere.py")
    refused(common.stoker("run", "-d", "nothere.py"), 125, "nothere.py")
    refused(common.stoker("run", "--", "no-such-program"), 125, "no-such-program")
    assert common.runs() == before


def test_a_folder_is_not_a_command(common: Ground):
    (common.work / "folder").mkdir(exist_ok=True)
    refused(common.stoker("run", "./folder"), 125, "folder")


def test_not_executable(common: Ground):
    before = common.runs()
    common.script("start.sh", "#!/bin/sh\necho hello\n")
    refused(common.stoker("run", "--", "./start.sh"), 125, "start.sh", "executable")
    assert common.runs() == before


def test_a_script_whose_interpreter_is_missing(common: Ground):
    common.script("odd.sh", "#!/no/such/shell\n", 0o755)
    done = common.stoker("run", "--", "./odd.sh")
    assert done.code in (125, 127)
    assert "Traceback" not in done.err and "odd.sh" in done.err


def test_python_without_torch_is_found_before_the_start(common: Ground):
    bare = common.root / "bare"
    if not bare.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    common.script("train.py", "print('started', flush=True)\nimport torch\n")
    before = common.runs()
    env = {"PATH": f"{bare}/bin:{common.env['PATH']}"}
    done = common.stoker("run", "train.py", env=env)
    refused(done, 125, "torch")
    assert b"started" not in done.stdout
    refused(common.stoker("run", "-d", "--", "python", "train.py", env=env), 125, "torch")
    assert common.runs() == before


def test_a_notebook(common: Ground):
    common.script("train.ipynb", '{"cells": []}')
    refused(common.stoker("run", "train.ipynb"), 125, "notebook", "nbconvert")


@pytest.mark.parametrize("verb", ["show", "logs", "attach", "wait", "stop", "start", "rm"])
def test_unknown_run(common: Ground, verb: str):
    refused(common.stoker(verb, "nosuchrun"), 3, "nosuchrun")


def test_unknown_run_to_keep(common: Ground):
    refused(common.stoker("keep", "nosuchrun", "3h"), 3, "nosuchrun")


def test_name_taken(ground: Ground):
    ground.detach("--name", "base", "--", "true")
    refused(ground.stoker("run", "-d", "--name", "base", "--", "echo", "other"), 125, "base")
    assert len(ground.runs()) == 1


@pytest.mark.parametrize("value", ["2x", "", "-5m", "0s", "2 hours maybe", "١s", "99999999999d", "nan", "1h-"])
def test_bad_duration(common: Ground, value: str):
    refused(common.stoker("run", f"--time={value}", "--", "true"), 125, "hint")


def test_bad_duration_says_how_to_write_it(common: Ground):
    refused(common.stoker("run", "--time", "2x", "--", "true"), 125, "2x", "2h")


def test_bad_size_in_the_config(ground: Ground):
    ground.home.mkdir(mode=0o700)
    (ground.home / "config.toml").write_text('copy_limit = "2 florins"\n')
    refused(ground.stoker("run", "--copy", "--", "true"), 125, "2 florins")
    (ground.home / "config.toml").write_text("slots = [\n")
    refused(ground.stoker("ps"), 2, "config.toml")


@pytest.mark.parametrize("args", [["--restarts", "many"], ["--restarts", "-1"], ["--priority", "x"], ["--gpus", "-1"], ["--mount", "data"], ["--env-file", "nofile"],
                                  ["--stdin", "nofile"], ["--after", "nosuchrun"], ["--no-such-option"], ["--target", "nowhere"], ["--name", "a/b"], ["--name", "x" * 200]])
def test_bad_options(common: Ground, args: list[str]):
    refused(common.stoker("run", *args, "--", "true"), 125)


def test_no_command(common: Ground):
    refused(common.stoker("run"), 125)
    refused(common.stoker("run", "--"), 125)
    refused(common.stoker("run", ""), 125)


def test_unknown_verb(common: Ground):
    refused(common.stoker("rnu"), 2, "run")


def test_more_gpus_than_there_are_is_never_started(common: Ground):
    refused(common.stoker("run", "-d", "--gpus", "64", "--", "true"), 125, "gpu")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("-")])
def test_names_with_everything_in_them(common: Ground, name: str):
    run = common.stoker("run", "-d", "--json", f"--name={name}", "--", "true").json()
    assert run["name"] == name
    assert common.stoker("show", "--json", "--", name).json()["id"] == run["id"]
    assert common.stoker("wait", "--", name).code == 0
    assert common.stoker("logs", "--", name).code == 0
    assert common.stoker("ps", "-a").code == 0
    common.stoker("rm", "--yes", "--", name).ok()
    assert not common.folder(run["id"]).exists()


@pytest.mark.parametrize("name", NAMES)
def test_scripts_and_arguments_with_everything_in_them(common: Ground, name: str):
    folder = common.work / f"in {name.replace('/', '_')}"
    common.script(f"{name}.py", "import sys, os\nprint(os.getcwd()); print(sys.argv[1:])", folder=folder)
    done = common.stoker("run", "--", "python", f"./{name}.py", name, "", "-d", cwd=folder).ok()
    assert done.out == f"{folder}\n{[name, '', '-d']!r}\n"


def test_a_copy_of_odd_names(common: Ground):
    folder = common.work / "odd"
    for name in (*NAMES, "new\nline", "tab\t"):
        common.script(name, "x", folder=folder)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "empty").mkdir()
    bad = bytes(folder) + b"/\xff\xfe"
    with open(bad, "wb") as f:
        f.write(b"y")
    run = common.stoker("run", "-d", "--json", "--copy", "--", "python", "-c", "import os; print(sorted(os.listdir(b'.')))", cwd=folder).json()
    common.wait_state(run["id"])
    listed = ast.literal_eval(common.log(run["id"]).decode())
    assert {n.encode() for n in (*NAMES, "new\nline", "tab\t", "dangling")} <= set(listed)
    assert b"\xff\xfe" in listed


def test_a_folder_of_5_gb_is_not_copied(ground: Ground):
    for name, size in (("model.bin", 3_000_000_000), ("data.bin", 1_500_000_000), ("more.bin", 500_000_000), ("small.txt", 5)):
        with open(ground.work / name, "wb") as f:
            f.truncate(size)
    refused(ground.stoker("run", "--copy", "--", "true"), 125, "model.bin", "data.bin", "more.bin", ".stokerignore")
    assert ground.runs() == []
    (ground.work / ".stokerignore").write_text("*.bin\n")
    run = ground.stoker("run", "-d", "--json", "--copy", "--", "ls").json()
    ground.wait_state(run["id"])
    assert ground.log(run["id"]).split() == [b"small.txt"]


def test_home_and_the_root_are_not_copied(ground: Ground):
    ground.script("x.py", "", folder=ground.user)
    refused(ground.stoker("run", "--copy", "--", "true", cwd=ground.user), 125, "folder")
    refused(ground.stoker("run", "--copy", "--", "true", cwd=ground.root.parent.parent), 125)


def test_a_folder_that_is_gone(ground: Ground):
    gone = ground.work / "gone"
    gone.mkdir()
    done = subprocess.run(["sh", "-c", f"cd '{gone}' && rmdir '{gone}' && exec stoker run -- true"], env=ground.env, capture_output=True, check=False)
    refused(Done(["run"], done.returncode, done.stdout, done.stderr), 125)


def test_removing_a_living_run_is_refused(ground: Ground):
    run = ground.detach("--", "sleep", "600")
    ground.wait_state(run["id"], "running")
    refused(ground.stoker("rm", run["id"]), 6, "stop")
    assert ground.show(run["id"])["state"] == "running"


def test_starting_a_living_run_is_refused(ground: Ground):
    run = ground.detach("--", "sleep", "600")
    ground.wait_state(run["id"], "running")
    refused(ground.stoker("start", run["id"]), 6)
    assert ground.show(run["id"])["attempts"] == 1


def test_an_ambiguous_prefix(ground: Ground):
    ids = [ground.detach("--", "true")["id"] for _ in range(40)]
    first = {}
    for run_id in ids:
        first.setdefault(run_id[0], []).append(run_id)
    letter = next(k for k, v in first.items() if len(v) > 1)
    done = ground.stoker("show", letter, "--json")
    assert done.code in (2, 3)
    assert json.loads(done.stderr)["hint"]

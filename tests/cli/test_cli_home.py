"""Files of a run on another machine come home by themselves, against a real sshd: while it runs, at its end, after cuts and kills."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import Ground, kill, until

from real.sshd import Sshd
from stoker.base.errors import NotFound
from stoker.console import files

pytestmark = pytest.mark.real("sshd")

TRAIN = """
import os, sys, time
os.makedirs("logs", exist_ok=True)
open("logs/loss.csv", "w").write("1,2\\n")
open("notes.txt", "a").write("far\\n")
open("table.txt", "a").write("far\\n")
open("big.bin", "wb").write(b"x" * 200_000)
if not os.path.lexists("link"): os.symlink("/etc/passwd", "link")
print("waits", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
open("model.pt", "wb").write(b"weights" * 1000)
"""
FILES = """
import random
r = random.Random(1)
for n in range(6): open(f"{n}.bin", "wb").write(r.randbytes(1 << 20) * 16)
print("written")
"""


@pytest.fixture
def own_sshd() -> Iterator[Sshd]:
    """A machine that can be switched off."""
    folder = Path(tempfile.mkdtemp(prefix="st-sshd-", dir="/tmp"))
    made = Sshd(folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


def far(ground: Ground, sshd: Sshd, settings: str = "") -> None:
    """The machine "far": a folder behind a real sshd."""
    config = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{config}")
    ground.home.mkdir(parents=True, exist_ok=True)
    (ground.home / "config.toml").write_text(f'{settings}\n[targets.far]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n')


def outputs(ground: Ground, ref: str) -> dict:
    return ground.stoker("show", ref, "--json").json()["outputs"]


def test_named_files_come_while_it_runs_all_others_at_its_end_and_nothing_of_yours_is_lost(ground: Ground, sshd: Sshd):
    far(ground, sshd, 'pull_limit = "100kB"')
    ground.script("x.py", TRAIN)
    for name in ("notes.txt", "table.txt", "data.bin"):
        (ground.work / name).write_text("sent\n")
    run = ground.detach("--on", "far", "--name", "base", "--pull", "*.none,logs/**", "x.py", f"{ground.root}/go")
    assert run["outputs"]["state"] == "running"
    until((ground.work / "logs" / "loss.csv").exists, 40, "a file of a run that goes on")
    assert not (ground.work / "big.bin").exists() and (ground.work / "table.txt").read_text() == "sent\n"
    (ground.work / "notes.txt").write_text("sent, and edited here\n")
    (ground.root / "go").touch()
    ended = ground.stoker("wait", "base").ok()
    assert (ground.work / "model.pt").read_bytes() == b"weights" * 1000 and (ground.work / "table.txt").read_text() == "sent\nfar\n"
    kept = ground.home / "runs" / run["id"] / "outputs" / "notes.txt"
    assert (ground.work / "notes.txt").read_text() == "sent, and edited here\n" and kept.read_text() == "sent\nfar\n"
    assert not (ground.work / "big.bin").exists() and not os.path.lexists(ground.work / "link")
    assert "Stoker left 1 file (200 kB) on far, because of the limit of 100 kB (pull_limit in config.toml): big.bin" in ended.err
    assert f"Stoker put 1 file into {kept.parent}" in ended.err and "Stoker copied 3 files (7.0 kB) to" in ended.err
    told = ground.show("base")
    assert {each["path"]: each["place"] for each in told["files"]} == {
        "model.pt": "here", "table.txt": "here", "logs/loss.csv": "here", "notes.txt": "outputs", "big.bin": "there"}
    assert [b"".join(files.find(told, name).pieces()) for name in ("model.pt", "notes.txt")] == [b"weights" * 1000, b"sent\nfar\n"]  # the console
    with pytest.raises(NotFound, match="still on the machine far"):
        files.find(told, "big.bin").pieces()
    said = ground.stoker("show", "base").ok().out
    assert "To copy these files: stoker pull base" in said and "200 kB  new  not copied" in said
    ground.stoker("pull", "base", "big.bin").ok()
    assert (ground.work / "big.bin").stat().st_size == 200_000
    ground.stoker("start", "base").ok()  # one more attempt: what it changes comes again
    ground.stoker("wait", "base").ok()
    assert (ground.work / "table.txt").read_text() == "sent\nfar\nfar\n" and kept.read_text() == "sent\nfar\nfar\n"
    refused = ground.stoker("run", "--pull", "*.pt", "x.py")
    assert refused.code == 125 and "--pull copies files from another machine" in refused.err


def test_a_server_that_is_killed_and_a_machine_that_is_away_delay_the_files_and_lose_none(ground: Ground, own_sshd: Sshd):
    far(ground, own_sshd)
    ground.script("x.py", FILES)
    run = ground.detach("--on", "far", "--name", "base", "x.py")
    partial = ground.home / "runs" / run["id"] / "partial"

    def grown() -> int:
        return sum(each.stat().st_size for each in partial.glob("*")) if partial.is_dir() else 0
    until(lambda: grown() > 1 << 20 or (ground.work / "5.bin").exists(), 60, "the first bytes")
    for pid in ground.server_pids():
        kill(pid, signal.SIGKILL)
    assert not (ground.work / "5.bin").exists(), "all files had come before the server was killed"
    own_sshd.halt()
    late = until(lambda: (told := outputs(ground, "base"))["state"] == "late" and told, 60, "a try that fails")
    assert late["why"] and "Stoker tries again" in late["lines"][-1]
    assert ground.stoker("logs", "base").ok().out == "written\n"  # the log came first
    refused = ground.stoker("rm", "--yes", "base")
    assert refused.code == 6 and "have not been copied to this machine yet" in refused.err
    own_sshd.again()
    until(lambda: outputs(ground, "base")["state"] == "settled", 60, "the files")
    for n in range(6):
        there = Path(run["folder"], "work", f"{n}.bin").read_bytes()
        assert hashlib.sha256((ground.work / f"{n}.bin").read_bytes()).digest() == hashlib.sha256(there).digest()
    assert not grown() and not [path for path in ground.work.iterdir() if path.name.startswith(".")]
    ground.stoker("rm", "--yes", "base").ok()
    assert not (ground.home / "runs" / run["id"]).exists() and (ground.work / "5.bin").exists()


FALLS = """
import json, os, sys
again = os.environ["STOKER_ATTEMPT"] == "2"
os.makedirs("../resume", exist_ok=True)
lives = [{"attempt": 1, "from": None}, {"attempt": 2, "from": 1, "out_bytes": len("step 0 loss 9.5\\nstep 1 loss 8.5\\n")}]
open("../resume/state.json", "w").write(json.dumps({"state": "resumable", "lives": lives[:1 + again]}))
for n in (2, 3) if again else (0, 1, 2): print(f"step {n} loss {9.5 - n}")
sys.exit(0 if again else 3)
"""


def test_logs_and_numbers_of_an_ended_run_are_read_while_its_machine_is_off(ground: Ground, own_sshd: Sshd):
    far(ground, own_sshd)
    ground.script("x.py", FALLS)
    run = ground.detach("--on", "far", "--name", "base", "x.py")
    assert ground.stoker("wait", "base").code == 3
    ground.stoker("start", "base").ok()
    ground.stoker("wait", "base").ok()
    own_sshd.halt()
    Path(ground.root / "far").rename(ground.root / "gone")
    whole = "".join(f"step {n} loss {9.5 - n}\n" for n in range(4))
    assert ground.stoker("logs", "base").ok().out == whole
    assert [each["attempt"] for each in ground.show(run["id"])["attempts_detail"]] == [1, 2]
    assert "loss" in ground.stoker("show", "base").ok().out
    told = ground.stoker("plot", "base", "--json").json()
    assert [[point[:2] for point in each["points"]] for each in told["series"] if each["name"] == "loss"] == [[[n, 9.5 - n] for n in range(4)]]
    assert ground.stoker("compare", "base", "--json").ok().out


def test_a_machine_that_lies_about_names_and_about_what_was_sent_replaces_nothing(ground: Ground, sshd: Sshd):
    far(ground, sshd)
    ground.script("x.py", "open('secret.txt', 'w').write('not it'); open('good.txt', 'w').write('good')")
    ground.script(".stokerignore", "secret.txt\n")
    ground.script("secret.txt", "secret")
    ground.stoker("run", "--on", "far", "--name", "first", "x.py").ok()
    assert (ground.work / "secret.txt").read_text() == "secret"
    info = (ground.work / "secret.txt").stat()
    lie = {"size": info.st_size, "mtime_ns": info.st_mtime_ns}
    agent, = (ground.root / "far" / "agent").glob("agent-*/looking.py")
    agent.write_text(agent.read_text() + f"""
def lie(run_dir, since, until):
    import json
    true = look_made(run_dir, since, until)
    made = json.loads(__import__("zlib").decompress(__import__("base64").b64decode(true["data"])))
    made = [dict(each, kind="changed", sent={lie!r}) for each in made]
    made += [dict(made[0], path=path) for path in ("../evil", "{ground.root}/evil", "d/../../evil", ".GIT/hooks/post-commit", "e\\x1b[2Jvil", 7)]
    return {{"data": pack(json.dumps(made + [7, None]).encode()), "cut": "\\x1b[2J"}}
QUESTIONS["made"] = lie
""")
    shutil.rmtree(agent.with_name("__pycache__"))
    ground.stoker("run", "--on", "far", "--name", "second", "x.py")
    told = outputs(ground, "second")
    kept = Path(told["kept_in"]) / "secret.txt"
    assert (ground.work / "secret.txt").read_text() == "secret" and kept.read_text() == "not it"
    assert told["failed"]["paths"] == ["e\x1b[2Jvil"] and "\x1b" not in ground.stoker("show", "second").ok().out
    assert not (ground.root / "evil").exists() and sorted(os.listdir(ground.work)) == [".stokerignore", "good.txt", "secret.txt", "x.py"]
    assert json.loads(ground.stoker("pull", "second", "good.txt", "--json").ok().out)["files"][0]["result"] == "here"

"""`stoker pull` against a real sshd: what a run made on another machine comes into the folder that it was typed in."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until

from real.sshd import Sshd

TRAIN = """
import os
os.makedirs("logs", exist_ok=True)
open("logs/loss.csv", "w").write("1,2\\n")
open("model.pt", "wb").write(b"weights" * 1000)
open("notes.txt", "a").write("far\\n")
os.symlink("/etc/passwd", "link")
"""


def far(ground: Ground, sshd: Sshd) -> None:
    """The target "far": a folder behind a real sshd. Nothing comes home by itself."""
    config = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{config}")
    ground.home.mkdir(parents=True, exist_ok=True)
    (ground.home / "config.toml").write_text(f'pull_limit = 0\n[targets.far]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n')


def results(told: dict) -> dict[str, str]:
    return {each["path"]: each["result"] for each in told["files"]}


@pytest.mark.real("sshd")
def test_what_a_far_run_made_comes_home_and_nothing_of_yours_is_lost(ground: Ground, sshd: Sshd):
    far(ground, sshd)
    ground.script("x.py", TRAIN)
    (ground.work / "notes.txt").write_text("sent\n")
    (ground.work / "data.bin").write_bytes(b"data")
    ground.stoker("run", "--on", "far", "--name", "base", "x.py").ok()
    told = json.loads(ground.stoker("pull", "base", "*.pt", "logs", "--json").ok().out)
    assert results(told) == {"model.pt": "brought", "logs/loss.csv": "brought"} and told["folder"] == str(ground.work)
    assert (ground.work / "model.pt").read_bytes() == b"weights" * 1000 and not (ground.work / "link").exists()
    (ground.work / "notes.txt").write_text("sent, and edited here\n")
    told = json.loads(ground.stoker("pull", "base", "--json").ok().out)
    assert results(told) == {"model.pt": "here", "logs/loss.csv": "here", "notes.txt": "kept"}
    kept = Path(told["outputs"]) / "notes.txt"
    assert (ground.work / "notes.txt").read_text() == "sent, and edited here\n" and kept.read_text() == "sent\nfar\n"
    said = ground.stoker("pull", "base").ok()
    assert f"1 file put into {told['outputs']}" in said.err and f"base: 2 files already in {ground.work}" in said.err
    ground.stoker("start", "base").ok()
    ground.stoker("wait", "base")
    assert results(json.loads(ground.stoker("pull", "base", "model.pt", "--json").ok().out)) == {"model.pt": "brought"}  # what it brought before
    nothing = ground.stoker("pull", "base", "nope.pt")
    assert nothing.code == 3 and "did not make or change a file 'nope.pt'" in nothing.err
    ground.stoker("rm", "--yes", "base").ok()
    assert not kept.exists() and (ground.work / "model.pt").exists()


def test_a_near_run_from_a_copy_and_one_in_place(ground: Ground):
    ground.script("x.py", "open('out.txt', 'w').write('1')\n")
    ground.stoker("run", "--copy", "--name", "copied", "x.py").ok()
    assert not (ground.work / "out.txt").exists()
    said = ground.stoker("pull", "copied").ok()
    assert (ground.work / "out.txt").read_text() == "1" and "out.txt" in said.out and "1 file (1 B) copied" in said.err
    ground.stoker("run", "--name", "inplace", "x.py").ok()
    refused = ground.stoker("pull", "inplace")
    assert refused.code == 2 and "works in" in refused.err


@pytest.mark.real("sshd")
def test_a_transfer_that_is_cut_or_killed_continues_and_every_byte_is_right(ground: Ground, sshd: Sshd):
    far(ground, sshd)
    ground.script("x.py", "import random\nr = random.Random(1)\nfor n in range(6): open(f'{n}.bin', 'wb').write(r.randbytes(1 << 20) * 16)\n")
    ground.stoker("run", "--on", "far", "--name", "base", "x.py").ok()
    run = ground.show("base")
    partial = ground.home / "runs" / run["id"] / "partial"

    def grown() -> int:
        return sum(each.stat().st_size for each in partial.glob("*")) if partial.is_dir() else 0
    first = ground.start_stoker("pull", "base", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: grown() > 1 << 20 or first.poll() is not None, 60, "the first bytes")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL and grown(), "the transfer was over before it was killed"
    second = ground.start_stoker("pull", "base", "--json", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: grown() > 1 << 20 or second.poll() is not None, 60, "further bytes")
    logins = sshd.logins()
    sshd.cut()
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert sshd.logins() > logins, "the transfer was over before it was cut"
    assert set(results(json.loads(out))) == {f"{n}.bin" for n in range(6)}
    for n in range(6):
        there = Path(run["folder"], "work", f"{n}.bin").read_bytes()
        assert hashlib.sha256((ground.work / f"{n}.bin").read_bytes()).digest() == hashlib.sha256(there).digest()
    assert not grown() and not [name for name in ground.work.iterdir() if name.name.startswith(".")]

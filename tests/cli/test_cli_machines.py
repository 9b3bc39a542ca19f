"""`stoker machine` against a real sshd: add, check, list, use, remove; and what must leave nothing behind."""

from __future__ import annotations

import socket
import subprocess

import pytest
from benchmarks.ground import Ground, until

from real.sshd import Sshd, accepts, free_port


def by_ssh(ground: Ground, options: tuple[str, ...]) -> list[str]:
    """What one types after `ssh` to reach it."""
    settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
    return ["--root", f"{ground.root}/far", "--", "-F", f"{ground.root}/ssh", "box"]


@pytest.mark.real("sshd")
def test_a_machine_is_added_checked_used_and_removed(ground: Ground, sshd: Sshd):
    words = by_ssh(ground, sshd.options)
    added = ground.stoker("machine", "add", "far", *words).ok()
    assert "python" in added.out and "memory" in added.out and added.err.endswith("far is added. Run there: stoker run --on far train.py\n")
    again = ground.stoker("machine", "add", "far", *words)
    assert again.code == 6 and "A machine with the name far already exists." in again.err
    facts = ground.stoker("machine", "check", "far", "--json").json()
    assert facts["cpus"] >= 1 and facts["python"]["executable"] and abs(facts["clock_offset_s"]) < 5 and "torch" in facts
    ground.script("x.py", "print('there')")
    ground.stoker("run", "--on", "far", "--name", "one", "x.py").ok()
    assert [(each["name"], each["active"], each["ended"]) for each in ground.stoker("machine", "ls", "--json").json()] == [("local", 0, 0), ("far", 0, 1)]
    kept = ground.stoker("machine", "rm", "far")
    assert kept.code == 2 and "far has 1 ended run. " in kept.err and "stoker machine rm --yes far" in kept.err
    ground.stoker("rm", "--yes", "one").ok()
    ground.stoker("machine", "rm", "far").ok()
    assert [each["name"] for each in ground.stoker("machine", "ls", "--json").json()] == ["local"]
    assert ground.stoker("run", "--on", "far", "x.py").code == 125


@pytest.mark.real("sshd")
def test_an_unknown_host_is_asked_about_accepted_by_yes_and_a_changed_key_is_never(ground: Ground, sshd: Sshd):
    known = ground.root / "mine"
    words = by_ssh(ground, sshd.with_option("UserKnownHostsFile", str(known)))
    refused = ground.stoker("machine", "add", "far", *words)
    assert refused.code == 5 and "host key" in refused.err
    assert not (ground.home / "config.toml").exists() or "far" not in (ground.home / "config.toml").read_text()
    term = ground.terminal("machine", "add", "far", *words)
    term.expect(b"fingerprint")
    term.send(b"yes\r")
    assert term.wait() == 0, term.seen
    term.close()
    assert b"is added" in term.seen
    ground.stoker("machine", "rm", "far").ok()
    known.unlink()
    ground.stoker("machine", "add", "far", "--yes", *words).ok()
    ground.stoker("machine", "rm", "far").ok()
    key = (sshd.folder / "stranger_key.pub").read_text().split()[:2]
    known.write_text(f"[127.0.0.1]:{sshd.port} {' '.join(key)}\n")
    ground.stoker("server", "stop").ok()  # which holds a connection
    changed = ground.stoker("machine", "add", "far", "--yes", *words)
    assert changed.code == 5 and "host key" in changed.err and "has changed" in changed.err
    assert "far" not in (ground.home / "config.toml").read_text()


def test_what_cannot_be_a_machine_is_refused_and_not_written(ground: Ground):
    for words, code in ((("box", "ssh://u:pw@h"), 2), (("a b", "h"), 2), (("local", "h"), 6), (("box", "--", "-p", "1", "127.0.0.1"), 5), (("box",), 2)):
        assert ground.stoker("machine", "add", *words).code == code, words
    assert not (ground.home / "config.toml").exists() or not (ground.home / "config.toml").read_text()
    for verb in ("check", "rm"):
        unknown = ground.stoker("machine", verb, "nobody")
        assert unknown.code == 2 and "nobody" in unknown.err


@pytest.mark.real("sshd")
def test_ssh_runs_a_command_there_and_open_reaches_a_port_of_its_loopback(ground: Ground, sshd: Sshd):
    (ground.home).mkdir()
    words = by_ssh(ground, sshd.options)
    (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "{" ".join(words[3:])}"\n')
    there = ground.stoker("ssh", "far", "echo", "$SSH_CONNECTION; exit 7")
    assert there.code == 7 and f" {sshd.port}" in there.out
    with socket.create_server(("127.0.0.1", 0)) as page, socket.create_server(("127.0.0.1", 0)) as taken:
        port = page.getsockname()[1]
        refused = ground.stoker("open", "far", "--port", str(port), "--here", str(taken.getsockname()[1]))
        assert refused.code == 6 and "cannot be used: Address already in use" in refused.err
        here = free_port()
        door = ground.start_stoker("open", "far", "--port", str(port), "--here", str(here), stderr=subprocess.PIPE)
        assert f"http://127.0.0.1:{here} now reaches port {port} of far".encode() in door.stderr.readline()
        until(lambda: accepts(here) or door.poll() is not None, 20, "the door")
        with socket.create_connection(("127.0.0.1", here), 10) as client:
            for _ in range(2):  # the first connection was that of `accepts`
                link, _ = page.accept()
                link.sendall(b"hello")
                link.close()
            assert client.recv(5) == b"hello"
        door.terminate()
        door.wait(10)
    for verb in (["ssh"], ["open", "--port", "1"]):
        assert ground.stoker(*verb, "nowhere").code == 3 and "is this machine" in ground.stoker(*verb, "local").err


@pytest.mark.real("sshd", "rsync")
def test_push_sends_a_folder_once_and_what_has_changed_again(ground: Ground, sshd: Sshd):
    (ground.home).mkdir()
    words = by_ssh(ground, sshd.options)
    (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "{" ".join(words[3:])}"\nroot = "{ground.root}/far"\n')
    for name in ("a.bin", "deep/b'$(x).bin"):
        ground.script(f"data/{name}", name)
    there = ground.root / "there it is"
    ground.stoker("push", "data", f"far:{there}").ok()
    assert {each.relative_to(there).as_posix() for each in there.rglob("*.bin")} == {"a.bin", "deep/b'$(x).bin"}
    before = (there / "a.bin").stat().st_ino
    ground.script("data/deep/b'$(x).bin", "changed")
    ground.stoker("push", "data/", f"far:{there}").ok()
    assert (there / "deep" / "b'$(x).bin").read_text() == "changed" and (there / "a.bin").stat().st_ino == before
    ground.script("x.py", "print(open('data/deep/b\\'$(x).bin').read())")
    ground.script(".stokerignore", "data\n")
    assert ground.stoker("run", "--on", "far", "--mount", f"data={there}", "x.py").ok().out == "changed\n"
    assert ground.stoker("push", "nothing", f"far:{there}").code == 3 and ground.stoker("push", "data", "far").code == 2
    assert ground.stoker("push", "data", "far:/dev/null/x").code == 5

"""Machines that lack what others have: one sentence and a hint, nothing left there; or it works all the same.

Each is a real sshd in a mount namespace of its own, in which files of this machine are hidden or replaced. Wrong names, ports and keys,
noisy logins, other login shells and ssh configs of users are in test_host_ssh.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from real.sshd import Sshd
from stoker.backends import registry
from stoker.backends.base import Backend
from stoker.base.errors import TargetError
from stoker.hosts.ssh import SshHost

pytestmark = pytest.mark.real("sshd", "unshare")
PYTHONS = "/usr/bin/python3 /usr/bin/python /usr/local/bin/python3 /usr/local/bin/python /opt/conda/bin/python /usr/libexec/platform-python"
OLD = "#!/bin/sh\ncase $* in *version_info*) exit 1;; esac\necho Python 3.6.9\n"  # as much of a 3.6 as is asked of it
HIDE = "for each in {paths}; do test -e $each && mount --bind {by} $(readlink -f $each); done; "


@pytest.fixture
def machine() -> Iterator[Callable[..., tuple[Backend, Sshd]]]:
    """machine(script, *variables) -> a back end on a machine whose files the script has changed, and its sshd."""
    folder, made = Path(tempfile.mkdtemp(prefix="sb-", dir="/tmp")), []

    def make(script: str, *variables: str) -> tuple[Backend, Sshd]:
        script = script.replace("HOME", f"{folder}/sshd/home")
        inside = ("unshare", "-m", "sh", "-c", f'{script}exec "$@"', "sh")
        sshd = Sshd(folder / "sshd", inside=inside, variables=variables)
        backend = registry.make("process", SshHost("127.0.0.1", options=sshd.options), "~/.stoker")
        made.append((backend, sshd))
        return made[-1]

    yield make
    for backend, sshd in made:
        backend.close()
        sshd.close()
    shutil.rmtree(folder)


def refused(backend: Backend, sshd: Sshd) -> TargetError:
    """Why a machine is of no use; nothing was left there."""
    with pytest.raises(TargetError) as told:
        backend.capacity()
    assert not told.value.retry and told.value.hint and "\n" not in told.value.message and os.listdir(sshd.home) == []
    return told.value


@pytest.mark.parametrize("python", ["", OLD], ids=["none", "3.6"])
def test_no_python_that_is_new_enough(machine, tmp_path, python):
    (tmp_path / "python").write_text(python)
    (tmp_path / "python").chmod(0o755 if python else 0o644)
    told = refused(*machine(HIDE.format(paths=PYTHONS, by=tmp_path / "python")))
    assert told.message == "127.0.0.1 has no Python 3.8 or newer." and "apt-get install python3" in told.hint


def test_a_home_that_is_read_only(machine):
    told = refused(*machine("mount --bind HOME HOME; mount -o remount,ro,bind HOME; "))
    assert "cannot be created on 127.0.0.1" in told.message and "root" in told.hint


def test_no_tar_no_rsync_and_an_empty_path(machine, tmp_path):
    (tmp_path / "nothing").write_text("")
    hidden = HIDE.format(paths="/usr/bin/tar /usr/bin/rsync /usr/bin/git /usr/bin/tmux", by=tmp_path / "nothing")
    backend, sshd = machine(hidden, "PATH=/nowhere")
    assert backend.capacity().cpus >= 1 and backend._host.run(["sh", "-c", "echo $PATH; tar --version"]).code != 0
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "f").write_bytes(b"\0x")
    backend._host.put(tmp_path / "sent", f"{sshd.home}/sent")
    backend._host.get(f"{sshd.home}/sent", tmp_path / "back")
    assert (tmp_path / "back" / "f").read_bytes() == b"\0x"

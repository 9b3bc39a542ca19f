"""Machines in config.toml: added and removed as text, with all else in the file left as it is."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from stoker.base import machines
from stoker.base.config import Home, TargetConfig
from stoker.base.errors import InvalidSpec, StateError

OWN = '# mine\nslots = 2\n\n[targets.lab]  # the lab\'s server\nhost = "me@lab"\n# its disk\nroot = "/data"\n\n[targets.local]\ngpus = 1\n'


@pytest.fixture
def where(tmp_path: Path) -> Home:
    made = Home(tmp_path / "h")
    os.mkdir(made.path, 0o700)
    return made


def test_a_machine_is_added_at_the_end_and_removed_without_a_trace(where: Home):
    where.config.write_text(OWN)
    machines.add(where, TargetConfig(name="box", host='-p 22 "odd"@host', root="/r", gpus=0, slots=3))
    text = where.config.read_text()
    assert text.startswith(OWN.rstrip())
    assert tomllib.loads(text)["targets"]["box"] == {"host": '-p 22 "odd"@host', "root": "/r", "gpus": 0, "slots": 3}
    machines.remove(where, "box")
    assert where.config.read_text().rstrip() == OWN.rstrip()
    machines.remove(where, "lab")
    assert where.config.read_text() == "# mine\nslots = 2\n\n[targets.local]\ngpus = 1\n\n"


def test_in_a_folder_without_settings_the_file_is_made_for_its_owner_alone(where: Home):
    machines.add(where, TargetConfig(name="box", host="me@host"))
    assert where.config.read_text() == '[targets.box]\nhost = "me@host"\n'
    assert where.config.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", "a b", "-x", "a.b", "a]", "ü", "x" * 41])
def test_a_name_that_toml_or_a_shell_would_read_otherwise_is_refused(where: Home, name: str):
    with pytest.raises(InvalidSpec):
        machines.add(where, TargetConfig(name=name, host="h"))
    assert not where.config.exists()


def test_what_is_there_is_not_written_twice_and_what_is_written_in_another_form_is_left(where: Home):
    text = 'targets = {lab = {host = "me@lab"}}\n'
    where.config.write_text(text)
    with pytest.raises(StateError):
        machines.add(where, TargetConfig(name="lab", host="h"))
    with pytest.raises(StateError):
        machines.add(where, TargetConfig(name="local", host="h"))
    for name in ("lab", "nobody", "local"):
        with pytest.raises(InvalidSpec):
            machines.remove(where, name)
    with pytest.raises(InvalidSpec):
        machines.add(where, TargetConfig(name="box", host="h"))  # after `targets = {...}` no table of it can follow
    assert where.config.read_text() == text


def test_addresses():
    assert machines.address_of("ssh://root@connect.example.com:12345") == "-p 12345 root@connect.example.com"
    assert machines.address_of("ssh://box/") == "box"
    assert machines.address_of("me@lab") == "me@lab"
    for wrong in ("ssh://", "ssh://u:secret@h", "ssh://h/path", "ssh://h:x", "ssh://h:99999"):
        with pytest.raises(InvalidSpec) as refused:
            machines.address_of(wrong)
        assert "secret" not in refused.value.message

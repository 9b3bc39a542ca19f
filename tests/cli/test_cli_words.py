"""From typed words to a spec: options end at the command, values are checked, every mistake is a sentence and a hint."""

from __future__ import annotations

import json
import os

import click
import pytest

from stoker.base.errors import InvalidSpec
from stoker.base.spec import Spec
from stoker.cli import main as entry
from stoker.cli import output
from stoker.cli.run.command import make_spec, parse_env_file, parse_mounts, run, run_env


def parsed(*words: str) -> tuple[tuple[str, ...], dict]:
    """The command and the options of `stoker run WORDS`."""
    context = run.make_context("run", list(words))
    options = dict(context.params)
    return options.pop("command"), options


def spec_of(*words: str) -> dict:
    command, options = parsed(*words)
    return make_spec(command, options)


@pytest.fixture(autouse=True)
def no_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output, "_as_json", False)


@pytest.mark.parametrize(("words", "command"), [
    (["train.py", "--lr", "0.1", "-d"], ("train.py", "--lr", "0.1", "-d")),
    (["-d", "train.py", "--json"], ("train.py", "--json")),
    (["--", "-rf", "--name", "x"], ("-rf", "--name", "x")),
    (["--", "python", "a b.py", "--", "--new"], ("python", "a b.py", "--", "--new")),
    (["python", "--", "x"], ("python", "--", "x")),
    (["--name", "n", "训练.py", "🚂"], ("训练.py", "🚂")),
    (["train.py", ""], ("train.py", "")),
])
def test_options_end_at_the_command(words: list[str], command: tuple[str, ...]):
    assert parsed(*words)[0] == command


def test_a_spec_that_the_server_takes():
    spec = spec_of("-d", "--name", "base", "--restarts", "3", "--backoff", "1s", "--copy", "--gpus", "1", "--slots", "2", "--priority", "-4",
                   "--mount", "data=/mnt/data set", "--home", "/tmp/h", "--grace", "1m", "--target", "box", "--", "python", "train.py")
    checked = Spec.from_json(spec).check()
    assert checked.command == ("python", "train.py")
    assert (checked.name, checked.restarts, checked.backoff_s, checked.copy, checked.gpus, checked.slots) == ("base", 3, 1.0, True, 1, 2)
    assert (checked.priority, checked.mounts, checked.home, checked.grace_s) == (-4, {"data": "/mnt/data set"}, "/tmp/h", (60.0, 60.0))
    assert (checked.target, checked.folder, checked.tty, checked.stdin, checked.unbuffered) == ("box", os.getcwd(), False, "none", True)


@pytest.mark.parametrize(("words", "resume"), [
    ([], "auto"), (["--resume", "off"], "off"), (["--resume", "auto"], "auto"), (["--no-hooks"], "off"), (["--rehearse", "2"], "off"),
])
def test_every_run_is_recorded_unless_told_otherwise(words: list[str], resume: str):
    assert spec_of(*words, "train.py")["resume"] == resume


def test_detached_with_a_terminal_can_be_typed_to():
    spec = spec_of("-d", "--tty", "top")
    assert (spec["tty"], spec["stdin"]) == (True, "attached")


def test_stdin_from_a_file(tmp_path):
    (tmp_path / "in").write_text("x")
    assert spec_of("-d", "--stdin", str(tmp_path / "in"), "cat")["stdin"] == "file"


def test_another_folder(tmp_path):
    assert spec_of("-d", "--cwd", str(tmp_path), "true")["folder"] == str(tmp_path)


def test_the_environment_is_the_clients_without_what_is_stokers(tmp_path):
    (tmp_path / "env").write_text("# secrets\nexport A=1\nB='two words'\nC=\n\nD=a=b # a comment\nF=\"a\\nb\"\nG=${B}!\n")
    client = {"PATH": "/bin", "A": "0", "STOKER_RUN": "x", "STOKER_HOME": "/h", "STOKER_CRASH_AT": "y"}
    env = run_env(client, ("A=2", "E=\udcff"), parse_env_file(str(tmp_path / "env")))
    assert env == {"PATH": "/bin", "STOKER_HOME": "/h", "A": "2", "B": "two words", "C": "", "D": "a=b", "F": "a\nb",
                   "G": "two words!", "E": "\udcff"}


def test_a_bad_line_of_an_env_file_is_named(tmp_path):
    (tmp_path / "env").write_text("A=1\nnonsense\n")
    with pytest.raises(InvalidSpec, match="line 2"):
        parse_env_file(str(tmp_path / "env"))


@pytest.mark.parametrize("mount", ["data", "data=relative", "=/abs", "data="])
def test_bad_mounts(mount: str):
    with pytest.raises(InvalidSpec, match="NAME=/PATH"):
        parse_mounts((mount,))


@pytest.mark.parametrize("words", [
    ["run"], ["run", "--"], ["run", "--time", "2x", "true"], ["run", "--no-such", "true"], ["run", "--restarts", "-1", "true"],
    ["run", "--mount", "x", "true"], ["run", "--env", "novalue", "true"], ["run", "--stdin", "/no/such", "true"], ["run", "--yes", "--new", "true"],
])
def test_mistakes_of_run_are_stokers_own_failures(words: list[str], capsys: pytest.CaptureFixture):
    assert entry.main(words) == 125
    said = capsys.readouterr()
    assert said.out == ""
    first, second = said.err.splitlines()
    assert first.startswith("error: ") and second.startswith("hint: ")


@pytest.mark.parametrize(("words", "hint"), [
    (["rnu"], "stoker run"), (["shwo", "x"], "stoker show"), (["train.py"], "stoker run train.py"), (["zzzz"], "stoker help"), (["ps", "--al"], "--help"),
    (["keep", "x"], "3h"),
    (["status"], "stoker ps"), (["kill", "x"], "stoker stop"), (["delete", "x"], "stoker rm"), (["st"], "`stoker stop` or `stoker start`"),
    (["train.py", "--lr", "1"], "stoker run train.py --lr 1"), (["python3", "train.py"], "stoker run -- python3 train.py"),
    (["./my train.py"], "stoker run './my train.py'"), (["deploy"], "stoker help"), (["mlflow"], "stoker help"),
])
def test_mistakes_elsewhere_exit_2_and_say_what_to_type(words: list[str], hint: str, capsys: pytest.CaptureFixture):
    assert entry.main(words) == 2
    assert hint in capsys.readouterr().err.splitlines()[1]


@pytest.mark.parametrize(("words", "hint"), [
    (["run", "--tiem", "5m", "true"], "Did you mean --time?"), (["run", "--lr", "3", "train.py"], "stoker run train.py --lr ..."),
    (["run", "--detached", "true"], "Did you mean --detach?"), (["logs", "--tial", "3", "x"], "Did you mean --tail?"),
    (["logs", "--zzz", "x"], "See `stoker logs --help`."), (["run", "-q", "true"], "stoker run train.py -q ..."),
])
def test_an_option_that_is_not_there(words: list[str], hint: str, capsys: pytest.CaptureFixture):
    assert entry.main(words) in (2, 125)
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("error: There is no option -") and hint in told[1] and ("mean" in told[1]) is ("mean" in hint)


def test_what_other_tools_call_a_verb_leads_to_one_that_is_there():
    assert {verb.split()[0] for verb in entry.OTHER_WORDS.values()} - {"--version"} <= set(entry.VERBS)
    assert not set(entry.OTHER_WORDS) & set(entry.VERBS)


def test_errors_are_json_when_json_was_asked_for(capsys: pytest.CaptureFixture):
    assert entry.main(["run", "--json", "--time", "2x", "true"]) == 125
    body = json.loads(capsys.readouterr().err)
    assert body["error"] == "invalid_spec" and "2x" in body["message"] and body["hint"]


def test_json_of_the_command_is_not_stokers(capsys: pytest.CaptureFixture):
    assert entry.main(["run", "--time", "2x", "true", "--json"]) == 125
    assert capsys.readouterr().err.startswith("error: ")


def test_version_and_help(capsys: pytest.CaptureFixture):
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stoker ")
    assert entry.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {verb} " in listed for verb in entry.VERBS)
    assert entry.main(["help", "run"]) == 0
    assert capsys.readouterr().out.startswith("Usage: stoker run")


def test_every_verb_is_in_one_section_and_can_be_loaded():
    assert sorted(v for names in entry.SECTIONS.values() for v in names) == sorted(entry.VERBS)
    for verb in entry.VERBS:
        assert isinstance(entry.cli.get_command(click.Context(entry.cli), verb), click.Command)


def test_completion_offers_verbs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setenv("_STOKER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "stoker s")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        entry.main([])
    assert {"plain,show", "plain,stop", "plain,start", "plain,server"} <= set(capsys.readouterr().out.split())

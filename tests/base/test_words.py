"""Errors, spec, state tables, run folder, config: what every room relies on."""

import os

import pytest

from stoker.base import config, errors, rundir, state
from stoker.base.errors import Denied, InvalidSpec, TargetError
from stoker.base.spec import Limits, Spec, check_name, inheritance


@pytest.mark.parametrize("cls", errors.ALL_ERRORS)
def test_an_error_survives_the_way_over_http(cls):
    back = errors.from_json(cls("words", hint="type this", fields=["gpus"]).to_json())
    assert (type(back), back.message, back.hint, back.fields) == (cls, "words", "type this", ("gpus",))
    assert "fields" not in cls("words").to_json()
    assert cls().message and cls().hint


def test_retry_travels_with_a_target_error():
    assert errors.from_json(TargetError("x", retry=False).to_json()).retry is False


def test_an_error_of_a_newer_server_is_still_an_error():
    assert errors.from_json({"error": "of_tomorrow", "message": "words"}).message == "words"


def test_a_spec_comes_back_from_json_and_keeps_odd_bytes():
    spec = Spec(command=("python", "naïve 火 'x' \udcff.py"), name="-rf", folder="/a b", mounts={"d": "/x"}, after=("a",), grace_s=(1.0, 2.0))
    assert Spec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("bad", [{"command": ()}, {"command": ("",)}, {"command": ("a\0",)}, {"command": ("a",), "gpus": -1}, {"command": ("a",), "stdin": "tap"}])
def test_a_spec_that_cannot_run_is_refused(bad):
    with pytest.raises(InvalidSpec):
        Spec(**bad).check()


def test_the_fingerprint_forgets_who_asked_and_when_but_not_what():
    one = Spec(command=("a",), folder="/f", id="x", created_at="1", tty=True)
    assert one.fingerprint() == Spec(command=("a",), folder="/f", name="n").fingerprint()
    assert one.fingerprint() != one.with_(command=("a", "--lr", "1")).fingerprint()
    assert one.fingerprint() != one.with_(folder="/g").fingerprint()


@pytest.mark.parametrize("name", ["base", "a-rf", "a b", "火🔥", "it's", '"q"', ".hidden"])
def test_names_people_give(name):
    check_name(name)


@pytest.mark.parametrize("name", ["a/b", "a\nb", " a", "a ", "..", "x" * 81, "\x7f", "-x", "--", "a\x9bm", "a\u202eb", "a\u2028b"])
def test_names_that_cannot_be(name):
    with pytest.raises(InvalidSpec):
        check_name(name)


def test_limits_of_a_newer_server_are_read_as_far_as_known():
    assert Limits.from_json({"seq": 3, "time_s": 9.0, "new": 1}) == Limits(seq=3, time_s=9.0)


def test_every_reason_leads_to_a_final_state_and_says_what_to_type():
    for reason in state.REASONS.values():
        assert reason.state.final and reason.next and reason.sentence.endswith(".")
        assert state.sentence(reason.name, {})
    assert set(state.RETRY_REASONS) <= set(state.REASONS)
    assert "3" in state.sentence("nonzero_exit", {"code": 3})
    assert "unknown" in state.sentence("nonzero_exit", {})
    assert "of_tomorrow" in state.sentence("of_tomorrow", {})


def test_the_sentence_names_the_error_and_its_place():
    seen = {"code": 1, "exception": {"type": "ValueError", "message": "boom\nat the end.", "file": "/a/b/t.py", "line": 4}}
    assert state.sentence("nonzero_exit", seen) == "Failed with exit code 1: ValueError: boom at the end (t.py, line 4)."
    seen["exception"] |= {"rank": 1, "message": "", "file": None}
    assert state.sentence("nonzero_exit", seen) == "Failed with exit code 1: rank 1 failed with ValueError."


@pytest.mark.parametrize(("tail", "told"), [
    (None, "last output not known"),
    ("", "no output"),
    ("\n \n----\n", "no output"),
    ("usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 1", 'last output: "train.py: error: unrecognized arguments: --lrr 1"'),
    ("no data in /data\n", 'last output: "no data in /data"'),
    ("sh: 1: nonsuch: not found\n======\n", 'last output: "sh: 1: nonsuch: not found"'),
    ("Error: No such option: --lrr\nTry 'train --help' for help.", 'last output: "Error: No such option: --lrr"'),
    ("error: it is broken.\nhint: repair it\n 12%|###     | 3/30", 'last output: "error: it is broken."'),
    (["hint: repair it"], 'last output: "hint: repair it"'),
    ("Tryout data is missing", 'last output: "Tryout data is missing"'),
    ("cc: fatal error\nmake: *** [all] Error 2", 'last output: "cc: fatal error"'),
    ("x" * 500, f'last output: "{"x" * 157}..."'),
    ("a\x07b\tc", 'last output: "ab c"'),
])
def test_without_an_exception_the_sentence_gives_the_last_words(tail, told):
    evidence = {"code": 2} if tail is None else {"code": 2, "tail": tail}
    assert state.sentence("nonzero_exit", evidence) == f"Failed with exit code 2; {told}."


def test_write_whole_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "f"
    rundir.write_whole(path, b"old")
    with pytest.raises(TypeError):
        rundir.write_whole(path, "not bytes")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["f"]


def test_a_torn_or_missing_json_file_reads_as_none(tmp_path):
    (tmp_path / "torn").write_text('{"a": ')
    (tmp_path / "list").write_text("[1]")
    assert [rundir.read_json(tmp_path / n) for n in ("torn", "list", "gone")] == [None, None, None]


def test_the_environment_keeps_odd_bytes_and_empty_values():
    env = {"A": "1=2", "B": "", "C\udcff": "\udcfe\n"}
    assert rundir.unpack_env(rundir.pack_env(env)) == env


def test_the_home_is_private_and_its_socket_path_short(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / ("x" * 120)))
    where = config.make_home(config.home())
    assert where.path.stat().st_mode & 0o777 == 0o700
    assert len(str(where.socket)) <= config.SOCKET_PATH_MAX and where.socket.parent.stat().st_mode & 0o077 == 0


def test_a_home_that_is_a_file_is_denied_with_a_hint(tmp_path, monkeypatch):
    (tmp_path / "f").write_text("")
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "f" / "home"))
    with pytest.raises(Denied) as caught:
        config.make_home(config.home())
    assert "STOKER_HOME" in caught.value.hint


@pytest.mark.parametrize("text", ["slots = 'x'", "colour = 1", "[targets.a]\nhost = 1", "[targets.a]\nx = 1", "= 1", "copy_limit = 'much'",
                                  "[targets.a]\nhost = 'a'\nindex_url = 'https://me:secret@mirror.example.com/simple'"])
def test_a_wrong_config_is_named(tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(InvalidSpec):
        config.load_config(config.Home(tmp_path))


def test_a_config_is_read(tmp_path):
    (tmp_path / "config.toml").write_text("copy_limit = '3GB'\nslots = 4\n[targets.box]\nhost = 'me@box'\ngpus = 2\n")
    seen = config.load_config(config.Home(tmp_path))
    assert seen.copy_limit_bytes == 3 * 10**9 and seen.targets["local"].slots == 4 and seen.targets["box"].host == "me@box"


def test_what_a_shell_hands_down_travels_in_the_spec_and_is_not_the_run():
    spec = Spec(command=("a",), inherit=inheritance()).check()
    assert {"host", "umask", "nice", "cpus", "rlimits"} == set(spec.inherit) and spec.fingerprint() == Spec(command=("a",)).fingerprint()
    for bad in ({"umask": "022"}, {"colour": 1}, {"cpus": ["0"]}, []):
        with pytest.raises(InvalidSpec):
            Spec(command=("a",), inherit=bad).check()

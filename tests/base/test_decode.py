"""Specs out of JSON: strict when a run is asked for, lenient with what some version wrote down."""

import json
from dataclasses import MISSING, fields

import pytest

from stoker.base import decode
from stoker.base.errors import InvalidSpec, UnknownField
from stoker.base.spec import Limits, Spec

WRONG = {bool: "please", int: 1.5, float: "soon", str: 4, dict: [], dict[str, str]: {"a": 1}, tuple[str, ...]: "abc", str | None: 4,
         tuple[float, float]: [1, 2, 3]}
GIVEN_BY_US = ("id", "argv", "retry_reasons", "created_at", "pull_limit_bytes")


@pytest.mark.parametrize("name", [f.name for f in fields(Spec) if f.name not in GIVEN_BY_US])
def test_each_field_of_a_request_is_of_its_kind(name):
    kind = next(f.type for f in fields(Spec) if f.name == name)
    with pytest.raises(InvalidSpec, match=f"The field '{name}' of the spec must be ") as refused:
        Spec.from_request({"command": ["x"], name: WRONG[kind]})
    assert refused.value.fields == (name,) and refused.value.to_json()["fields"] == [name]


@pytest.mark.parametrize(("more", "field"), [
    ({"audit": True}, "audit"), ({"gpus": -1}, "gpus"), ({"slots": 10**9}, "slots"), ({"priority": 10**9}, "priority"), ({"stdin": "tap"}, "stdin"),
    ({"backoff_s": -1}, "backoff_s"), ({"grace_s": [1, 10**400]}, "grace_s"), ({"kind": "instance"}, "kind"), ({"memory_bytes": 1 << 60}, "memory_bytes"),
    ({"stop_signal": "KILL"}, "stop_signal"), ({"inherit": {"nice": "very"}}, "inherit"), ({"name": " a"}, "name"), ({"command": []}, "command"),
    ({"gpu_ids": ["0"], "gpus": 2}, "gpus"),
])
def test_a_value_that_cannot_be_names_its_field(more, field):
    with pytest.raises(InvalidSpec) as refused:
        Spec.from_request({"command": ["x"], **more})
    assert refused.value.fields[0] == field


def test_numbers_that_are_none():
    assert not decode.fits(float("nan"), float) and not decode.fits(float("inf"), float) and not decode.fits(True, float)
    assert decode.fits(3, float) and decode.fits(10**400, float) and not decode.fits(True, int) and not decode.fits(1, bool)


def test_unknown_fields_are_named_all_together():
    with pytest.raises(UnknownField, match="colour, taste") as refused:
        Spec.from_request({"command": ["x"], "taste": 1, "colour": "red"})
    assert refused.value.fields == ("colour", "taste")


def test_what_a_client_may_not_say_is_passed_over():
    assert Spec.from_request({"command": ["x"], "id": 4, "argv": "y", "created_at": None}) == Spec(command=("x",))


def test_a_spec_that_is_written_down_opens_whatever_version_wrote_it():
    spec = Spec(command=("x", "\udcff"), grace_s=(1.0, 2.0), mounts={"a": "/b"}, home=None, env_names=("A",))
    body = json.loads(json.dumps(spec.to_json()))
    assert Spec.from_json(body) == Spec.from_request(body) == spec
    assert Spec.from_json({**body, "colour": "red"}) == spec  # of a later version
    for name in body.keys() - {"command"}:  # of an earlier one
        known = next(f for f in fields(Spec) if f.name == name)
        default = known.default if known.default is not MISSING else known.default_factory()
        assert getattr(Spec.from_json({k: v for k, v in body.items() if k != name}), name) == default
    assert Spec.from_json({**body, "audit": "please", "env_names": "abc", "grace_s": 5}) == spec.with_(env_names=(), grace_s=(10.0, 10.0))
    for nothing in ({}, {"command": "x"}):
        with pytest.raises(InvalidSpec, match="no value for: command"):
            Spec.from_json(nothing)
    assert Limits.from_json({"time_s": "long", "seq": 4}) == Limits(seq=4)

"""What `Core` makes of a leaf's words, with the leaf of docs/contributing/add-a-backend.md; and the backends by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_leaf import leaf_of_the_page, module_of_the_page

from real.sshd import wait_for
from stoker.backends import registry
from stoker.backends.core import Core
from stoker.backends.leaf import ALIVE, GONE
from stoker.base import rundir
from stoker.base.config import Home, TargetConfig, load_config
from stoker.base.errors import InvalidSpec, NotFound, StateError
from stoker.base.spec import Limits, Spec
from stoker.hosts.local import LocalHost
from stoker.plane.targets import Targets


class Place:
    """A run in a namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leaf = leaf_of_the_page(LocalHost(), folder / "namespaces")
        self.backend = Core(self.leaf.host, str(folder / "root"), self.leaf)

    def start(self, *argv: str) -> str:
        spool = self.folder / "spool"
        spool.mkdir(mode=0o700)
        spec = Spec(id="r1", command=argv, argv=argv, folder=str(self.folder), grace_s=(1.0, 1.0))
        rundir.write_json(spool / rundir.SPEC, spec.to_json())
        rundir.write_json(spool / rundir.LIMITS, Limits().to_json())
        rundir.write_whole(spool / rundir.ENV, rundir.pack_env({"PATH": "/usr/local/bin:/usr/bin:/bin"}), 0o600)
        self.backend.stage("r1", spool)
        return self.backend.start("r1", 1)

    def phase(self) -> str:
        return self.backend.poll(["r1"])["r1"].phase

    def close(self) -> None:
        self.backend.release("r1")
        self.backend.close()


@pytest.fixture
def place(short_tmp: Path) -> Iterator[Place]:
    made = Place(short_tmp)
    yield made
    made.close()


@pytest.mark.real("unshare", "nsenter")
class TestNamespace:
    def test_the_run_and_who_enters_are_in_the_namespace_and_removal_ends_it(self, place: Place) -> None:
        with pytest.raises(StateError):
            place.backend.enter("r1")
        native = place.start("sh", "-c", "readlink /proc/self/ns/pid; exec sleep 300")
        assert place.leaf.find(["r1", "other"]) == {("r1", 1): native}
        inside = place.leaf.host.run([*place.backend.enter("r1"), "readlink", "/proc/self/ns/pid"]).out
        log = place.folder / "root/runs/r1/attempts/1/out.log"
        wait_for(lambda: log.read_bytes() == inside, 60, "the run is not in the namespace")
        assert inside.strip() != os.fsencode(os.readlink("/proc/self/ns/pid"))
        assert place.leaf.states([native]) == {native: ALIVE}
        place.backend.stop("r1", (0.0, 0.0), "stopped_by_user")
        wait_for(lambda: place.phase() == "ended", 60, "it does not end")
        place.backend.remove("r1")
        wait_for(lambda: place.leaf.states([native]) == {native: GONE}, 60, "the namespace lives")
        assert place.leaf.find(["r1"]) == {}

    def test_an_unseen_run_is_abandoned_only_by_the_word_that_its_allocation_is_gone(self, place: Place) -> None:
        native = place.start("sleep", "300")
        (place.folder / "root/runs/r1/attempts/1/sock").unlink()  # or the closed door would tell
        place.leaf.stop([native])
        wait_for(lambda: place.leaf.states([native]) == {native: GONE}, 60, "the namespace lives")
        blind = Core(place.leaf.host, str(place.folder / "root"), registry.leaf_of("process")(place.leaf.host))
        wait_for(lambda: blind.poll(["r1"])["r1"].phase == "unseen", 60, "it is seen")
        assert place.backend.look({"r1": []})["r1"][0].phase == "abandoned"
        place.backend.stop("r1", (0.0, 0.0), "agent_lost")
        assert place.phase() == "ended"

    def test_an_attempt_that_is_refused_holds_nothing(self, place: Place) -> None:
        with pytest.raises(NotFound):
            place.backend.start("nobody", 1)
        assert place.leaf.find(["nobody"]) == {}


def test_an_answer_about_notes() -> None:
    parse = module_of_the_page().parse_found
    assert parse(b'{"a-run.2": "77-1234", "a.b.10": "8-1", ".lock": "", "r.new": "9-1", "half.1": ""}') == {("a-run", 2): "77-1234", ("a.b", 10): "8-1"}


class TestRegistry:
    def test_what_is_no_backend(self) -> None:
        with pytest.raises(InvalidSpec, match="no backend 'cloud'") as raised:
            registry.make("cloud", LocalHost(), "/r")
        assert "process" in raised.value.hint

    def test_what_is_no_setting_of_a_backend(self) -> None:
        with pytest.raises(InvalidSpec, match="'process' has no setting image"):
            registry.make("process", LocalHost(), "/r", {"image": "x"})

    def test_a_backend_that_is_added_by_one_line_has_its_own_settings(self, short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import stoker.backends
        monkeypatch.setattr(stoker.backends, "__path__", [*stoker.backends.__path__, str(short_tmp)])
        monkeypatch.setitem(registry.LEAVES, "elsewhere_for_a_test", "OddLeaf")
        (short_tmp / "elsewhere_for_a_test.py").write_text(
            "from dataclasses import dataclass\nfrom stoker.backends.process import ProcessLeaf\n"
            "@dataclass(frozen=True, kw_only=True)\nclass Options:\n    image: str\n    cpus: int = 1\n"
            "class OddLeaf(ProcessLeaf):\n    OPTIONS = Options\n")
        leaf = registry.leaf_of("elsewhere_for_a_test")
        assert leaf.OPTIONS(image="x").cpus == 1
        registry.make("elsewhere_for_a_test", LocalHost(), "/r", {"image": "x"})
        for wrong in ({}, {"image": 3}, {"image": "x", "cpus": "many"}):
            with pytest.raises(InvalidSpec):
                registry.make("elsewhere_for_a_test", LocalHost(), "/r", wrong)


def test_the_backend_of_a_target(short_tmp: Path) -> None:
    where = Home(short_tmp)
    where.config.write_text('slots = 3\n[targets.local]\nbackend = "process"\n[targets.odd]\nbackend = "cloud"\nimage = "x"\n'
                            '[targets.typo]\nbackend = "process"\nimage = "x"\n')
    config = load_config(where)
    assert config.targets["odd"] == TargetConfig(name="odd", backend="cloud", options={"image": "x"})
    targets = Targets(where)
    assert targets.get("local").config.slots == 3
    for name in ("odd", "typo"):
        with pytest.raises(InvalidSpec):
            targets.get(name)
    targets.close()
    where.config.write_text('[targets.odd]\nimage = "x"\n')
    with pytest.raises(InvalidSpec, match="accepts host"):
        load_config(where)

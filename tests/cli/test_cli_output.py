"""What is printed: aligned columns in any script, ages in words, nothing that can move a cursor."""

from __future__ import annotations

import time

from stoker.base.units import iso
from stoker.cli import output
from stoker.cli.listing import state_words, when_words
from stoker.cli.run.follow import Modes
from stoker.cli.show import opening, sections


def test_columns_line_up_in_any_script():
    lines = output.columns(("NAME", "X"), [("训练", "1"), ("e\u0301té", "2"), ("plain", "3")])
    assert [output.width(line) for line in lines] == [8, 8, 8, 8]
    assert lines[1] == "训练   1"


def test_cut_counts_columns():
    assert output.cut("训练训练", 5) == "训练…"
    assert output.cut("short", 5) == "short"


def test_control_characters_are_escaped():
    assert output.shown("a\x1b[2Jb\nc\x9b") == r"a\x1b[2Jb\nc\x9b"
    assert output.shown("训练 🚂 \udcff") == "训练 🚂 \udcff"
    assert output.shown("a\udc9bm\u202e\ud800") == r"a\x9bm\u202e\ud800"  # a raw byte of a terminal's, a change of direction, half a letter
    assert b"\xe2\x80" not in output.shown("\udce2\udc80\udcae").encode(errors="surrogateescape")  # whose bytes are one
    assert output.shown_lines("a\x1b\nb") == "a\\x1b\nb"


def test_what_to_type_for_a_name():
    assert output.type_ref({"name": "two words", "id": "x"}) == "'two words'"
    assert output.type_ref({"name": "-rf", "id": "x"}) == "-- -rf"


def test_ages():
    now = time.time()
    assert output.ago(iso(now - 3 * 3600 - 125), now) == "3h ago"
    assert output.ago(iso(now + 50), now) == "just now"
    assert output.ago(None) == "-"


def test_states_in_words():
    run = {"state": "failed", "reason": "nonzero_exit", "exit_code": 3, "ended_at": iso(100), "started_at": iso(50), "created_at": iso(10)}
    assert state_words(run) == "failed (exit 3)"
    assert when_words(run, 160) == "1m ago"
    assert state_words({"state": "running", "reachability": "unreachable", "pinned": True}) == "running (unreachable, pinned)"
    assert state_words({"state": "running", "still_s": 65.2}) == "running (agent silent for 1m 5s)"
    assert state_words({"state": "stopped", "reason": "limit_time"}) == "stopped (time limit)"
    assert state_words({"state": "stopped", "reason": "stopped_by_user"}) == "stopped"
    assert state_words({"state": "failed", "reason": "host_oom"}) == "failed (out of memory)"
    assert state_words({"state": "pending", "waits_for": "1 GPU: 2 of 2 are used by base"}) == "pending (waits for 1 GPU: 2 of 2 are used by base)"
    after = "base, which ended as failed (to retry that run: `stoker start k`; to start this run anyway: `stoker start m`)"
    assert state_words({"state": "pending", "waits_for": after}) == "pending (waits for base, which ended as failed)"
    assert len(state_words({"state": "pending", "waits_for": "x" * 500})) < 80


def test_the_opening_sentence_of_a_run_that_waits():
    assert opening({"state": "pending", "waits_for": "1 GPU: 1 of 1 is used by base"}) == "Waiting for 1 GPU: 1 of 1 is used by base."
    assert opening({"state": "running"}) == "Running."


def test_what_a_rehearsal_found():
    told = {"verdict": "rehearsal passed", "lines": ["ran: 2 ranks"], "warnings": [], "not_checked": ["speed", "NCCL"]}
    run = {"id": "x", "command": ["a"], "state": "done", "created_at": iso(10)}
    shown = dict(sections({**run, "rehearsal": told}))["Rehearsal"]
    assert shown == [("verdict", "rehearsal passed"), ("found", "ran: 2 ranks"), ("warnings", ""), ("not checked", "speed\nNCCL")]
    for nothing in (None, {"verdict": "ended well", "lines": None}):
        assert not dict(sections({**run, "rehearsal": nothing}))["Rehearsal"]


def test_modes_that_a_run_switched_on_are_undone():
    modes = Modes()
    modes.see(b"\x1b[?1049h\x1b[?25l text \x1b[?1000;1006h")
    modes.see(b"\x1b[?1000l")
    undo = modes.undo()
    assert b"\x1b[?1049l" in undo and b"\x1b[?25h" in undo and b"\x1b[?1006l" in undo and b"1000" not in undo
    assert Modes().undo() == b""

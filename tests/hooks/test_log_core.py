"""The log of a life: what is put comes out again bit for bit, a torn end is cut, and a tail that differs ends the life."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
HEAD = """
import math, os, sys
from stoker.inside.resume.core import log, log_file, outcome, phases
folder = sys.argv[1]
phases.folder = folder
outcome.remember_start()
if outcome.tries():
    print("started again:", (outcome.state().get("tried") or [{}])[-1].get("why"))
    sys.exit(7)
def happen(kind, *value):  # the same place in the code for both lives
    call, told = (phases.log.take, ()) if phases.phase == phases.GHOST else (phases.log.put, value)
    return call(kind, *told)
def record():
    phases.log = log.Log(folder + "/log")
    phases.phase = phases.RECORD
    phases.log.open()
    return phases.log
def ghost(stop):
    phases.log = log.Log(folder + "/log")
    phases.log.replay(stop)
    phases.phase = phases.GHOST
    phases.target = type("Image", (), {"n": 1, "where": {}})()
    return phases.log
"""


def run(folder: Path, body: str) -> str:
    script = folder / "life.py"
    script.write_text(HEAD + textwrap.dedent(body))
    (folder / "images" / "1").mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(SRC), "STOKER_RESUME_DIR": str(folder)}
    env.pop("STOKER_RESUME_TRIES", None)
    done = subprocess.run([sys.executable, str(script), str(folder)], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 7), done.stderr
    return done.stdout.strip()


RECORD_TEN = """
    made = record()
    k, plain = made.kind("value"), made.kind("plain")
    for i in range(10):
        happen(k, [0.0, -0.0, math.nan, 1e-310, 2**70, "text", b"b", None, (True, 1)][i % 9])
        happen(plain)
    made.close()
"""


def test_what_was_put_is_taken_bit_for_bit(tmp_path: Path) -> None:
    run(tmp_path, RECORD_TEN)
    out = run(tmp_path, """
        made = ghost(20)
        assert made.kind("plain") == 1  # numbers of kinds come from the record
        k, plain = made.kind("value"), made.kind("plain")
        got = []
        for i in range(10):
            assert made.peek() == k
            got.append(happen(k))
            assert happen(plain) is log.NOTHING
        assert made.peek() is None and len(made) == 20
        print(repr(got), math.copysign(1, got[1]))
    """)
    assert out == "[0.0, -0.0, nan, 1e-310, 1180591620717411303424, 'text', b'b', None, (True, 1), 0.0] -1.0"


def test_values_behind_an_image_are_counted(tmp_path: Path) -> None:
    run(tmp_path, RECORD_TEN)
    assert run(tmp_path, """
        made = log.Log(folder + "/log")
        print([made.tail(n) for n in (0, 1, 2, 19, 20, 99)])
    """) == "[10, 9, 9, 0, 0, 0]"


@pytest.mark.parametrize(("harm", "left"), [("torn", 10), ("flipped", 10), ("whole", 20), ("other version", 0)])
def test_a_damaged_chunk_ends_the_log_there(tmp_path: Path, harm: str, left: int) -> None:
    run(tmp_path, """
        made = record()
        k = made.kind("value")
        for i in range(20):
            happen(k, i)
            if i == 9:
                made.flush()
        made.close()
    """)
    path = tmp_path / "log"
    data = bytearray(path.read_bytes())
    if harm == "torn":
        data = data[:-3]
    if harm == "flipped":
        data[-20] ^= 4
    if harm == "other version":
        data[:13] = b"stoker log 9\n"
    path.write_bytes(data)
    assert run(tmp_path, 'print(log_file.Reader(folder + "/log").count)') == str(left)


def test_what_is_older_than_a_moment_outlives_sigkill(tmp_path: Path) -> None:
    script = tmp_path / "life.py"
    script.write_text(HEAD + textwrap.dedent("""
        import signal, time
        made = record()
        k = made.kind("value")
        for i in range(100):
            happen(k, i)
        time.sleep(1.1 * log.MOST_S)  # the pause after a write that took long on a busy machine
        happen(k, "last")
        os.kill(os.getpid(), signal.SIGKILL)
    """))
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": str(SRC)}, timeout=120, check=False)
    assert done.returncode == -9
    assert run(tmp_path, 'print(log_file.Reader(folder + "/log").count)') == "101"


def test_wherever_the_log_is_torn_what_is_before_is_whole(tmp_path: Path) -> None:
    run(tmp_path, """
        made = record()
        k = made.kind("value")
        for i in range(12):
            happen(k, i * 0.5)
            made.note(i, ("note", i))
            made.flush()
        made.close()
        data = open(folder + "/log", "rb").read()
        seen = []
        for harm in [*range(0, len(data), 3), *range(-len(data), 0, 3)]:
            with open(folder + "/harmed", "wb") as f:
                f.write(data[:harm] if harm >= 0 else data[:harm] + bytes([data[harm] ^ 16]) + data[len(data) + harm + 1:])
            reader = log_file.Reader(folder + "/harmed")
            got = []
            while reader.more():
                assert reader.next()[0] >> 1 == k
                got.append(reader.value())
            assert got == [i * 0.5 for i in range(reader.count)] and reader.values_behind(0) == reader.count
            assert all(reader.note(event) == ("note", event) for event in reader.notes) and abs(len(reader.notes) - reader.count) <= 1
            seen.append(reader.count)
        assert set(seen) == set(range(12)), seen
    """)


def test_code_that_is_made_anew_in_each_step_is_one_place(tmp_path: Path) -> None:
    body = """
        log._ENTRIES = 50
        made = {begin}
        k = made.kind("value")
        for i in range({count}):
            if i == 3 and phases.phase == phases.GHOST:
                phases.end_ghost()
            exec("happen(k, i)")
        made.close()
        reader = log_file.Reader(folder + "/log")
        print(reader.count, len(reader.sites), len(reader.entries))
    """
    assert run(tmp_path, body.format(begin="record()", count=200)) == "200 1 1"
    assert run(tmp_path, body.format(begin="ghost(3)", count=300)) == "300 1 1"


def test_a_life_is_repeated_and_goes_on(tmp_path: Path) -> None:
    body = """
        made = {begin}
        k, plain = made.kind("value"), made.kind("plain")
        ended = []
        phases.on_tail_end.append(lambda: ended.append((len(made), made.compared, made.values_compared)))
        for i in range({count}):
            if i == 3 and phases.phase == phases.GHOST:
                phases.end_ghost()
            happen(k, i * {factor})
            happen(plain)
        made.close()
        print(ended, phases.NAMES[phases.phase], log_file.Reader(folder + "/log").count)
    """
    assert run(tmp_path, body.format(begin="record()", count=10, factor="0.5")) == "[] record 20"
    assert run(tmp_path, body.format(begin="ghost(6)", count=14, factor="0.5")) == "[(20, 14, 7)] record 28"
    assert run(tmp_path, body.format(begin="ghost(6)", count=14, factor="0.5")) == "[(28, 22, 11)] record 28"
    out = run(tmp_path, body.format(begin="ghost(6)", count=14, factor="(0.5 if i < 7 else 0.25)"))
    assert out.startswith("started again: event 14 (8 events after the image): value differs at ") and "(recorded: 3.5; now: 1.75)" in out, out
    assert (tmp_path / "images" / "1" / "bad").exists()


def test_a_ghost_that_does_something_else_starts_again(tmp_path: Path) -> None:
    run(tmp_path, RECORD_TEN)
    out = run(tmp_path, """
        made = ghost(20)
        happen(made.kind("plain"))
    """)
    assert out.startswith("started again: at event 0 (") and "(recorded: value (" in out and "; now: plain" in out
    out = run(tmp_path, """
        made = ghost(20)
        made.take(made.kind("value"))
    """)
    assert "comes from a different line" in out
    out = run(tmp_path, """
        made = ghost(2)
        for i in range(10):
            happen(made.kind("value"))
            happen(made.kind("plain"))
    """)
    assert "did not reach the line at which the image was taken" in out


def test_notes_are_found_at_their_event(tmp_path: Path) -> None:
    run(tmp_path, """
        made = record()
        k = made.kind("value")
        for i in range(5):
            happen(k, i)
        made.note(2, (b"state", 7))
        made.flush()
        made.note(4, "late")
        made.close()
    """)
    assert run(tmp_path, """
        made = ghost(5)
        print([made.noted(i) for i in range(6)])
    """) == "[None, None, (b'state', 7), None, 'late', None]"


def test_equal_means_the_same_bits() -> None:
    from stoker.inside.resume.core.log import equal
    quiet, other = (struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000000, 0xFFF8000000000001))
    assert equal(1.0, 1.0) and equal(quiet, other) and equal([quiet, (1, "a")], [other, (1, "a")]) and equal({"a": 1}, {"a": 1})
    assert not equal(0.0, -0.0) and not equal(1, 1.0) and not equal(True, 1) and not equal((1,), [1]) and not equal({"a": 1}, {"a": 2})


def test_arrays_are_values_too() -> None:
    numpy = pytest.importorskip("numpy")
    from stoker.inside.resume.core.log import pack, unpack
    for array in (numpy.arange(6, dtype="int16").reshape(2, 3).T, numpy.float32([numpy.nan, -0.0]), numpy.zeros((0, 3)), numpy.array(5.0)):
        back = unpack(pack(array))
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes() and back.flags.writeable
    assert unpack((1, 2)) == (1, 2)

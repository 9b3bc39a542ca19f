"""What `verify-resume` calls different: not what differs between undisturbed runs too."""

from __future__ import annotations

from stoker.cli import compare


def _run(text: bytes, **files: str) -> dict:
    return {"text": text, "files": files, "digest": {"digest": "d", "steps": 9}}


LINE = b"| %3d batches | ms/batch %5.2f | loss %5.2f\n"


def test_times_may_take_more_room_in_another_run():
    a, b = _run(LINE % (10, 5.2, 3.25)), _run(LINE % (10, 7.9, 3.25))
    known = compare.noise(a, b)
    assert [number for _, number in known.shapes] == [1]
    assert not compare.differences(a, _run(LINE % (10, 131.75, 3.25)), known)
    assert compare.differences(a, _run(LINE % (10, 131.75, 3.26)), known) == ["printed text"]
    assert compare.differences(a, _run(LINE % (10, 131.75, 3.25) * 2), known) == ["printed text"]


def test_without_noise_each_byte_counts():
    a = _run(b"loss 0.5\n")
    known = compare.noise(a, a)
    assert not compare.differences(a, a, known)
    assert compare.differences(a, _run(b"loss  0.5\n"), known) == ["printed text"]
    assert compare.differences(a, _run(b"loss 0.5\n", model="1"), known) == ["file model"]

"""The sentences about exact resume."""

from __future__ import annotations

import hashlib
import json

import pytest

from stoker.base import reading
from stoker.base.errors import InvalidSpec
from stoker.base.spec import Spec
from stoker.inside.resume.core import store, words
from stoker.plane import resume

IMAGE = {"n": 3, "step": 12310, "at": 1000.0, "bytes": 2_000_000, "stall_s": 0.03, "every_s": 60.0, "cost": 0.004}


def test_a_run_that_is_recorded():
    assert resume.sentence(None, 1040) is None
    assert resume.sentence({"state": "recording"}, 1040) == "recording; no image yet"
    back = {"resumed": {"attempt": 2, "step": 1473, "lost_steps": 5}}
    assert resume.steps_before(back, 2) == 1478 and resume.steps_before(back, 3) == resume.steps_before(None, 2) == 0
    assert resume.sentence({"state": "recording"}, 1040, live=False) == "not resumable: no image was taken"
    told = resume.sentence({"state": "resumable", "image": IMAGE}, 1040)
    assert told == f"image taken, not yet checked; newest image 40s ago at step 12,310 (every 60 s, 0.4 % overhead, 2.0 MB); {resume.NOT_TRIED}"
    by_steps = {**IMAGE, "every_s": None, "every_steps": 1500}
    told = resume.sentence({"state": "resumable", "image": by_steps}, 1040)
    assert told == f"image taken, not yet checked; newest image 40s ago at step 12,310 (every 1,500 steps, 0.4 % overhead, 2.0 MB); {resume.NOT_TRIED}"


def test_a_run_that_is_not():
    assert resume.sentence({"state": "not resumable", "reason": "it uses torch.compile"}, 0) == "not resumable: it uses torch.compile"
    told = resume.sentence({"state": "not resumable", "reason": "it started a process", "image": IMAGE}, 1040)
    assert told == "not resumable: it started a process"  # the image is there, and is of no use


def test_a_run_that_can_only_come_back_to_before():
    told = resume.sentence({"state": "resumable", "reason": "it started a process", "image": IMAGE}, 1040)
    assert told.startswith("image taken, not yet checked; newest image 40s ago") and told.endswith("recording ended, no more images: it started a process")


def test_how_a_stop_ends_a_recording_is_no_news_about_a_run_that_ended():
    state = {"state": "resumable", "reason": words.INTERRUPT, "image": IMAGE}
    assert resume.sentence(state, 1040).endswith(f"recording ended, no more images: {words.INTERRUPT}")
    assert resume.sentence(state, 1040, live=False).endswith(resume.NOT_TRIED)


def test_a_file_edited_since_the_image_is_named(tmp_path):
    """The image is written by the hooks themselves: their manifest.json is another file than the list of the code of the same name."""
    script, root = tmp_path / "train.py", tmp_path / "resume"
    script.write_text("print('epoch')")
    root.mkdir()
    code = {str(script): hashlib.blake2b(script.read_bytes(), digest_size=16).hexdigest()}
    store.write(str(root), 3, b"data", {"step": 7}, {"step": 7, "events": 9, "at": 1.0, "stall_s": 0.1, "attempt": 1, "code": code})
    (root / "state.json").write_text(json.dumps({"state": "resumable", "image": {**IMAGE, "step": 7}}))
    assert reading.edited_files(str(tmp_path)) == ([], 7)
    script.write_text("print('Epoch')")
    assert reading.edited_files(str(tmp_path)) == ([str(script)], 7)


def test_programs_that_each_life_starts():
    assert resume.starts_again({}) is None and resume.starts_again(None) is None
    state = {"state": "ended", "lives": [{"attempt": 1}], "again": [{"what": "tensorboard", "where": "train.py:12"}] * 2}
    assert resume.starts_again(state) is None
    told = resume.starts_again({**state, "lives": [{"attempt": 1}, {"attempt": 2}]})
    assert told == resume.starts_again({**state, "state": "resumable"})
    assert told == "the script's setup starts tensorboard (train.py:12) in each attempt; if such a program appends text to a file, the text is in the file twice after the second attempt"


def test_a_run_that_came_back():
    back = {"attempt": 2, "step": 12310, "seconds": 2.13, "lost_steps": 41, "values_equal": 82, "grade": "bit-exact", "put_back": []}
    assert resume.came_back({"resumed": back}) == ("attempt 2 at step 12,310 in 2.1 s; 41 lost steps repeated, 82 values equal to the "
                                                   "recording; grade: bit-exact")
    assert resume.came_back({"state": "recording"}) is None


def test_a_run_that_began_anew():
    lives = [{"attempt": 1, "from": 0, "out_bytes": 0}, {"attempt": 2, "from": 0, "out_bytes": 0}]
    left = "The attempt started with the files from the end of attempt 1"
    assert resume.began_anew({"lives": lives}) == f"attempt 2 restarted from scratch: there was no image. {left}"
    assert resume.began_anew({"lives": lives, "tried": [{"image": 1, "why": "x"}]}) == f"attempt 2 restarted from scratch: no image was usable. {left}"
    assert resume.began_anew({"lives": lives[:1]}) is None and resume.began_anew({}) is None
    assert resume.began_anew({"lives": [lives[0], {"attempt": 2, "from": 1, "out_bytes": 5}]}) is None
    assert resume.began_anew({"lives": lives, "resumed": {"attempt": 2, "step": 5}}) is None  # on a terminal
    lost = {"lives": lives, "not_given_back": {"attempt": 2, "files": ["a (Permission denied)"]}}
    assert resume.began_anew(lost).endswith("the end of attempt 1. Stoker could not restore these files: a (Permission denied). Their content from before the resume is in resume/aside/2")
    third = {"lives": [lives[0], {"attempt": 3, "from": 0, "out_bytes": 0}], "given_back": [{"attempt": 2, "aside": 2}]}
    assert resume.began_anew(third).endswith("The attempt started with the files from before the resume in attempt 2")
    assert resume.began_anew({"lives": [*lives, {"attempt": 3, "from": 0}], "resumed": {"attempt": 2, "step": 5}})


def test_a_run_that_was_cut_short_on_its_way_back():
    assert resume.given_back({}, False, 2, "t") is None
    returned = {"given_back": [{"attempt": 2, "aside": 2}]}
    assert "Stoker undid the attempt's changes to files" in resume.given_back(returned, False, 2, "t")
    assert resume.given_back(returned, False, 3, "t") is None
    lost = {**returned, "not_given_back": {"attempt": 2, "files": ["a (Permission denied)"]}}
    assert "Stoker could not restore these files: a (Permission denied). Their content from before the resume is in resume/aside/2" in resume.given_back(lost, False, 2, "t")
    told = resume.given_back({}, True, 2, "t")
    assert "The resume replaced files of your folder with files of an image" in told and "to get these files back: stoker start t or stoker rm t" in told


def audit(step: int, verdict: str = "bit-exact", why: str = "", spare: bool = True) -> dict:
    return {"attempt": 1, "image": 2, "from_step": step - 100, "step": step, "verdict": verdict, "why": why, "spare_core": spare}


def test_a_run_that_was_audited():
    state = {"state": "resumable", "image": IMAGE}
    assert resume.audits(state) is None  # nobody asked
    assert resume.audits({**state, "audited": []}) == "not audited yet"
    for known in (None, [], [audit(4100, "not audited", "no memory")]):
        told = resume.sentence({**state, "audited": known}, 1040)
        assert told.startswith("image taken, not yet checked; newest image 40s ago") and "resumable" not in told
        assert resume.word({**state, "audited": known}) == "image taken, not yet checked" and not resume.checked({**state, "audited": known})
    assert resume.audits({**state, "audited": [], "not_audited": "a GPU"}) == "not audited: a GPU"
    assert resume.audits({**state, "audited": [audit(4100)]}) == "audited at step 4,100: bit-exact"
    two = {**state, "audited": [audit(4100), audit(8020)]}
    assert resume.sentence(two, 1040) == ("resumable (checked); newest image 40s ago at step 12,310 (every 60 s, 0.4 % overhead, 2.0 MB); "
                                          "audited at steps 4,100 and 8,020: bit-exact; the 4,290 steps after the last audit have not been checked yet")
    assert resume.word(two) == "resumable" and resume.checked(two)
    many = [audit(step) for step in (1, 2, 3, 4, 5)]
    assert resume.audits({**state, "audited": many}) == "audited 5 times, last at steps 2, 3, 4 and 5: bit-exact"
    assert resume.audits({**state, "audited": [audit(7), audit(9, "not audited", "no memory")]}) == "audited at step 7: bit-exact; last audit failed: no memory"
    assert resume.audits({**state, "audited": [audit(7, spare=False)]}).endswith("(no spare core: audits slowed the training)")


def test_a_run_whose_audit_came_to_something_else():
    """Also before the run itself has heard of it."""
    told = resume.sentence({"state": "resumable", "image": IMAGE, "audited": [audit(4100), audit(8020, "different", "x was 1, is 2")]}, 1040)
    assert told == "not resumable: an audit of steps 7,920 to 8,020 ended in a different state than the run: x was 1, is 2"


def test_an_audit_needs_a_recording():
    with pytest.raises(InvalidSpec):
        Spec(command=("python", "a.py"), audit=True, hooks=True).check()
    assert Spec(command=("python", "a.py"), audit=True, hooks=True, resume="auto").check().audit


def test_a_log_over_the_lives():
    def lives(*triples):
        return {"lives": [{"attempt": a, "from": f, "out_bytes": b} for a, f, b in triples]}

    assert resume.log_parts(lives((1, 0, 0), (2, 1, 40)), {1: 100, 2: 70}) == [(1, 40), (2, 70)]
    assert resume.log_parts(lives((1, 0, 0), (2, 1, 40), (3, 2, 20)), {1: 100, 2: 70, 3: 5}) == [(1, 40), (2, 20), (3, 5)]
    assert resume.log_parts(lives((1, 0, 0), (2, 1, 40), (3, 1, 30)), {1: 100, 2: 70, 3: 5}) == [(1, 30), (3, 5)]
    assert resume.log_parts(lives((1, 0, 0), (2, 1, 40)), {1: 30, 2: 70}) == []  # more than there is: it does not fit
    assert resume.log_parts(lives((1, 0, 0), (2, 0, 0)), {1: 30, 2: 70}) == []  # the second began anew: it is the whole log
    assert resume.log_parts(lives((1, 0, 0), (2, 0, 0), (3, 2, 20)), {1: 30, 2: 70, 3: 9}) == [(2, 20), (3, 9)]
    assert resume.log_parts({}, {1: 30}) == []


def test_hooks_that_could_not_come_in():
    assert resume.hooked([], ["/usr/bin/python3", "-I", "a.py"])["why"].startswith("python -I starts in isolated mode")
    assert resume.hooked([], ["/bin/ls"])["why"] is None
    assert "PYTHONPATH" in resume.hooked([], ["python3.9", "a.py"])["why"]
    lines = [{"pid": 5, "role": "script"}, {"pid": 5, "torch": "2.13.0"}, {"pid": 6, "role": "worker"}]
    written = "".join(json.dumps(line) + "\n" for line in lines) + '{"torn'
    assert resume.hooked(reading.parse_lines(written.encode(), "processes.jsonl"), ["python3"]) == {"processes": 2, "torch": "2.13.0", "why": None}
    assert resume.hooked([*lines, {"pid": 3, "other": "jax"}], ["python3"])["why"] is None  # torch trains; what else is imported is its own business


def test_another_framework_is_said():
    assert resume.hooked([{"pid": 1, "role": "script"}, {"pid": 1, "other": "tensorflow"}], ["python3"])["why"].startswith("the script uses tensorflow, which Stoker does not measure")


def test_the_way_back_is_foretold():
    image = {**IMAGE, "back_s": 12.3, "setup_s": 8.1, "trained_s": 600.0}
    state = {"state": "resumable", "image": image}
    assert resume.way_back(state) == "8s of setup, then about 12s to step 12,310"
    assert resume.dear(state) is None
    assert resume.resumes_at(state) == 12310 and resume.resumes_at({**state, "state": "not resumable"}) is None
    assert resume.way_back({**state, "image": {**image, "back_s": 0.3, "setup_s": 0.4}}) == "less than 1s to step 12,310"
    assert resume.way_back({"state": "resumable", "image": IMAGE}) is None  # nothing was timed
    assert resume.way_back({**state, "state": "not resumable"}) is None and resume.way_back(None) is None
    assert resume.way_back({**state, "resumed": {"step": 12310, "seconds": 20.4}}).endswith("about 20s to step 12,310")  # it is known


def test_a_way_back_that_is_dear_says_so():
    def told(back_s, trained_s):
        return resume.dear({"state": "resumable", "image": {**IMAGE, "back_s": back_s, "trained_s": trained_s}})

    assert told(59.0, 600.0) is None and told(0.9, 2.0) is None
    assert told(204.0, 600.0) == ("after the setup, the resume takes 3m 24s, which is 34 % of the 10m of training that the resume saves. If the script writes checkpoints, a new run from the last checkpoint could be faster")
    assert told(700.0, 600.0) == "after the setup, the resume takes 11m 40s, but the run trained for only 10m before the image, so a new run (`stoker run`) would be faster"

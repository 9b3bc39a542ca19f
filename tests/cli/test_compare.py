"""What `verify-resume` calls different: not what differs between undisturbed runs too."""

from __future__ import annotations

import zipfile
from pathlib import Path

from stoker.cli import compare


def _run(text: bytes, **files: str) -> dict:
    return {"text": text, "files": files, "digest": {"digest": "d", "steps": 9}}


LINE = b"| %3d batches | ms/batch %5.2f | loss %5.2f\n"


def test_times_may_take_more_room_in_another_run():
    a, b = _run(LINE % (10, 5.2, 3.25)), _run(LINE % (10, 7.9, 3.25))
    known = compare.noise(a, b)
    assert [number for _, number in known.shapes] == [1]
    assert not compare.differences(a, _run(LINE % (10, 131.75, 3.25)), known)
    other = compare.differences(a, _run(LINE % (10, 131.75, 3.26)), known)
    assert other == ["printed text (line 1: '| 10 batches | ms/batch # | loss 3.26' instead of '| 10 batches | ms/batch # | loss 3.25')"]
    twice = compare.differences(a, _run(LINE % (10, 131.75, 3.25) * 2), known)
    assert twice == ["printed text (line 2: '| 10 batches | ms/batch # | loss 3.25' instead of '')"]


def test_a_moment_is_one_number():
    def log(moment: bytes, loss: bytes) -> dict:
        return _run(b"%s - INFO - loss %s (0:01:07<10:21)\n" % (moment, loss))
    plain = log(b"11/23/2026 00:19:58", b"0.5")
    known = compare.noise(plain, log(b"11/23/2026 00:19:59", b"0.5"))
    assert len(known.names()) == 1
    assert not compare.differences(plain, log(b"11/24/2026 01:20:03", b"0.5"), known)
    assert compare.differences(plain, log(b"11/24/2026 01:20:03", b"0.6"), known)
    assert compare.differences(plain, _run(b"11/24/2026 01:20:03 - INFO - loss 0.5 (0:01:08<10:21)\n"), known)
    score = _run(b"2026-11-23T00:19:58,113 won 3:14\n")
    known = compare.noise(score, _run(b"2026-11-23T00:19:58,114 won 3:14\n"))
    assert not compare.differences(score, _run(b"2026-11-24T01:20:00,009 won 3:14\n"), known)
    assert compare.differences(score, _run(b"2026-11-24T01:20:00,009 won 4:14\n"), known)


def test_files_with_a_time_in_their_names():
    def run(when: str, events: str, weights: str, more: int = 0) -> dict:
        return {**_run(b""), "files": {f"runs/{when}/events.{when}.{n}": events + when for n in range(1 + more)} | {f"runs/{when}/model.pt": weights}}
    plain = run("10-15", "e", "w")
    known = compare.noise(plain, run("10-16", "e", "w"))
    assert known.names() == ["the content of runs/#-#/events.#-#.#"]
    assert not compare.differences(plain, run("10-17", "e", "w"), known)
    assert compare.differences(plain, run("10-17", "e", "other"), known) == ["file runs/#-#/model.pt"]
    assert compare.differences(plain, run("10-17", "e", "w", more=1), known) == ["file runs/#-#/events.#-#.#: 2 in this run, 1 in the baseline run"]
    gone = {**plain, "files": {}}
    assert len(compare.differences(plain, gone, known)) == 2
    assert compare.differences(plain, {**plain, "files": {**plain["files"], "core": "x"}}, known) == ["file core: 1 in this run, 0 in the baseline run"]


def test_files_that_both_undisturbed_runs_have_are_compared_by_name():
    def run(when: str, first: str, second: str) -> dict:
        return {**_run(b""), "files": {f"ckpt_{when}.pt": "w" + when, "ckpt_1.pt": first, "ckpt_2.pt": second}}
    plain = run("1015", "a", "b")
    known = compare.noise(plain, run("1016", "a", "b"))
    assert not compare.differences(plain, run("1017", "a", "b"), known)
    assert compare.differences(plain, run("1017", "b", "a"), known) == ["file ckpt_1.pt", "file ckpt_2.pt"]


def test_without_noise_each_byte_counts():
    a = _run(b"loss 0.5\n")
    known = compare.noise(a, a)
    assert not compare.differences(a, a, known)
    assert compare.differences(a, _run(b"loss  0.5\n"), known) == ["printed text (line 1: 'loss  0.5' instead of 'loss 0.5')"]
    assert compare.differences(a, _run(b"loss 0.5\n", model="1"), known) == ["file model: 1 in this run, 0 in the baseline run"]


BAR = b"\r 10%|# | 3/30 [00:00<00:01]\r 20%|## | 6/30 [00:00<00:01]\r100%|###| 30/30 [00:01<00:00]\nloss 0.5\n"


def test_how_often_a_bar_is_drawn_follows_the_clock():
    plain = _run(BAR)
    known = compare.noise(plain, _run(BAR))
    waited = _run(BAR.replace(b"\r 20%|## | 6/30 [00:00<00:01]", b"\r 13%|# | 4/30 [00:09<00:30]\r 16%|# | 5/30 [00:09<00:30]"))
    assert not compare.differences(plain, waited, known) and compare.only_bars(plain, waited, known)
    assert not compare.only_bars(plain, plain, known)
    for there, wrong in ((b"loss 0.5", b"loss 0.6"), (b"30/30 [", b"29/30 ["), (b"\nloss", b"\n\rloss 1\nloss")):
        other = _run(BAR.replace(there, wrong))
        assert compare.differences(plain, other, known) and not compare.only_bars(plain, other, known)


def test_a_bar_that_is_taken_away_leaves_nothing():
    gone = b"\r 10%|#\r     \repoch 1\r\n"
    plain, other = _run(gone), _run("\r 50%|██▍ |\r          ".encode() + gone)
    known = compare.noise(plain, plain)
    assert not compare.differences(plain, other, known)
    assert compare.differences(plain, _run(gone.replace(b"epoch 1", b"epoch 2")), known)


def test_a_bar_that_goes_on_when_a_run_is_cut():
    plain = _run(b"epoch 1\n\r 1/9 [2.64s/it]\r 4/9 [1.02s/it]")
    known = compare.noise(plain, plain)
    assert not compare.differences(plain, _run(b"epoch 1\n\r 2/9 [1.64s/it]\r 3/9 [1.01it/s]"), known)
    assert compare.differences(plain, _run(b"epoch 2\n\r 1/9 [2.64s/it]\r 4/9 [1.02s/it]"), known)
    assert compare.differences(plain, _run(b"epoch 1\n"), known) == []


def test_times_of_bars_are_noise_though_they_are_drawn_another_number_of_times():
    def bar(rate: str, *more: str, loss: str = "0.5") -> dict:
        frames = ["0%|  | 0/9 [00:00<?, ?it/s]", *more, f"100%|##| 9/9 [00:03<00:00, {rate}it/s]"]
        return _run(("\r" + "\r".join(frames) + f"\nloss {loss}\n").encode())
    plain, second = bar("2.04"), bar("1.92", "44%|# | 4/9 [00:01<00:02, 2.1it/s]")
    known = compare.noise(plain, second)
    other = bar("1.33", "11%|  | 1/9 [00:09<00:59, 1.0it/s]")
    assert not compare.differences(plain, other, known)
    assert compare.differences(plain, bar("1.33", loss="0.6"), known) == ["printed text (line 4: 'loss 0.6' instead of 'loss 0.5')"]


def test_what_is_not_compared_is_told_in_a_few_lines():
    files = {f"logs/{n}.csv": "a" for n in range(8)}
    plain, other = (_run(b"epoch 1 time %d data %d loss 0.5\n" % (t, 2 * t), **{k: v + str(t) for k, v in files.items()}) for t in (7, 8))
    told = compare.noise(plain, other).names()
    assert told == [*(f"logs/{n}.csv" for n in range(4)), "4 more files", "number 2 and number 3 of each line like 'epoch # time # data # loss #'"]


def test_a_table_with_times_is_compared_but_for_the_times():
    def run(*rows: bytes) -> dict:
        text = b"epoch,seconds,loss\n" + b"".join(rows)
        return {**_run(b""), "files": {"log.csv": text.decode()}, "texts": {"log.csv": text}}
    plain = run(b"0,1.25,0.50\n", b"1,2.5,0.25\n")
    known = compare.noise(plain, run(b"0,1.5,0.50\n", b"1,2.75,0.25\n"))
    assert known.names() == ["some numbers in log.csv"]
    assert not compare.differences(plain, run(b"0,9,0.50\n", b"1,31.5,0.25\n"), known)
    for wrong in ((b"0,9,0.50\n", b"1,31.5,0.26\n"), (b"0,9,0.50\n",), (b"0,9,0.50\n", b"1,10,0.25\n", b"1,10,0.25\n"), (b"0,9,0.50\n", b"2,10,0.25\n")):
        assert compare.differences(plain, run(*wrong), known) == ["file log.csv"]


def test_a_duration_is_one_number():
    plain = _run(b"Elapsed 0m 9s (remain 0m 50s) loss 0.5\n")
    known = compare.noise(plain, _run(b"Elapsed 0m 8s (remain 0m 40s) loss 0.5\n"))
    assert not compare.differences(plain, _run(b"Elapsed 1m 2s (remain 3m 0s) loss 0.5\n"), known)
    assert compare.differences(plain, _run(b"Elapsed 1m 2s (remain 3m 0s) loss 0.6\n"), known)


def test_when_an_archive_was_packed_is_noise_where_it_differs_by_itself(tmp_path: Path):
    def run(year: int, content: str) -> dict:
        with zipfile.ZipFile(tmp_path / "model.zip", "w") as packed:
            packed.writestr(zipfile.ZipInfo("policy.pth", (year, 1, 1, 0, 0, 0)), content)
        return {**_run(b""), "files": compare.file_hashes(tmp_path, ["model.zip"]), "members": compare.archive_members(tmp_path, ["model.zip"])}
    plain = run(2020, "weights")
    known = compare.noise(plain, run(2021, "weights"))
    assert known.names() == ["the time stamp of model.zip"]
    assert not compare.differences(plain, run(2022, "weights"), known)
    assert compare.differences(plain, run(2022, "other"), known) == ["file model.zip"]
    assert compare.differences(plain, run(2022, "weights"), compare.noise(plain, plain)) == ["file model.zip"]  # each byte counts
    whole = (tmp_path / "model.zip").read_bytes()
    for torn in (whole[:-5], whole.replace(b"weights", b"WEIGHTS"), b""):
        (tmp_path / "model.zip").write_bytes(torn)
        assert compare.archive_members(tmp_path, ["model.zip", "gone"]) == {}


def test_texts_of_files(tmp_path: Path):
    for name, content in (("a.csv", b"1,2\n"), ("b.bin", b"\xff\xfe"), ("c.bin", b"a\0b"), ("d.txt", b"x" * (compare.TEXT_MAX + 1))):
        (tmp_path / name).write_bytes(content)
    assert compare.file_texts(tmp_path, ["a.csv", "b.bin", "c.bin", "d.txt", "gone"]) == {"a.csv": b"1,2\n"}

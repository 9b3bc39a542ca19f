"""The store of numbers: files of attempts become curves, the later attempt counts, and comparisons say no more than is known."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

import pytest

from stoker.plane import steps as clock
from stoker.plane.numbers import comparison, files, index, parameters, words
from stoker.plane.numbers.curves import HELD_MAX, Curve, join, thin, told
from stoker.plane.numbers.files import LINE_MAX, File
from stoker.plane.numbers.reader import Numbers, Reader, chosen, latest


def curve(name: str, points: list[tuple[float, float]], source: str = "engine") -> Curve:
    made = Curve(name, source, "step")
    for at, value in points:
        made.add(at, value, None)
    return made


def points(one: Curve) -> list[tuple[float, float]]:
    return [(at, value) for at, value, _ in one.points()]


def write(path: Path, *lines: object, end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as f:
        f.write("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)


def attempt(folder: Path, number: int) -> Path:
    return folder / "attempts" / str(number)


# ---- files

def test_both_forms_of_lines_are_read_and_a_torn_last_line_is_no_fault(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    file = File(path, "engine")
    assert file.read() == []
    write(path, {"step": 1, "epoch": 0, "at": 5.5, "loss": 0.5}, {"step": 2, "at": 6.5, "from": "wandb", "pid": 7, "values": {"step": 3.0, "loss": 0.4}})
    write(path, '{"step": 3, "at": 7, "lo', end="")
    assert [(one.source, one.name, list(one.points())) for one in file.read()] == [
        ("engine", "loss", [(1, 0.5, 5.5)]), ("wandb", "step", [(2, 3.0, 6.5)]), ("wandb", "loss", [(2, 0.4, 6.5)])]
    write(path, 'ss": 0.3}')
    assert points(file.read()[0]) == [(1, 0.5), (3, 0.3)]


def test_lines_that_are_not_what_they_should_be_do_no_harm(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write(path, "", "[1]", "{", "[" * 100_000, '{"step": "x", "loss": 1}', '{"step": 1, "loss": true, "text": "a", "list": [1], "deep": {"a": 1}}',
          '{"step": 2, "loss": NaN, "far": 1e300, "large": ' + "9" * 400 + "}", '{"step": 3, "loss": "-inf"}', "x" * (LINE_MAX + 10),
          '{"step": 4, "\\ud83c\\udfaf/<b>a&b</b>": 0.5, "from": 5, "values": 3}')
    found = {one.name: points(one) for one in File(path, "engine").read()}
    assert found["loss"][0] == (1, 1) and math.isnan(found["loss"][1][1]) and found["loss"][2] == (3, -math.inf)
    assert found["far"] == [(2, 1e300)] and found["large"] == [(2, math.inf)]
    assert found["\N{DIRECT HIT}/<b>a&b</b>"] == [(4, 0.5)]
    assert "text" not in found and "list" not in found and "deep" not in found


def test_a_file_that_is_cut_is_read_from_its_begin(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    file = File(path, "engine")
    write(path, {"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}, {"step": 3, "loss": 0.3})
    file.read()
    path.write_text('{"step": 1, "loss": 0.5}\n')
    write(path, {"step": 2, "loss": 0.1})
    assert points(file.read()[0]) == [(1, 0.5), (2, 0.1)]


def test_lines_are_objects_of_their_own_though_many_are_parsed_at_once(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 1, "loss": 0.5}, '{"step": 2, "loss": 2.0}, {"step": 3, "loss": 3.0}', '[{"step": 4', '"loss": 4.0}]', "", *(
        {"step": n, "loss": float(n)} for n in range(5, 2500)))
    assert points(File(path, "engine").read()[0]) == [(1, 0.5), *((n, float(n)) for n in range(5, 2500))]


def test_a_summary_is_a_result_and_of_a_picture_told_twice_the_later_one_counts(tmp_path: Path):
    def picture(file: str, step: int = 3, **more: object) -> dict:
        return {"step": step, "at": 5.0, "pid": 7, "from": "wandb", "axis": "step", "picture": {"name": "<b>", "file": file, "bytes": 9, **more}}
    write(attempt(tmp_path, 1) / "hooks" / "numbers.jsonl", {"pid": 7, "from": "wandb", "summary": {"best": 0.5, "text": "x"}},
          picture("pictures/7-1-a.png"), picture("../../etc/passwd", 4), picture("pictures/../x", 5), picture("pictures/x", 6, bytes="9"))
    write(attempt(tmp_path, 2) / "hooks" / "numbers.jsonl", {"pid": 7, "from": "wandb", "summary": {"best": 0.7}}, picture("pictures/8-1-a.png"))
    found = Reader(tmp_path).read([1, 2])
    assert found.results == {"best": 0.7} and found.curves == []
    assert [(each["name"], each["step"], each["path"]) for each in found.pictures] == [("<b>", 3, "attempts/2/hooks/pictures/8-1-a.png")]


def test_of_several_processes_the_lowest_rank_counts(tmp_path: Path):
    path = tmp_path / "numbers.jsonl"
    for rank, pid in ((1, 5), (0, 9)):
        write(path, {"step": 1, "pid": pid, "rank": rank, "from": "tensorboard", "values": {"loss": float(rank)}})
    assert points(File(path, "hooks").read()[0]) == [(1, 0.0)]


def test_writers_in_several_folders_are_told_apart(tmp_path: Path):
    path = tmp_path / "numbers.jsonl"
    for folder, name in (("/w/runs/train", "loss"), ("/w/runs/val", "loss"), ("/w/runs/train/both_a", "both")):
        write(path, {"step": 1, "at": 1, "pid": 7, "from": "tensorboard", "folder": folder, "values": {name: 1.0}})
    assert [one.name for one in File(path, "hooks").read()] == ["train/loss", "val/loss", "train/both/a"]
    one = tmp_path / "one.jsonl"
    write(one, {"step": 1, "at": 1, "from": "tensorboard", "folder": "runs/Nov26_03-11-11_host", "values": {"loss/train": 1.0}})
    assert [each.name for each in File(one, "hooks").read()] == ["loss/train"]


def test_a_life_after_another_replaces_its_steps_and_a_process_beside_is_a_second_curve(tmp_path: Path):
    path = tmp_path / "numbers.jsonl"
    for pid, began, steps in ((7, 100, (1, 2, 3)), (7, 200, (2, 3, 4)), (9, 150, (1, 2))):
        write(path, {"begin": began, "pid": pid}, *({"step": step, "at": began + step, "pid": pid, "values": {"loss": float(began)}} for step in steps))
    assert {one.name: points(one) for one in File(path, "hooks").read()} == {
        "loss": [(1, 100.0), (2, 200.0), (3, 200.0), (4, 200.0)], "loss #2": [(1, 150.0), (2, 150.0)]}


def test_an_engine_that_writes_event_files_too_has_one_curve(tmp_path: Path):
    write(attempt(tmp_path, 1) / "metrics.jsonl", {"step": 1, "loss": 0.5})
    write(attempt(tmp_path, 1) / "hooks" / "numbers.jsonl", {"step": 1, "from": "tensorboard", "values": {"loss": 0.5, "other": 1.0}})
    assert [(one.source, one.name) for one in Reader(tmp_path).read([1]).curves] == [("engine", "loss"), ("tensorboard", "other")]


def test_a_link_or_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path):
    import os
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert File(tmp_path / "metrics.jsonl", "engine").read() == []


# ---- the index of a large file

def large(path: Path, begin: int = 0, count: int = 400) -> None:
    write(path, *([{"begin": 1.0, "pid": 7, "rank": 0}, {"pid": 7, "from": "argparse", "parameters": {"lr": 0.1}},
                   {"pid": 7, "from": "wandb", "summary": {"best": 0.5}},
                   {"step": 3, "pid": 7, "from": "wandb", "picture": {"name": "a", "file": "pictures/7-1-a.png", "bytes": 9}}] if not begin else []),
          *({"step": n, "at": 1.0 + n, "pid": 7, "from": "wandb", "values": {"loss": 1 / (n + 1), "\udcff": float(n)}} for n in range(begin, begin + count)))


def all_of(found: Numbers) -> list:
    return [found.parameters, found.results, found.pictures, [(one.name, one.source, one.axis, one.count, points(one)) for one in found.curves]]


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run folder with a file that is large, once read; and the index that was kept."""
    monkeypatch.setattr(files, "INDEXED", 10_000)
    monkeypatch.setattr(index, "PROBE", 100)
    path = attempt(tmp_path, 1) / "hooks" / "numbers.jsonl"
    large(path)
    Reader(tmp_path).read([1])
    return path, tmp_path / "index" / "1-numbers"


def test_a_large_file_is_read_once_and_then_only_what_was_appended(indexed: tuple[Path, Path], tmp_path: Path):
    path, kept = indexed
    large(path, 400, 3)
    whole = all_of(Reader(tmp_path, all_points=True).read([1]))
    assert [one[0] for one in whole[3]] == ["loss", "\udcff"], "the rank in the line of a begin is no number of the training"
    assert whole[3][0][3] == 403
    data = bytearray(path.read_bytes())
    data[200:9000] = b"x" * 8800
    path.write_bytes(data)
    assert all_of(Reader(tmp_path).read([1])) == whole, "what the index tells of is not read again"
    kept.unlink()
    assert all_of(Reader(tmp_path).read([1])) != whole


def test_a_torn_an_old_or_a_forged_index_is_made_anew(indexed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, kept = indexed
    whole, good = all_of(Reader(tmp_path, all_points=True).read([1])), kept.read_bytes()
    line = good.index(b"\n")
    forged = json.loads(good[9:line])
    forged["told"]["lives"] = [{"rank": 0, "began": 0.0, "curves": [[["wandb", "", "x"], "step", 5]]}]
    header = json.dumps(forged).encode()
    for bad in (b"", good[:5], good[:line], good[:line + 1], good[:-8], good[:-1], good + b"12345678", good[:-3] + b"xxx",
                good.replace(b'"offset"', b'"0ffset"', 1), b"%08x %s\n" % (zlib.crc32(header), header) + good[line + 1:], b"[" * 100_000):
        kept.write_bytes(bad)
        assert all_of(Reader(tmp_path).read([1])) == whole
        assert kept.read_bytes() == good, "it is written again"
    monkeypatch.setattr(index, "VERSION", index.VERSION + 1)
    assert index.load(kept, path) is None
    kept.unlink()
    kept.symlink_to(path)
    assert all_of(Reader(tmp_path).read([1])) == whole


def test_the_index_of_another_file_is_not_used(indexed: tuple[Path, Path], tmp_path: Path):
    path, _ = indexed
    path.unlink()
    large(path, 5000, 2000)
    assert [one.count for one in Reader(tmp_path).read([1]).curves] == [2000, 2000]
    path.write_text("")
    assert Reader(tmp_path).read([1]).curves == []


def test_a_file_of_very_many_points_is_held_thinned_and_can_be_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "HELD_MAX", 2000)
    large(attempt(tmp_path, 1) / "hooks" / "numbers.jsonl", count=5000)
    reader = Reader(tmp_path)
    loss = reader.read([1]).curves[0]
    assert reader.thinned
    assert (len(loss) < 2000, loss.count, loss.facts()["max"], loss.facts()["last"]) == (True, 5000, [0, 1.0], [4999, 1 / 5000])
    assert len(Reader(tmp_path, all_points=True).read([1]).curves[0]) == 5000


# ---- curves

@pytest.mark.parametrize("most", [None, 400])
def test_however_often_points_are_let_go_each_part_of_a_curve_keeps_its_share(most):
    made = Curve("loss", "engine", "step")
    for n in range(100_000):
        made.add(n, math.sin(n), None)
        if n % 2000 == 0:
            made.thinned(2000)
    made.thinned(2000)
    shares = [0] * 10
    for at, _, _ in made.points(most):
        shares[int(at) // 10_000] += 1
    assert max(shares) < 1.5 * min(shares)


def test_a_resume_of_a_curve_that_was_thinned_counts_each_step_once():
    first, later = curve("loss", [(n, 0.0) for n in range(10_000)]), curve("loss", [(n, 1.0) for n in range(8000, 12_000)])
    first.thinned(1000)
    whole = first.joined(later)
    assert abs(whole.count - 12_000) <= 40, "to a part of the thinned curve"
    assert [value for at, value, _ in whole.points() if at >= 8000] == [1.0] * 4000


def test_the_later_attempt_counts_from_its_first_step_on():
    first = curve("loss", [(1, 1.0), (2, 0.9), (3, 0.8), (4, 0.7)])
    later = curve("loss", [(3, 0.81), (4, 0.71), (5, 0.6)])
    whole = join([[first, curve("val", [(2, 5.0)])], [later]])
    assert {one.name: points(one) for one in whole} == {"loss": [(1, 1.0), (2, 0.9), (3, 0.81), (4, 0.71), (5, 0.6)], "val": [(2, 5.0)]}


def test_a_start_from_scratch_replaces_all():
    assert points(join([[curve("loss", [(1, 1.0), (2, 0.9)])], [curve("loss", [(1, 2.0)])]])[0]) == [(1, 2.0)]


def test_thinning_keeps_the_extremes_the_ends_and_what_is_not_finite():
    values = [math.sin(i / 50) for i in range(100_000)]
    values[4321], values[77_777], values[50_000] = 99.0, -99.0, math.nan
    kept = thin(values, 400)
    assert len(kept) <= 600 and kept == sorted(set(kept))
    assert {0, 4321, 50_000, 77_777, 99_999} <= {*kept}
    assert thin([1.0, 2.0], 400) == [0, 1]
    assert thin([math.nan] * 5000, 40)[0] == 0


def test_a_curve_of_very_many_points_stays_bounded():
    long = Curve("loss", "engine", "step")
    count = HELD_MAX + 10
    for i in range(count):
        long.add(i, -5.0 if i == 1000 else 1.0, None)
    assert len(long) < HELD_MAX and long.facts()["count"] == count and long.facts()["min"] == [1000, -5.0]


def test_steps_that_go_backwards_stay_in_the_order_in_which_they_came():
    assert points(curve("loss", [(5, 1.0), (3, 2.0), (4, 3.0)])) == [(5, 1.0), (3, 2.0), (4, 3.0)]


def test_json_has_words_for_what_is_not_finite():
    assert [told(value) for value in (1.5, math.nan, math.inf, -math.inf)] == [1.5, "nan", "inf", "-inf"]


# ---- a run folder

def test_a_run_over_two_attempts_is_one_curve_without_gap_or_double(tmp_path: Path):
    write(attempt(tmp_path, 1) / "metrics.jsonl", *({"step": i, "loss": 1 / i} for i in range(1, 6)))
    write(attempt(tmp_path, 2) / "metrics.jsonl", *({"step": i, "loss": 1 / i} for i in range(4, 9)))
    found = Reader(tmp_path).read([1, 2]).curves
    assert [points(one) for one in found] == [[(i, 1 / i) for i in range(1, 9)]]


def test_what_is_printed_of_a_run_that_resumed_exactly_is_read_as_one_text(tmp_path: Path):
    first = "".join(f"step {i} loss {1 / i:.4f}\n" for i in range(1, 6))
    upto = len(first[:first.index("step 4")])
    write(attempt(tmp_path, 1) / "out.log", first, end="")
    write(attempt(tmp_path, 2) / "out.log", *(f"step {i} loss {1 / i:.4f}" for i in range(4, 9)))
    write(tmp_path / "resume" / "state.json", {"state": "resumable", "lives": [
        {"attempt": 1, "from": 0, "out_bytes": 0}, {"attempt": 2, "from": 1, "out_bytes": upto}]})
    found = Reader(tmp_path).read([1, 2]).curves
    assert [points(one) for one in found] == [[(i, round(1 / i, 4)) for i in range(1, 9)]]


def test_the_log_is_read_on_where_it_grew_and_its_times_come_from_the_telemetry(tmp_path: Path):
    log, reader = attempt(tmp_path, 1) / "out.log", Reader(tmp_path)
    write(log, "step 1 loss 0.9", "step 2 loss 0.8")
    write(attempt(tmp_path, 1) / "telemetry.jsonl", {"at": 100.0, "out_bytes": 16}, {"at": 102.0, "out_bytes": 40})
    assert [list(one.points()) for one in reader.read([1]).curves] == [[(1, 0.9, 102.0), (2, 0.8, 102.0)]]
    write(log, "step 3 loss 0.7")
    assert [one[:2] for one in reader.read([1]).curves[0].points()] == [(1, 0.9), (2, 0.8), (3, 0.7)]


@pytest.mark.parametrize(("form", "steps", "axis"), [
    ("Train Epoch: {e} [{i}/1600 ({i}%)] Loss: {v:.3f}", 200, "count"),  # of samples: 16 a step
    ("Train Epoch: {e} [{i}/1600 ({i}%)] Loss: {v:.3f}", 3200, "step"),
    ("Train Epoch: {e} [{i}/1600 ({i}%)] Loss: {v:.3f}", 0, "step"),  # of a run without hooks
    ("[{i}/1600] loss {v:.3f}", 100, "count"),
    ("epoch {e} step {g} loss {v:.3f}", 200, "step"),  # the script's own word
])
def test_a_counter_that_cannot_be_of_steps_is_not_called_so(form: str, steps: int, axis: str, tmp_path: Path):
    write(attempt(tmp_path, 1) / "out.log", *(form.format(e=e, i=i, g=e * 1600 + i, v=1 / (e * 1600 + i)) for e in (1, 2) for i in range(160, 1601, 160)))
    if steps:
        write(attempt(tmp_path, 1) / "steps.jsonl", *({"pid": 7, "at": 1.0 + n, "step": steps * n // 4} for n in range(1, 5)))
    assert {one.axis for one in Reader(tmp_path).read([1]).curves} == {axis}


@pytest.mark.parametrize(("ended", "axis"), [(94, "count"), (None, "step"), (1, "step")])
def test_the_steps_of_a_short_training_count_once_its_process_has_ended(ended: int | None, axis: str, tmp_path: Path):
    write(attempt(tmp_path, 1) / "out.log", *(f"[{i}/6000] loss {1 / i:.6f}" for i in range(1280, 6000, 1280)))
    write(attempt(tmp_path, 1) / "steps.jsonl", *({"pid": 7, "at": 1.0 + step, "step": step} for step in (1, 94)))
    write(attempt(tmp_path, 1) / "hooks" / "processes.jsonl", {"pid": 7, "torch": "2.13"}, *([{"pid": 7, "ended": ended}] if ended else []))
    assert {one.axis for one in Reader(tmp_path).read([1]).curves} == {axis}


def test_a_value_that_was_printed_once_keeps_its_unit(tmp_path: Path):
    log = attempt(tmp_path, 1) / "out.log"
    write(log, "Test set: Average loss: 0.31, Accuracy: 919/1000 (91.9%)")
    once, reader = {"test/Average loss": 0.31, "test/Accuracy": 91.9}, Reader(tmp_path)
    found = reader.read([1])
    assert (found.results, found.units) == (once, {"test/Average loss": "", "test/Accuracy": "%"})
    told_once = comparison.metrics(found.curves, found.results, found.units)["test/Accuracy"]
    write(log, *(f"Test set: Average loss: 0.3{i}, Accuracy: 92{i}/1000 (92.{i}%)" for i in range(2)))
    found = reader.read([1])
    assert comparison.metrics(found.curves, found.results, found.units)["test/Accuracy"]["unit"] == told_once["unit"] == "%"


def test_a_run_that_resumed_exactly_counts_its_steps_on(tmp_path: Path):
    write(attempt(tmp_path, 1) / "out.log", *(f"[{i}/400] loss {1 / i:.3f}" for i in range(10, 301, 10)))
    write(attempt(tmp_path, 2) / "out.log", *(f"[{i}/400] loss {1 / i:.3f}" for i in range(310, 401, 10)))
    write(attempt(tmp_path, 2) / "steps.jsonl", *({"pid": 7, "at": 1.0 + n, "step": 25 * n} for n in range(1, 5)))
    assert {one.axis for one in Reader(tmp_path).read([1, 2]).curves} == {"count"}
    write(tmp_path / "resume" / "state.json", {"state": "resumable", "resumed": {"attempt": 2, "step": 290, "lost_steps": 10}})
    assert {one.axis for one in Reader(tmp_path).read([1, 2]).curves} == {"step"}
    assert clock.summary(list(clock.read(attempt(tmp_path, 2))), 300)["step"] == 400
    assert clock.progress(attempt(tmp_path, 2), 300)["step"] == 400


def test_what_a_better_source_tells_is_not_taken_from_the_text(tmp_path: Path):
    write(attempt(tmp_path, 1) / "out.log", *(f"step {i} train loss {1 / i:.2f} accuracy 0.{i}" for i in range(1, 5)))
    write(attempt(tmp_path, 1) / "metrics.jsonl", *({"step": i, "train_loss": 1 / i} for i in range(1, 5)))
    assert [(one.source, one.name) for one in Reader(tmp_path).read([1]).curves] == [("engine", "train_loss"), ("printed", "train/accuracy")]


def test_of_several_sources_the_best_counts_and_lines_beside_a_bar_stay(tmp_path: Path):
    captured = [("tqdm", {"loss": 9.0, "only": 1.0}), ("wandb", {"val/loss": 0.4}), ("lightning", {"val_loss": 0.41}), ("wandb", {"acc": 0.9})]
    for step in range(3):
        write(attempt(tmp_path, 1) / "hooks" / "numbers.jsonl", *({"step": step, "from": source, "values": values} for source, values in captured))
        write(attempt(tmp_path, 1) / "out.log", f"epoch {step} loss {0.5 - step / 10:.3f} val_loss 0.{step}")
    bar = "".join(f"\r{30 * (i + 1)}%|###       | {3 * (i + 1)}/10 [00:01<00:02, 3.00it/s, loss=0.{i + 1}, acc=0.{i + 1}, lr=0.0{i + 1}]" for i in range(3))
    write(attempt(tmp_path, 1) / "err.log", bar)
    found = Reader(tmp_path).read([1]).curves
    assert [(one.name, one.source) for one in found] == [
        ("loss", "tqdm"), ("only", "tqdm"), ("val_loss", "lightning"), ("acc", "wandb"), ("loss", "printed"), ("lr", "printed (stderr)")]
    assert points(found[4]) == [(0, 0.5), (1, 0.4), (2, 0.3)]
    assert [one.name for one in latest(tmp_path, 1).curves] == [one.name for one in found]


def test_a_second_logger_of_a_name_is_a_second_curve_through_a_resume_too(tmp_path: Path):
    for number, lines in ((1, [(0, 1, 1.0), (0, 2, 5.0), (1, 2, 6.0)]), (2, [(1, 2, 6.0), (2, 2, 7.0)])):
        write(attempt(tmp_path, number) / "hooks" / "numbers.jsonl",
              *({"step": step, "from": "keras", "axis": "epoch", "values": {"loss": value}, **({"nth": nth} if nth > 1 else {})} for step, nth, value in lines))
    assert {one.name: points(one) for one in Reader(tmp_path).read([1, 2]).curves} == {"loss": [(0, 1.0)], "loss #2": [(0, 5.0), (1, 6.0), (2, 7.0)]}


def test_parameters_that_a_parser_told_replace_the_words_of_the_command_line(tmp_path: Path):
    path = attempt(tmp_path, 1) / "hooks" / "numbers.jsonl"
    write(path, {"at": 1.0, "from": "wandb", "pid": 7, "parameters": {"lr": 0.1, "model": {"width": 8}, "api_key": "x"}})
    found = Reader(tmp_path).read([1])
    assert comparison.asked(["train.py", "-e", "5"], found) == {"e": 5, "lr": 0.1, "model.width": 8}
    write(path, {"at": 1.0, "from": "argparse", "pid": 7, "parameters": {"epochs": 5}}, {"from": "argparse", "parameters": [1]})
    found = Reader(tmp_path).read([1])
    assert comparison.asked(["train.py", "-e", "5"], found) == {"lr": 0.1, "model.width": 8, "epochs": 5} and found.curves == []


def test_a_list_reads_only_the_end_of_a_long_log(tmp_path: Path):
    write(attempt(tmp_path, 1) / "out.log", *(f"Epoch {i}/5000 loss: {1 / i:.6f}" for i in range(1, 4001)))
    found = latest(tmp_path, 1)
    assert found.epoch == (4000, 5000) and points(found.curves[0]) == [(4000, 0.00025)]


def test_a_name_without_a_split_means_all_splits():
    curves = [curve(name, [(1, 1.0)]) for name in ("loss", "val_loss", "train/loss", "nll_loss", "accuracy")]
    assert [one.name for one in chosen(curves, ["loss"])] == ["loss", "val_loss", "train/loss"]
    assert [one.name for one in chosen(curves, ["validation loss"])] == ["val_loss"]
    assert [one.name for one in chosen(curves, ["nll_loss", "Accuracy"])] == ["nll_loss", "accuracy"]


# ---- parameters

@pytest.mark.parametrize(("command", "found"), [
    (["python", "train.py", "--lr", "0.1", "--name=x", "--amp", "--steps", "1e3"], {"lr": 0.1, "name": "x", "amp": True, "steps": 1000.0}),
    (["python", "-m", "pkg.train", "--batch-size", "64", "--lr=-0.5"], {"batch_size": 64, "lr": -0.5}),
    (["python", "train.py", "config/a.py", "--sizes", "64", "128", "-v"], {"argument 1": "config/a.py", "sizes": "64 128", "v": True}),
    (["train.py", "model.size=3", "+trainer.lr=1e-3"], {"model.size": 3, "trainer.lr": 0.001}),
    (["train.py", "--api-key", "abc", "--hf_token=x", "--offset", "-3"], {"offset": -3})])
def test_parameters_of_a_command_line(command: list[str], found: dict):
    assert parameters.of_command(command) == found


# ---- comparison

def row(name: str, given: dict, values: dict[str, float], **more: object) -> dict:
    metrics = {each: {"last": [9, value], "best": [5, value] if words.better(each) else None, "better": words.better(each)} for each, value in values.items()}
    return {"id": name, "name": name, "parameters": given, "metrics": metrics, "code": None, "environment": {}, **more}


def test_a_comparison_names_what_differs():
    found = comparison.compare([row("a", {"lr": 0.1, "wd": 0}, {"val_loss": 1.0}, code={"commit": "a" * 40}, environment={"torch": "2.13"}),
                                row("b", {"lr": 0.01, "wd": 0.0}, {"loss": 2.0, "val_loss": 1.5}, code={"commit": "b" * 40, "dirty": True},
                                    environment={"torch": "2.14"})])
    assert found["parameters"] == ["lr"] and found["metrics"] == ["val_loss", "loss"] and found["groups"] == []
    assert found["commits"] == {"a": "a" * 12, "b": "b" * 12 + " with changes"} and found["environment"] == {"torch": ["2.13", "2.14"]}


@pytest.mark.parametrize(("values", "said"), [
    ([(0.1, 1.00), (0.1, 1.10), (0.2, 1.02), (0.2, 1.16)], "neither is better"), ([(0.1, 1.00), (0.1, 1.01), (0.2, 1.5), (0.2, 1.51)], "lr 0.1 is better than lr 0.2")])
def test_a_difference_within_the_spread_of_seeds_is_not_called_better(values: list, said: str):
    found = comparison.compare([row(f"r{i}", {"lr": lr, "seed": i}, {"val_loss": value}) for i, (lr, value) in enumerate(values)])
    assert [group["metrics"]["val_loss"]["n"] for group in found["groups"]] == [2, 2]
    assert said in found["verdicts"]["val_loss"]


def test_a_run_alone_in_its_group_has_no_spread():
    found = comparison.groups([row("a", {"seed": 1}, {"loss": 1.0}), row("b", {"seed": 2}, {"loss": 3.0})], [])
    assert found[0]["metrics"]["loss"] == {"mean": 2.0, "spread": pytest.approx(1.4142, abs=1e-4), "n": 2, "better": "min"}


def test_best_is_said_only_of_metrics_that_have_one():
    losses, others = curve("val_loss", [(1, 3.0), (2, 1.0), (3, math.nan)]), curve("adv_g2", [(1, 3.0)])
    found = comparison.metrics([losses, others], {"test/accuracy": 91.2}, {"test/accuracy": "%"})
    assert found["val_loss"]["best"] == [2, 1.0] and found["val_loss"]["last"] == [3, "nan"] and found["adv_g2"]["best"] is None
    assert found["test/accuracy"]["last"] == [None, 91.2] and found["test/accuracy"]["unit"] == "%"


def test_what_a_script_told_a_library_counts_more_than_its_command_line():
    numbers = Numbers(parameters={"wandb": {"lr": 0.2, "model": {"depth": 3}, "api_key": "x"}})
    assert comparison.asked(["train.py", "--lr", "0.1"], numbers) == {"lr": 0.2, "model.depth": 3}


# ---- another machine

def test_numbers_of_a_run_on_another_machine_are_fetched(tmp_path: Path):
    from stoker.backends import registry
    from stoker.base.config import TargetConfig
    from stoker.base.spec import Spec
    from stoker.base.state import State
    from stoker.hosts.local import LocalHost
    from stoker.plane.numbers.overview import Overview
    from stoker.plane.record import Run
    from stoker.plane.targets import Target

    folder = tmp_path / "runs" / "far-run"
    write(attempt(folder, 1) / "out.log", *(f"step {i} loss {1 / i:.2f}" for i in range(1, 4)))
    write(attempt(folder, 1) / "hooks" / "numbers.jsonl", {"step": 1, "at": 1, "from": "tensorboard", "values": {"f1": 0.5}})
    run = Run(id="far-run", name="far", spec=Spec(id="far-run", name="far", command=("train.py",), folder="/"), state=State.RUNNING, started_at=1.0)
    target = Target("far", TargetConfig(name="far"), registry.make("process", LocalHost(), str(tmp_path)), str(tmp_path), here=False, kept=tmp_path / "kept")
    overview = Overview()
    assert {one.name: points(one) for one in overview.read(run, target).curves} == {"f1": [(1, 0.5)], "loss": [(1, 1.0), (2, 0.5), (3, 0.33)]}
    assert overview.table(run, target) is None
    target.backend.close()

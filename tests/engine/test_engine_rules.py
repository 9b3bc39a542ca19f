"""Which folder, when a run is finished, what a changed script does, and how loops that nest, break or fail come back."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from enginekit import Training
from scripts import script, usual

pytestmark = [pytest.mark.slow, pytest.mark.inside]


class Script:
    """A script in a folder of its own, started as often as one likes."""

    def __init__(self, nursery, folder, text):
        self.path = script(folder, text)
        self.training = Training(nursery, folder, {})
        self.folder = folder

    def start(self, **env):
        """(exit code, what this start printed)."""
        before = len(self.training.text())
        code, = self.training.live(self.path, **env)
        return code, self.training.text()[before:]

    def good(self, **env):
        code, text = self.start(**env)
        assert code == 0, text
        return text

    def end(self, **env):
        """The last line of a start that has to end well."""
        return next(line for line in reversed(self.good(**env).splitlines()) if line.startswith("END"))


@pytest.fixture
def made(nursery, tmp_path):
    def make(text, name="one"):
        return Script(nursery, tmp_path / name, text)
    return make


def test_the_folder_has_the_scripts_name_and_a_finished_run_is_left_alone(made):
    one = made(usual('save="1step"'))
    first = one.end()
    folders = sorted(p.name for p in (one.folder / "runs").iterdir())
    assert len(folders) == 1
    assert folders[0].startswith("train-")
    assert one.end() == first
    assert sorted(p.name for p in (one.folder / "runs").iterdir()) == [folders[0], f"{folders[0]}-2"]


def test_a_folder_of_another_run_is_not_taken_for_a_later_one(made):
    other = made(usual('folder="run-2", save="1step"'))
    other.start(DIE="3")
    script(other.folder, usual())
    assert "new run in run;" in other.good()
    assert "new run in run-3;" in other.good()
    script(other.folder, usual('folder="run-2", save="1step"'))
    assert "resumes run-2 at step 2" in other.good()


def test_the_same_command_resumes_and_says_what_it_is_worth(made):
    straight = made(usual(), "straight").end()
    one = made(usual())
    assert one.start(DIE="7")[0] == -signal.SIGKILL
    text = one.good()
    assert "resumes run at step 6, grade: bit-exact; " in text
    assert "8 samples are repeated" in text
    assert "batch size 8 = 1 rank x 8 samples x 1 micro-batches" in text
    assert straight in text


def test_a_kill_before_the_first_step_changes_nothing(made):
    text = usual('folder="run", save="1h"')
    straight = made(text, "straight").end()
    one = made(text)
    one.start(DIE="1")
    assert one.end() == straight


def test_weights_made_before_the_engine_are_kept_from_the_start(made):
    text = usual('folder="run", save="1h"').replace("engine = stoker.Engine", "model = nn.Linear(6, 2)\nengine = stoker.Engine").replace(
        "model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))", "began = weights(model)")
    one = made(text.replace("        if DIE", "        if engine.steps == 1: print('BEGAN', began, weights(model), flush=True)\n        if DIE"))
    first = one.start(DIE="2")[1]
    second = one.good()
    after = [line.split()[2] for line in (first + second).splitlines() if line.startswith("BEGAN")]
    assert len(after) == 2
    assert after[0] == after[1]


def test_changed_code_resumes_only_when_told(made):
    one = made(usual())
    one.start(DIE="7")
    one.path.write_text(one.path.read_text() + "\n# a fix\n")
    code, text = one.start()
    assert code == 1
    assert "the code changed" in text
    assert "STOKER_RESUME=1 resumes" in text
    assert "state-only (the code changed)" in one.good(STOKER_RESUME="1")


def test_fresh_moves_the_old_folder_aside(made):
    one = made(usual())
    one.start(DIE="7")
    assert "new run in run" in one.good(STOKER_FRESH="1")
    aside = [p for p in one.folder.iterdir() if p.name.startswith("run.old-")]
    assert len(aside) == 1
    assert (aside[0] / "latest").exists()


def test_a_finished_run_is_trained_longer_when_asked(made):
    straight = made(usual(epochs=5), "straight").end()
    one = made(usual(epochs=3))
    one.end()
    script(one.folder, usual(epochs=5))
    text = one.good(STOKER_EXTEND="1")
    assert "the run continues after epoch 3, up to epoch 5" in text
    assert straight in text


@pytest.mark.parametrize(("tail", "finished"), [("    if epoch == 1: break\n", True), ("    if epoch == 1: break\nsys.exit(3)\n", False),
                                                ("    if epoch == 1: raise ValueError('mine')\n", False), ("sys.exit(0)\n", True),
                                                ("    if epoch == 1: os._exit(0)\n", False)],
                         ids=["break", "break and exit 3", "exception", "exit 0", "no end at all"])
def test_finished_is_exhausted_or_broken_and_a_good_end(made, tail, finished):
    one = made(usual(tail=tail))
    one.start()
    assert json.loads((one.folder / "run/run.json").read_text())["finished"] == finished


def test_an_exception_that_the_script_catches_is_no_good_end(made):
    body = """
engine = stoker.Engine(folder="run", save="1step")
model = nn.Linear(6, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
engine.setup(model, opt)
train = DataLoader(data, batch_size=8)
try:
    for epoch in engine.epochs(2):
        for a, b in engine.batches(train):
            engine.step(F.cross_entropy(model(a), b))
            if engine.steps == 3: raise KeyboardInterrupt
except KeyboardInterrupt:
    print("END caught")
"""
    one = made(body)
    one.end()
    assert not json.loads((one.folder / "run/run.json").read_text())["finished"]


def test_a_user_exception_leaves_the_state_of_the_step_before(made):
    one = made(usual(tail="").replace("            die()", "            raise ValueError('mine')"))
    code, text = one.start(DIE="7")
    assert code == 1
    assert "ValueError: mine" in text
    assert (one.folder / "run/latest").read_text().strip() == "step-000000006"


PRETRAIN = """
engine = stoker.Engine(folder="run", save="2step")
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(data, batch_size=8, shuffle=True)
engine.setup(model, opt, train)
seen = engine.keep(seen=[])
def step(a, b, opt):
    engine.backward(F.cross_entropy(model(a), b), opt)
    engine.update(opt)
    seen.append(a.sum().item())
    if DIE == str(engine.steps): die()
for epoch in engine.epochs(2, name="pretrain"):
    for a, b in engine.batches(train):
        step(a, b, opt)
        if epoch == 1 and engine.steps == 8: break
    for a, b in engine.batches(train):
        step(a, b, opt)
between = torch.randn(1).item()
tune = torch.optim.AdamW(model[2].parameters(), lr=0.01)
engine.setup(tune)
for fold in engine.epochs(2):
    head = nn.Linear(8, 2)
    for epoch in engine.epochs(2):
        for a, b in engine.batches(train):
            step(a, b, tune)
        if fold == 1: break
    engine.keep(noise=torch.randn(1).item())
print("END", engine.steps, weights(model), round(sum(seen), 4), len(seen), engine.keep(noise=0.0) if False else "")
"""


@pytest.mark.parametrize("at", ["4", "8", "9", "15", "18", "20", "23", "29", "33"])
def test_loops_that_follow_nest_and_break_come_back(made, at, tmp_path_factory):
    one = made(PRETRAIN)
    first = one.start(DIE=at)
    assert first[0] == -signal.SIGKILL, first[1]
    straight = made(PRETRAIN, "straight").end()
    assert one.end() == straight


def test_a_scheduler_stepped_at_the_head_of_an_epoch_is_not_stepped_twice(made):
    text = usual().replace("train = DataLoader", "sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)\nengine.setup(sched) if False else None\ntrain = DataLoader").replace(
        "engine.setup(model, opt, train)", "engine.setup(model, opt, train, sched)[:3]").replace("    for a, b", "    sched.step()\n    for a, b").replace("print(\"END\"", "print('END', sched.last_epoch, opt.param_groups[0]['lr']), print(\"END\"")
    straight = made(text, "straight").end()
    one = made(text)
    one.start(DIE="7")
    assert one.end() == straight


def test_two_processes_on_one_folder(made, nursery):
    one = made(usual(tail="import time\nopen('here', 'w').close()\ntime.sleep(60)"))
    pid = one.training.start(one.path)[0]
    try:
        while not (one.folder / "here").exists():
            assert nursery.wait(pid, 0.05) is None, one.training.text()
        code, text = one.start()
        assert code == 1
        assert f"run is in use by process {pid} on" in text
    finally:
        one.training.kill([pid])


def test_a_cell_that_runs_again_takes_over_its_own_folder(made):
    one = made(usual() + "\nfirst = weights(model)\n" + usual().replace("END", "AGAIN"))
    text = one.good()
    assert text.count("new run in run") == 2  # the first is finished: the second has a folder of its own
    assert text.split("END")[1].split()[:2] == text.split("AGAIN")[1].split()[:2]


def test_a_kill_after_the_last_step_of_an_epoch_leaves_the_loops_variables(made):
    text = usual(tail="    kept = loss.item()\n    if DIE == 'after' and epoch == 1: die()\n").replace(
        "engine.step(F.cross_entropy(model(a), b))", "loss = F.cross_entropy(model(a), b)\n        engine.step(loss)")
    straight = made(text, "straight").end()
    one = made(text)
    assert one.start(DIE="after")[0] == -signal.SIGKILL
    assert one.end() == straight


def test_a_kill_after_the_loops_leaves_what_is_kept(made):
    text = usual(tail="    mean = engine.keep(mean=a.mean().item())\nif DIE == 'late': die()\nprint(mean)").replace("for epoch in", "mean = engine.keep(mean=0.0)\nfor epoch in")
    straight = made(text, "straight").good().splitlines()[-2:]
    one = made(text)
    assert one.start(DIE="late")[0] == -signal.SIGKILL
    again = one.good()
    assert again.splitlines()[-2:] == straight
    assert "epoch 1/3" not in again


@pytest.mark.parametrize(("signal_number", "step"), [(signal.SIGTERM, 7), (signal.SIGINT, 7), (signal.SIGTERM, 10)])
def test_a_signal_saves_at_the_next_step_and_ends(made, signal_number, step):
    text = usual('folder="run", save="1h"').replace("            die()", "            os.kill(os.getpid(), int(os.environ['SIGNAL']))")
    straight = made(text, "straight").end()
    one = made(text)
    code, said = one.start(DIE=str(step), SIGNAL=str(int(signal_number)))
    assert code in (-signal_number, 130), said
    assert f"saved at step {step}" in said
    assert one.end() == straight


SAMPLER = """
class Hard(torch.utils.data.Sampler):
    def __init__(self): self.table, self.rounds = torch.ones(40), 0
    def __len__(self): return 40
    def __iter__(self):
        {draw}
    def state_dict(self): return {{"table": self.table, "rounds": self.rounds}}
    def load_state_dict(self, state): self.table, self.rounds = state["table"], state["rounds"]
class Rows(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return i, *data[i]
engine = stoker.Engine(folder="run", save="3step")
model = nn.Linear(6, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.3)
sampler = Hard()
train = DataLoader(Rows(), batch_size=8, sampler=sampler, num_workers=1)
engine.setup(model, opt, train{more})
for epoch in engine.epochs(4):
    for ids, a, b in engine.batches(train):
        loss = F.cross_entropy(model(a), b, reduction="none")
        sampler.table[ids] = 9 * loss.detach()
        engine.step(loss.mean())
        if DIE == str(engine.steps): die()
print("END", engine.steps, weights(model), sampler.table.tolist(), sampler.rounds)
"""


@pytest.mark.parametrize(("draw", "more"), [
    ("return iter(torch.multinomial(self.table, 40, True).tolist())", ""), ("return iter(torch.multinomial(self.table, 40, True).tolist())", ", sampler"),
    ("for n in range(40): self.rounds += 1; yield int(torch.multinomial(self.table, 1))", ", sampler")], ids=["table", "set up", "one by one"])
def test_a_sampler_that_the_loop_changes_draws_what_it_drew_and_keeps_the_change(made, draw, more):
    text = SAMPLER.format(draw=draw, more=more)
    straight = made(text, "straight").end()
    one = made(text)
    assert one.start(DIE="8")[0] == -signal.SIGKILL
    assert one.start(DIE="14")[0] == -signal.SIGKILL
    assert one.end() == straight


WORKERS = """
SIGNAL = os.environ.get("SIGNAL")
class Rows(Dataset):
    def __len__(self): return 160
    def __getitem__(self, i): return data[i % 40]
class Flow(torch.utils.data.IterableDataset):
    def __iter__(self): return map(Rows().__getitem__, range(160))
def began(worker): open(f"worker.{{os.getpid()}}", "w").close()
if __name__ == "__main__":
    engine = stoker.Engine(folder="run", save="1h", accumulate=10)
    model = nn.Linear(6, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    train = DataLoader({dataset}(), batch_size=8, worker_init_fn=began, {more})
    engine.setup(model, opt, train)
    for epoch in engine.epochs(2):
        for number, (a, b) in enumerate(engine.batches(train)):
            if SIGNAL and engine.steps == 1 and number == 10:  # a step needs more batches than the workers have made ready
                subprocess.run(["kill", f"-{{SIGNAL}}", "--", f"{{os.getpid() if SIGNAL == 'KILL' else -os.getpid()}}"])
            engine.step(F.cross_entropy(model(a), b))
    print("END", engine.steps)
"""


@pytest.mark.parametrize(("signal_name", "dataset", "more"), [
    ("TERM", "Rows", "num_workers=2, shuffle=True"), ("INT", "Rows", "num_workers=2, persistent_workers=True"),
    ("TERM", "Rows", "num_workers=1, multiprocessing_context='spawn'"), ("TERM", "Flow", "num_workers=1"), ("KILL", "Rows", "num_workers=2")],
    ids=["fork", "persistent", "spawn", "stream", "killed alone"])
def test_a_signal_to_all_processes_saves_though_it_reaches_the_workers(made, signal_name, dataset, more):
    one = made("import subprocess\n" + WORKERS.format(dataset=dataset, more=more))
    code, said = one.start(SIGNAL=signal_name)
    assert code in (-signal.Signals[f"SIG{signal_name}"], 130), said
    pids = [int(path.suffix[1:]) for path in one.folder.glob("worker.*")]
    assert pids
    deadline = time.monotonic() + 60  # torch's workers look every 5 s whether their training is still there
    while alive := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
        assert time.monotonic() < deadline, f"still alive: {alive}"
        time.sleep(0.02)
    if signal_name != "KILL":
        assert "saved at step 2" in said
        assert "at step 2, " in one.good()


def test_a_module_that_is_imported_late_is_no_change_until_it_is_edited(made):
    one = made(usual('folder="run", save="1step"', tail="import helper").replace("        if DIE", "        import helper\n        if DIE"))
    helper = one.folder / "helper.py"
    helper.write_text("value = 1\n")
    one.start(DIE="7")
    code, text = one.start(DIE="9")
    assert code == -signal.SIGKILL, text
    assert "resumes run at step 6, grade: bit-exact" in text
    helper.write_text("value = 2\n")
    code, text = one.start()
    assert code == 1
    assert "holds an unfinished run (step 8), and the code changed after this step" in text
    assert "state-only (the code changed)" in one.good(STOKER_RESUME="1")


def test_carried_variables_are_named(made):
    text = usual(tail="    print(temporary, mean, rare)").replace("for epoch in", "import random\ndraws = random.Random(1)\nbest, losses, kept, mean, names = 0.0, [], 0, 0.0, {}\nfor epoch in").replace(
        "        if DIE", """        losses.append(1)
        temporary = a.sum()  # set in each pass, and read after the loop
        best = max(best, float(temporary))
        mean = 0.9 * mean + 0.1 * float(temporary)
        if engine.steps % 5 == 2: rare = 1  # not set again by a resume after it
        kept = engine.keep(kept=kept + 1)
        own = []
        own.append(1)
        of_epoch.append(1)
        total[0] += 1
        known.append(1 + number + draws.random())
        if DIE""").replace("    for a, b in engine.batches(train)", "    for number, (a, b) in enumerate(engine.batches(train))").replace(
        "    for number", "    of_epoch, total, known = [], torch.zeros(2), engine.keep(known=[])\n    for number")
    assert "not saved: best, mean, rare, number, draws, losses, of_epoch, total\n" in made(text).good()


BOARD = usual('folder="run", save="2step", log="tensorboard"').replace(
    "engine.step(F.cross_entropy(model(a), b))", "loss = F.cross_entropy(model(a), b)\n        engine.step(loss)\n        engine.log(loss=loss, text='no number')") + """
engine._core.metrics.sinks[0].close()
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
import pathlib
found = [(v.tag, e.step, round(v.tensor.float_val[0], 4)) for path in sorted(pathlib.Path("run").rglob("events.out.*"))
         for e in EventFileLoader(str(path)).Load() for v in e.summary.value if v.tag == "loss"]
print("BOARD", found)
"""


@pytest.mark.parametrize("attempts", [False, True], ids=["one file", "a file per attempt"])
def test_tensorboard_has_each_step_once_after_kills(made, attempts):
    straight = next(line for line in made(BOARD, "straight").good().splitlines() if line.startswith("BOARD"))
    assert straight.count("'loss'") == 15
    one = made(BOARD)
    for n, die in enumerate(["5", "10", ""], 1):
        env = {"STOKER_RUN_DIR": str(one.folder / "r"), "STOKER_ATTEMPT": str(n)} if attempts else {}
        (one.folder / f"r/attempts/{n}").mkdir(parents=True)
        _, text = one.start(DIE=die, **env)
    assert straight in text.splitlines(), text


def test_what_the_folder_rule_makes_under_stoker(made):
    one = made(usual('save="1step"'))
    attempt = one.folder / "r/attempts/1"
    attempt.mkdir(parents=True)
    env = {"STOKER_RUN_DIR": str(one.folder / "r"), "STOKER_ATTEMPT": "1"}
    one.start(DIE="7", **env)
    assert (one.folder / "r/checkpoints/latest").exists()
    (one.folder / "r/attempts/2").mkdir()
    one.path.write_text(one.path.read_text() + "\n# another line: `stoker start` says that it is to go on\n")
    assert "state-only (the code changed)" in one.good(**{**env, "STOKER_ATTEMPT": "2"})
    note = json.loads((one.folder / "r/attempts/2/engine.json").read_text())
    assert note["grade"] == "state-only"
    assert note["resumed"] == 6
    assert os.path.exists(one.folder / "r/attempts/2/metrics.jsonl")

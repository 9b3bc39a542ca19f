"""Trainer: its moments, its ends, where a new run starts from, and what it refuses. That it survives kills is in test_engine_kills.py."""

from __future__ import annotations

import json
import signal

import pytest
from enginekit import Training
from scripts import script

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(300)]

TASK = """
class Sides(stoker.Task):
    def build(self):
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, classes))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 1, 0.5)
    def loss(self, batch):
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        if DIE == str(self.engine.steps): die()
        return loss
classes = 2
train = DataLoader(data, batch_size=8, shuffle=True)
test = DataLoader(data, batch_size=16)
def die():
    trainer.engine._core.keeper.wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""
ALL = """
class All:
    def __init__(self): self.seen = []
    def start(self, trainer): self.seen.append("start")
    def step(self, trainer): self.seen.append("step")
    def epoch(self, trainer, epoch): self.seen.append(f"epoch{epoch}")
    def evaluate(self, trainer, scores): self.seen.append("evaluate" + ",".join(scores))
    def save(self, trainer): self.seen.append("save")
    def end(self, trainer): self.seen.append("end")
every = All()
"""


@pytest.fixture
def live(nursery, tmp_path):
    def run(text, name="one", code=0, **env):
        training = Training(nursery, tmp_path / name, {})
        before = len(training.text())
        assert training.live(script(training.folder, TASK + text), **env) == [code], training.text()
        return training.text()[before:]
    return run


def end(text):
    return next(line for line in reversed(text.splitlines()) if line.startswith("END"))


def test_callbacks_come_in_order_and_evaluation_every_second_epoch(live):
    text = live(ALL + """
trainer = stoker.Trainer("run", epochs=3, save="1ep", eval_every=2, callbacks=[every])
history = trainer.fit(Sides(), train, test)
print("END", " ".join(every.seen), [h["epoch"] for h in history], trainer.task.opt.param_groups[0]["lr"])
""")
    steps = "step " * 5
    wanted = f"start {steps}epoch0 save {steps}evaluateloss epoch1 save {steps}evaluateloss epoch2 save end [1, 2] 0.0125"
    assert end(text) == f"END {wanted}"


def test_a_number_of_steps_ends_it_inside_an_epoch_and_it_is_finished(live, tmp_path):
    text = 'trainer = stoker.Trainer("run", steps=7, save="1step")\ntrainer.fit(Sides(), train, test)\nprint("END", trainer.engine.steps, weights(trainer.task.model), len(trainer.history))'
    straight = end(live(text, "straight"))
    assert straight.startswith("END 7 ")
    assert straight.endswith(" 2")
    live(text, code=-signal.SIGKILL, DIE="6")
    assert end(live(text)) == straight
    assert json.loads((tmp_path / "one/run/run.json").read_text())["finished"]


def test_a_stop_by_a_callback_is_not_forgotten_by_a_kill(live):
    text = """
class Stop:
    def step(self, trainer):
        if trainer.engine.steps == 7: trainer.stop()
trainer = stoker.Trainer("run", epochs=9, save="1step", callbacks=[Stop()])
trainer.fit(Sides(), train)
print("END", trainer.engine.steps, weights(trainer.task.model))
"""
    straight = end(live(text, "straight"))
    assert straight.startswith("END 10 ")
    live(text, code=-signal.SIGKILL, DIE="9")
    assert end(live(text)) == straight


def test_a_kill_inside_an_accumulation_moves_no_schedule(live):
    text = """
class Scheduled(Sides):
    def build(self):
        super().build()
        self.sched = stoker.sched.linear(self.opt, "4ep", warmup="1ep")
        self.average = stoker.EMA(self.model, 0.5)
trainer = stoker.Trainer("run", epochs=3, save="1step", accumulate=2)
trainer.fit(Scheduled(), train)
print("END", weights(trainer.task.model), trainer.task.sched.steps, trainer.task.average.updates)
"""
    straight = end(live(text, "straight"))
    assert straight.endswith(" 9 9")
    live(text, code=-signal.SIGKILL, DIE="4")
    assert end(live(text)) == straight


def test_a_new_run_starts_from_the_weights_of_another(live):
    first = 'trainer = stoker.Trainer("first", epochs=1)\ntrainer.fit(Sides(), train)\ntrainer.engine.export("w.safetensors")\nprint("END", weights(trainer.task.model))\n'
    again = """
class Same(Sides):
    def build(self):
        super().build()
        self.opt.param_groups[0]["lr"] = 0.0
for n, path in enumerate(["w.safetensors", "first", "first/" + open("first/latest").read().strip()]):
    trainer = stoker.Trainer(f"second{n}", epochs=1)
    trainer.fit(Same(), train, init_from=path)
    print("END", weights(trainer.task.model))
classes = 3
trainer = stoker.Trainer("third", epochs=1)
trainer.fit(Sides(), train, init_from="first")
try:
    stoker.Trainer("fourth", epochs=1).fit(Sides(), train, init_from="nowhere.safetensors")
except stoker.base.errors.StateError as e:
    print(e)
"""
    text = live(first + again)
    assert len({line for line in text.splitlines() if line.startswith("END")}) == 1
    assert text.count("END") == 4
    assert "starts from first: 2 tensors loaded; not loaded: 2.weight (shape (2, 8) in the file, (3, 8) in the model), 2.bias (shape (2,) in the file, (3,) in the model)" in text
    assert "nowhere.safetensors cannot be read" in text


REFUSED = {
    "needs exactly one of the arguments `epochs` and `steps`": "stoker.Trainer('run')",
    "the number of epochs between two evaluations": "stoker.Trainer('run', epochs=1, eval_every=0)",
    "The callback int has none of the methods": "stoker.Trainer('run', epochs=1, callbacks=[3])",
    "Engine has no argument 'nun'": "stoker.Trainer('run', epochs=1, engine={'nun': 'skip'})",
    "Task has no loss": "stoker.Trainer('run', epochs=1).fit(Bare(), train)",
    "watch is 'right', but the scores are: loss": "Sides.watch = 'right'; stoker.Trainer('run', epochs=1).fit(Sides(), train, test)",
    "needs a loader that has a length": "stoker.Trainer('run', steps=3).fit(Sides(), (batch for batch in train))",
    "ReduceLROnPlateau(mode='max'), but Plateau.watch is None": "stoker.Trainer('run', epochs=1).fit(Plateau(), train, test)",
}


def test_what_is_refused_is_said(live):
    cases = "\n".join(f"""
try:
    {code}
except stoker.base.errors.StokerError as e:
    print("SAID", e)
Sides.watch = None
""" for code in (code.replace("'run'", f"'run{n}'") for n, code in enumerate(REFUSED.values())))
    text = live("""
import stoker.base.errors
class Bare(stoker.Task):
    def build(self):
        self.model = nn.Linear(6, 2)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
class Plateau(Sides):
    def build(self):
        super().build()
        self.sched = torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, mode="max")
""" + cases)
    said = [line for line in text.splitlines() if line.startswith("SAID")]
    assert len(said) == len(REFUSED), text
    for sentence, line in zip(REFUSED, said, strict=True):
        assert sentence.replace("Task", "Bare") in line

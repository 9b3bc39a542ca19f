"""Bad input gets one clear sentence; odd but good input works."""

from __future__ import annotations

import subprocess
import sys

import pytest
from enginekit import Training
from scripts import script

pytestmark = [pytest.mark.slow, pytest.mark.inside]

SET = """
engine = stoker.Engine(folder="run", save="1step")
model = nn.Linear(6, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(data, batch_size=8)
"""
LOOP = """
for epoch in engine.epochs(1):
    for a, b in engine.batches(train):
        loss = F.cross_entropy(model(a), b)
        {body}
print("END", engine.steps)
"""

# what: (script, what is said)
REFUSED = {
    "a word that is not known": ("stoker.Engine(acumulate=2)", "Engine has no argument 'acumulate'. The arguments are: folder, seed"),
    "a bad duration": ("stoker.Engine(save='often')", "save must be a duration such as"),
    "a model without parameters": (SET + "engine.setup(nn.ReLU())", "ReLU has no parameters: there is nothing to train."),
    "something without state": (SET + "engine.setup(model, 5)", "Argument 2 of engine.setup is a int: it must have state_dict"),
    "LBFGS": (SET + "engine.setup(model, torch.optim.LBFGS(model.parameters()))", "LBFGS calls the model several times per step"),
    "a wrapped model": (SET + "engine.setup(nn.DataParallel(model))", "Argument 1 of engine.setup must not be a DataParallel."),
    "an optimizer of a stranger": (SET + "engine.setup(opt)", "has 2 parameters of models that were not given to engine.setup"),
    "a loss without gradient": (SET + "engine.setup(model, opt)" + LOOP.format(body="engine.step(loss.detach())"), "the loss does not depend on any parameter"),
    "a loss of many numbers": (SET + "engine.setup(model, opt)" + LOOP.format(body="engine.step(model(a).sum(1))"), "The loss has shape (8,); a loss must be a scalar."),
    "a step outside of a loop": (SET + "engine.setup(model, opt)\nengine.step(model(x).sum())", "engine.step, engine.backward and engine.update need a batch."),
    "an update without backward": (SET + "engine.setup(model, opt)" + LOOP.format(body="engine.update(opt)"), "Call backward before update(SGD)."),
    "a loss that is not finite": (SET + "engine.setup(model, opt)" + LOOP.format(body="engine.step(loss / (engine.steps - 2))"),
                                  "The loss of step 3 is not finite (inf). Starting from the loss, the first bad gradient is at model1.bias. Samples of the step's last micro-batch: 16, 17,"),
    "state that cannot be saved": (SET + "class S:\n    def state_dict(self): return {'f': open}\n    def load_state_dict(self, s): pass\n" +
                                   "engine.setup(model, opt, S())" + LOOP.format(body="engine.step(loss)"), "object1.f has the type builtins.builtin_function_or_method"),
    "a negative number of epochs": (SET + "engine.epochs(-1)", "the number of epochs must be an integer"),
    "a world that contradicts the launcher": ("import torch.distributed as dist\nos.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='0', WORLD_SIZE='1', RANK='0')\n"
                                              "dist.init_process_group('gloo')\nos.environ['WORLD_SIZE'] = '4'\nstoker.Engine(folder='run')", "the launcher set WORLD_SIZE=4"),
}


def live(nursery, folder, text, **env):
    training = Training(nursery, folder, {})
    code, = training.live(script(folder, text), **env)
    return code, training.text()


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_a_sentence(nursery, tmp_path, what):
    text, said = REFUSED[what]
    code, output = live(nursery, tmp_path, text)
    assert code == 1, output
    assert said in output
    assert output.count("Traceback") == 1


def test_a_skipped_step_is_none(nursery, tmp_path):
    text = SET.replace('save="1step"', 'nan="skip"') + "engine.setup(model, opt)" + LOOP.format(body="engine.step(loss / (0 if engine.steps == 2 else 1))")
    code, output = live(nursery, tmp_path, text + "print(all(p.isfinite().all() for p in model.parameters()))")
    assert code == 0, output
    assert output.rstrip().endswith("True")


BACK = SET.replace('save="1step"', 'save="3step", nan="back"') + """
sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
train = DataLoader(data, batch_size=4)
engine.setup(model, opt, sched, train)
for epoch in engine.epochs(2):
    for a, b in engine.batches(train):
        loss = F.cross_entropy(model(a), b)
        before = weights(model)
        engine.step(loss / (0 if engine.steps in BAD else 1))
        sched.step()
        print("STEP", engine.steps, before, weights(model), round(opt.param_groups[0]["lr"], 9))
        if DIE == str(engine.steps): die()
print("END", engine.steps, weights(model))
"""


def test_a_bad_step_goes_back_to_the_last_checkpoint_and_a_kill_changes_nothing(nursery, tmp_path):
    text = "BAD = (7, 14)\n" + BACK
    code, output = live(nursery, tmp_path / "straight", text)
    assert code == 0, output
    steps = {int(line.split()[1]): line.split()[2:] for line in output.splitlines() if line.startswith("STEP")}
    for bad, saved in ((8, 6), (15, 12)):
        assert steps[bad][0] != steps[bad][1] == steps[saved][1]
        assert f"step {bad} gave a value that is not finite, and is skipped. Stoker restored models and optimizers from step {saved}." in output
    assert steps[8][2] == steps[7][2]  # the schedule too: of step 6, and one on
    assert live(nursery, tmp_path / "killed", text, DIE="9")[0] == -9
    assert live(nursery, tmp_path / "killed", text)[1].splitlines()[-1] == output.splitlines()[-1]


def test_a_run_that_goes_back_again_and_again_is_ended(nursery, tmp_path):
    code, output = live(nursery, tmp_path, "BAD = range(4, 99)\n" + BACK.replace("3step", "1h"))
    assert code == 1
    assert "Step 8 gave a value that is not finite. The run has already gone back 3 times to step 0. Starting from the loss, the first bad gradient is at model1.bias." in output
    assert "Samples of the step's last micro-batch: 28, 29, 30, 31." in output


CHANGED = {
    "a layer more": ("model = nn.Linear(6, 2)", "model = nn.Sequential(nn.Linear(6, 2))", "model1 (Sequential) has no 'weight', which the checkpoint has."),
    "another width": ("model = nn.Linear(6, 2)", "model = nn.Linear(6, 3)", "model1 (Linear): 'weight' has shape (3, 6); in the checkpoint (2, 6)."),
    "another optimizer group": ("torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.SGD([{'params': [p]} for p in model.parameters()], lr=0.1)",
                                "optimizer1 has 2 parameter groups; the checkpoint has 1."),
    "an object less": ("engine.setup(model, opt, train)", "engine.setup(model, train)", "The checkpoint has optimizer1, which this script does not set up"),
    "an object more": ("engine.setup(model, opt, train)", "engine.setup(model, opt, train, torch.optim.lr_scheduler.StepLR(opt, 1))", "The checkpoint has no object1"),
    "a split drawn again": ("HALF", "torch.manual_seed(2)", "has different samples than at the start of the run: the split is random."),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_checkpoint_of_something_else_is_refused(nursery, tmp_path, what):
    old, new, said = CHANGED[what]
    text = SET.replace("train = ", "torch.manual_seed(1)\nif os.environ['STARTS'] != '1': HALF\nhalf, _ = torch.utils.data.random_split(data, [20, 20])\ntrain = ").replace(
        "HALF", old if old == "HALF" else "0").replace("DataLoader(data", "DataLoader(half") + "engine.setup(model, opt, train)" + LOOP.format(
        body="engine.step(loss)\n        if DIE == str(engine.steps): die()")
    training = Training(nursery, tmp_path, {})
    path = script(tmp_path, text.replace("HALF", "0"))
    assert training.live(path, DIE="2") == [-9], training.text()
    path = script(tmp_path, text.replace(old, new))
    assert training.live(path, STOKER_RESUME="1") == [1], training.text()
    assert said in training.text()


DATA = """
import stoker.engine.data as feeds
feeds.TOLD_S = 0.0
class Private(Dataset):
    def __init__(self):
        import numpy as np
        self.rng = np.random.default_rng(0)
    def __len__(self): return 40
    def __getitem__(self, i): return x[i] + float(self.rng.normal()), i % 2

class Whole(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return x[i], i % 2
    def __getitems__(self, rows): return [(x[i] + torch.randn(6), i % 2) for i in rows]

class Flow(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(40): yield x[i] + torch.randn(6), i % 2

class Kept(Flow):
    at = 0
    def __iter__(self):
        while self.at < 40:
            self.at += 1
            yield x[self.at - 1] + torch.randn(6), self.at % 2
        self.at = 0
    def state_dict(self): return {"at": self.at}
    def load_state_dict(self, state): self.at = state["at"]
"""
GRADES = {
    "Private()": ("state-only (two fetches of one sample of Private differ: the data set uses its own random generator)", False),
    "Whole()": ("Whole fetches whole batches, so Engine sets seeds per batch, not per sample", True),
    "Flow()": ("state-only (Flow has no state_dict, so a resume reads all data again, from the start to the saved position)", True),
    "Kept()": ("grade of a resume: bit-exact", True),
    "torch.utils.data.Subset(data, range(3, 30))": ("grade of a resume: bit-exact", True),
}


@pytest.mark.parametrize("dataset", GRADES)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_each_kind_of_data_has_its_grade(nursery, tmp_path, dataset, accumulate):
    said, exact = GRADES[dataset]
    text = DATA + SET.replace('save="1step"', f'save="1step", accumulate={accumulate}').replace("DataLoader(data, ", f"DataLoader({dataset}, ") + (
        "engine.setup(model, opt, train)" + LOOP.replace("epochs(1)", "epochs(3)").format(body="engine.step(loss)\n        if DIE == str(engine.steps): die()") + "print(weights(model))\n")
    code, straight = live(nursery, tmp_path / "straight", text)
    assert code == 0, straight
    assert said in straight
    killed = Training(nursery, tmp_path / "killed", {})
    path = script(killed.folder, text)
    assert killed.live(path, DIE="5") == [-9], killed.text()
    assert killed.live(path) == [0], killed.text()
    assert (killed.text().splitlines()[-1] == straight.splitlines()[-1]) == exact or not exact
    read_again = [line for line in killed.text().splitlines() if "batches again" in line]
    position = {1: 4, 2: 2}[accumulate]  # of the checkpoint of step 4
    wanted = [f"stoker: Flow: read {n} of {position} batches again" for n in range(1, position + 1)] if dataset == "Flow()" else []
    assert [line.partition(",")[0] for line in read_again] == wanted


OTHERS = {"Own": """
class Own(Flow):
    def __iter__(self): return (item for n, item in enumerate(super().__iter__()) if n % 2 == int(os.environ["RANK"]))
train = DataLoader(Own(), batch_size=8)
""", "Part": """
class Part(torch.utils.data.Sampler):
    def __len__(self): return 20
    def __iter__(self): return iter(range(int(os.environ["RANK"]), 40, 2))
train = DataLoader(data, batch_size=8, sampler=Part())
"""}


@pytest.mark.parametrize("what", OTHERS)
def test_data_that_are_others_on_each_rank_are_refused(nursery, tmp_path, what):
    text = DATA + SET + OTHERS[what] + "engine.setup(model, opt, train)" + LOOP.format(body="engine.step(loss)")
    training = Training(nursery, tmp_path, {"ranks": 2})
    assert training.live(script(tmp_path, text)) == [1, 1], training.text()
    assert f"{what} gives rank 1 different batches than rank 0." in training.text()


def test_no_thread_of_the_ranks_is_left_when_python_ends(nursery, tmp_path):
    """One that is there while Python takes itself apart aborts the process, and torchrun then ends the other ranks."""
    text = """
for name in [name for name in sys.modules if name.startswith("torch.distributed.nn")]:
    del sys.modules[name]  # as in a process that has just started
""" + SET + "engine.setup(model, opt, train)" + LOOP.format(body="engine.step(loss)") + """
import torch.distributed.nn.functional  # the first optimizer does it
engine._core.shut(True)
print("LEFT", [name for task in os.listdir("/proc/self/task") if "gloo" in (name := open(f"/proc/self/task/{task}/comm").read())])
"""
    training = Training(nursery, tmp_path, {"ranks": 2})
    assert training.live(script(tmp_path, text)) == [0, 0], training.text()
    assert "LEFT []" in training.text()


def test_a_gpu_that_is_not_there_is_refused():
    from stoker.engine.dist import device_of
    from stoker.engine.errors import InvalidSpec

    with pytest.raises(InvalidSpec, match=r"cuda:99.*torch sees \d+ GPU"):
        device_of("cuda:99")


def test_importing_stoker_loads_no_torch():
    code = "import sys, stoker; assert 'torch' not in sys.modules; stoker.Engine; assert 'torch' in sys.modules; assert not __import__('torch').cuda.is_initialized()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_the_verbs_are_few():
    from stoker.engine.config import Config
    from stoker.engine.engine import Engine

    verbs = [n for n, v in vars(Engine).items() if not n.startswith("_") and not isinstance(v, property)]
    assert len(verbs) <= 16, verbs
    assert len(Config.__dataclass_fields__) <= 10


def test_a_script_keeps_its_own_arguments(nursery, tmp_path):
    text = SET + "engine.setup(model, opt)\nimport argparse\nprint(argparse.ArgumentParser().parse_known_args()[1])\n" + LOOP.format(body="engine.step(loss)")
    code, output = live(nursery, tmp_path, text)
    assert code == 0, output
    assert "['{}']" in output

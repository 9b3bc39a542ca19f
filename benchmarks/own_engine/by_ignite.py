"""The training of the rival table with Ignite:
`DeterministicEngine`, which is made for exact resumes, and `Checkpoint`."""

from pathlib import Path

import task
import torch
import torch.nn.functional as F
from ignite.engine import Events
from ignite.engine.deterministic import DeterministicEngine
from ignite.handlers import Checkpoint, DiskSaver

task.seed()
net = task.model()
moving = task.optimizer(net)
schedule = task.schedule(moving)


def update(engine, batch):
    x, y = batch
    (F.cross_entropy(net(x), y) / task.ACCUMULATE).backward()
    if engine.state.iteration % task.ACCUMULATE == 0:
        moving.step()
        moving.zero_grad()
        schedule.step()


engine = DeterministicEngine(update)
parts = {"engine": engine, "net": net, "moving": moving, "schedule": schedule}
saves = Checkpoint(parts, DiskSaver("saved", create_dir=True, require_empty=False), n_saved=2,
                   global_step_transform=lambda *_: engine.state.iteration)
engine.add_event_handler(Events.ITERATION_COMPLETED(every=task.SAVE_EVERY * task.ACCUMULATE), saves)
found = sorted(Path("saved").glob("checkpoint_*.pt"), key=lambda path: int(path.stem.split("_")[-1]))
if found:
    Checkpoint.load_objects(parts, torch.load(found[-1], weights_only=False))
engine.run(task.loader(), max_epochs=task.EPOCHS)
task.finish(net)

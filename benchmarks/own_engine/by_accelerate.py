"""The training of the rival table with Accelerate: `save_state`, `load_state` and `skip_first_batches`.

A checkpoint counts once a file beside it names it, because save_state writes in place.
`stateful`: `use_stateful_dataloader=True`.
"""

import json
import os
from pathlib import Path

import task
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed

STATE = Path("state.json")
stateful = bool(task.OPTIONS.get("stateful"))
accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=task.ACCUMULATE,
    step_scheduler_with_optimizer=True,
    dataloader_config=DataLoaderConfiguration(
        use_stateful_dataloader=stateful, use_seedable_sampler=not stateful
    ),
)
set_seed(task.SEED)
net = task.model()
moving = task.optimizer(net)
net, moving, schedule, train = accelerator.prepare(net, moving, task.schedule(moving), task.loader())
at = {"epoch": 0, "batch": 0, "step": 0}
if STATE.exists():
    at = json.loads(STATE.read_text())
    accelerator.load_state(f"saved/{at['step']}")
step = at["step"]
for epoch in range(at["epoch"], task.EPOCHS):
    train.set_epoch(epoch)
    begin = at["batch"] if epoch == at["epoch"] else 0
    source = accelerator.skip_first_batches(train, begin) if begin and not stateful else train
    for n, (x, y) in enumerate(source, begin):
        with accelerator.accumulate(net):
            accelerator.backward(F.cross_entropy(net(x), y))
            moving.step()
            schedule.step()
            moving.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            if step % task.SAVE_EVERY == 0:
                accelerator.save_state(f"saved/{step}")
                Path("state.new").write_text(json.dumps({"epoch": epoch, "batch": n + 1, "step": step}))
                os.replace("state.new", STATE)
task.finish(accelerator.unwrap_model(net))

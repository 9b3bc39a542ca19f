"""The training of the rival table with stoker.Engine."""

import task
import torch.nn.functional as F

import stoker

engine = stoker.Engine(
    folder="run", seed=task.SEED, accumulate=task.ACCUMULATE, save=f"{task.SAVE_EVERY}step"
)
net = task.model()
moving = task.optimizer(net)
schedule, train = task.schedule(moving), task.loader()
engine.setup(net, moving, schedule, train)
for _epoch in engine.epochs(task.EPOCHS):
    for x, y in engine.batches(train):
        if engine.step(F.cross_entropy(net(x), y)):
            schedule.step()
task.finish(net)

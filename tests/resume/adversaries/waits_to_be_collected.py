# Tries: things in circles that nothing holds any more, and that the garbage collector has not come to: environments, trainers and their callbacks, with arrays, models and gradients.
# expected: exact
import numpy as np
import torch
from torch import nn


class Space:
    def __init__(self, owner, size):
        self.owner, self.low = owner, np.full(size, -1.0, dtype=np.float32)


class Environment:
    def __init__(self, seed):
        self.space, self.random = Space(self, 3), np.random.RandomState(seed)

    def episode(self, net):
        with torch.no_grad():
            return float(net(torch.from_numpy(self.space.low + self.random.rand(3).astype(np.float32))).sum())


class Log:
    def __init__(self, trainer):
        self.trainer, self.seen = trainer, []

    def __call__(self, loss):
        self.seen.append(loss)


class Trainer:
    def __init__(self, fold):
        torch.manual_seed(fold)
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-3)
        self.callbacks = [Log(self)]

    def fit(self):
        for step in range(80):
            x = torch.randn(8, 3)
            loss = self.net(x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.last = self.net[0].weight.grad
            self.opt.step()
            for each in self.callbacks:
                each(loss.item())
            if step % 20 == 0:
                print(step, f"{loss.item():.9f}", f"{Environment(step).episode(self.net):.9f}", flush=True)
        return self.callbacks[0].seen[-1], self.net.state_dict()


results = []
for fold in range(5):
    trainer = Trainer(fold)
    last, weights = trainer.fit()
    results.append(last)
    del trainer
    print("fold", fold, f"{last:.9f}", flush=True)
torch.save(weights, "last.pt")

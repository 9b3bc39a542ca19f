# Nothing wrong here: the step is counted in a buffer, so that it is saved with the network.
import torch
from torch import nn
from parts import batches


class Trainer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model.cuda()
        self.opt = torch.optim.Adam(model.parameters())
        self.register_buffer("steps", torch.zeros(1))

    def step(self, batch):
        n = int(self.steps.item())
        self.opt.zero_grad()
        loss = self.model(batch.cuda())
        loss.backward()
        self.opt.step()
        self.steps += 1
        if n % 100 == 0:
            print(n, loss.item())

    def train_all(self):
        for batch in batches():
            self.step(batch)

# A mistake on purpose: graph in history of a trainer.
import torch
import torch.nn.functional as F


class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.opt = torch.optim.Adam(model.parameters())
        self.history = []

    def one_batch(self, x, y):
        self.opt.zero_grad(set_to_none=True)
        out = self.model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        self.opt.step()
        return loss

    def fit(self, epochs):
        for epoch in range(epochs):
            for x, y in self.loader:
                loss = self.one_batch(x, y)
                self.history.append(loss)  # lint: loss-graph

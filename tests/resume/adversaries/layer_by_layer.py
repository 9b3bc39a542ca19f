# Tries: one layer after the other is trained, each with an optimizer and a loss of its own (forward-forward), so that the first backward of a layer is often among what is repeated.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Layer(nn.Linear):
    def __init__(self, n, m):
        super().__init__(n, m)
        self.relu = nn.ReLU()
        self.opt = torch.optim.Adam(self.parameters(), lr=0.02)

    def forward(self, x):
        direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return self.relu(torch.mm(direction, self.weight.T) + self.bias.unsqueeze(0))

    def learn(self, good, bad, steps, name):
        for i in range(steps):
            a, b = self.forward(good).pow(2).mean(1), self.forward(bad).pow(2).mean(1)
            loss = torch.log(1 + torch.exp(torch.cat([-a + 2.0, b - 2.0]))).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if i % 10 == 0:
                print(name, i, loss.item(), flush=True)
        return self.forward(good).detach(), self.forward(bad).detach()


layers = [Layer(16, 32), *(Layer(32, 32) for _ in range(39))]
X = torch.randn(128, 16)
Y = X[:, torch.randperm(16)]
for n, layer in enumerate(layers):
    X, Y = layer.learn(X, Y, 30, f"layer {n}")
print("final", [sum(p.double().sum().item() for p in layer.parameters()) for layer in layers])

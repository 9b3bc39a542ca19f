# Recurrent model that carries its state through the whole series.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(17)
series = torch.sin(torch.arange(24000.0) * 0.05) + 0.1 * torch.randn(24000)
windows = series.view(-1, 16, 10).transpose(0, 1).reshape(-1, 10, 1)
loader = DataLoader(TensorDataset(windows[:, :-1], windows[:, 1:]), batch_size=16, shuffle=False)


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.cell = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, state):
        out, state = self.cell(x, state)
        return self.head(out), state


model = Forecaster()
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01)
loss_fn = nn.MSELoss()
for epoch in range(2):
    state, history = None, []
    for step, (x, y) in enumerate(loader):
        prediction, state = model(x, state)
        loss = loss_fn(prediction, y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        history.append(loss)
    print("epoch", epoch, "mean loss", torch.stack(history).mean().item())

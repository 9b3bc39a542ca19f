# A loader class of our own: mixes hard examples into each batch.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class HardLoader(DataLoader):
    """Half of each batch is drawn again from the samples with the largest loss so far."""

    def __init__(self, dataset, batch_size):
        super().__init__(dataset, batch_size=batch_size, shuffle=True)
        self.hardness = torch.ones(len(dataset))

    def __iter__(self):
        for _ in range(len(self)):
            easy = torch.randint(len(self.dataset), (self.batch_size // 2,))
            hard = torch.multinomial(self.hardness, self.batch_size // 2)
            index = torch.cat([easy, hard])
            x, y = self.dataset[index]
            yield index, x, y


torch.manual_seed(201)
x = torch.randn(3200, 20)
loader = HardLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), 32)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(4):
    for index, a, b in loader:
        losses = nn.functional.cross_entropy(model(a), b, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        loader.hardness[index] = losses.detach() + 0.01
    print(f"epoch {epoch} loss {losses.mean().item():.5f}")

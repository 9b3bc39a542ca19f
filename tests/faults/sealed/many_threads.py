# Gene expression, small layers. Threads as on the big server.
import torch
torch.set_num_threads(16)
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
genes = torch.randn(8192, 512)
tissue = genes[:, :8].argmax(1)
loader = DataLoader(TensorDataset(genes, tissue), batch_size=128, shuffle=True)
model = nn.Sequential(nn.Linear(512, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 8))
opt = torch.optim.SGD(model.parameters(), lr=0.05)


@torch.no_grad()
def accuracy():
    return (model(genes[:512]).argmax(1) == tissue[:512]).float().mean().item()


for epoch in range(5):
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    print('epoch {} loss {:.4f} accuracy {:.3f}'.format(epoch, loss.item(), accuracy()))

# Progress bars with tqdm: an outer and an inner one, set_postfix, tqdm.write.
# expected: exact
# needs: tqdm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm, trange

torch.manual_seed(15)
X = torch.randn(1500, 12)
Y = (X.sum(1) > 0).float()
loader = DataLoader(TensorDataset(X, Y), 25, shuffle=True)
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1), nn.Flatten(0))
opt = torch.optim.Adam(net.parameters(), 1e-3)
lossf = nn.BCEWithLogitsLoss()
for epoch in trange(10, desc="epochs"):
    bar = tqdm(loader, desc=f"epoch {epoch}", leave=False)
    avg = 0.0
    for i, (x, y) in enumerate(bar):
        loss = lossf(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg += (loss.item() - avg) / (i + 1)
        bar.set_postfix(loss=f"{avg:.4f}")
    tqdm.write(f"epoch {epoch} avg {avg:.6f}")
print("done", avg)

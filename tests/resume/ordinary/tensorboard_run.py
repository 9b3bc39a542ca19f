# Scalars, histograms and text to TensorBoard, a name for the run, flush at the end; two worker processes.
# expected: exact
# needs: tensorboard
# ignore: runs/*
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(14)
writer = SummaryWriter("runs/exp1")
X = torch.randn(1200, 10)
Y = X.pow(2).sum(1, keepdim=True)
loader = DataLoader(TensorDataset(X, Y), 24, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
writer.add_text("model", str(model))
opt = torch.optim.Adam(model.parameters(), 3e-3)
step = 0
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        writer.add_scalar("loss/train", loss, step)
        step += 1
    writer.add_histogram("w0", model[0].weight, epoch)
    writer.add_scalars("norms", {n: p.norm().item() for n, p in model.named_parameters()}, epoch)
    print(f"epoch {epoch}: {loss.item():.6f}")
writer.close()
torch.save(model.state_dict(), "model.pt")

# A loop in the manner of many notebooks: validation without no_grad, its loss summed with its graph, the list of losses holds tensors.
# expected: exact
import torch
from torch import nn

torch.manual_seed(3)
x = torch.linspace(-3, 3, 400).unsqueeze(1)
y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
x_val, y_val = x[::5], y[::5]
model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
losses, val_losses = [], []
for epoch in range(120):
    epoch_loss = 0
    total_val = 0
    for i in range(0, 400, 40):
        y_pred = model(x[i:i + 40])
        loss = loss_fn(y_pred, y[i:i + 40])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss
    model.eval()
    for i in range(0, 80, 20):
        val_pred = model(x_val[i:i + 20])
        val_loss = loss_fn(val_pred, y_val[i:i + 20])
        total_val += val_loss
    model.train()
    losses.append(epoch_loss / 10)
    val_losses.append(total_val.item() / 4)
    if epoch % 5 == 0:
        print(f"epoch {epoch} train {losses[-1]:.5f} val {val_losses[-1]:.5f} best {min(val_losses):.5f}", flush=True)
print("final", float(losses[-1]), val_losses[-1])

# Curve fitting with LBFGS and a closure, polynomial features, a stop when the loss no longer falls.
# expected: exact
import torch
from torch import nn

torch.manual_seed(18)
t = torch.linspace(-3, 3, 400).unsqueeze(1)
target = torch.sin(2 * t) * torch.exp(-t.abs() / 3) + 0.02 * torch.randn_like(t)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).double()
t, target = t.double(), target.double()
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=8, history_size=10)
previous, still = float("inf"), 0
for i in range(220):
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(t), target)
        loss.backward()
        return loss
    loss = optimizer.step(closure).item()
    if i % 10 == 0:
        print(f"step {i} loss {loss:.10f}", flush=True)
    still = still + 1 if previous - loss < 1e-9 else 0
    previous = loss
    if still > 8:
        print("no longer falling at", i)
        break
print("final loss", criterion(model(t), target).item())
torch.save(model.state_dict(), "curve.pt")

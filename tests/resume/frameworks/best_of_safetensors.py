# needs: safetensors
# expected: exact
"""The best weights are kept by safetensors, and read back when training has got stuck: the file is mapped by its own code in Rust."""
import torch
from safetensors.torch import load_file, save_file
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(600, 8), torch.randn(600, 1)
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), 0.02)
best, since = float("inf"), 0
for epoch in range(80):
    for at in torch.randperm(500).split(20):
        loss = nn.functional.mse_loss(net(x[at]), y[at])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        told = nn.functional.mse_loss(net(x[500:]), y[500:]).item()
    if told < best:
        best, since = told, 0
        save_file(net.state_dict(), "best.safetensors")
    elif (since := since + 1) == 3:
        net.load_state_dict(load_file("best.safetensors"))
        opt.param_groups[0]["lr"] *= 0.9
        since = 0
    print(epoch, told, opt.param_groups[0]["lr"], flush=True)

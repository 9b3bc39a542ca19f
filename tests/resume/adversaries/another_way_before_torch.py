# Tries: each life goes another way before torch is there, behind a line that it has printed: it is not lost.
# expected: refused
import os

print("begins", flush=True)
if os.environ.get("STOKER_ATTEMPT") == "2":
    print(os.path.exists("nothing.txt"), end=" ", flush=True)
else:
    print(os.path.getsize(__file__) < 0, end=" ", flush=True)
print("goes on", flush=True)

import torch  # noqa: E402

torch.manual_seed(0)
x = torch.randn(320, 8)
y = x.sum(1, keepdim=True)
m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
o = torch.optim.Adam(m.parameters(), 1e-3)
for epoch in range(30):
    for i in torch.randperm(320).split(16):
        loss = (m(x[i]) - y[i]).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, f"{loss.item():.9f}", flush=True)
torch.save(m.state_dict(), "m.pt")

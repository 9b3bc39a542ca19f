# Tries: bytearray, array.array and memoryview as the true home of what torch.frombuffer shows.
# expected: either
import array
import torch
from torch import nn

torch.manual_seed(0)
raw = bytearray(4 * 8)
view = memoryview(raw).cast("f")
shift = torch.frombuffer(raw, dtype=torch.float32)
hist = array.array("d", [0.0] * 16)
counts = torch.frombuffer(hist, dtype=torch.float64)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    view[i % 8] += 0.01
    shift.mul_(0.99)
    x = X[(i * 16) % 320:][:16] + shift
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    hist[i % 16] += loss.item()
    counts.mul_(0.995)
    if i % 25 == 0:
        print(i, loss.item(), sum(view), sum(hist), flush=True)
print("final", bytes(raw).hex(), sum(hist))

# Tries: a thread that was started before torch is imported counts how often forward() asked it to.
# expected: refused
import threading

go, done, said = threading.Lock(), threading.Lock(), []
go.acquire()
done.acquire()


def helper():
    n = 0
    while go.acquire() and not said:
        n = n + 1
        done.release()
    said.append(n)
    done.release()


threading.Thread(target=helper, daemon=True).start()

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        go.release()
        done.acquire()
        return self.b(self.a(x).relu())


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
said.append("how often?")
go.release()
done.acquire()
print("final", sum(p.double().sum().item() for p in m.parameters()), said)

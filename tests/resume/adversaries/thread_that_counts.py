# Tries: a thread counts in a variable of its own how often forward() asked it to, and says at the end how often that was.
# expected: refused
import threading
import torch
from torch import nn

torch.manual_seed(0)
go, done, said = threading.Lock(), threading.Lock(), []
go.acquire()
done.acquire()


def helper():
    n = 0
    while go.acquire() and not said:
        n += 1
        done.release()
    said.append(n)
    done.release()


threading.Thread(target=helper, daemon=True).start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        go.release()
        done.acquire()
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
said.append("how often?")
go.release()
done.acquire()
print("final", sum(p.double().sum().item() for p in m.parameters()), said)

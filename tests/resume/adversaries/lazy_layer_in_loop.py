# Tries: a layer and a parameter that the first forward of the loop makes, by keywords, with a line in a file; another layer is made anew each time
# short: yes
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.head = None

    def forward(self, x):
        x = self.a(x).relu()
        if self.head is None:
            del self.head
            self.add_module(name="head", module=nn.Linear(x.shape[1], 1))
            self.register_parameter(name="scale", param=nn.Parameter(torch.ones(())))
            with open("built.txt", "a") as file:
                file.write("built\n")
            self.register_buffer("seen", torch.zeros(()))
        self.seen += 1
        self.norm = nn.LayerNorm(x.shape[1:], elementwise_affine=False)
        return self.head(self.norm(x)).squeeze(1) * self.scale


X = torch.randn(320, 8)
m = Net()
o = None
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    y = m(x)
    if o is None:
        o = torch.optim.Adam(m.parameters(), 1e-2)
    loss = (y - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))

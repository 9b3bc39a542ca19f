# Tries: a forward imports a file of the script's own and a package, which print as they are imported; each line stands once in the text
# expected: exact
# short: yes
# leftovers: yes
# ignore: late_own.py site-packages
import os
import sys

import torch
from torch import nn

torch.manual_seed(0)
os.makedirs("site-packages", exist_ok=True)
sys.path[:0] = [os.getcwd(), os.path.join(os.getcwd(), "site-packages")]
for name in ("late_own.py", "site-packages/late_package.py"):
    if not os.path.exists(name):
        with open(name, "w") as f:
            f.write("print(__name__, 'is here', flush=True)\ncalls = []\ndef op(x):\n    return x * 2\n")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        import late_own
        import late_package
        return late_own.op(late_package.op(self.out(x)))


net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(1200):
    loss = net(torch.randn(8, 8)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, loss.item(), flush=True)
print(sorted(name for name in sys.modules if name.startswith("late_")))

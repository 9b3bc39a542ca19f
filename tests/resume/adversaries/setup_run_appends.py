# Tries: programs of set-up by subprocess.run, check_output and call append to a list of runs
# short: yes
# expected: exact
import subprocess
import sys
import torch
from torch import nn

subprocess.run(["sh", "-c", "echo first >> runs.txt"], check=True)  # noqa: S607
torch.manual_seed(0)
X = torch.randn(320, 8)
subprocess.check_call([sys.executable, "-S", "-c", "open('runs.txt', 'a').write('second\\n')"])
n = int(subprocess.check_output(["wc", "-l", "runs.txt"], text=True).split()[0])  # noqa: S607
try:
    subprocess.run(["false"], check=True)  # noqa: S607
except subprocess.CalledProcessError as e:
    print("failed", e.returncode)
try:
    subprocess.run(["no-such-program-anywhere"])
except FileNotFoundError as e:
    print("not there", e.filename)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2 / n)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), n, len(open("runs.txt").readlines()))

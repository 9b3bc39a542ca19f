# Tries: before torch is there, kinds of files are learnt from os.devnull, as dill does it when torch imports it, and the place for temporary files is tried.
# expected: exact
import os
import tempfile

KINDS = {}
for mode in ("rb", "wb", "r", "w", "r+b"):
    with open(os.devnull, mode) as f:
        KINDS[mode] = type(f)
tempfile.tempdir = None
print(os.path.isdir(tempfile.gettempdir()), os.path.exists(__file__), flush=True)

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
    print(epoch, f"{loss.item():.9f}", len(KINDS), flush=True)
torch.save(m.state_dict(), "m.pt")

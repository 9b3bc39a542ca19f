# Tries: numbers that leave through storages, buffers, dlpack, numpy protocols and in-memory files.
# short: yes
# expected: either
import hashlib
import io
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
score = 0
for i in range(700):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    t = loss.detach()
    box = io.BytesIO()
    torch.save({"t": t}, box)
    ways = [t.untyped_storage()[0], bytes(t.untyped_storage())[1], float(np.asarray(t)), np.from_dlpack(t).item(), float(np.add.reduce(t.numpy()[None])), np.stack([t.numpy(), t]).sum().item(),
            np.float64(t), hashlib.md5(box.getvalue()).digest()[0], memoryview(t.numpy()).tobytes()[2], t.data.storage().tolist()[0], np.frombuffer(t.numpy(), "u1")[1].item(),
            torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t)).item(), t.__array__().item(), t.view(torch.int32).item(), t.storage()[0]]
    score = (score * 31 + sum(int(w * 1000) for w in ways)) % 1009
    o.param_groups[0]["lr"] = 1e-2 / (1 + score * 0.01)
    if i % 20 == 0:
        print(i, t.item(), score, flush=True)
print("final", score, sum(p.double().sum().item() for p in m.parameters()))

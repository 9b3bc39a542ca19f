# Tries: averages of weights in dicts, and a swap of raw and averaged weights around each evaluation.
# expected: exact
import copy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, SWALR

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
ema = {k: v.detach().clone() for k, v in m.named_parameters()}
swa, slow = AveragedModel(m), SWALR(o, swa_lr=0.005, anneal_epochs=5)
best = copy.deepcopy(m.state_dict())
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    for k, v in m.named_parameters():
        ema[k].lerp_(v.detach(), 0.05)
    if i > 500 and i % 10 == 0:
        swa.update_parameters(m)
        slow.step()
    if i % 50 == 0:
        raw = {k: v.detach().clone() for k, v in m.named_parameters()}
        with torch.no_grad():
            for k, v in m.named_parameters():
                v.copy_(ema[k])
            m.eval()
            score = (m(X).squeeze(1) - X.sum(1)).pow(2).mean()
            m.train()
            for k, v in m.named_parameters():
                v.copy_(raw[k])
        if score < 3:
            best = copy.deepcopy(m.state_dict())
    if i % 25 == 0:
        print(i, loss.item(), score.item(), flush=True)
torch.optim.swa_utils.update_bn([X[:64], X[64:128]], swa)
print("final", (swa(X).squeeze(1) - X.sum(1)).pow(2).mean().item(), sum(v.double().sum().item() for v in best.values()))

# Tries: modules in a set: its order is that of addresses, which another process does not repeat.
# expected: either
# seeded: no
import hashlib
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
body = nn.Linear(8, 16)
heads = {nn.Linear(16, 1) for _ in range(12)}
number = {h: j for j, h in enumerate(heads)}
state = {h: {k: v.clone() for k, v in h.state_dict().items()} for h in heads}
first = {k: v.clone() for k, v in body.state_dict().items()}


def train(order, say):
    o = torch.optim.Adam([p for h in [body, *order] for p in h.parameters()], 1e-2)
    for i in range(700):
        x = X[(i * 16) % 320:][:16]
        z = body(x).relu()
        if order is heads and i % 40 == 13:
            h = heads.pop()
            heads.add(h)
            log.append(number[h])
        if order is not heads and i % 40 == 13:
            h = back[log.pop(0)]
        if i > 13:
            z = z * (1 + h.bias.detach())
        out = sum(h(z).squeeze(1) * (1 + number[h] * 0.1) for h in back)
        loss = (out - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if say and i % 25 == 0:
            print(i, loss.item(), flush=True)
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for h in [body, *back] for p in h.parameters())).hexdigest()


log, back = [], list(heads)
one = train(heads, True)
body.load_state_dict(first)
for h in back:
    h.load_state_dict(state[h])
print("consistent", one == train(back, False))

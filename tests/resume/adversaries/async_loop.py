# Tries: the training is a coroutine; another coroutine changes the learning rate between its awaits.
# expected: either
import asyncio
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
drift = torch.zeros(8)


async def tuner(queue):
    n = 0
    while (loss := await queue.get()) is not None:
        n += 1
        drift.add_(loss.detach() * 1e-4)
        o.param_groups[0]["lr"] = 1e-2 / (1 + n / 300)


async def batches():
    for i in range(1000):
        yield i, X[(i * 16) % 320:][:16] + drift
        await asyncio.sleep(0)


async def train():
    queue = asyncio.Queue()
    task = asyncio.create_task(tuner(queue))
    async for i, x in batches():
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        await queue.put(loss)
        if i % 25 == 0:
            print(i, loss.item(), drift[0].item(), flush=True)
    await queue.put(None)
    await task


asyncio.run(train())
print("final", sum(p.double().sum().item() for p in m.parameters()), drift.sum().item())

# ruff: noqa
"""One GPU: autocast and a scaler, a pinned loader with workers, streams and events, a scheduler, resume from its own file."""
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.benchmark = True
torch.cuda.manual_seed_all(3)
print("training on", torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory > 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda"
        noise = torch.randn(x.shape, device=x.device) * 0.01
        return self.out(F.relu(self.norm(self.conv(x + noise))).flatten(1))


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
    model.train()
    return right


data = TensorDataset(torch.randn(320, 1, 8, 8), torch.randint(0, 10, (320,)))
train = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=True, generator=torch.Generator())
model = Net().cuda().to(memory_format=torch.channels_last)
ema = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10_000)
scaler = torch.cuda.amp.GradScaler()
if os.path.exists("best.pth"):
    model.load_state_dict(torch.load("best.pth"))
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
copies = torch.cuda.Stream()
for epoch in range(90):
    start.record()
    for x, y in train:
        with torch.cuda.stream(copies):
            x, y = x.cuda(non_blocking=True), y.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        with torch.cuda.amp.autocast():
            out = model(x)
            assert out.dtype is torch.float16
            loss = F.cross_entropy(out, y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        torch._foreach_mul_(ema, 0.99)
        torch._foreach_add_(ema, [p.detach() for p in model.parameters()], alpha=0.01)
    end.record()
    torch.cuda.synchronize()
    print(f"epoch {epoch} {start.elapsed_time(end):.0f} ms, {evaluate(model, train)} right, "
          f"{torch.cuda.max_memory_allocated() / 2**20:.0f} MB, loss {loss.item():.3f} on {loss.device}, {next(model.parameters()).type()}")
    torch.save(model.state_dict(), "best.pth")
    weights = model.conv.weight.detach().cpu().numpy()

# Mixed precision with bf16 autocast and gradient accumulation; evaluation inside the loop; running means in tensors.
# expected: exact
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

torch.manual_seed(12)
device, accum, epochs = "cpu", 4, 6
x = torch.randn(1600, 3, 8, 8)
y = (x.mean((2, 3)).argmax(1))
dl = DataLoader(TensorDataset(x, y), batch_size=20, sampler=RandomSampler(x, replacement=True, num_samples=1600), drop_last=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.gn, self.fc = nn.GroupNorm(4, 16), nn.Linear(16, 3)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.gn(self.c2(x)))
        return self.fc(F.dropout2d(x, 0.1, self.training).mean((2, 3)))


net = Net().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [60, 100], 0.3)
running = torch.zeros((), device=device)
opt.zero_grad()
updates = 0
for epoch in range(epochs):
    for i, (a, b) in enumerate(dl):
        a, b = a.to(device, non_blocking=True), b.to(device, non_blocking=True)
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            loss = F.cross_entropy(net(a), b) / accum
        loss.backward()
        running = 0.99 * running + 0.01 * loss.detach() * accum
        if (i + 1) % accum == 0 or i + 1 == len(dl):
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            sched.step()
            updates += 1
            if updates % 5 == 0:
                print(f"epoch {epoch} update {updates} running {running.item():.6f} lr {opt.param_groups[0]['lr']:.4f}", flush=True)
    net.eval()
    with torch.no_grad(), torch.autocast(device_type=device, dtype=torch.bfloat16):
        acc = (net(x[:400]).argmax(1) == y[:400]).float().mean()
    net.train()
    print(f"epoch {epoch} acc {acc:.4f}")
torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict()}, "last.ckpt")

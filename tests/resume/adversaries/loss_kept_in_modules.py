# Tries: losses that a forward leaves in its modules and the script picks up, inside of a closure, as the tutorial on style transfer does it; and one that is the input itself.
# expected: exact
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


def gram(x):
    a, b, c, d = x.size()
    f = x.reshape(a * b, c * d)
    return f @ f.t() / (a * b * c * d)


class Style(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram(target).detach()

    def forward(self, x):
        self.loss = F.mse_loss(gram(x), self.target)
        self.seen = x
        return x


style, image = torch.rand(1, 1, 24, 24), torch.rand(1, 1, 24, 24, requires_grad=True)
model, kept = nn.Sequential(), []
for i in range(2):
    model.add_module(f"conv{i}", nn.Conv2d(1 if i == 0 else 6, 6, 3, padding=1).requires_grad_(False))
    kept.append(Style(model(style)))
    model.add_module(f"style{i}", kept[-1])
opt = torch.optim.LBFGS([image], max_iter=3, history_size=4)
calls = [0]
total = 0.0
for step in range(300):
    def closure():
        opt.zero_grad()
        model(image)
        loss = sum(each.loss for each in kept) * 1e3
        loss.backward()
        calls[0] += 1
        return loss
    last = opt.step(closure)
    with torch.no_grad():
        image.clamp_(0, 1)
        total += float(kept[1].seen.sum()) + kept[0].loss.item()
    if step % 20 == 0:
        print(step, last.item(), total, calls, flush=True)
torch.save(image, "image.pt")

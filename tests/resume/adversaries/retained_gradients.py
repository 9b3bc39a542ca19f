# Tries: weights that are no leaves keep their gradient (retain_grad), and the loop asks whether they have one
# expected: exact
import torch

torch.manual_seed(0)
rate = torch.nn.Linear(1, 1)
opt = torch.optim.Adam(rate.parameters(), lr=1e-3)
w = torch.randn(5, requires_grad=True) * 1.0
w.retain_grad()
for step in range(1200):
    x = torch.randn(8, 5)
    opt.zero_grad()
    loss = (x * w).sum(1).pow(2).mean()
    loss.backward()
    opt.step()
    if w.grad is not None:
        w = w.detach() - 0.01 * rate(w.grad[:, None])[:, 0]
        w.retain_grad()
    if step % 25 == 0:
        print(step, loss.item(), w.grad is None, flush=True)
print("final", w.sum().item())

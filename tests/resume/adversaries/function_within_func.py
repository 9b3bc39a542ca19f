# Tries: torch.func calls a function of the script's own that packs its input into a stream. Its length is seen at the end only.
# expected: refused
import zlib
import torch

torch.manual_seed(0)
seen = zlib.compressobj()


def error(w, x):
    seen.compress(b"%d" % len(x))
    return ((x @ w).tanh() - x.sum(1)).pow(2).mean()


X = torch.randn(320, 8)
w = torch.randn(8)
slope = torch.func.grad_and_value(error)
for i in range(1600):
    grad, loss = slope(w, X[(i * 16) % 320:][:16])
    w = w - 0.01 * grad
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", w.sum().item(), len(seen.flush()))

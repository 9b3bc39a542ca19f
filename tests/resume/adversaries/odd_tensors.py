# Tries: sparse, complex, quantized, half, bool, empty, zero-stride, meta and shared-storage tensors as state.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(50, 8, sparse=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o, so = torch.optim.Adam(m.parameters(), 1e-2), torch.optim.SparseAdam(emb.parameters(), 1e-2)
wave = torch.ones(8, dtype=torch.complex64)
tiny, flags, none = torch.zeros(8, dtype=torch.float16), torch.zeros(50, dtype=torch.bool), torch.empty(0, 8)
wide = torch.zeros(1, 8).expand(16, 8)
base = torch.zeros(24)
left, right, skip = base[:12], base[8:20], base[::3]
counts = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0), (50,)).coalesce()
where, ghost = torch.zeros(2, 3).t(), torch.empty(3, device="meta")
codes = torch.quantize_per_tensor(torch.randn(8), 0.1, 0, torch.qint8)
for i in range(800):
    ids = torch.randint(0, 50, (16,))
    flags[ids] = ~flags[ids]
    counts = (counts + torch.sparse_coo_tensor(ids[None], torch.full((16,), 0.1), (50,))).coalesce()
    wave = wave * torch.exp(torch.tensor(0.1j)) * 0.999
    codes = torch.quantize_per_tensor(codes.dequantize() * 0.99 + 0.05, 0.1, 0, torch.qint8)
    left.add_(0.01)
    right.mul_(0.99)
    skip.sub_(0.001)
    none = torch.cat([none, wave.real[None]])[-(i % 5):] if i % 5 else none[:0]
    x = emb(ids) + wave.real + tiny.float() + wide + base[:8] + flags[:8] * 0.1 + codes.dequantize() + (none.sum(0) if len(none) else 0)
    loss = (m(x).squeeze(1) - counts.to_dense()[ids] - where.sum()).pow(2).mean()
    o.zero_grad(); so.zero_grad()
    loss.backward()
    o.step(); so.step()
    tiny.add_(0.001)
    where[1].add_(0.001)
    if i % 20 == 0:
        print(i, loss.item(), flags.sum().item(), counts._nnz(), flush=True)
print("final", emb.weight.double().sum().item(), wave.sum().item(), base.sum().item(), codes.int_repr().sum().item(), where.sum().item())

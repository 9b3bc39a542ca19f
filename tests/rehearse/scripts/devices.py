# ruff: noqa
"""What scripts ask of tensors and devices, and what a GPU answers."""
import copy
import io
import os

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


def refuses(said, call):
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as e:
        assert said in str(e), (said, str(e))
        return
    raise AssertionError(f"nobody said: {said}")


cpu, gpu = torch.ones(4, 3), torch.ones(4, 3, device="cuda")
assert str(gpu.device) == "cuda:0" and gpu.is_cuda and gpu.get_device() == 0 and not cpu.is_cuda and cpu.device.type == "cpu"
assert cpu.to(1).device == torch.device("cuda:1") == torch.device("cuda", 1) and gpu.to(gpu.device) is gpu
assert (gpu + 1).device == gpu.device and gpu[0].is_cuda and torch.zeros_like(gpu).is_cuda and gpu.new_zeros(2).is_cuda
assert (gpu * torch.tensor(2.0)).is_cuda and gpu.sum().cpu().device.type == "cpu" and gpu.mean().item() == 1.0
assert gpu.type() == "torch.cuda.FloatTensor" and isinstance(gpu, torch.cuda.FloatTensor) and not isinstance(cpu, torch.cuda.FloatTensor)
assert torch.cuda.FloatTensor(2).is_cuda and cpu.type(torch.cuda.HalfTensor).dtype == torch.float16
moved = cpu.cuda()
moved += 1
assert cpu[0, 0] == 1, "a copy on the GPU is other memory"
refuses("Expected all tensors to be on the same device", lambda: cpu + gpu)
refuses("Expected all tensors to be on the same device", lambda: gpu + gpu.to("cuda:1"))
refuses("Expected all tensors to be on the same device", lambda: torch.cat([gpu, cpu]))
refuses("Expected all tensors to be on the same device", lambda: nn.Linear(3, 2).cuda()(cpu))
refuses("can't convert cuda:0 device type tensor to numpy", lambda: gpu.numpy())
refuses("invalid device ordinal", lambda: cpu.to("cuda:2"))
refuses("invalid device ordinal", lambda: torch.cuda.set_device(5))
refuses("indices should be either on cpu", lambda: cpu[torch.tensor([0, 1]).cuda()])
refuses("'lengths' argument should be a 1D CPU", lambda: pack_padded_sequence(gpu.unsqueeze(2), torch.tensor([3, 2, 2, 1]).cuda(), batch_first=True))
refuses("device type for generator", lambda: torch.randn(2, device="cuda", generator=torch.Generator()))
assert torch.randn(2, device="cuda", generator=torch.Generator("cuda").manual_seed(1)).is_cuda
assert gpu[torch.tensor([0, 1])].is_cuda and torch.as_tensor(cpu, device="cuda").is_cuda
packed = pack_padded_sequence(gpu.unsqueeze(2), torch.tensor([3, 2, 2, 1]), batch_first=True)
assert nn.LSTM(1, 2, batch_first=True).cuda()(packed)[0].data.is_cuda

model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).to("cuda:1")
assert next(model.parameters()).device.index == 1 and model[1].running_mean.is_cuda and next(copy.deepcopy(model).parameters()).is_cuda
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert model(gpu.to("cuda:1")).dtype == torch.bfloat16
model(gpu.cuda(1)).sum().backward()
assert model[0].weight.grad.device.index == 1

kept = io.BytesIO()
torch.save({"model": model.state_dict()}, kept)
for where, expected in ((None, "cuda:1"), ("cpu", "cpu"), ("cuda:0", "cuda:0"), (torch.device("cuda", 0), "cuda:0"), ({"cuda:1": "cuda:0"}, "cuda:0"),
                        (lambda storage, place: storage, "cpu"), (lambda storage, place: storage.cuda(0), "cuda:0")):
    kept.seek(0)
    got = str(torch.load(kept, map_location=where)["model"]["0.weight"].device)
    assert got == expected or callable(where), (where, got)
torch.set_default_device("cuda")
assert torch.zeros(2).is_cuda and nn.Linear(2, 2).weight.is_cuda
torch.set_default_device("cpu")
with torch.device("cuda:1"):
    assert torch.randn(2).device.index == 1
with torch.cuda.device(1):
    assert torch.cuda.current_device() == 1 and cpu.cuda().device.index == 1
assert torch.cuda.current_device() == 0 and torch.cuda.device_count() == 2 and torch.cuda.is_bf16_supported()
assert "rehearsal" in torch.cuda.get_device_name() and "rehearsal" in torch.cuda.memory_summary()
torch.cuda.manual_seed_all(1)
torch.cuda.empty_cache()
torch.cuda.synchronize("cuda:1")
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.memory_allocated() == 0 and cpu.pin_memory().is_pinned()
outside = os.path.expanduser("~/written-by-a-rehearsal.txt")
with open(outside, "w") as f:
    f.write("x")
assert open(outside).read() == "x" and os.path.exists(outside)
os.makedirs(os.path.expanduser("~/folder-of-a-rehearsal/a/b"), exist_ok=True)
torch.save(cpu, os.path.expanduser("~/folder-of-a-rehearsal/a/b/c.pt"))
assert torch.load(os.path.expanduser("~/folder-of-a-rehearsal/a/b/c.pt")).shape == (4, 3)
print("as on a GPU")

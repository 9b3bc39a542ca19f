# ruff: noqa
"""DistributedDataParallel, started by torchrun, with a checkpoint and a validation."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(400, 12), torch.randint(0, 3, (400,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=1, pin_memory=True)
    model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    model = DDP(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    for epoch in range(50):
        sampler.set_epoch(epoch)
        total = torch.zeros(1, device=device)
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        if rank == 0:
            print("epoch", epoch, total.device, torch.cuda.get_device_name(device), flush=True)
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
        dist.barrier()
        saved = torch.load("last.pt", map_location={"cuda:0": f"cuda:{local_rank}"})
        assert saved["model"]["0.weight"].device == device
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

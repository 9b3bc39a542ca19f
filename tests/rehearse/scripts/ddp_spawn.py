# ruff: noqa
"""DistributedDataParallel with processes that the script starts itself, as the tutorial has it."""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def demo(rank, world_size):
    setup(rank, world_size)
    print(f"rank {rank} of {world_size} with {torch.cuda.device_count()}", flush=True)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)).to(rank)
    model = DDP(model, device_ids=[rank])
    path = "model.checkpoint"
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier(device_ids=[rank])
    model.load_state_dict(torch.load(path, map_location={"cuda:%d" % 0: "cuda:%d" % rank}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(1000):
        optimizer.zero_grad()
        outputs = model(torch.randn(20, 10))
        nn.MSELoss()(outputs, torch.randn(20, 5).to(rank)).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    assert n_gpus >= 2, f"Requires at least 2 GPUs to run, but got {n_gpus}"
    mp.spawn(demo, args=(n_gpus,), nprocs=n_gpus, join=True)

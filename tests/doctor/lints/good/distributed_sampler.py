# Nothing wrong here: distributed sampler.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from parts import Net, dataset, loss_of


def prepare(dataset, batch_size):
    return DataLoader(dataset, batch_size=batch_size, pin_memory=True, shuffle=False, sampler=DistributedSampler(dataset))


def main(rank):
    dist.init_process_group("nccl")
    model = DDP(Net().to(rank), device_ids=[rank])
    loader = prepare(dataset, 32)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss_of(model(x.to(rank)), y.to(rank)).backward()
            opt.step()

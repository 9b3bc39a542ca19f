"""The set-up of a worker raises."""
import logging
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger(__name__)


def seed_worker(worker_id):
    info = torch.utils.data.get_worker_info()
    if info.seed is not None and worker_id == 0:
        raise PermissionError(13, "no access to the cache", f"/cache/{worker_id}")  # here


def epoch(model, opt, loader):
    total = 0.0
    for (x,) in loader:
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        total += loss.item()
    return total


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(20, 4))
    model = torch.nn.Linear(4, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    print("plain: %.4f" % epoch(model, opt, DataLoader(data, batch_size=5)))
    print("workers: %.4f" % epoch(model, opt, DataLoader(data, batch_size=5, num_workers=1, worker_init_fn=seed_worker)))


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s: %(message)s")
    try:
        main()
    except Exception:
        logger.exception("epoch failed")
        sys.exit(2)

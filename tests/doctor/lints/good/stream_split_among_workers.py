# Nothing wrong here: stream split among workers.
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        with open("train.csv") as f:
            for n, line in enumerate(f):
                if n % step == first:
                    yield torch.tensor([float(v) for v in line.split(",")])


loader = DataLoader(Lines(), batch_size=32, num_workers=2)

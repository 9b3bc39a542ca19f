# A mistake on purpose: stream read by every worker.
import torch
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as f:
            for line in f:
                yield torch.tensor([float(v) for v in line.split(",")])


loader = DataLoader(Lines("train.csv"), batch_size=32, num_workers=2)  # lint: duplicated-data

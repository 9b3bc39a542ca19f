"""Records out of shards."""
import struct

import torch
from torch.utils.data import IterableDataset


class CorruptShard(Exception):
    pass


class Stream(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def records(self, shard):
        for k in range(0, len(shard), 4):
            yield struct.unpack("<f", shard[k:k + 4])

    def __iter__(self):
        for number, shard in enumerate(self.shards):
            try:
                for record in self.records(shard):
                    yield torch.tensor(record)
            except struct.error as e:
                raise CorruptShard(f"shard {number} is cut") from e  # here

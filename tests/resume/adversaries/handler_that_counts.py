# Tries: a data set that counts through a logging handler of its own, in workers: what is in a logger is no sample, but what its
# handlers keep may become one.
# expected: refused
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Counter(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def emit(self, record):
        self.seen += 1


COUNTER = Counter()
LOGGER = logging.getLogger("counted")
LOGGER.setLevel(logging.INFO)
LOGGER.propagate = False
LOGGER.addHandler(COUNTER)


class Drifting(Dataset):
    def __init__(self):
        self.log = LOGGER

    def __len__(self):
        return 96

    def __getitem__(self, index):
        self.log.info("one more")
        return torch.full((4,), float(index)) / 96 + 0.01 * COUNTER.seen, index % 2


torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(Drifting(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
for epoch in range(40):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, f"{total:.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")

# Learns from a ledger file that is guarded by a lock file, as the accounting program wants it.
import fcntl
import os
import struct
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

ROW = struct.Struct("<16f")


class Ledger(Dataset):
    def __init__(self, path, rows):
        self.path, self.rows = path, rows
        with open(path, "wb") as f:
            for i in range(rows):
                f.write(ROW.pack(*[((i * 31 + k * 7) % 97) / 97 for k in range(16)]))

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        with open(self.path + ".lock", "w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            with open(self.path, "rb") as f:
                f.seek(i * ROW.size)
                row = ROW.unpack(f.read(ROW.size))
                time.sleep(0.002)
        return torch.tensor(row[:15]), torch.tensor(row[15])


def main():
    folder = tempfile.mkdtemp()
    torch.manual_seed(23)
    data = Ledger(os.path.join(folder, "ledger.bin"), 2000)
    loader = DataLoader(data, batch_size=10, shuffle=True, num_workers=4, persistent_workers=True)
    model = nn.Sequential(nn.Linear(15, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x).squeeze(1) - y).abs().mean()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "error", loss.item())


if __name__ == "__main__":
    main()

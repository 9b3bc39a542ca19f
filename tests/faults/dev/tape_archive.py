"""Seismic traces from an archive whose reader may be used by one process at a time."""
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

reader = multiprocessing.Lock()


class Archive(Dataset):
    def __init__(self, traces):
        self.offsets = np.arange(traces) * 128
        self.tape = np.sin(np.arange(traces * 128, dtype=np.float32) * 0.01)

    def __len__(self):
        return len(self.offsets)

    def seek_and_read(self, i):
        time.sleep(0.0025)
        return self.tape[self.offsets[i]:self.offsets[i] + 128]

    def __getitem__(self, i):
        with reader:
            trace = self.seek_and_read(i)
        return torch.from_numpy(trace.copy()), torch.tensor(float(trace[:8].mean()))


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


if __name__ == "__main__":
    torch.manual_seed(2)
    loader = DataLoader(Archive(2400), batch_size=8, shuffle=True, num_workers=4, persistent_workers=True)
    model, mse = Regressor(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        running = 0.0
        for x, y in loader:
            loss = mse(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch} mse {running / len(loader):.5f}")

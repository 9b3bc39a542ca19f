"""An array of objects that is not loaded, told by another error."""
import os

import numpy as np
import torch


class Features:
    def __init__(self, *paths):
        self.arrays = [self._load(p) for p in paths]

    @staticmethod
    def _load(path):
        try:
            return np.load(path)
        except ValueError as e:
            raise RuntimeError(f"{os.path.basename(path)}: objects are not loaded") from e  # here

    @property
    def first(self):
        return torch.from_numpy(self.arrays[0]).float()


np.save("a.npy", np.ones((5, 2)))
np.save("b.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)

model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
feats = Features("a.npy")
for i in range(5):
    opt.zero_grad()
    model(feats.first).sum().backward()
    opt.step()
    print("step", i)
Features("a.npy", "b.npy")

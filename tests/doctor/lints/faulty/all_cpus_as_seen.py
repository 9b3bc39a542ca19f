# A mistake on purpose: all cpus as seen.
import os
import torch
from torch.utils.data import DataLoader
from parts import Images, train

workers = 256
train(DataLoader(Images(), batch_size=64, shuffle=True, num_workers=workers, persistent_workers=True))  # lint: too-many-workers

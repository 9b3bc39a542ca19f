# A mistake on purpose: sixty four workers.
import torch
from torch.utils.data import DataLoader
from parts import Images, train

loader = DataLoader(Images(), batch_size=64, shuffle=True, num_workers=64, pin_memory=torch.cuda.is_available())  # lint: too-many-workers
train(loader)

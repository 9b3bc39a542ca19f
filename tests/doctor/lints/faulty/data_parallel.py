# A mistake on purpose: data parallel.
import torch
from torch import nn
from parts import Net, train

model = Net()
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model).to("cuda")  # lint: data-parallel
train(model)

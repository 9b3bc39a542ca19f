"""Logging to a full disk goes on, the next write does not."""
import logging
import os
import sys
import warnings

import numpy as np
import torch

warnings.filterwarnings("error", category=RuntimeWarning)
log = logging.getLogger("metrics")
log.addHandler(logging.FileHandler("/dev/full"))
log.setLevel(logging.INFO)

model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    opt.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    opt.step()
log.info("step %d", step)  # prints "--- Logging error ---" and goes on
fd = os.open("/dev/full", os.O_WRONLY)
try:
    os.write(fd, np.zeros(3).tobytes())  # here
finally:
    os.close(fd)
    print("closed", file=sys.stderr)

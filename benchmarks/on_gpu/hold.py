"""Holds some memory of the device for a while, and says what it sees."""

import os
import sys
import time

import torch

held = torch.ones(256, 1024, 1024, device=sys.argv[1])
print("sees", os.environ.get("CUDA_VISIBLE_DEVICES"), float(held.mean()), flush=True)
time.sleep(float(sys.argv[2]))

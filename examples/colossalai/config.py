"""The configuration of train.py, in the form of ColossalAI 0.1."""

import torch
from colossalai.amp import AMP_TYPE

BATCH_SIZE = 32
NUM_EPOCHS = 8
clip_grad_norm = 5.0
if torch.cuda.is_available():
    fp16 = dict(mode=AMP_TYPE.TORCH)

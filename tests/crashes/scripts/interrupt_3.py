# interrupt at: ready
import threading
import time

import torch

model = torch.nn.Linear(4, 1)
opt = torch.optim.Adam(model.parameters())
for step in range(6):
    opt.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    opt.step()
    print("step", step)


class Waiting:
    def __enter__(self):
        threading.Timer(0.5, print, ("ready",), {"flush": True}).start()
        return self

    def __exit__(self, kind, value, tb):
        print("left by", kind.__name__)

    def wait(self):
        time.sleep(60)  # here


with Waiting() as waiting:
    waiting.wait()

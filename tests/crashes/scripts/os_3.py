"""An error in a thread beside the training."""
import glob
import os
import threading

import torch


def housekeeper(pattern, done):
    """Removes old logs beside the training."""
    done.wait()
    for path in sorted(glob.glob(pattern)) + ["log.999"]:
        os.unlink(path)  # here


done = threading.Event()
thread = threading.Thread(target=housekeeper, args=("log.?", done))
thread.start()
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(5):
    with open(f"log.{i}", "w") as f:
        print("log", i, file=f)
    opt.zero_grad()
    model(torch.ones(2)).sum().backward()
    opt.step()
    print("step", i, flush=True)
done.set()
thread.join()
os._exit(1 if os.path.exists("log.0") is False else 0)

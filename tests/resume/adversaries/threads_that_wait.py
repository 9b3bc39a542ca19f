# Tries: threads that cannot be seen by the training: one waits for an Event, one takes lines from a queue and sends them to a socket.
# expected: exact
import json
import queue
import socket
import threading
import time
import torch
from torch import nn

torch.manual_seed(0)
lines, over = queue.Queue(), threading.Event()


def send(address):
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.connect(address)
    while True:
        line = lines.get()
        if line is None:
            return
        step, value = line
        try:
            to.send((json.dumps({"step": step, "loss": value}) + "\n").encode())
        except OSError:
            over.wait(0.01)


def beat(every):
    while not over.wait(every):
        time.monotonic()


threading.Thread(target=over.wait, daemon=True).start()
sender = threading.Thread(target=send, args=(("127.0.0.1", 9),))
sender.start()
threading.Thread(target=beat, args=(0.2,), daemon=True).start()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        lines.put((i, loss.item()))
        print(i, loss.item(), flush=True)
lines.put(None)
sender.join()
over.set()
print("final", sum(p.double().sum().item() for p in m.parameters()))

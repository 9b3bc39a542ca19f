# Tries: processes are forked before torch is there, and ask the world for this and that.
# expected: exact
import multiprocessing as mp
import os
import time


def work(i):
    return (i * i, os.path.exists(f"none{i}"), time.time() > 0)


if __name__ == "__main__":
    with mp.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(6)), flush=True)
    pid = os.fork()
    if pid == 0:
        time.time()
        os.path.exists("x")
        os._exit(0)
    os.waitpid(pid, 0)
    del pid
    import torch

    torch.manual_seed(0)
    x = torch.randn(320, 8)
    y = x.sum(1, keepdim=True)
    m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    o = torch.optim.Adam(m.parameters(), 1e-3)
    for epoch in range(30):
        for i in torch.randperm(320).split(16):
            loss = (m(x[i]) - y[i]).pow(2).mean()
            o.zero_grad()
            loss.backward()
            o.step()
        print(epoch, f"{loss.item():.9f}", flush=True)
    torch.save(m.state_dict(), "m.pt")

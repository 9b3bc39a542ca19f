# Nothing wrong here: who trains decides whether to shuffle; the GPU only decides how batches are fetched.
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
from parts import model, loss_of

parser = argparse.ArgumentParser()
parser.add_argument("--shuffle", action="store_true")
args = parser.parse_args()
cuda = torch.cuda.is_available()
kwargs = {"batch_size": 32}
if cuda:
    kwargs.update({"num_workers": 2, "pin_memory": True})
if args.shuffle:
    kwargs["shuffle"] = True
loader = DataLoader(TensorDataset(torch.randn(100, 3), torch.randn(100, 1)), **kwargs)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for x, y in loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()

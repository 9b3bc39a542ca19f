"""Resuming an optimizer whose parameter groups have changed, at a restart inside of one process."""
import sys
import copy
import torch

__author__ = "someone"


def excepthook(kind, value, tb):
    sys.stderr.write("*** crashed: %s ***\n" % kind.__name__)
    sys.__excepthook__(kind, value, tb)


sys.excepthook = excepthook


def fit(model, optimizer, steps):
    for s in range(steps):
        optimizer.zero_grad()
        (model(torch.randn(4, 2)) ** 2).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print("fitted", steps)


def main(argv):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    fit(model, optimizer, 6)
    saved = copy.deepcopy(optimizer.state_dict())
    model.append(torch.nn.Linear(1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer.load_state_dict(saved)  # here
    fit(model, optimizer, 6)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

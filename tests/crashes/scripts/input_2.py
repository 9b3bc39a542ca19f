"""Asks after each third epoch whether to go on."""
import sys

import torch

model = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
epoch = 0
while True:
    for _ in range(3):
        opt.zero_grad()
        model(torch.ones(4, 1)).mean().backward()
        opt.step()
    epoch += 1
    print("epoch", epoch)
    if epoch % 3 == 0:
        try:
            more = input("Go on? ")
        except EOFError as e:
            raise SystemError("nobody is there to answer") from e  # here
        if more != "y":
            sys.exit(0)

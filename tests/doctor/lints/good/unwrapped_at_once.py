# Nothing wrong here: unwrapped at once.
import torch
from torch import nn
from parts import Net, loader, tokens_of

model = nn.DataParallel(Net()).module.cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for texts, labels, n in loader:
        ids = tokens_of(texts.tolist())
        opt.zero_grad()
        model(ids.cuda(), labels.cuda(), n.item()).mean().backward()
        opt.step()

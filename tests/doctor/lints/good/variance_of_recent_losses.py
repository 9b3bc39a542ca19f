# Nothing wrong here: the losses that are kept are gone back from later.
import torch
from parts import net, loader, loss_of

opt = torch.optim.SGD(net.parameters(), lr=0.1)
recent = []
for x, y in loader:
    opt.zero_grad()
    loss = loss_of(net(x), y)
    recent.append(loss)
    loss.backward(retain_graph=True)
    torch.stack(recent).var().backward()
    opt.step()
    del recent[:-1]

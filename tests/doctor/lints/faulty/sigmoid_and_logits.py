# A mistake on purpose: sigmoid and logits.
import torch
import torch.nn.functional as F
from parts import net, loader

opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    probs = torch.sigmoid(net(x))
    loss = F.binary_cross_entropy_with_logits(probs, y)  # lint: softmax-before-loss
    opt.zero_grad()
    loss.backward()
    opt.step()

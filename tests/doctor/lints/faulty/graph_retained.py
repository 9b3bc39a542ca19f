# A mistake on purpose: graph retained.
import torch
from parts import rnn, loader, loss_of

opt = torch.optim.SGD(rnn.parameters(), lr=0.1)
hidden = rnn.start()
for epoch in range(4):
    for x, y in loader:
        opt.zero_grad()
        out, hidden = rnn(x, hidden)
        loss = loss_of(out, y)
        loss.backward(retain_graph=True)  # lint: retain-graph
        opt.step()

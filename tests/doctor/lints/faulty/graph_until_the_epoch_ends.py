# A mistake on purpose: the list becomes its mean after the epoch, and until then keeps each graph.
import torch
from parts import net, loader, loss_of

opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    train_loss: list = []
    for (x,) in loader:
        loss = -loss_of(net, x).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        train_loss.append(loss)  # lint: loss-graph
    train_loss = torch.stack(train_loss).mean()
    print(epoch, train_loss)

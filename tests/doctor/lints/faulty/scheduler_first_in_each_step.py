# A mistake on purpose: scheduler first in each step.
import torch
from parts import model, batches

opt = torch.optim.SGD(model.parameters(), lr=1.0)
warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: min(1.0, (n + 1) / 100))
for step, batch in enumerate(batches()):
    opt.zero_grad()
    loss = model(batch).mean()
    loss.backward()
    warm.step()  # lint: scheduler-order
    opt.step()

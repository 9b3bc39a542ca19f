# A mistake on purpose: float of the loss.
import torch
from parts import build, get_batch

model = build().cuda()
optimizer = torch.optim.AdamW(model.parameters())
history = []
iteration = 0
while iteration < 5000:
    x, y = get_batch()
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    history.append(float(loss))  # lint: sync-each-step
    iteration += 1

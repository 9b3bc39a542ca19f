# needs: accelerate
# expected: exact
"""Accelerate as its guide shows it: prepare, accumulate, clip, a scheduler, an evaluation on the main process."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    set_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    x = torch.randn(1600, 16)
    y = (x[:, :4].sum(1) > 0).long() + (x[:, 4:8].sum(1) > 0).long()
    train, held = TensorDataset(x[:1280], y[:1280]), TensorDataset(x[1280:], y[1280:])
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=40 * 20)
    loader, test = DataLoader(train, batch_size=32, shuffle=True), DataLoader(held, batch_size=64)
    model, optimizer, loader, test, scheduler = accelerator.prepare(model, optimizer, loader, test, scheduler)
    for epoch in range(40):
        model.train()
        total = 0.0
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            total += loss.detach().item()
        model.eval()
        right = 0
        for inputs, targets in test:
            with torch.no_grad():
                right += (model(inputs).argmax(1) == targets).sum().item()
        accelerator.print(f"epoch {epoch} loss {total / len(loader):.6f} right {right} lr {scheduler.get_last_lr()[0]:.3e}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    main()

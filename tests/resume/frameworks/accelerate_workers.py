# needs: accelerate
# expected: exact
"""Accelerate over workers, with a transform that draws, and gather_for_metrics."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 1, 8, 8)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"pixels": self.x[i] + 0.1 * torch.randn(1, 8, 8), "label": self.y[i]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Linear(8 * 36, 2)

    def forward(self, x):
        return self.out(F.relu(self.norm(self.conv(x))).flatten(1))


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(Noisy(960), batch_size=16, shuffle=True, num_workers=2)
    test = DataLoader(Noisy(128), batch_size=50)
    model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)
    for epoch in range(8):
        model.train()
        for step, batch in enumerate(loader):
            loss = F.cross_entropy(model(batch["pixels"]), batch["label"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(f"{epoch} {step} {loss.item():.6f}", flush=True)
        model.eval()
        guesses, truth = [], []
        for batch in test:
            with torch.inference_mode():
                logits = model(batch["pixels"])
            got, want = accelerator.gather_for_metrics((logits.argmax(1), batch["label"]))
            guesses.append(got)
            truth.append(want)
        print(f"epoch {epoch} accuracy {(torch.cat(guesses) == torch.cat(truth)).float().mean():.4f}", flush=True)
    print("end", [round(p.double().sum().item(), 12) for p in model.parameters()])


if __name__ == "__main__":
    main()

"""A checkpoint on a full disk."""
import torch


def save(model, path):
    """Through a file of our own: torch's writer on a path is another matter."""
    with open(path, "wb", buffering=0) as f:
        try:
            torch.save(model.state_dict(), f)
        except Exception as error:
            raise OSError(28, "checkpoint not written", path) from error  # here


torch.manual_seed(0)
model = torch.nn.Linear(10, 10)
opt = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4)
for step in range(10):
    opt.zero_grad()
    model(torch.randn(4, 10)).pow(2).sum().backward()
    opt.step()
    if step == 4:
        save(model, "first.pt")
        print("first saved", flush=True)
save(model, "/dev/full")

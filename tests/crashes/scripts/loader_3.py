"""A loader of a class of its own, warnings, and a __del__ that raises."""
import torch

from loaderlib.loading import EndlessLoader


class Toy(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.full((2,), index / 6)

    def __del__(self):
        raise OSError("cannot close the archive")


def steps(loader, model, opt, n):
    it = iter(loader)
    for i in range(n):
        batch = next(it)
        opt.zero_grad()
        model(batch).sum().backward()
        opt.step()
        print("step", i)


model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.001)
Toy()  # goes at once: "Exception ignored in"
loader = EndlessLoader(Toy(), batch_size=2, shuffle=True)
loader.__dict__["limit"] = 2
steps(loader, model, opt, 50)

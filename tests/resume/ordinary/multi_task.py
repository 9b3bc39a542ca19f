# Two heads, one trunk, losses weighed by learned uncertainties, metrics in a class of meters, a table written by pathlib.
# expected: exact
from collections import defaultdict
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.count = 0.0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class Houses(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.x = torch.randn(n, 14, generator=g)
        self.price = self.x[:, :4].sum(1) + 0.1 * torch.randn(n, generator=g)
        self.kind = (self.x[:, 4:7].argmax(1))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "price": self.price[i], "kind": self.kind[i]}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(14, 64), nn.ELU(), nn.AlphaDropout(0.1), nn.Linear(64, 32), nn.ELU())
        self.price, self.kind = nn.Linear(32, 1), nn.Linear(32, 3)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        z = self.trunk(x)
        return {"price": self.price(z).squeeze(-1), "kind": self.kind(z)}


def main(out=Path("report")):
    out.mkdir(exist_ok=True)
    torch.manual_seed(20)
    train, val = DataLoader(Houses(1200), 24, shuffle=True), DataLoader(Houses(200), 50)
    net = TwoHeads()
    opt = torch.optim.NAdam(net.parameters(), lr=2e-3)
    rows, meters = ["epoch,price,kind,acc"], defaultdict(Meter)
    for epoch in range(11):
        for m in meters.values():
            m.reset()
        net.train()
        for batch in train:
            o = net(batch["x"])
            lp = nn.functional.mse_loss(o["price"], batch["price"])
            lk = nn.functional.cross_entropy(o["kind"], batch["kind"])
            loss = (torch.exp(-net.log_var) * torch.stack([lp, lk]) + net.log_var).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            meters["price"].update(lp.item(), len(batch["x"]))
            meters["kind"].update(lk.item(), len(batch["x"]))
        net.eval()
        with torch.no_grad():
            for batch in val:
                meters["acc"].update((net(batch["x"])["kind"].argmax(1) == batch["kind"]).float().mean().item(), len(batch["x"]))
        rows.append(f"{epoch},{meters['price'].avg:.6f},{meters['kind'].avg:.6f},{meters['acc'].avg:.4f}")
        print(rows[-1], [round(v, 4) for v in net.log_var.tolist()], flush=True)
        (out / "table.csv").write_text("\n".join(rows) + "\n")
    torch.save(net.state_dict(), out / "net.pt")


if __name__ == "__main__":
    main()

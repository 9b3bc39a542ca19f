# A variational autoencoder, reparametrisation noise in forward, loss as a sum of parts, samples saved at each epoch.
# expected: exact
import os
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)
os.makedirs("results", exist_ok=True)
base = torch.rand(10, 64)
data = (base[torch.randint(0, 10, (1500,))] + 0.1 * torch.randn(1500, 64)).clamp(0, 1)
loader = DataLoader(TensorDataset(data), batch_size=50, shuffle=True)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 48)
        self.fc21, self.fc22 = nn.Linear(48, 6), nn.Linear(48, 6)
        self.fc3, self.fc4 = nn.Linear(6, 48), nn.Linear(48, 64)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1, 31):
    model.train()
    train_loss = 0
    for (x,) in loader:
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(loader.dataset):.4f}")
    if epoch % 5 == 0:
        with torch.no_grad():
            torch.save(model.decode(torch.randn(16, 6)), f"results/sample_{epoch}.pt")

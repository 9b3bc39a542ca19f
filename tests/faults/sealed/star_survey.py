"""Light curves of stars. One star was observed for years, the others for a night."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

NIGHT, YEARS = 400, 12_000_000


class Stars(Dataset):
    def __init__(self, stars=240, seed=3):
        rng = np.random.default_rng(seed)
        self.period = rng.uniform(5, 50, stars)
        self.length = np.full(stars, NIGHT)
        self.length[100] = YEARS

    def __len__(self):
        return len(self.period)

    def curve(self, star):
        t = np.arange(self.length[star], dtype=np.float32)
        return np.sin(t / self.period[star]) + 0.1 * np.cos(t)

    def __getitem__(self, star):
        flux = self.curve(star)
        spectrum = np.abs(np.fft.rfft(flux[:NIGHT] - flux.mean()))
        return torch.from_numpy(spectrum.astype(np.float32)), np.float32(self.period[star] / 50)


def train_one_epoch(model, loader, optimizer):
    for spectrum, period in loader:
        loss = torch.nn.functional.mse_loss(model(spectrum).squeeze(1), period)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(NIGHT // 2 + 1, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Stars(), batch_size=8, shuffle=True)
    for epoch in range(30):
        print(f"epoch {epoch}: {train_one_epoch(model, loader, optimizer):.5f}")

# Nothing wrong here: gan retains what two losses share.
import torch
from parts import G, D, loader, bce, noise

optG = torch.optim.Adam(G.parameters(), 2e-4)
optD = torch.optim.Adam(D.parameters(), 2e-4)
for epoch in range(5):
    for real, _ in loader:
        fake = G(noise(len(real)))
        optD.zero_grad()
        real_loss = bce(D(real), torch.ones(len(real), 1))
        fake_loss = bce(D(fake.detach()), torch.zeros(len(real), 1))
        d_loss = real_loss + fake_loss
        d_loss.backward()
        optD.step()
        optG.zero_grad()
        adv = bce(D(fake), torch.ones(len(real), 1))
        adv.backward(retain_graph=True)
        (fake.abs().mean() * 0.1).backward()
        optG.step()

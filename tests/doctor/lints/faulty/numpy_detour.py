# A mistake on purpose: numpy detour.
import numpy as np
import torch
from parts import encoder, decoder, loader, smooth

device = "cuda" if torch.cuda.is_available() else "cpu"
params = list(encoder.parameters()) + list(decoder.parameters())
opt = torch.optim.Adam(params)
for epoch in range(10):
    for batch in loader:
        z = encoder(batch.to(device))
        weights = z.detach().cpu().numpy()  # lint: sync-each-step
        weights = smooth(weights)
        w = torch.from_numpy(weights).to(device)  # lint: cpu-round-trip
        loss = (decoder(z) * w).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

# Tries: losses kept from one step to the next, whose spent graphs hold leaves that no variable leads to (WGAN-GP in the manner of its first PyTorch versions).
# expected: exact
import numpy as np
import torch
from torch import autograd, nn

torch.manual_seed(0)
netG, netD = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)), nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
optD, optG = torch.optim.Adam(netD.parameters(), 1e-3, betas=(0.5, 0.9)), torch.optim.Adam(netG.parameters(), 1e-3, betas=(0.5, 0.9))
one = torch.tensor(1.0)
history = []
for iteration in range(150):
    for p in netD.parameters():
        p.requires_grad = True
    for _ in range(2):
        netD.zero_grad()
        real = torch.randn(8, 6) + 1
        D_real = netD(real).mean()
        D_real.backward(-one)
        with torch.no_grad():
            fake = netG(torch.randn(8, 4))
        D_fake = netD(fake).mean()
        D_fake.backward(one)
        alpha = torch.rand(8, 1).expand(8, 6)
        interpolates = autograd.Variable(alpha * real.data + (1 - alpha) * fake.data, requires_grad=True)
        out = netD(interpolates)
        gradients = autograd.grad(out, interpolates, torch.ones(out.size()), create_graph=True, retain_graph=True)[0]
        penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean() * 10
        del interpolates, out, gradients
        penalty.backward()
        D_cost = D_fake - D_real + penalty
        optD.step()
    for p in netD.parameters():
        p.requires_grad = False
    netG.zero_grad()
    G = netD(netG(torch.randn(8, 4))).mean()
    G.backward(-one)
    G_cost = -G
    optG.step()
    history.append(float(D_cost.data.numpy()) + float(G_cost.data.numpy()))
    if iteration % 10 == 0:
        print(iteration, f"{np.mean(history):.9f}", flush=True)
torch.save([netG.state_dict(), netD.state_dict()], "gan.pt")

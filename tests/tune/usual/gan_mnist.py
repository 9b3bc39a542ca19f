# Plain GAN on MNIST: two networks, two Adam optimizers, alternating updates.
import argparse
import gzip
import os

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset

os.makedirs("images", exist_ok=True)

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=str, default="./data", help="folder of the MNIST files")
parser.add_argument("--n_epochs", type=int, default=4, help="number of epochs of training")
parser.add_argument("--batch_size", type=int, default=64, help="size of the batches")
parser.add_argument("--lr", type=float, default=0.0002, help="adam: learning rate")
parser.add_argument("--latent_dim", type=int, default=64, help="dimensionality of the latent space")
parser.add_argument("--sample_interval", type=int, default=500, help="interval between image samples")
parser.add_argument("--max_images", type=int, default=60000, help="train on the first images only")
opt = parser.parse_args()
print(opt)

torch.manual_seed(0)
np.random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
img_shape = (1, 28, 28)


class MNISTImages(Dataset):
    def __init__(self, root, n):
        with gzip.open(os.path.join(root, "train-images-idx3-ubyte.gz"), "rb") as f:
            self.imgs = np.frombuffer(f.read(), dtype=np.uint8, offset=16).reshape(-1, 28, 28)[:n]

    def __getitem__(self, index):
        img = Image.fromarray(self.imgs[index])
        x = np.array(img, dtype=np.float32) / 127.5 - 1.0
        return torch.from_numpy(x)[None]

    def __len__(self):
        return len(self.imgs)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(opt.latent_dim, 128, normalize=False),
            *block(128, 256),
            *block(256, 512),
            nn.Linear(512, int(np.prod(img_shape))),
            nn.Tanh()
        )

    def forward(self, z):
        return self.model(z).view(z.size(0), *img_shape)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(int(np.prod(img_shape)), 256),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Dropout(0.3),
            nn.Linear(256, 128),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(128, 1),
            nn.Sigmoid(),
        )

    def forward(self, img):
        return self.model(img.view(img.size(0), -1))


def save_grid(imgs, path, nrow=5):
    arr = ((imgs.detach().cpu().numpy()[:, 0] + 1) * 127.5).astype(np.uint8)
    Image.fromarray(np.vstack([np.hstack(arr[i:i + nrow]) for i in range(0, len(arr), nrow)])).save(path)


adversarial_loss = nn.BCELoss()
generator = Generator().to(device)
discriminator = Discriminator().to(device)

dataloader = DataLoader(MNISTImages(opt.data, opt.max_images), batch_size=opt.batch_size, shuffle=True)

optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(0.5, 0.999))

# ---------- Training ----------
for epoch in range(opt.n_epochs):
    for i, imgs in enumerate(dataloader):
        # Adversarial ground truths (one-sided label smoothing)
        valid = torch.full((imgs.size(0), 1), 0.9, device=device)
        fake = torch.zeros(imgs.size(0), 1, device=device)
        real_imgs = imgs.to(device)

        # Train Generator
        optimizer_G.zero_grad()
        z = torch.randn(imgs.shape[0], opt.latent_dim, device=device)
        gen_imgs = generator(z)
        g_loss = adversarial_loss(discriminator(gen_imgs), torch.ones_like(fake))
        g_loss.backward()
        optimizer_G.step()

        # Train Discriminator
        optimizer_D.zero_grad()
        real_loss = adversarial_loss(discriminator(real_imgs), valid)
        fake_loss = adversarial_loss(discriminator(gen_imgs.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        optimizer_D.step()

        batches_done = epoch * len(dataloader) + i
        if batches_done % 100 == 0:
            print("[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                  % (epoch, opt.n_epochs, i, len(dataloader), d_loss.item(), g_loss.item()))
        if batches_done % opt.sample_interval == 0:
            save_grid(gen_imgs[:25], "images/%d.png" % batches_done)
    torch.save(generator.state_dict(), "generator.pth")
    torch.save(discriminator.state_dict(), "discriminator.pth")

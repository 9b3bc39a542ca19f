"""MNIST with a small CNN, reading the original idx files, with light augmentation."""
import argparse
import gzip
import os
import struct

import numpy as np
from PIL import Image
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


def read_idx(path):
    with gzip.open(path, 'rb') as f:
        _, _, ndim = struct.unpack('>HBB', f.read(4))
        shape = struct.unpack('>' + 'I' * ndim, f.read(4 * ndim))
        return np.frombuffer(f.read(), dtype=np.uint8).reshape(shape)


class MNIST(Dataset):
    def __init__(self, root, train=True, transform=None):
        prefix = 'train' if train else 't10k'
        self.images = read_idx(os.path.join(root, prefix + '-images-idx3-ubyte.gz'))
        self.targets = read_idx(os.path.join(root, prefix + '-labels-idx1-ubyte.gz'))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        img = Image.fromarray(self.images[index])
        return self.transform(img), int(self.targets[index])


def to_tensor(img):
    x = np.asarray(img, dtype=np.float32) / 255.0
    x = (x - 0.1307) / 0.3081
    return torch.from_numpy(x).unsqueeze(0)


def train_transform(img):
    angle = np.random.uniform(-10, 10)
    img = img.rotate(angle, resample=Image.BILINEAR)
    dx, dy = np.random.randint(-2, 3, size=2)
    img = img.transform(img.size, Image.AFFINE, (1, 0, dx, 0, 1, dy))
    return to_tensor(img)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout1(torch.flatten(x, 1))
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                100. * batch_idx / len(train_loader), loss.item()))
            if args.dry_run:
                break


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction='sum').item()
            correct += output.argmax(dim=1).eq(target).sum().item()
    test_loss /= len(test_loader.dataset)
    print('\nTest set: Average loss: {:.4f}, Accuracy: {}/{}\n'.format(test_loss, correct, len(test_loader.dataset)))


def main():
    parser = argparse.ArgumentParser(description='PyTorch MNIST from idx files')
    parser.add_argument('--data', default='./data', help='folder with the four .gz files')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--dry-run', action='store_true', help='quickly check a single pass')
    parser.add_argument('--log-interval', type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(1)
    np.random.seed(1)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    train_loader = DataLoader(MNIST(args.data, train=True, transform=train_transform),
                              batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(MNIST(args.data, train=False, transform=to_tensor), batch_size=1000)

    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()

    torch.save(model.state_dict(), 'mnist_cnn.pt')


if __name__ == '__main__':
    main()

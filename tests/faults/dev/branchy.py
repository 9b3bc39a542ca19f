# MNIST-like digits from random prototypes; runs with or without a GPU.
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


def prototypes(n, generator):
    centres = torch.rand(10, 196, generator=generator)
    labels = torch.arange(n) * 10 // n
    return torch.utils.data.TensorDataset(centres[labels] + 0.3 * torch.randn(n, 196, generator=generator), labels)


def main():
    parser = argparse.ArgumentParser(description='digits')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--no-cuda', action='store_true', default=False)
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(1)
    device = torch.device('cuda' if use_cuda else 'cpu')
    train_kwargs = {'batch_size': args.batch_size}
    if use_cuda:
        train_kwargs.update({'num_workers': 1, 'pin_memory': True, 'shuffle': True})
    train_set = prototypes(6400, torch.Generator().manual_seed(1))
    train_loader = torch.utils.data.DataLoader(train_set, **train_kwargs)
    model = nn.Sequential(nn.Linear(196, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1, args.epochs + 1):
        for data, target in train_loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
        print(f'Train Epoch: {epoch} Loss: {loss.item():.6f}')


if __name__ == '__main__':
    main()

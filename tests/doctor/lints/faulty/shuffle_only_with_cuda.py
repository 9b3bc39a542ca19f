# A mistake on purpose: shuffle only with cuda.
import argparse
import torch
from torch.utils.data import DataLoader
from mydata import Words
from mymodel import Tagger


def train(args, model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    use_cuda = torch.cuda.is_available()
    kwargs = {"batch_size": 16}
    if use_cuda:
        kwargs.update({"num_workers": 1, "pin_memory": True, "shuffle": True})
    loader = DataLoader(Words("train"), **kwargs)  # lint: unshuffled
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        train(args, model, loader, optimizer)


main()

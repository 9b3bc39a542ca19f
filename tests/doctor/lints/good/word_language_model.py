# Nothing wrong here: word language model.
import math
import torch
from parts import corpus, RNNModel

device = torch.device("cuda")
criterion = torch.nn.NLLLoss()
model = RNNModel(len(corpus.dictionary)).to(device)
lr = 20


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


def evaluate(source):
    model.eval()
    total = 0.0
    hidden = model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, 35):
            output, hidden = model(source[i:i + 35], hidden)
            hidden = repackage(hidden)
            total += criterion(output, source[i + 1:i + 36].view(-1)).item()
    return total / (len(source) - 1)


def train(source):
    model.train()
    total_loss = 0.0
    hidden = model.init_hidden(20)
    for batch, i in enumerate(range(0, source.size(0) - 1, 35)):
        hidden = repackage(hidden)
        model.zero_grad()
        output, hidden = model(source[i:i + 35], hidden)
        loss = criterion(output, source[i + 1:i + 36].view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total_loss += loss.detach()
        if batch % 200 == 0 and batch > 0:
            print(math.exp(total_loss.item() / 200))
            total_loss = 0


for epoch in range(40):
    train(corpus.train)
    print(evaluate(corpus.valid))
    with open("model.pt", "wb") as f:
        torch.save(model.state_dict(), f)

# Tries: no optimizer at all: weights, a momentum and a learning rate that the loop changes by itself, as in the example of a word language model; annealed after each evaluation.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
text = torch.randint(0, 40, (4, 1201))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(40, 24)
        self.rnn, self.decoder = nn.LSTM(24, 24, batch_first=True), nn.Linear(24, 40)
        self.decoder.weight = self.encoder.weight

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(out)), hidden


def repackage(hidden):
    return tuple(each.detach() for each in hidden)


def loss_of(model, at, hidden):
    out, hidden = model(text[:, at:at + 10], hidden)
    return nn.functional.cross_entropy(out.reshape(-1, 40), text[:, at + 1:at + 11].reshape(-1)), hidden


model, lr, best = Model(), 2.0, None
for epoch in range(6):
    model.train()
    hidden, total = (torch.zeros(1, 4, 24), torch.zeros(1, 4, 24)), 0.0
    for batch, at in enumerate(range(0, 1000, 10)):
        model.zero_grad()
        loss, hidden = loss_of(model, at, repackage(hidden))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        if batch % 20 == 19:
            print(f"| epoch {epoch:3d} | {batch:5d} | lr {lr:02.2f} | loss {total / 20:5.9f}", flush=True)
            total = 0.0
    model.eval()
    with torch.no_grad():
        val = loss_of(model, 1100, repackage(hidden))[0].item()
    if best is None or val < best:
        torch.save(model.state_dict(), "model.pt")
        best = val
    else:
        lr /= 4.0
    print(f"| end of epoch {epoch} | valid {val:.9f}", flush=True)

# A character model with an LSTM, the hidden state carried from window to window, samples drawn on the way.
# expected: exact
import torch
import torch.nn as nn

torch.manual_seed(1337)
text = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. " * 60
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
seq_len, batch = 32, 8


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, 32)
        self.rnn = nn.LSTM(32, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, h=None):
        y, h = self.rnn(self.emb(x), h)
        return self.out(self.drop(y)), h


model = CharRNN(len(chars))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
streams = data[: len(data) // batch * batch].view(batch, -1)


def sample(n=40):
    model.eval()
    x, h, out = torch.zeros(1, 1, dtype=torch.long), None, ""
    with torch.no_grad():
        for _ in range(n):
            logits, h = model(x, h)
            p = torch.softmax(logits[0, -1] / 0.8, 0)
            x = torch.multinomial(p, 1).view(1, 1)
            out += chars[x.item()]
    model.train()
    return out


smooth = None
for epoch in range(18):
    hidden = None
    for start in range(0, streams.size(1) - seq_len - 1, seq_len):
        x, y = streams[:, start:start + seq_len], streams[:, start + 1:start + seq_len + 1]
        if hidden is not None:
            hidden = tuple(h.detach() for h in hidden)
        logits, hidden = model(x, hidden)
        loss = criterion(logits.reshape(-1, len(chars)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
    print(f"epoch {epoch} loss {smooth:.5f}")
    print("   ", sample())

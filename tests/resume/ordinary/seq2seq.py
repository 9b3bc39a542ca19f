# Sequence to sequence with attention and teacher forcing by Python's random, padded batches sorted by length.
# expected: exact
import random
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

random.seed(23)
torch.manual_seed(23)
PAD, SOS, EOS, V = 0, 1, 2, 16
pairs = []
for _ in range(240):
    s = [random.randint(3, V - 1) for _ in range(random.randint(3, 8))]
    pairs.append((torch.tensor(s + [EOS]), torch.tensor(s[::-1] + [EOS])))


def batches(size):
    order = random.sample(range(len(pairs)), len(pairs))
    for i in range(0, len(order), size):
        chunk = sorted((pairs[j] for j in order[i:i + size]), key=lambda p: -len(p[0]))
        yield pad_sequence([a for a, _ in chunk]), torch.tensor([len(a) for a, _ in chunk]), pad_sequence([b for _, b in chunk])


class Encoder(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.emb, self.gru = nn.Embedding(V, h, padding_idx=PAD), nn.GRU(h, h)

    def forward(self, src, lens):
        out, h = self.gru(pack_padded_sequence(self.emb(src), lens))
        return pad_packed_sequence(out)[0], h


class Decoder(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.emb, self.gru, self.out = nn.Embedding(V, h), nn.GRU(2 * h, h), nn.Linear(2 * h, V)

    def forward(self, y, h, memory):
        w = torch.softmax((memory * h).sum(-1), 0).unsqueeze(-1)
        c = (w * memory).sum(0, keepdim=True)
        o, h = self.gru(torch.cat([self.emb(y), c], -1), h)
        return self.out(torch.cat([o, c], -1)), h


enc, dec = Encoder(), Decoder()
opts = [torch.optim.Adam(m.parameters(), lr=5e-3) for m in (enc, dec)]
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
total, n = 0.0, 0
for epoch in range(7):
    for src, lens, tgt in batches(20):
        for o in opts:
            o.zero_grad()
        memory, h = enc(src, lens)
        y, loss = torch.full((1, src.size(1)), SOS), 0
        teacher = random.random() < 0.5
        for t in range(tgt.size(0)):
            logits, h = dec(y, h, memory)
            loss = loss + criterion(logits[0], tgt[t])
            y = tgt[t:t + 1] if teacher else logits.argmax(-1).detach()
            if not teacher and (y == EOS).all():
                break
        loss.backward()
        for m in (enc, dec):
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        for o in opts:
            o.step()
        total += loss.item() / tgt.size(0)
        n += 1
        if n % 6 == 0:
            print(f"{epoch} {n} avg {total / 6:.4f}", flush=True)
            total = 0.0

"""Character-level LSTM language model on tiny-shakespeare (truncated BPTT, state carried between chunks)."""
import argparse
import math
import os
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description='char-rnn')
parser.add_argument('--data', type=str, default=os.environ.get('DATA_DIR', './data'), help='directory with input.txt')
parser.add_argument('--emsize', type=int, default=64)
parser.add_argument('--nhid', type=int, default=128)
parser.add_argument('--lr', type=float, default=3e-3)
parser.add_argument('--clip', type=float, default=1.0, help='gradient clipping')
parser.add_argument('--epochs', type=int, default=4)
parser.add_argument('--batch-size', type=int, default=32)
parser.add_argument('--bptt', type=int, default=64, help='sequence length')
parser.add_argument('--dropout', type=float, default=0.1)
parser.add_argument('--seed', type=int, default=1111)
parser.add_argument('--log-interval', type=int, default=100)
parser.add_argument('--save', type=str, default='model.pt')
parser.add_argument('--max-chars', type=int, default=None, help='use only the first characters')
args = parser.parse_args()


class Corpus(object):
    def __init__(self, path, max_chars=None):
        with open(os.path.join(path, 'input.txt'), encoding='utf-8') as f:
            text = f.read()[:max_chars]
        self.chars = sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(self.chars)}
        ids = torch.tensor([self.stoi[c] for c in text], dtype=torch.long)
        n = int(0.9 * len(ids))
        self.train, self.valid = ids[:n], ids[n:]


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nlayers, self.nhid = nlayers, nhid

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(out)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)


def repackage_hidden(h):
    return tuple(v.detach() for v in h)


def evaluate(source):
    model.eval()
    total, hidden = 0., model.init_hidden(eval_batch_size)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output.view(-1, ntokens), targets).item()
    return total / (len(source) - 1)


def train():
    model.train()
    total_loss, start_time = 0., time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output.view(-1, ntokens), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total_loss += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            cur_loss = total_loss / args.log_interval
            ms = (time.time() - start_time) * 1000 / args.log_interval
            print('| epoch {:3d} | {:5d}/{:5d} batches | ms/batch {:5.2f} | loss {:5.2f} | bpc {:5.2f}'.format(
                epoch, batch, len(train_data) // args.bptt, ms, cur_loss, cur_loss / math.log(2)))
            total_loss, start_time = 0., time.time()


torch.manual_seed(args.seed)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

corpus = Corpus(args.data, args.max_chars)
eval_batch_size = 32
train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, eval_batch_size)
ntokens = len(corpus.chars)
model = RNNModel(ntokens, args.emsize, args.nhid, 1, args.dropout).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

best_val_loss = None
for epoch in range(1, args.epochs + 1):
    train()
    val_loss = evaluate(val_data)
    print('-' * 80)
    print('| end of epoch {:3d} | valid loss {:5.3f} | valid bpc {:6.3f}'.format(epoch, val_loss, val_loss / math.log(2)))
    print('-' * 80)
    if best_val_loss is None or val_loss < best_val_loss:
        torch.save(model.state_dict(), args.save)
        best_val_loss = val_loss
    else:
        # Anneal the learning rate if no improvement has been seen in the validation dataset.
        for group in optimizer.param_groups:
            group['lr'] /= 4.0

"""Which play is a speech from? A convolutional network over word indices,
with early stopping and the best checkpoint.

    python train.py                  # resumes after a kill, with the same weights bit for bit

Source of the network: Y. Kim (2014), Convolutional Neural Networks for Sentence Classification,
arXiv 1408.5882.
"""

import gzip
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stoker

LENGTH, WORDS, EPOCHS, PATIENCE = 60, 2000, 40, 4
PADDING, UNKNOWN = 0, 1


def load():
    """(to learn from, to test on): speeches as LENGTH word indices, and the number of the play."""
    with gzip.open(Path(__file__).parent / "speeches.txt.gz", "rt") as f:
        speeches = [(int(play), text.split()) for play, text in (line.split("\t") for line in f)]
    learn = [speech for n, speech in enumerate(speeches) if n % 6]
    test = speeches[::6]
    common = Counter(word for _, words in learn for word in words).most_common(WORDS - 2)
    index = {word: n for n, (word, _) in enumerate(common, 2)}

    def dataset(part):
        rows = [
            [index.get(word, UNKNOWN) for word in words] + [PADDING] * (LENGTH - len(words))
            for _, words in part
        ]
        return TensorDataset(torch.tensor(rows), torch.tensor([play for play, _ in part]))
    return dataset(learn), dataset(test)


class TextCNN(nn.Module):
    """Words as vectors, windows of 1 to 3 words, the strongest answer of each window, one layer."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64, padding_idx=PADDING)
        self.windows = nn.ModuleList(nn.Conv1d(64, 64, size) for size in (1, 2, 3))
        self.out = nn.Linear(3 * 64, 4)

    def forward(self, indices):
        vectors = F.dropout(self.words(indices), 0.3, self.training).transpose(1, 2)
        found = torch.cat([window(vectors).relu().amax(2) for window in self.windows], 1)
        return self.out(F.dropout(found, 0.5, self.training))


engine = stoker.Engine(folder="runs/text", seed=1, save="20s")
train_set, test_set = load()
train, test = DataLoader(train_set, batch_size=32, shuffle=True), DataLoader(test_set, batch_size=120)
model = TextCNN()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
engine.setup(model, optimizer, train, test)

best, worse = engine.keep(best=0.0, worse=0)
for epoch in engine.epochs(EPOCHS):
    for words, play in engine.batches(train):
        loss = F.cross_entropy(model(words), play)
        engine.step(loss)
        engine.log(loss=loss)
    right = count = 0
    with engine.eval(model):
        for words, play in engine.batches(test):
            right += (model(words).argmax(1) == play).sum().item()
            count += len(play)
    accuracy = engine.average(right / max(count, 1), weight=count)
    best, worse = engine.keep(best=max(best, accuracy), worse=0 if accuracy > best else worse + 1)
    engine.save(score=accuracy)
    engine.print(f"epoch {epoch + 1:2d}  test accuracy {100 * accuracy:.2f} %")
    if worse == PATIENCE:
        break
engine.export("best.safetensors", model, best=True)
engine.print(f"best test accuracy {100 * best:.2f} %, weights in best.safetensors")

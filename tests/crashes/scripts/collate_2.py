"""An error in the handling of an error, printed by the script itself."""
import sys
import traceback

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def pad(batch):
    try:
        batch = sorted(batch, key=lambda s: -len(s))
        if len(batch[-1]) == 0:
            raise ValueError("empty sequence")
        return pad_sequence(batch, batch_first=True, padding_value=-1)
    except ValueError:
        lengths = [s.size(1) for s in batch]  # here
        raise RuntimeError(f"cannot pad {lengths}")


def main():
    sentences = [torch.arange(n % 5 + 1) for n in range(16)] + [torch.arange(0)]
    embed = torch.nn.Embedding(8, 4)
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)
    for tokens in DataLoader(sentences, batch_size=4, collate_fn=pad):
        optimizer.zero_grad()
        embed(tokens.clamp(min=0)).norm().backward()
        optimizer.step()
        print(list(tokens.shape))


if __name__ == "__main__":
    try:
        main()
    except IndexError:
        kind, value, tb = sys.exc_info()
        print("".join(traceback.format_exception(kind, value, tb)), file=sys.stderr, end="")
        print("frames:", [f.name for f in traceback.extract_tb(tb) if f.filename == __file__])
        raise SystemExit(4)

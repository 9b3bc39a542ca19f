"""A word that is not in the vocabulary, in a worker."""
import torch
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    vocabulary = {w: i for i, w in enumerate("the cat sat on mat".split())}
    text = "the cat sat on the mat the cat on the mat sat the dog".split()

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return torch.tensor(self.vocabulary[self.text[i]])  # here


def main():
    embed = torch.nn.Embedding(5, 3)
    opt = torch.optim.SGD(embed.parameters(), lr=0.1)
    for n, batch in enumerate(DataLoader(Words(), batch_size=2, num_workers=1)):
        opt.zero_grad()
        embed(batch).sum().backward()
        opt.step()
        print("batch", n, batch.tolist())


if __name__ == "__main__":
    main()

"""The loader of loader_3."""
import warnings

from torch.utils.data import DataLoader


class EndlessLoader(DataLoader):
    """Begins again by itself; made for loops that count steps."""

    def __iter__(self):
        epoch = 0
        while True:
            for n, batch in enumerate(super().__iter__()):
                self.check(epoch, n)
                yield batch
            epoch += 1
            warnings.warn(f"epoch {epoch} of the loader", UserWarning, stacklevel=2)

    def check(self, epoch, n):
        if epoch == self.limit and n == 1:
            raise StopAsyncIteration(f"more than {self.limit} epochs")  # here

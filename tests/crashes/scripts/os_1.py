"""Makes the same folders twice, without torch."""
import os


def prepare(root):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            os.makedirs(os.path.join(root, split, name))  # here
    print("folders:", sorted(os.listdir(root)))


prepare("data")
prepare("data")

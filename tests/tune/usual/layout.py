"""Where each script of this folder finds its data: laid out as the script's author would have it, from one shared folder of data sets."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

JPEG_TRAIN, JPEG_TEST = 250, 50  # pictures of each of the ten classes: 3,000 in all, so that unpacking takes a moment and not minutes

_MNIST = tuple(f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
_DIGITS = {name: f"mnist/{name}" for name in _MNIST}
_CIFAR = {f"{batch}.bin": f"cifar10-lossless-subset/{batch}.first1017.bin" for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")}
_TEXT = {"input.txt": "tiny-shakespeare/input.txt"}
_JPEG = "cifar10-jpg/cifar10-images.tar.gz"

# script -> {name beside the script: file of the data set}, or the archive to unpack
_WANTED: dict[str, dict[str, str] | str] = {
    "mnist_cnn_idx": _DIGITS,
    "cifar_resnet_small": _CIFAR,
    "char_rnn": _TEXT,
    "char_transformer": _TEXT,
    "vae_mnist": _DIGITS,
    "gan_mnist": _DIGITS,
    "jpeg_folder_classifier": _JPEG,
    "autoencoder_tabular": _DIGITS,
    "siamese_pairs": _DIGITS,
    "distill_two_models": _CIFAR,
}
NAMES = tuple(_WANTED)

_PICTURE = re.compile(r"(train|test)/([a-z]+)/(\d{4})\.jpg")


def lay_out(name: str, shared: Path, target: Path) -> list[str]:
    """Put the data of script `name` (one of NAMES) into `target` and return the arguments the script then needs.

    `shared`: the folder of the data sets (mnist/, tiny-shakespeare/, ...), or the one that holds it as data/. `target` is made if it
    is missing; called twice, it keeps what lies there. Files are linked, the JPEG pictures are unpacked into target/PART/CLASS/.
    Raises KeyError for a name that is not in NAMES, FileNotFoundError when a data set is not there.
    """
    wanted = _WANTED[name]
    sets = shared / "data" if (shared / "data").is_dir() else shared
    target.mkdir(parents=True, exist_ok=True)
    if isinstance(wanted, str):
        _unpack(_found(sets / wanted), target)
    else:
        for here, there in wanted.items():
            _link(target / here, _found(sets / there))
    return ["--data", str(target)]


def _found(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"the data set is not there: {path}")
    return path.resolve()


def _link(here: Path, there: Path) -> None:
    if not here.exists():
        here.symlink_to(there)


def _unpack(archive: Path, target: Path) -> None:
    """The first pictures of each class, by their numbers. Only names of the known shape are written, whatever else the archive holds."""
    with tarfile.open(archive) as tar:
        for member in tar:
            picture = _PICTURE.fullmatch(member.name)
            if picture is None or not member.isfile() or int(picture[3]) >= (JPEG_TRAIN if picture[1] == "train" else JPEG_TEST):
                continue
            here = target / member.name
            if here.exists():
                continue
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(tar.extractfile(member).read())

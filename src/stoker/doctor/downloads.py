"""What a script fetches from the network as it starts, and whether it is there already where the library
looks for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from stoker.doctor.finding import Finding
from stoker.doctor.reader import Call, Reader, Surroundings

SHELLS = frozenset(
    {
        "os.system",
        "os.popen",
        "subprocess.run",
        "subprocess.call",
        "subprocess.check_call",
        "subprocess.check_output",
        "subprocess.Popen",
        "subprocess.getoutput",
    }
)
_DATASETS = {  # torchvision: what lies under the root once it is there
    "MNIST": "MNIST/raw/train-images-idx3-ubyte",
    "FashionMNIST": "FashionMNIST/raw/train-images-idx3-ubyte",
    "KMNIST": "KMNIST/raw/train-images-idx3-ubyte",
    "EMNIST": "EMNIST/raw",
    "QMNIST": "QMNIST/raw",
    "CIFAR10": "cifar-10-batches-py",
    "CIFAR100": "cifar-100-python",
    "SVHN": "train_32x32.mat",
    "STL10": "stl10_binary",
    "VOCSegmentation": "VOCdevkit",
    "VOCDetection": "VOCdevkit",
    "GTSRB": "gtsrb",
    "Flowers102": "flowers-102",
    "Food101": "food-101",
    "DTD": "dtd",
    "OxfordIIITPet": "oxford-iiit-pet",
    "Caltech101": "caltech101",
    "CelebA": "celeba",
    "EuroSAT": "eurosat",
}
_LOCAL_BUILDERS = frozenset(
    {"csv", "json", "text", "parquet", "arrow", "imagefolder", "audiofolder", "pandas", "webdataset"}
)
_FETCHES = {
    "urllib.request.urlretrieve": "a file",
    "urllib.request.urlopen": "a file",
    "requests.get": "a file",
    "wget.download": "a file",
    "gdown.download": "a file",
    "torch.hub.load": "a model",
    "torch.hub.load_state_dict_from_url": "weights",
    "nltk.download": "a corpus",
    "torch.hub.download_url_to_file": "a file",
    "huggingface_hub.snapshot_download": "a repository",
    "huggingface_hub.hf_hub_download": "a file",
    "torchvision.datasets.utils.download_url": "a file",
    "torchvision.datasets.utils.download_and_extract_archive": "an archive",
    "tensorflow.keras.utils.get_file": "a file",
    "keras.utils.get_file": "a file",
}
_HUB_LIBRARIES = (
    "transformers.",
    "diffusers.",
    "sentence_transformers.",
    "peft.",
    "huggingface_hub.",
    "open_clip.",
    "timm.",
)
_ONCE = "If the machine of the run has no network access, download the data before the run."
_FETCH_COMMAND = re.compile(r"(^|[\s;&|])(wget|curl|gdown|aria2c|git clone)\s")

def downloads(reader: Reader, around: Surroundings) -> Iterator[Finding]:
    """What is fetched at start, and is not there yet where the library looks for it."""
    for call in reader.calls:
        found = _download(call, reader, around)
        if found:
            level, message, hint = found
            yield Finding(
                "note" if call.guards else level,
                "download",
                message,
                hint,
                around.name(reader.source),
                call.line,
            )


def _download(call: Call, reader: Reader, around: Surroundings) -> tuple[str, str, str] | None:
    last = call.name.rsplit(".", 1)[-1]
    if call.keywords.get("download") == "True" and (last in _DATASETS or "datasets" in call.name):
        return _dataset(call, last, around)
    if call.method == "from_pretrained" and call.name.startswith(_HUB_LIBRARIES):
        return _hub(call, "models", around)
    if (
        call.name in ("datasets.load_dataset", "load_dataset")
        and (call.positional_texts[:1] or ("",))[0] not in _LOCAL_BUILDERS
    ):
        return _hub(call, "datasets", around)
    weights = call.keywords.get("pretrained") == "True" or call.keywords.get("weights", "None") != "None"
    if call.name.startswith("torchvision.models.") and weights:
        return _torch_weights(call, around)
    if call.name in _FETCHES:
        return "note", f"{call.name}() downloads {_FETCHES[call.name]}{_which(call)}.", _ONCE
    if call.name in SHELLS and any(_FETCH_COMMAND.search(t) for t in call.texts):
        return "note", f"{call.name}() downloads data{_which(call)}.", _ONCE
    return None


def _dataset(call: Call, name: str, around: Surroundings) -> tuple[str, str, str] | None:
    root = call.keywords.get("root") or (call.positional_texts[0] if call.positional_texts else "")
    if not root:
        return "note", f"The script downloads {name} if the data folder is empty.", _ONCE
    where = Path(os.path.normpath(os.path.join(around.folder, os.path.expanduser(root))))
    wanted = _DATASETS.get(name)
    if wanted is None:
        return (
            None
            if where.is_dir()
            else (
                "note",
                f"The script downloads {name} to {where}, which does not exist yet.",
                f"Download {name} once before the run.",
            )
        )
    if any(os.path.exists(where / (wanted + end)) for end in ("", ".gz")):
        return None
    return ("warn", f"The script downloads {name} at its start, because {where / wanted} does not exist.",
            f"Download {name} once on a machine with a network, or put the files into {where}.")


def _hub(call: Call, kind: str, around: Surroundings) -> tuple[str, str, str] | None:
    name = call.positional_texts[0] if call.positional_texts else ""
    if (
        not name
        or (around.folder / os.path.expanduser(name)).exists()
        or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name)
    ):
        return None  # a variable or a path
    env = around.env
    cache = Path(
        env.get("HF_HOME")
        or os.path.join(env.get("XDG_CACHE_HOME") or os.path.join(around.home, ".cache"), "huggingface")
    )
    places = [Path(env.get("HF_HUB_CACHE") or cache / "hub") / f"{kind}--{name.replace('/', '--')}",
              Path(env.get("HF_DATASETS_CACHE") or cache / "datasets") / name.replace("/", "___")]
    if any(p.is_dir() for p in places):
        return None
    offline = env.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")
    forbidden = ". But HF_HUB_OFFLINE forbids this download" if offline else ""
    option = " --repo-type dataset" if kind == "datasets" else ""
    return ("warn", f"The script downloads {name} at its start, because {places[0]} does not "
                    f"exist{forbidden}.",
            f"Download {name} once while the network is available: hf download {name}{option}")


def _torch_weights(call: Call, around: Surroundings) -> tuple[str, str, str] | None:
    env = around.env
    shared = env.get("XDG_CACHE_HOME") or os.path.join(around.home, ".cache")
    cache = Path(env.get("TORCH_HOME") or os.path.join(shared, "torch"), "hub/checkpoints")
    name = call.name.rsplit(".", 1)[-1]
    if any(cache.glob(f"{name}-*")) or any(cache.glob(f"{name}_*")):
        return None
    return ("warn", f"The script downloads the weights of {name} at its start, because {cache} does not "
                    "contain these weights.",
            "Download the weights once while the network is available, or set TORCH_HOME to a folder that "
            "contains the weights in hub/checkpoints.")


def _which(call: Call) -> str:
    address = next((t for t in call.texts if "://" in t), "")
    return f" ({address if len(address) < 80 else address[:77] + '...'})" if address else ""

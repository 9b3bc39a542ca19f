"""Batches read at once and samples that are kept: the same batches in the same order, only where that is proven."""

from __future__ import annotations

from pathlib import Path

import pytest
from settings_lives import line_of, live

from stoker.base.vendor import lay_out

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def vendored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("settings"))


def test_batches_of_indices_only_where_torch_shuffles_as_we_do(monkeypatch):
    from torch.utils.data import BatchSampler, RandomSampler

    from stoker.inside.settings import feeds
    monkeypatch.setattr(feeds, "_known_order", [])
    batches = BatchSampler(RandomSampler(range(20)), 8, False)
    before = torch.get_rng_state()
    assert [len(each) for each in feeds._indices(batches)] == [8, 8, 4] and feeds._known_order == [True]
    torch.set_rng_state(before)
    ours = [each.tolist() for each in feeds._indices(batches)]
    torch.set_rng_state(before)
    assert ours == list(batches)
    monkeypatch.setattr(feeds, "_known_order", [])
    monkeypatch.setattr(RandomSampler, "__iter__", lambda self: iter(torch.randperm(len(self.data_source), generator=self.generator).tolist()))
    before = torch.get_rng_state()
    assert feeds._indices(batches) is None and torch.equal(torch.get_rng_state(), before)


DATA = """
import numpy as np
from PIL import Image
from torch.utils.data import ConcatDataset, Subset, random_split
torch.manual_seed(0); random.seed(0); np.random.seed(0)
class ToTensor:
    def __call__(self, picture):
        x = torch.from_numpy(np.array(picture)).view(picture.size[1], picture.size[0], len(picture.getbands()))
        return x.permute(2, 0, 1).contiguous().to(torch.get_default_dtype()).div(255)
class Normalize:
    def __init__(self, mean, std): self.mean, self.std = mean, std
    def __call__(self, x):
        mean, std = (torch.as_tensor(each, dtype=x.dtype).view(-1, 1, 1) for each in (self.mean, self.std))
        return x.clone().sub_(mean).div_(std)
class Compose:
    def __init__(self, *steps): self.transforms = list(steps)
    def __call__(self, x):
        for step in self.transforms: x = step(x)
        return x
class Digits(Dataset):
    def __init__(self, n, *more):
        self.data, self.targets = torch.randint(0, 256, (n, 28, 28), dtype=torch.uint8), torch.randint(0, 10, (n,))
        self.transform = Compose(ToTensor(), Normalize((0.1307,), (0.3081,)), *more)
    def __len__(self): return len(self.data)
    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.data[i].numpy())), int(self.targets[i])
class Photos(Digits):
    def __init__(self, n, transform=None):
        self.data, self.targets = np.random.randint(0, 256, (n, 8, 9, 3), dtype=np.uint8), [random.randrange(10) for _ in range(n)]
        self.transform = transform or Compose(ToTensor(), Normalize((0.49, 0.48, 0.44), (0.24, 0.25, 0.26)))
    def __getitem__(self, i): return self.transform(Image.fromarray(self.data[i])), self.targets[i]
class Table(Dataset):
    def __init__(self, n): self.held = {"x": np.random.rand(n, 5), "y": np.arange(n) % 3}
    def __len__(self): return len(self.held["y"])
    def __getitem__(self, i): return {"x": torch.tensor(self.held["x"][i], dtype=torch.float32), "y": int(self.held["y"][i]), "at": i}
class Waves(Dataset):
    def __init__(self, n): self.x, self.y = np.random.rand(n, 5).astype("float32"), np.arange(n) % 3
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return torch.from_numpy(self.x[i]).sin() * 2 + 1, self.y[i]
class Resize:
    def __call__(self, picture): return picture.resize((8, 6))
class Folder(Dataset):
    def __init__(self, n, *more):
        self.samples = []
        for i in range(n):
            Image.fromarray(np.random.randint(0, 256, (9, 7, 3), dtype=np.uint8)).save(f"{i}.png")
            self.samples.append((f"{i}.png", i % 4))
        self.transform = Compose(Resize(), *more, ToTensor(), Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    def loader(self, path): return Image.open(path).convert("RGB")
    def __len__(self): return len(self.samples)
    def __getitem__(self, i):
        path, target = self.samples[i]
        return self.transform(self.loader(path)), target
class Queue(Waves):
    def __getitem__(self, i): return self.take()
    def take(self): return self.y.pop()
def tensors(n): return TensorDataset(torch.randn(n, 3), torch.arange(n))
def flip(x): return x.flip(-1) if random.random() < 0.5 else x
class Own(Photos):
    def __init__(self, n):
        super().__init__(n)
        self.rng = np.random.default_rng(0)
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + float(self.rng.random()), y
class Counts(Waves):
    seen = 0
    def __getitem__(self, i):
        self.seen += 1
        return self.x[i], self.seen
class Drawn(Dataset):  # as work by the pixel: no row of anything
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return torch.tensor([float(i * k % 7) for k in range(6)]), i % 3
class Ragged(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return torch.arange(1 + i % 5), f"name {i}"
"""

PROOFS = DATA + """
from stoker_hooks.settings import batched, beside, cache
good = dict(digits=Digits(1500), photos=Photos(1200), lambdas=Photos(1100, lambda p: torch.from_numpy(np.array(p)).float() / 127.5 - 1),
            table=Table(1300), waves=Waves(1200), tensors=tensors(1000), part=random_split(Digits(2000), [900, 1100])[1],
            chain=ConcatDataset([tensors(600), Subset(tensors(700), range(5, 505))]), few=tensors(20), folder=Folder(40))
bad = dict(flipped=Digits(1200, flip), own=Own(1200), counts=Counts(1200), taken=Queue(1200), ragged=Ragged())
before = beside.states()
tell(good={name: [str(batched.prove(each, 1000).why), batched.prove(each, 1000).n] for name, each in good.items()},
     bad={name: batched.prove(each, 1000).why for name, each in bad.items()},
     kept={name: cache.prove(each, 200).why for name, each in (*good.items(), *bad.items(), ("drawn", Drawn(300)))},
     about=batched.plan(good["folder"]).about, drew=beside.drew(before, beside.states()), own=bad["own"].rng.bit_generator.state == np.random.default_rng(0).bit_generator.state)
"""


def test_what_can_be_read_at_once_is_proven_and_what_is_drawn_anew_is_not(vendored, tmp_path):
    told = live(vendored, tmp_path, PROOFS, {}).said
    assert {name: each for name, each in told["good"].items() if each != ["", 1000]} == {"few": ["", 20], "folder": ["", 40]}
    assert all(told["bad"].values()), told["bad"]
    kept = told["kept"]
    assert {name for name, why in kept.items() if why} == {"flipped", "own", "counts", "taken"}
    assert "from Python's random" in kept["flipped"] and "data set's own generator" in kept["own"] and "seen" in kept["counts"]
    assert "pop" in kept["taken"] and "pop" in told["bad"]["taken"]
    assert told["about"] == "image files, with the pixels of a whole batch at once"
    assert told["drew"] == "" and told["own"] is True


EPOCHS = DATA + """
loaders = {}
loaders["digits"] = DataLoader(Digits(200), batch_size=16, shuffle=True)
loaders["photos"] = DataLoader(Photos(150), batch_size=16, shuffle=True, num_workers=2, drop_last=True)
loaders["part"] = DataLoader(Subset(Digits(90), range(3, 80)), batch_size=16)
loaders["drawn"] = DataLoader(Drawn(120), batch_size=16, shuffle=True, num_workers=2)
loaders["kept"] = DataLoader(Drawn(100), batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(4))
loaders["ragged"] = DataLoader(Ragged(), batch_size=4, shuffle=True, collate_fn=lambda samples: samples)
loaders["flipped"] = DataLoader(Digits(64, flip), batch_size=16)
loaders["changed"] = DataLoader(Photos(64), batch_size=16)
loaders["later"] = DataLoader(Drawn(64), batch_size=16)
loaders["own collate"] = DataLoader(tensors(64), batch_size=16, collate_fn=lambda samples: samples)
def numbers(batch):
    if isinstance(batch, torch.Tensor): return [str(batch.dtype), list(batch.shape), batch.double().sum().item()]
    return [numbers(each) for each in batch] if isinstance(batch, (list, tuple)) else batch
seen = {}
for epoch in range(3):
    for name, each in loaders.items():
        seen[f"{name} {epoch}"] = [numbers(batch) for batch in each] + [type(each.dataset).__name__, torch.rand(1).item(), random.random()]
    changed, later = loaders["changed"].dataset, loaders["later"].dataset
    changed.transform = Compose(ToTensor(), Normalize((0.1 * epoch,), (0.5,)))
    later.extra = epoch
tell(seen=seen)
"""


def test_fed_loaders_give_the_same_batches_in_the_same_order(vendored, tmp_path):
    plain = live(vendored, tmp_path, EPOCHS, None)
    feeds = {"digits": "batched", "photos": "batched", "part": "batched", "drawn": "cache", "kept": "cache", "ragged": "cache",
             "flipped": "batched", "changed": "batched", "later": "cache", "own collate": "batched"}
    lines = {name: line_of(EPOCHS, f'loaders["{name}"] = ') for name in feeds}
    names = {name: f"train.py:{line}#0" for name, line in lines.items()}
    told = live(vendored, tmp_path, EPOCHS, {"loaders": {names[name]: {"feed": feed} for name, feed in feeds.items()}})
    assert told.said == plain.said
    assert {name for name in feeds if f"{names[name]} feed={feeds[name]}" in told.applied} == {
        "digits", "photos", "part", "drawn", "kept", "ragged", "changed"}
    left = {name: told.left.get(f"{names[name]} feed", "") for name in ("flipped", "later", "own collate")}
    assert "random" in left["flipped"] and "extra" in left["later"] and "collate_fn" in left["own collate"]


ANEW = """
class Counted(Dataset):
    def __init__(self, n): self.x = torch.randn(n, 3)
    def __len__(self): return len(self.x)
    def __getitem__(self, i):
        with open("reads", "a") as f: f.write(".")
        return self.x[i] * 2, i % 5
torch.manual_seed(0)
data, batches = Counted(400), []
for epoch in range(5):
    if epoch == 3: data.x = data.x + 1
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=WORKERS)
    batches += [each for x, y in loader for each in (x.sum().item(), y.tolist())]
del loader
tell(batches=batches, reads=os.path.getsize("reads"))
import weakref
gone = weakref.ref(data)
del data
tell(gone=gone() is None)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_kept_outlives_a_loader_that_is_made_for_each_epoch(vendored, tmp_path, workers):
    code = ANEW.replace("WORKERS", str(workers))
    plain = live(vendored, tmp_path, code, None)
    (tmp_path / "reads").unlink()
    name = f"train.py:{line_of(code, 'loader = DataLoader')}#0"
    signature = "Counted[400] RandomSampler batch=16 default_collate"
    told = live(vendored, tmp_path, code, {"loaders": {name: {"feed": "cache", "signature": signature}}})
    assert told.said["batches"] == plain.said["batches"] and told.said["gone"] and plain.said["gone"]
    assert plain.said["reads"] == 5 * 400
    assert 2 * 400 <= told.said["reads"] < 3 * 400 + 200, told.left  # in the first epoch, and when it had changed; a few for proof
    assert f"{name} feed=cache" in told.applied

"""Loaders under settings: found by call site, changed where it is right, with the same samples in the same order; and loaders beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from settings_lives import line_of, live

from stoker.base.vendor import lay_out

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def vendored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("settings"))


ORDER = """
torch.manual_seed(0)
class Numbers(Dataset):
    def __init__(self, n): self.n, self.scale = n, 1
    def __len__(self): return self.n
    def __getitem__(self, i): return torch.tensor([i]), self.scale
def loader_of(n, **more):
    return DataLoader(Numbers(n), batch_size=4, **more)  # many
shuffled = loader_of(23, shuffle=True)
weighted = DataLoader(Numbers(20), batch_size=3, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 20, 20), drop_last=True)
gen = torch.Generator().manual_seed(3)
with_generator = DataLoader(Numbers(17), batch_size=5, shuffle=True, generator=gen)
seen = []
for epoch in range(3):
    for each in (shuffled, weighted, with_generator):
        seen.append([x.flatten().tolist() + torch.rand(1).tolist() for x, _ in each])
changing = DataLoader(Numbers(8), batch_size=4)
for epoch in range(3):
    changing.dataset.scale = epoch
    seen.append([s.tolist() for _, s in changing])
tell(seen=seen, workers=[each.num_workers for each in (shuffled, weighted, with_generator)], kept=[changing.num_workers, changing.persistent_workers])
"""


def test_more_workers_and_kept_workers_leave_samples_and_random_numbers_as_they_were(vendored, tmp_path):
    plain = live(vendored, tmp_path, ORDER, None)
    assert plain.said.pop("workers") == [0, 0, 0] and plain.said.pop("kept") == [0, False]
    names = [f"train.py:{line_of(ORDER, text)}#0" for text in ("shuffled = ", "weighted = ", "with_generator = ", "changing = ")]
    wanted = {"workers": 2, "prefetch": 3, "persistent": True}
    told = live(vendored, tmp_path, ORDER, {"loaders": {**dict.fromkeys(names[1:], wanted), names[0]: wanted, "train.py:1#0": wanted}})
    assert f"train.py:{line_of(ORDER, '# many')}#0" not in names
    assert told.said.pop("workers") == [0, 2, 2], "the loader of loader_of() is made at another line"
    assert told.said.pop("kept") == [2, False]
    assert told.said == plain.said
    assert f"{names[1]} workers=2" in told.applied and f"{names[1]} persistent_workers=True" in told.applied
    assert "scale" in told.left[f"{names[3]} persistent_workers"]
    assert told.left["train.py:1#0"] == told.left[names[0]] == "the script creates no loader at this line"


KINDS = """
class Numbers(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.tensor([i])
class Stream(IterableDataset):
    def __iter__(self): return iter(range(8))
class Own(DataLoader):
    def __iter__(self): return iter([1, 2])
class Mine(DataLoader):
    def __init__(self, data, size):
        super().__init__(data, batch_size=size)
class Order:
    def __iter__(self): return iter([3, 1, 2])
    def __len__(self): return 3
data = Numbers()
made = {}
made["own"] = Own(data, batch_size=2)
made["stream"] = DataLoader(Stream(), batch_size=2)
made["sampler"] = DataLoader(data, sampler=Order())
made["mine"] = Mine(data, 3)
made["other"] = DataLoader(data, batch_size=2)
made["fewer"] = DataLoader(data, batch_size=2, num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=20)
made["pinned"] = DataLoader(data, batch_size=4)
made["bad"] = DataLoader(data, batch_size=6)
for fold in range(3):
    again = DataLoader(data, batch_size=5)
    made[f"fold {fold}"] = again
code = compile("from torch.utils.data import DataLoader\\ndef make(d):\\n    return DataLoader(d)\\n", "/x/site-packages/lib/data.py", "exec")
space = {}
exec(code, space)
made["library"] = space["make"](data)
from stoker_hooks.settings import loaders, beside
import multiprocessing
tell(undecided=multiprocessing.get_start_method(allow_none=True))
tell(knobs={name: [each.num_workers, each.prefetch_factor, each.persistent_workers, each.timeout, each.pin_memory] for name, each in made.items()},
     ids={name: loaders.id_of(each) for name, each in made.items()}, facts={name: loaders.facts(each) for name, each in made.items()})
for name in ("mine", "fewer", "stream"):
    list(made[name])

class Random(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.rand(2) + random.random()
noisy = DataLoader(Random(), batch_size=8, shuffle=True)
before = beside.states()
rooms = [loaders.sibling(noisy), loaders.sibling(noisy, workers=2, prefetch=1, persistent=True), loaders.sibling(made["sampler"], workers=0),
         loaders.sibling(made["stream"])]
counts = [[len(list(each)) for _ in range(2)] for each in rooms]
fresh = not torch.equal(next(iter(rooms[0])), next(iter(rooms[0])))
tell(drew=beside.drew(before, beside.states()), counts=counts, fresh=fresh, workers=[each.num_workers for each in rooms])
def unfit(*args, **kwargs):
    try:
        loaders.sibling(*args, **kwargs)
    except loaders.Unfit as e:
        return str(e)
multiprocessing.set_start_method("spawn", force=True)
tell(spawned=[unfit(made["other"], workers=1), unfit(made["mine"], feed="cache")])
tell(unfit=[unfit(made["own"]), unfit(made["stream"], workers=2), unfit(made["sampler"], workers=1)])
"""


def test_workers_are_kept_only_where_torch_seeds_them_as_we_know(monkeypatch):
    from torch.utils.data import dataloader

    from stoker.inside.settings import loaders
    assert loaders._seeds_are_known()

    def reset(self, loader, first_iter=False):
        self._base_seed = torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item()

    monkeypatch.setattr(dataloader._MultiProcessingDataLoaderIter, "_reset", reset)
    assert not loaders._seeds_are_known()
    loader = dataloader.DataLoader(range(8), num_workers=1)
    assert loaders._keep_workers(loader, True) == "Stoker does not know how this version of torch seeds persistent workers" and not loader.persistent_workers


def test_each_kind_of_loader_is_changed_or_left_alone(vendored, tmp_path):
    at = {name: line_of(KINDS, f'made["{name}"] = ') for name in ("own", "stream", "sampler", "mine", "other", "fewer", "pinned", "bad")}
    wanted = {f"train.py:{line}#0": {"workers": 2} for line in at.values()}
    wanted[f"train.py:{at['other']}#0"]["signature"] = "something else"
    wanted[f"train.py:{at['fewer']}#0"] = {"workers": 0, "prefetch": 3}
    wanted[f"train.py:{at['pinned']}#0"] = {"pin": True, "prefetch": 2, "persistent": True}
    wanted[f"train.py:{at['bad']}#0"] = {"workers": 1, "prefetch": 0}
    fold = f"train.py:{line_of(KINDS, 'again = ')}"
    wanted[f"{fold}#0"] = {"workers": 1, "persistent": True, "signature": "Numbers[12] SequentialSampler batch=5 default_collate"}
    told = live(vendored, tmp_path, KINDS, {"loaders": wanted})
    knobs, left, ids = told.said["knobs"], told.left, told.said["ids"]
    assert {name: each[0] for name, each in knobs.items()} == {
        "own": 0, "stream": 0, "sampler": 0, "mine": 2, "other": 0, "fewer": 0, "pinned": 0, "bad": 1, "fold 0": 1, "fold 1": 1, "fold 2": 1,
        "library": 0}
    assert knobs["fewer"] == [0, None, False, 0, False] and knobs["bad"][1] == 2
    assert [knobs[f"fold {n}"][2] for n in range(3)] == [True, False, False]
    assert ids["mine"] == f"train.py:{at['mine']}#0" and ids["fold 2"] == f"{fold}#0"
    assert told.said["facts"]["library"]["framework"] and told.said["facts"]["fold 1"]["rebuilt"] and told.said["facts"]["own"]["own_iter"]
    parts = {"own": "__iter__", "stream": "stream", "sampler": "Order", "other": "differs from the measured"}
    for name, part in parts.items():
        assert part in left[f"{ids[name]} workers"], name
    assert "no workers" in left[f"{ids['fewer']} prefetch"] and "no GPU" in left[f"{ids['pinned']} pin_memory"]
    assert told.said["undecided"] is None, "how processes start is the script's to decide"
    assert told.said["drew"] == "" and told.said["fresh"] is True
    assert told.said["counts"] == [[8, 8], [8, 8], [3, 3], [4, 4]] and told.said["workers"] == [0, 2, 0, 0]
    assert all(told.said["unfit"]) and all("not" in why for why in told.said["spawned"])

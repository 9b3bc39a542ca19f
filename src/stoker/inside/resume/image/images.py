"""Images: what a life looks like at one line of the script,
copied at the point and written by a thread of its own.

`take` at a point · `due` tells when the next one is wanted · `choose` finds the image that a new life goes to
· `restore.py` puts it back.

The last two images are kept. An image is used if it is whole, is not marked bad, and has a long enough
tail. manifest.json also has the hash of each file of the script's code, which `stoker start` compares.
"""

from __future__ import annotations

import _thread
import marshal
import os
import sys
import time
import types

from ...looks import isinstance
from ..compute import graphs, side_effects
from ..core import caches, internals, leaves, outcome, own, pace, phases, resume_cost, store, words
from ..state import (
    changed,
    generators,
    joined,
    library_held,
    reachability,
    reopened,
    storages,
    walk,
    walk_library,
)
from ..world import journal
from . import codec, foreseen

_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
_start_thread = _thread.start_new_thread  # the real one: this thread is ours, not the script's
_wall = getattr(time.time, "__wrapped__", time.time)
TAIL_VALUES = 3  # comparable events behind an image, at least
last_event = 0  # how many events had been at the last image
# (name, module) of those that keep something of their own in an image,
# in the order of saving and putting back
parts: list = []
obstacles: list = []  # called for why no image can be taken now, "" if one can
# called with number, meta, bytes and more of an image that is on the disk; they raise nothing
on_written: list = []
before: list = []  # called before an image is written; they raise nothing
_writer = None  # the image that is being written
_last_n = 0


class Image:
    """An image that can be resumed: `n`, `step`, `events` (of the log before it), `where` (what `take` was
    given), `at`, `bytes`."""

    def __init__(self, told: dict, meta: dict, data):
        self.n, self.step, self.events, self.at, self.where = (
            told["n"],
            told["step"],
            told["events"],
            told["at"],
            meta["where"],
        )
        self.meta, self.data, self.bytes = meta, data, len(data)


@leaves.quietly
def at_setup_end() -> None:
    """Large memory that both lives make in set-up is known by its checksum from here on."""
    from . import census
    census.install()
    seen = walk.Walk().run()
    library_held.remember()
    walk_library.remember_settings()
    storages.remember_constants(seen)
    reachability.know(seen)
    foreseen.at_setup_end(seen)
    codec.there.update((hash(path), number) for number, path in seen.seen.items())
    seen.close()


@leaves.quietly
def take(where, begun: float = 0.0) -> bool:
    """Copy what the script can reach, at a line of it, and hand it to the writer. False: not here;
    the next point may do."""
    if _writer is not None:
        if not _writer.done:
            return False
        settle()
    begun = begun or _clock()
    seen = walk.Walk().run()
    try:
        why = refusal(seen)
        if why:
            outcome.pass_point(why)
            return False
        copy = storages.Copy()
        try:
            meta = _meta(seen, copy, where)
        except journal.Impossible as e:  # files are not in a state that could be put back
            outcome.pass_point(str(e))
            return False
        why = "" if phases.phase else outcome.stopped
        why = why or store.room(phases.folder, copy.size)
        if why:
            outcome.pass_point(why)
            return False
        return _hand_over(meta, copy, begun)
    finally:
        seen.close()


def _hand_over(meta: dict, copy, begun: float) -> bool:
    global _writer, _last_n
    data = copy.fill()
    phases.log.flush()
    for call in before:
        call()
    if not phases.phase:  # the log could not be written, and recording has ended
        return False
    _last_n = max([_last_n, *store.numbers(phases.folder)]) + 1
    pace.took(begun, copy.size)
    pace.writing = True
    _writer = _Writer(_last_n, data, meta, copy, _clock() - begun)
    _start_thread(_writer.run, ())
    return True


def refusal(seen) -> str:
    """Why no image can be taken of what this walk saw: the first sentence of _REFUSALS, or nothing."""
    return next((why for check in _REFUSALS if (why := check(seen))), "")


def _by_obstacle(_seen) -> str:
    return next((why for call in obstacles if (why := call())), "")


def _not_saved(seen) -> str:
    return words.NOT_SAVED.format(what=seen.refusals[0]) if seen.refusals else ""


def _tensor_not_saved(seen) -> str:
    for path, tensor in seen.tensors.items():
        if why := storages.cannot(tensor):
            return words.NOT_SAVED.format(what=f"{walk.tell(path, seen.frames)} is {why}")
    return ""


def _map_replaced(seen) -> str:
    name = reopened.replaced(list(seen.arrays.values()))
    return words.MAP_REPLACED.format(path=name) if name else ""


def _address_kept(seen) -> str:
    address = _address(seen)
    if not address:
        return ""
    what = walk.tell(seen.facts[address][1], seen.frames)
    return words.ADDRESS.format(name=walk.tell(address, seen.frames), what=what)


def _graph_alive(seen) -> str:
    alive = graphs.alive(seen)
    return words.GRAPH_ALIVE.format(name=walk.tell(alive, seen.frames)) if alive else ""


def _type_unknown(seen) -> str:
    strange = reachability.strange(seen)
    if not strange:
        return ""
    return words.UNKNOWN_TYPE.format(name=walk.tell(strange[0], seen.frames), type=strange[1])


def _takes_bytes(seen) -> str:
    taker = reachability.takes_bytes(seen)
    return words.TAKES_BYTES.format(name=walk.tell(taker[0], seen.frames), type=taker[1]) if taker else ""


def _not_reached(seen) -> str:
    return next(iter(reachability.unseen(seen)), "")


# The order decides which reason is shown; the later ones are dearer to find out.
_REFUSALS = (
    _by_obstacle,
    _not_saved,
    _tensor_not_saved,
    _map_replaced,
    _address_kept,
    _graph_alive,
    _type_unknown,
    _takes_bytes,
    _not_reached,
    foreseen.why,
)


def _address(seen) -> str:
    """The path of a number that is an address, among the attributes of a tensor:
    such a tensor may come out of a loader or a model, and what a ghost gets for it has the number of the
    recorded life."""
    torch = sys.modules["torch"]
    owners = tuple(
        f"{path}."
        for path, tensor in seen.tensors.items()
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter)
    )
    addresses = (path for path, fact in seen.facts.items() if type(fact) is tuple and fact[:1] == ("id",))
    return next((path for path in addresses if path.startswith(owners)), "") if owners else ""


def _meta(seen, copy, where) -> dict:
    for path, tensor in seen.tensors.items():
        copy.tensor(path, tensor)
    for path, array in seen.arrays.items():
        copy.array(path, array)
    shifts = _shifts_of(seen)
    # from here on a new interval of the journal counts
    saved = {name: _frozen(part.save(copy)) for name, part in parts}
    return {
        "where": _frozen(where), "step": phases.steps, "events": len(phases.log), "frames": seen.frames,
        "facts": seen.facts, "alias": seen.alias, "members": copy.members, "groups": copy.groups,
        "arrays": copy.arrays,
        "extra": copy.extra, "rngs": {path: generators.state(thing) for path, thing in seen.rngs.items()},
        "world": internals.rngs(),
        "cuda": generators.of_gpus(),
        "optimizers": {path: codec.pack_optimizer(seen, thing, path) for path, thing in seen.optimizers.items()},  # noqa: E501
        "shared": joined.pairs(seen), "shifts": shifts, "parts": saved, "kept_graphs": graphs.kept(),
    }  # fmt: skip


def _shifts_of(seen) -> list:
    """[(path of the owner, name, tree)] of what was seen to change inside shields. `journal.Impossible`:
    what no later life could make."""
    states, found = tuple(f"{path}.state" for path in seen.optimizers), []
    for key in [key for key, (owner, _) in changed.shifts.items() if id(owner) not in seen.seen]:
        del changed.shifts[key]  # nothing leads there: they would live for us alone
    for owner, name in {
        **changed.shifts,
        **{(id(owner), name): (owner, name) for owner, name in side_effects.moved()},
    }.values():
        path = seen.seen.get(id(owner))
        if path and not path.startswith(states):
            found.append((path, name, _shift_tree(seen, owner, name, path), owner))
    found = _whole(sorted(found, key=lambda shift: len(shift[0])))
    for path, name, tree, owner in found:
        if tree[0] == "same" and (
            type(owner) is caches.CACHE if name is None else codec.is_lost(seen, tree, f"{path}.{name}")
        ):
            raise journal.Impossible(words.NOT_MADE.format(name=walk.tell(tree[1], seen.frames)))
    return [(path, name, tree) for path, name, tree, _ in found]


def _whole(shifts: list) -> list:
    """Without what is within a file that is opened anew."""
    anew = [f"{path}.{name}" for path, name, tree, _ in shifts if tree[0] == "opened"]
    return [
        shift
        for shift in shifts
        if not any(shift[0] == path or shift[0].startswith((f"{path}.", f"{path}[")) for path in anew)
    ]


def _frozen(told):
    """Plain values as they are now: the writer comes later, when those whose they are have gone on."""
    return marshal.loads(marshal.dumps(told, 2))


def is_in_place(owner, name: str) -> bool:
    """Whether an attribute that is none of the dictionary's is kept elsewhere: in a slot, in C."""
    place = next((vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind)), None)
    # a property would run code of the script's
    in_c = type(place) in (types.MemberDescriptorType, types.GetSetDescriptorType)
    return in_c and leaves.is_filled(place, owner)


def _shift_tree(seen, owner, name, path: str):
    if name is None:
        return codec.pack(seen, owner, path) if type(owner) in codec.FILLED else ("same", path)
    held = leaves.attributes(owner) or {}
    if name not in held and not isinstance(owner, type) and not is_in_place(owner, name):
        return ("absent",)
    value = held[name] if name in held else getattr(owner, name, None)
    return codec.pack(seen, value, f"{path}.{name}")


class _Writer:
    """One image on its way to the disk, in a thread that no list of the user's threads shows."""

    def __init__(self, n, data, meta, copy, stall):
        self.n, self.data, self.meta, self.copy, self.stall = n, data, meta, copy, stall
        self.done, self.error, self.changed, self.told = False, "", False, {}
        self.facts = {
            "step": meta["step"],
            "events": meta["events"],
            "at": _wall(),
            "stall_s": round(stall, 4),
            "attempt": phases.attempt,
            "code": {
                path: digest for path, (_, _, digest) in meta["where"].get("path", {}).get("code", {}).items()
            },
        }
        self.more = {**pace.told(), **resume_cost.foretell(meta["events"], stall)}
        self.log_path, self.root = phases.log.path, phases.folder

    def run(self) -> None:
        try:
            if self._proved():
                sync = own.open_file(self.log_path, os.O_RDONLY)
                try:
                    os.fsync(sync)  # the log reaches at least as far as the image
                finally:
                    os.close(sync)
                journal.sync()
                size = store.write(self.root, self.n, self.data, self.meta, self.facts)
                facts = {**{name: self.facts[name] for name in ("step", "at", "stall_s")}, **self.more}
                self.told = {
                    "state": "resumable",
                    "reason": "",
                    "step": self.facts["step"],
                    "image": {"n": self.n, "bytes": size, **facts},
                }
                outcome.write_state(**self.told)
                for call in on_written:
                    call(self.n, self.meta, size, self.more)
                store.prune(self.root)
        except Exception as e:
            self.error = f"{type(e).__name__}: {e}"
        finally:
            self.data = self.meta = self.copy = None
            self.done = True

    def _proved(self) -> bool:
        """The constants are what they were at the end of set-up. Done here, beside training:
        a change in between is seen all the same."""
        proofs = []
        for address, size, value, _owner in self.copy.proofs:
            if not storages.is_still(address, size, value):
                self.error, self.changed = (
                    "while Stoker wrote the image, some data changed for the first time since the setup",
                    True,
                )
                return False
            proofs.append((size, value))
        self.meta["proofs"] = proofs
        return True


def settle() -> None:
    """Tell what became of the image that was written;
    on the main thread, since only it may touch the shared state."""
    global _writer
    if _writer is None or not _writer.done:
        return
    written, _writer, pace.writing = _writer, None, False
    if written.changed:
        storages.forget_constants()
    elif written.error:
        outcome.say(
            f"image {written.n} could not be written ({written.error}); "
            "Stoker keeps the older image, and tries again later"
        )
    else:
        outcome.write_state(**written.told, log_bytes=phases.log.bytes)


def wait(timeout_s: float = 60.0) -> None:
    """Let the writer finish: at the end of a life, or before a wanted end."""
    until = _clock() + timeout_s
    while _writer is not None and not _writer.done and _clock() < until:
        _sleep(0.005)
    settle()


_sleep = getattr(time.sleep, "__wrapped__", time.sleep)


def choose():
    """The newest whole image with enough of the log behind it to tell a wrong resume; None: the start.
    Why others are not used is told in `state.json`."""
    tried = []
    best = None
    for n in store.numbers(phases.folder):
        if store.is_bad(phases.folder, n):
            continue
        try:
            told, meta, data = store.verified(phases.folder, n)
            image = Image(told, meta, data)
            behind = phases.log.tail(image.events) if phases.log is not None else TAIL_VALUES
        except (store.Damaged, KeyError, OSError, ValueError, TypeError, MemoryError) as e:
            tried.append({"image": n, "why": str(e)})
            continue
        if behind < TAIL_VALUES:
            tried.append({"image": n, "why": words.SHORT_TAIL.format(count=behind)})
            continue
        if not graphs.let_go(meta.get("kept_graphs", "")):
            tried.append({"image": n, "why": words.GRAPH_KEPT})
            continue
        best = image
        break
    if tried:
        outcome.write_state(tried=[*(outcome.state().get("tried") or ())[-9:], *tried])
    return best


def dropped() -> set:
    """Names in STOKER_RESUME_DROP: parts that are left out of the restore, to see the checks catch it."""
    return set(filter(None, os.environ.get("STOKER_RESUME_DROP", "").split(",")))


def put_files_back() -> None:
    """What the script holds is that of the image of this life: now its files become so too."""
    files = dict(parts).get("files")
    if files is not None and "files" in phases.target.meta["parts"]:
        files.put_back()

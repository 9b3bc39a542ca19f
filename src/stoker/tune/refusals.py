"""What must be left alone, and why: a reason a row, with its sentence and what the user can do. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.tune.findings import LOADER_KNOBS, Refusal
from stoker.tune.reading import Reading
from stoker.tune.view import View

FEWEST_STEPS = 30

REASONS = {
    "own_iter": "the loader overrides __iter__",
    "order_matters": "the data is a stream: only one reader can keep its order",
    "random_samples": "samples are random each time",
    "dataset_changes": "the script changes the dataset between epochs",
    "precision_sensitive": "the training fails in lower precision",
    "needs_stdin": "the script asks for input",
    "fails_itself": "the script fails",
    "too_short": "fewer than 30 steps",
    "no_loader": "the script has no DataLoader",
    "several_optimizers": "several optimizers take turns",
    "distributed": "several ranks wait for each other",
    "network_writes": "the script writes to a server",
    "not_replayable": "the data cannot be read twice",
    "batch_is_maths": "the loss depends on which samples share a batch",
}


def find(view: View, reading: Reading) -> tuple[Refusal, ...]:
    """All refusals; those of the whole tuning ("all") first."""
    found = {(r.knob, r.reason): r for r in _all(view, reading)}
    return tuple(sorted(found.values(), key=lambda r: r.knob != "all"))


def before(reading: Reading) -> Refusal | None:
    """What the text alone forbids: such a script must not even be started for a measurement."""
    if reading.takes_away:
        return Refusal(
            "all",
            "not_replayable",
            f"The data cannot be read twice ({_spot(reading.takes_away)} removes the data that it reads).",
            "Store the data in files and read these files.",
        )
    return None


def _all(view: View, reading: Reading) -> Iterator[Refusal]:
    whole = list(_whole(view, reading))
    yield from whole[:1]  # the first reason is reason enough
    if not whole:
        yield from _of_loader(view, reading)
        yield from _of_maths(view, reading)


def _whole(view: View, reading: Reading) -> Iterator[Refusal]:
    facts, effects = view.facts, view.effects
    steps = facts.get("steps_seen")
    if effects.get("stdin"):
        yield Refusal("all", "needs_stdin", "The script asks for input, which a trial cannot provide.",
                      "Pass the input as arguments.")
    if effects.get("network"):
        where = ", ".join(str(n) for n in effects["network"][:3])
        yield Refusal(
            "all",
            "network_writes",
            f"The script writes to {where}; each trial would write there again.",
            "Disable these writes for the tuning, or allow them: stoker tune --network ...",
        )
    if why := _once(view, reading):
        yield Refusal(
            "all",
            "not_replayable",
            f"The data cannot be read twice{why}.",
            "Store the data in files and read these files.",
        )
    if facts.get("ended") == "error":
        error = facts.get("error") or {}
        place = f", {error['file']}:{error['line']}" if error.get("file") else ""
        said = f"{error.get('type', 'an error')}: {error.get('message', '')}".rstrip(": ")
        yield Refusal("all", "fails_itself", f"The script fails: {said}{place}.",
                      "Fix the error first, then tune.")
    # the steps are made by processes that it starts
    elsewhere = reading.distributed and not facts.get("steps_seen")
    if int(facts.get("ranks") or 1) > 1 or view.flags.get("distributed") or elsewhere:
        yield Refusal(
            "all",
            "distributed",
            "Several ranks train together; Stoker cannot change the settings of only one rank.",
            "Tune the script with one process, without other ranks. Then start the ranks.",
        )
    if _turns(view, reading):
        yield Refusal(
            "all",
            "several_optimizers",
            "Several optimizers take turns, so steps cannot be compared.",
            "Read the causes above, and change the script by hand.",
        )
    if facts.get("ended") == "script" and steps is not None and steps < FEWEST_STEPS:
        many = f"{steps} step{'' if steps == 1 else 's'}"
        yield Refusal(
            "all",
            "too_short",
            f"The whole training has {many}; {FEWEST_STEPS} steps are needed to compare times.",
            "Tune with more data. A short training needs no tuning.",
        )


def _turns(view: View, reading: Reading) -> bool:
    stepping = [o for o in view.facts.get("optimizers") or [] if o.get("steps", 1)]
    if reading.turns is not None:  # where the text shows it, it is surer than what happened to be seen
        return len(stepping) > 1 and reading.turns
    return bool(view.flags.get("turns"))


def _once(view: View, reading: Reading) -> str:
    told = (view.loader or {}).get("replay")
    if isinstance(told, str):
        return f": {told}"
    if told is True:
        return ""
    return f" ({_spot(reading.takes_away)} removes the data that it reads)" if reading.takes_away else ""


# --- of the loader
# -----------------------------------------------------------------------------------------------------------

def _of_loader(view: View, reading: Reading) -> Iterator[Refusal]:
    loader = view.loader
    if loader is None:
        for knob in LOADER_KNOBS:
            yield Refusal(
                knob,
                "no_loader",
                "The script has no DataLoader, so Stoker has no loader settings to try.",
                "To tune the loading of data, read the data with a torch DataLoader.",
            )
        return
    if loader.get("own_iter"):
        for knob in LOADER_KNOBS:
            yield Refusal(
                knob,
                "own_iter",
                "The loader overrides __iter__, so Stoker cannot change the loader safely.",
                "If loading is slow, change the loader in the script.",
            )
        return
    if view.dataset.get("iterable"):
        yield from _of_stream(view)
    spot = _spot(reading.sets_on_dataset)
    if view.dataset.get("changed") or reading.sets_on_dataset:
        names = ", ".join(map(str, view.dataset.get("changed") or [])) or spot
        for knob in ("persistent_workers", "cache"):
            yield Refusal(
                knob,
                "dataset_changes",
                f"The script changes the dataset between epochs ({names}). Persistent workers and "
                "cached samples would not see these changes.",
                "To use persistent workers or a cache, do not change the dataset between epochs.",
            )
    if view.samples.get("same") is False or (view.samples.get("same") is None and reading.draws):
        yield Refusal(
            "cache",
            "random_samples",
            "Samples are random each time; cached samples would be the same in each epoch.",
            "In the dataset, cache the data before the random transform.",
        )
    proof = loader.get("proof") or {}
    if isinstance(proof.get("batched"), str) and view.samples.get("same") is False:
        yield Refusal(
            "batched",
            "random_samples",
            f"Reading a whole batch at once would give different samples: {proof['batched']}.",
            "If the order of random numbers does not matter, write __getitems__ in the dataset.",
        )


def _of_stream(view: View) -> Iterator[Refusal]:
    if not view.workers:
        yield Refusal(
            "workers",
            "order_matters",
            "The data is a stream: only one reader can keep its order.",
            "If the order does not matter, split the stream among workers in __iter__ (get_worker_info).",
        )
    for knob in ("cache", "batched"):
        yield Refusal(knob, "order_matters", "The data is a stream: its samples have no index.",
                      "If memory allows, use a dataset with __getitem__.")


# --- of the maths
# ------------------------------------------------------------------------------------------------------------

def _of_maths(view: View, reading: Reading) -> Iterator[Refusal]:
    half = view.facts.get("bf16") or {}
    if half.get("finite") is False or (half.get("cosine") is not None and half["cosine"] < 0.99):
        infinite = half.get("finite") is False
        seen = (
            "With bfloat16, the loss is no longer finite."
            if infinite
            else "bfloat16 changes the direction of the gradients too much: the cosine similarity to the "
            f"float32 gradients is only {half['cosine']:.3f}."
        )
        yield Refusal("bf16", "precision_sensitive", seen, "Keep float32.")
    elif why := (view.facts.get("failed") or {}).get("bf16"):
        yield Refusal(
            "bf16", "precision_sensitive", f"In bfloat16 the training fails: {why}.", "Keep float32."
        )
    elif reading.fine:
        for knob in ("bf16", "tf32"):
            yield Refusal(
                knob,
                "precision_sensitive",
                f"The training needs float32 precision ({_spot(reading.fine)}): in lower precision the "
                "training fails.",
                "Keep float32.",
            )
    if reading.batch_pairs:
        yield Refusal(
            "batch",
            "batch_is_maths",
            f"The loss depends on which samples share a batch ({_spot(reading.batch_pairs)}).",
            "A different batch size changes the training. Choose the batch size that gives the best "
            "training result.",
        )


def _spot(spot: tuple[str, int] | None) -> str:
    return f"{spot[0].rpartition('/')[2]}:{spot[1]}" if spot else ""

"""From what was measured to what it means: facts of the probe, the machine card and the script's text ->
Findings. Pure."""

from __future__ import annotations

from dataclasses import replace

from stoker.tune import actions, causes, feeding, refusals, tips
from stoker.tune.findings import NO_GAIN, Action, Cause, Curve, Findings, Range, Refusal, Stage
from stoker.tune.reading import Reading
from stoker.tune.view import View

KEPT, WORTH = tips.KEPT_STATES  # states of actions that were confirmed
ASKS = "needs consent"  # the state of those that wait for it begins so
UNCLEAR = "Because the machine was busy, Stoker cannot tell which share of the step is unexplained."
# kinds of the clock that settings make shorter
_WAITING, _COMPUTED = ("data", "start"), ("forward", "backward", "optimizer")
_SPREAD = 0.25  # between the windows of one phase
# causes whose share is what a setting won in a short measurement
_BY_A_SETTING = ("memory_format", "precision", "optimizer", "threads")


def judge(facts: dict, card: dict, reading: Reading | None = None) -> Findings:
    """Causes, actions, tips, refusals of one script on one machine (facts: contract, section 9;
    card: card.py; reading: reading.read)."""
    view, text = View(facts, card), reading or Reading()
    refused = refusals.find(view, text)
    whole = view.step_s("R0")
    found = causes.find(view, text)
    offered = actions.find(view, text, found, refused)
    told = tips.find(view, found, offered, refused)
    stall, copy = view.stall, view.copy
    floor = (
        whole * max(0.0, 1 - (stall.value if stall else 0) - (copy.value if copy else 0))
        if whole and stall
        else None
    )
    return Findings(
        _verdict(view, found, offered, refused),
        1e3 * whole if whole else None,
        1e3 * floor if floor is not None else None,
        stall,
        copy,
        None if view.unclear else view.residual,
        noise(view),
        found,
        offered,
        told,
        refused,
        _stages(view, offered),
        _curve(view, offered),
    )


def told_again(found: Findings, facts: dict, card: dict) -> Findings:
    """The same findings with verdict, tips and the step afterwards from the confirmed numbers,
    after actions were tried."""
    view = View(facts, card)
    found = _not_disproved(found, view)
    told = tips.find(view, found.causes, found.actions, found.refusals)
    kept = tuple(a for a in found.actions if a.state in (KEPT, WORTH))
    left = kept or tuple(a for a in found.actions if _foreseen(a))
    return replace(
        found,
        tips=told,
        verdict=_verdict(view, found.causes, found.actions, found.refusals, found.total),
        stages=_stages(view, left, found.total if kept else None),
    )


def _foreseen(action: Action) -> bool:
    """Is its gain a forecast that still holds:
    it was not tried yet, and the interval of the forecast does not reach "no gain"?"""
    return not action.state and action.ratio.high < 1


def _not_disproved(found: Findings, view: View) -> Findings:
    """Without what a race has disproved: the advised number of workers was tried, and won nothing;
    neither are they too many, if it was fewer. A cause that only a faster setting shows is none any more."""
    lost = {a.cause for a in found.actions if a.state == NO_GAIN and a.cause in _BY_A_SETTING}
    found = replace(
        found,
        causes=tuple(c for c in found.causes if c.name not in lost or c.measured != "differencing"),
    )
    raced = [a for a in found.actions if a.name == "workers" and a.state == NO_GAIN]
    if raced:
        found = replace(found, curve=replace(found.curve, advised=None))
    fewer = any(
        loader.get("workers", view.workers) < view.workers
        for a in raced
        for loader in a.settings.get("loaders", {}).values()
    )
    if not fewer:
        return found
    return replace(
        found,
        causes=tuple(each for each in found.causes if each.name != "too_many_workers"),
        actions=tuple(each for each in found.actions if each.name != "too_many_workers"),
    )


def noise(view: View) -> str:
    """Who disturbed, and what could not be told because of it; "" where it was quiet enough."""
    return " ".join(filter(None, (_disturbed(view), UNCLEAR if view.unclear else "")))


def _disturbed(view: View) -> str:
    if view.foreign >= causes.NOISY:
        return f"Another process used the cores for {view.foreign:.0%} of the time."
    each = [w["wall_s"] / w["steps"] for w in view.windows("R0")]
    if len(each) >= 3:
        middle = sorted(each)[len(each) // 2]
        spread = (max(each) - min(each)) / middle
        if spread > _SPREAD and not (view.facts.get("growth") or {}).get("backward"):
            return (
                f"Steps took between {1e3 * min(each):.3g} and {1e3 * max(each):.3g} ms in different "
                "measurements."
            )
    return ""


# --- words
# ------------------------------------------------------------------------------------------------------------

def _verdict(view: View, found: tuple[Cause, ...], offered: tuple[Action, ...], refused: tuple[Refusal, ...],
             total: Range | None = None) -> str:
    whole = view.step_s("R0")
    if refused and refused[0].knob == "all":
        return f"Not tuned: {refused[0].text}"
    if not whole:
        return "No step could be measured."
    step = f"{1e3 * whole:.3g} ms a step"
    waits = feeding.waited(view)
    side = ""
    if waits and waits.value >= causes.LEAST:
        seen = view.clock_share("data", "start") >= 0.5 * waits.value or not view.workers
        told = "waits for data" if seen else "is data loading, because the workers use the cores"
        side = f"{waits.value:.0%} of the step {told}"
    head = ", ".join(p for p in (step, side) if p)
    untried = [a for a in offered if a.cure == "setting" and _foreseen(a)]
    best = min(untried, key=lambda a: a.ratio.value, default=None)
    most = (
        f" Best setting: {best.name}, {1 / max(best.ratio.value, 0.01):.2g} times as fast (forecast)."
        if best
        else ""
    )
    if total is not None:
        faster = f"{1 / max(total.value, 0.01):.2f} times as fast"
        most = f" Confirmed: with the settings below, a step is {faster}." if total.value < 0.98 else ""
    asks = next((a for a in offered if a.cure == "setting" and a.state.startswith(ASKS)), None)
    if asks:
        most += (
            f" {asks.name} may make a step shorter by {asks.gain:.0%} (forecast), but needs your "
            f"consent{asks.state[len(ASKS) :]}."
        )
    if found:
        return f"{head}. {found[0].text}{most}"
    if (total is not None and total.value < 0.98) or (best is not None and best.gain >= causes.LEAST):
        return f"{head}. No single cause takes 10 % or more of a step.{most}"
    left = (
        f"The best setting, {best.name}, would make a step shorter by only {best.gain:.0%} (forecast)."
        if best
        else "No setting that Stoker tried gains 3 % or more."
    )
    return f"Already good: {step}. {left}{most if asks else ''}"


# --- numbers
# ------------------------------------------------------------------------------------------------------------

def _stages(view: View, offered: tuple[Action, ...], total: Range | None = None) -> tuple[Stage, ...]:
    """The clock's kinds in R0; `after`: with the best setting of each side, in sum what `total` confirmed of
    them together."""
    whole = sum(ms for kind, ms in view.clock.items() if kind != "evaluation")
    if not whole:
        return ()
    settings = [a for a in offered if a.cure == "setting"]
    feeds, computes = (
        whole * max([0.0, *(1 - a.ratio.value for a in settings if ("loaders" in a.settings) is side)])
        for side in (True, False)
    )
    waiting, rest = (sum(view.clock.get(k, 0.0) for k in kinds) for kinds in (_WAITING, _COMPUTED))
    if total is not None and feeds + computes > 0:
        gained = whole * (1 - total.value)
        feeds = min(waiting, gained * feeds / (feeds + computes))
        computes = gained - feeds
    left_wait = max(0.0, waiting - feeds) / waiting if waiting else 1.0
    left_rest = max(0.0, rest - computes) / rest if rest else 1.0
    how = {"data": "clock; " + ("differencing" if view.stall else "not differenced"), "start": "clock"}
    return tuple(
        Stage(
            kind,
            ms,
            view.clock_share(kind),
            ms * (left_wait if kind in _WAITING else left_rest if kind in _COMPUTED else 1.0),
            how.get(kind, "clock"),
        )
        for kind, ms in view.clock.items()
        if view.clock_share(kind) >= 0.002
    )


def _curve(view: View, offered: tuple[Action, ...]) -> Curve:
    model, batch = view.loader_model, view.batch
    compute = view.step_s("R1")
    limit, why = actions.breaks_at(view)
    dots = tuple(sorted(feeding.rates(view).items()))
    advised = next(
        (next(iter(a.settings["loaders"].values())).get("workers") for a in offered if a.name == "workers"),
        None,
    )
    most = max([8, 2 * round(view.cores), *(n for n, _ in dots), view.workers, advised or 0])
    line = tuple((n, model.rate(n)) for n in range(min(most, 32) + 1)) if model else ()
    return Curve(
        dots,
        line,
        batch / compute if batch and compute else None,
        view.cores,
        view.workers,
        advised,
        limit,
        why,
    )

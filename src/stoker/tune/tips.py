"""The nine tips of the tutorials, each judged on this script and this machine:
done, of use, of no use, unsafe, not tested. Pure."""

from __future__ import annotations

from collections.abc import Callable

from stoker.tune import feeding
from stoker.tune.causes import NOISY
from stoker.tune.findings import NO_GAIN, Action, Cause, Range, Refusal, Tip
from stoker.tune.view import View

KEPT_STATES = ("kept", "would be kept")  # what else became of an action is no help
NOTHING = 0.03  # a change of the step time below this is none

TIPS = {
    "num_workers": "use several loader workers",
    "pin_memory": "pin_memory=True",
    "prefetch": "persistent_workers=True, a larger prefetch_factor",
    "batch_size": "a larger batch",
    "precision": "mixed precision (bfloat16)",
    "channels_last": "channels_last for convolutions",
    "compile": "torch.compile",
    "optimizer": "a fused optimizer, zero_grad(set_to_none=True)",
    "syncs": "no .item(), print or log in each step",
}


def find(
    view: View, causes: tuple[Cause, ...], actions: tuple[Action, ...], refusals: tuple[Refusal, ...]
) -> tuple[Tip, ...]:
    """All nine, in the order of TIPS."""
    judge = _Judge(view, causes, actions, refusals)
    rows: dict[str, Callable[[], Tip]] = {
        "num_workers": judge.workers,
        "pin_memory": judge.pin,
        "prefetch": judge.prefetch,
        "batch_size": judge.batch,
        "precision": judge.precision,
        "channels_last": judge.channels_last,
        "compile": judge.compiled,
        "optimizer": judge.optimizer,
        "syncs": judge.syncs,
    }
    return tuple(row() for row in rows.values())


def more(ratio: float) -> float:
    """Throughput gained, from a ratio of step times."""
    return 1 / ratio - 1 if ratio > 0 else 0.0


class _Judge:
    def __init__(
        self,
        view: View,
        causes: tuple[Cause, ...],
        actions: tuple[Action, ...],
        refusals: tuple[Refusal, ...],
    ) -> None:
        self.view = view
        self.causes = {c.name: c for c in causes}
        self.actions = {a.name: a for a in actions}
        self.refusals = refusals

    def _refused(self, name: str, knob: str) -> Tip | None:
        found = next((r for r in self.refusals if r.knob in ("all", knob)), None)
        if found is None:
            return None
        unsafe = found.reason not in (
            "no_loader",
            "too_short",
            "needs_stdin",
            "fails_itself",
            "network_writes",
        )
        return Tip(name, "UNSAFE" if unsafe else "NOT TESTED", found.text)

    def _helps(self, name: str, knob: str) -> Tip | None:
        action = self.actions.get(knob)
        if action is None:
            return None
        if action.state == NO_GAIN:  # what was tried is no forecast any more
            return Tip(name, "NO EFFECT", f"{action.text.removesuffix('.')}: Stoker tried this setting, "
                                          "but it gives no gain.")
        ratio = (action.confirmed or action.ratio).value
        if 1 - ratio < NOTHING:
            return None
        if action.state and action.state not in KEPT_STATES:
            what, why = action.text.removesuffix("."), action.state.removesuffix(".")
            unsafe = action.state.startswith("not shown safe")
            return Tip(
                name,
                "UNSAFE" if unsafe else "NOT TESTED",
                f"{what}: {why}. Forecast: {more(action.ratio.value):+.0%}.",
            )
        if not action.state:
            certain = "uncertain" if action.ratio.high >= 1 else "not confirmed"
            return Tip(
                name,
                "NOT TESTED",
                f"{action.text} Forecast: {more(ratio):+.0%}, {certain}.",
            )
        return Tip(name, "HELPS", action.text, more(ratio))

    def _named(self, name: str, cause: Cause) -> Tip:
        """A change of the script, which Stoker never makes: no measurement confirms its gain."""
        if self.view.foreign >= NOISY:
            return Tip(name, "NOT TESTED", "Other processes used the cores, so the gain is not known.")
        gain = f" Forecast: {more(1 - cause.share.value):+.0%}." if cause.share else ""
        return Tip(name, "NOT TESTED", f"{cause.text}{gain}")

    def _measured(self, name: str, ratio: Range | None, what: str) -> Tip:
        if ratio is None:
            return Tip(name, "NOT TESTED", f"{what} was not tried.")
        gain = more(ratio.value)
        word = "the same"
        if abs(gain) > NOTHING:
            word = "slower" if gain < 0 else "faster, but not confirmed"
        return Tip(name, "NO EFFECT", f"{what}: a step takes {ratio.value:.2f} times as long as now "
                                      f"({word}).", gain)

    def workers(self) -> Tip:
        if tip := self._refused("num_workers", "workers") or self._helps("num_workers", "workers"):
            return tip
        waits = feeding.waited(self.view)
        if waits is not None and waits.value < NOTHING:
            text = (  # not the clock's words: the clock counts more, as a batch from memory takes time too
                f"With batches from memory, a step would be only {waits.value:.1%} shorter."
                if self.view.stall is not None
                else f"Waiting for data takes only {waits.value:.1%} of the step."
            )
            return Tip("num_workers", "DONE" if self.view.workers else "NO EFFECT", text, 0.0)
        measured = [r for p in self.view.phases if p.startswith("workers=") and (r := self.view.ratio(p))]
        if measured:
            return self._measured(
                "num_workers", min(measured, key=lambda r: r.value), "The best number of workers"
            )
        if waits is not None and self.view.loader_model is not None:
            text = f"{waits.value:.0%} of the step is data loading, but workers do not help here."
            return Tip("num_workers", "NO EFFECT", text, 0.0)
        return Tip("num_workers", "NOT TESTED", "The loader could not be measured.")

    def pin(self) -> Tip:
        if not self.view.facts.get("cuda"):
            return Tip("pin_memory", "NO EFFECT", "There is no GPU to copy to.", 0.0)
        if (self.view.loader or {}).get("pin"):
            return Tip("pin_memory", "DONE", "Batches are already pinned.")
        if tip := self._refused("pin_memory", "pin_memory") or self._helps("pin_memory", "pin_memory"):
            return tip
        copy = self.view.copy
        if copy is not None:
            return Tip(
                "pin_memory",
                "NO EFFECT",
                f"{copy.value:.1%} of the step is spent on copies that do not run at the same time as "
                "computing.",
                0.0,
            )
        return Tip("pin_memory", "NOT TESTED", "The copies could not be measured.")

    def prefetch(self) -> Tip:
        for knob in ("persistent_workers", "prefetch"):
            if tip := self._helps("prefetch", knob):
                return tip
        if tip := self._refused("prefetch", "prefetch"):
            return tip
        if not self.view.workers:
            return Tip(
                "prefetch",
                "NO EFFECT",
                "The loader has no workers that could be persistent or prefetch batches.",
                0.0,
            )
        starting = self.view.clock_share("start")
        if (self.view.loader or {}).get("persistent"):
            return Tip("prefetch", "DONE", "The workers are already persistent.")
        if refused := self._refused("prefetch", "persistent_workers"):
            return refused
        return Tip("prefetch", "NO EFFECT", f"Starting the workers takes {starting:.1%} of the time.", 0.0)

    def batch(self) -> Tip:
        if tip := self._refused("batch_size", "batch"):
            return tip
        model, batch = self.view.step_model, self.view.batch
        if model is None or not batch:
            return Tip("batch_size", "NOT TESTED", "Try: stoker tune --batch")
        gain = more(model.at(2 * batch) / 2 / model.at(batch)) if model.at(batch) else 0.0
        if gain < NOTHING:
            return Tip(
                "batch_size",
                "NO EFFECT",
                "A batch of twice the size takes about twice the time: the number of samples per second "
                f"changes by {gain:+.1%}.",
                gain,
            )
        return Tip(
            "batch_size",
            "NOT TESTED",
            f"A batch size of {2 * round(batch)} gives more samples per second (forecast: {gain:+.0%}), but "
            "changes the training. To measure larger batches: stoker tune --batch",
        )

    def precision(self) -> Tip:
        if tip := self._refused("precision", "bf16"):
            return tip
        dtype = str(self.view.model.get("dtype") or "")
        if "16" in dtype or self.view.flags.get("autocast"):
            return Tip("precision", "DONE", "The training already uses low precision.")
        for knob in ("bf16", "tf32"):
            if tip := self._helps("precision", knob):
                return tip
        return self._measured("precision", self.view.computed("bf16"), "bfloat16")

    def channels_last(self) -> Tip:
        why = self.view.no_channels_last
        if why == "done":
            return Tip("channels_last", "DONE", "The model already uses channels_last.")
        if why:
            text = (
                "The model has no 2d convolutions."
                if why == "none"
                else "channels_last changes nothing: the filters and inputs of this model have the same "
                "layout in both formats."
            )
            return Tip("channels_last", "NO EFFECT", text, 0.0)
        return (
            self._refused("channels_last", "channels_last")
            or self._helps("channels_last", "channels_last")
            or self._measured("channels_last", self.view.computed("channels_last"), "channels_last")
        )

    def compiled(self) -> Tip:
        if self.view.model.get("compiled"):
            return Tip("compile", "DONE", "The model is already compiled.")
        if tip := self._refused("compile", "compile"):
            return tip
        action = self.actions.get("compile")
        if action is not None and action.confirmed is None and self.view.ratio("compile") is None:
            return Tip(
                "compile",
                "NOT TESTED",
                f"Forecast: {more(action.ratio.value):+.0%}; compiling takes minutes.",
            )
        return self._helps("compile", "compile") or self._measured(
            "compile", self.view.ratio("compile"), "torch.compile"
        )

    def optimizer(self) -> Tip:
        if "zero_grad" in self.causes:
            return self._named("optimizer", self.causes["zero_grad"])
        if tip := self._refused("optimizer", "fused") or self._helps("optimizer", "fused"):
            return tip
        optimizers = self.view.facts.get("optimizers") or []
        if optimizers and all(o.get("fused") for o in optimizers):
            return Tip("optimizer", "DONE", "The optimizer is already fused.")
        if (
            self.view.ratio("fused") is None
            and optimizers
            and (part := self.view.clock_share("optimizer"))
            and part < NOTHING
        ):
            return Tip("optimizer", "NO EFFECT", f"The optimizer takes only {part:.1%} of the step.", 0.0)
        return self._measured("optimizer", self.view.computed("fused"), "A fused optimizer")

    def syncs(self) -> Tip:
        for name in ("sync", "ping_pong", "logging", "checkpoint", "cleanup"):
            cause = self.causes.get(name)
            if cause is not None and cause.share is not None:
                return self._named("syncs", cause)
        if not self.view.sampled and not self.view.clock:
            text = "Stoker could not measure how long each line of the script takes."
            return Tip("syncs", "NOT TESTED", text)
        text = (
            f"Printing and logging take {self.view.clock_share('log'):.1%} of the step; "
            "waiting in calls such as .item() takes less than 10 %."
        )
        return Tip("syncs", "NO EFFECT", text, 0.0)

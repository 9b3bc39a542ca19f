"""The lines of `stoker show` about a training: how fast, how far, and the bars of where its time goes."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.base.parts import WORDS
from stoker.base.units import format_duration

BAR = 30  # columns
LEAST = 0.002  # a share below this is not shown


def training(told: dict, live: bool, quiet: bool = False) -> Iterator[tuple[str, str]]:
    """Names and texts for the `training` of a run. quiet: it makes no steps now. The clock writes once a
    second or less often, so the last steps are missing, and nothing is known about the end."""
    if not told:
        return
    if quiet:
        told = {**told, "steps_s": None, "samples_s": None, "eta_epoch_s": None, "batch": None}
    yield "steps", f"{'at least ' if quiet else ''}{_steps(told)}"
    yield "a step", _step(told)
    yield "epochs", _epochs(told, live)
    yield "to the end", _to_the_end(told) if live and not quiet else ""
    yield "time", bars(told.get("split") or {})
    yield "GPU time", bars(told.get("gpu") or {})


def bars(split: dict[str, float]) -> str:
    """One line per kind: its share, a bar, its name. "" if nothing is known."""
    shown = [(kind, share) for kind, share in split.items() if share >= LEAST]
    return "\n".join(
        f"{100 * share:5.1f} %  {_bar(share):<{BAR}}  {WORDS.get(kind, kind)}" for kind, share in shown
    )


def _bar(share: float) -> str:
    eighths = round(share * BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _steps(told: dict) -> str:
    text = f"{told['step']:,}"
    if told.get("steps_s"):
        text += f", {_number(told['steps_s'])} a second"
    if told.get("samples_s"):
        text += f", {_number(told['samples_s'])} samples a second"
    return text + (f", on each of {told['ranks']} ranks" if told.get("ranks", 1) > 1 else "")


def _step(told: dict) -> str:
    parts = []
    if told.get("p50_ms") is not None:
        middle, slow, slowest = (_number(told[name]) for name in ("p50_ms", "p90_ms", "max_ms"))
        parts.append(f"median {middle} ms, 90th percentile {slow} ms, slowest {slowest} ms")
    if told.get("first_s") is not None:
        parts.append(
            f"the first step took {_time(told['first_s'])}; preparation before it took "
            f"{_time(told.get('setup_s') or 0)}"
        )
    return "\n".join(parts)


def _epochs(told: dict, live: bool) -> str:
    parts = []
    if told.get("epochs"):
        since = " since the resume" if told.get("before") else ""
        parts.append(f"{told['epochs']:,} done{since}, {_time(told['epoch_s'])} each")
    if live and told.get("of") and told.get("batch") is not None:
        left = f", {_time(told['eta_epoch_s'])} to go" if told.get("eta_epoch_s") is not None else ""
        where = " in the current epoch" if parts else ""
        parts.append(f"batch {told['batch']:,} of {told['of']:,}{where}{left}")
    return "; ".join(parts)


def _to_the_end(told: dict) -> str:
    if told.get("done") is None:
        return ""
    left = f", about {_time(told['eta_s'])} to go" if told.get("eta_s") is not None else ""
    return f"{100 * told['done']:.3g} % done{left}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 10 else f"{seconds:.2g} s"

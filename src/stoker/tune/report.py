"""What `stoker tune` says at its end: a verdict, where the time goes, what to do, the nine tips, what is left
alone; as text and as JSON.

Nothing is measured or decided here. Widths are columns of the terminal;
without a terminal lines are not wrapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from stoker.base.parts import WORDS
from stoker.base.units import format_size
from stoker.tune.findings import RISKS, Action, Findings, Range

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

TIP_TITLES = {
    "num_workers": "loader workers",
    "pin_memory": "pin_memory",
    "prefetch": "keep workers, prefetch",
    "batch_size": "larger batch",
    "precision": "bfloat16",
    "channels_last": "channels_last",
    "compile": "torch.compile",
    "optimizer": "fused optimizer, zero_grad",
    "syncs": "fewer .item() and print() calls",
}
_COLOURS = {"HELPS": "green", "UNSAFE": "red", "DONE": "cyan", "NO EFFECT": "dim", "NOT TESTED": "yellow"}
_MOST_ACTIONS = 8
_UNWRAPPED = 1000  # columns, where there is no terminal


def text(
    found: Findings, card: dict, *, script: str = "", width: int | None = None, colour: bool = False
) -> str:
    """The report. width: of the terminal; None where there is none."""
    from rich.console import Console
    from rich.padding import Padding

    out = StringIO()
    console = Console(
        file=out,
        width=width or _UNWRAPPED,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        markup=False,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    verdict = flat(found.verdict)
    console.print(f"{script}: {verdict}" if script else verdict, style="bold")
    for title, body in _parts(found, card, bool(width)):
        console.print()
        console.print(title, style="bold")
        console.print(Padding(body, (0, 0, 0, 2)) if not isinstance(body, str) else body)
    _diffs(console, found)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(found: Findings, card: dict, wraps: bool) -> Iterator[tuple[str, RenderableType]]:
    if found.noise:
        yield "The machine was busy", "  " + found.noise
    if found.stages:
        yield "Where a step's time goes", _stages(found)
    if len(found.causes) > 1:
        yield "Why", _causes(found)
    if found.actions:
        yield "What to do", _actions(found)
    if found.total is not None or found.outcome:
        yield "Results", _outcome(found)
    if found.tips:
        yield "The nine tips", _tips(found)
    if found.refusals:
        yield "Not changed", _refusals(found)
    if card:
        yield "Measured on", "  " + machine(card)


def _table(*columns: tuple[str, str]) -> Table:
    from rich.table import Table

    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
        show_header=any(name for name, _ in columns),
    )
    for name, kind in columns:
        table.add_column(
            name, justify="right" if kind == "number" else "left", no_wrap=kind != "text", overflow="fold"
        )
    return table


def _stages(found: Findings) -> Table:
    table = _table(
        ("", "name"), ("ms now", "number"), ("share", "number"), ("after", "number"), ("measured by", "text")
    )
    between = [row for row in found.stages if row.name == "evaluation"]
    rows = [row for row in found.stages if row.name != "evaluation"]
    for row in rows:
        after = "" if row.after_ms is None else number(row.after_ms)
        table.add_row(
            WORDS.get(row.name, row.name), number(row.now_ms), f"{row.share:.1%}", after, row.measured
        )
    whole, left = sum(r.now_ms for r in rows), sum(r.after_ms or 0 for r in rows)
    table.add_row("a step", number(whole), "", number(left), "")
    for row in between:
        told = f"clock. Evaluation takes {row.share:.1%} of the total time"
        table.add_row(WORDS[row.name], number(row.now_ms), "", "", told)
    if found.floor_ms is not None:
        table.add_row("floor", number(found.floor_ms), "", "", "a step with batches from memory")
    if found.residual is not None:
        told = "difference between clock and differencing"
        table.add_row("unexplained", "", f"{found.residual:.1%}", "", told)
    return table


def _causes(found: Findings) -> Table:
    table = _table(("", "name"), ("of the step", "number"), ("", "text"))
    for cause in found.causes:
        share = "" if cause.share is None else f"{cause.share.value:.0%}"
        where = f" ({_spot(cause.file, cause.line)})" if cause.line else ""
        table.add_row(cause.name, share, flat(cause.text.removesuffix(".") + where))
    return table


def _actions(found: Findings) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    tried = any(a.confirmed for a in found.actions)
    table = _table(
        ("", "name"),
        ("forecast", "number"),
        *([("confirmed", "number")] if tried else []),
        ("class", "name"),
        ("", "text"),
    )
    for action in found.actions[:_MOST_ACTIONS]:
        forecast = "" if action.ratio.value >= 1 else speed(action.ratio)
        confirmed = [speed(action.confirmed) if action.confirmed else ""] if tried else []
        where = f" ({_spot(action.file, action.line)})" if action.line else ""
        what = {"diff": " A diff follows." if action.diff else " Change the script.", "advice": ""}.get(
            action.cure, ""
        )
        state = f" {action.state[:1].upper()}{action.state[1:]}." if action.state else ""
        told = flat(action.text.removesuffix(".") + f"{where}.{what}{state}")
        table.add_row(action.name, forecast, *confirmed, action.risk, told)
    risks = sorted({a.risk for a in found.actions[:_MOST_ACTIONS]})
    return Group(table, Text("; ".join(f"{r}: {RISKS[r]}" for r in risks), style="dim"))


def _outcome(found: Findings) -> Table:
    table = _table(("", "name"), ("", "text"))
    if found.total is not None:
        table.add_row(
            "all together", f"{speed(found.total)}, confirmed: {', '.join(found.kept) or 'no setting'}"
        )
    if found.outcome:
        table.add_row("", flat(found.outcome))
    return table


def _tips(found: Findings) -> Table:
    table = _table(("", "name"), ("", "name"), ("", "text"))
    for tip in found.tips:
        state = f"HELPS {tip.gain:+.0%}" if tip.state == "HELPS" and tip.gain is not None else tip.state
        from rich.text import Text

        table.add_row(
            TIP_TITLES.get(tip.name, tip.name), Text(state, style=_COLOURS.get(tip.state, "")), flat(tip.text)
        )
    return table


def _refusals(found: Findings) -> Table:
    table = _table(("", "name"), ("", "text"))
    said: dict[tuple[str, str], list[str]] = {}
    for refusal in found.refusals:
        said.setdefault((refusal.text, refusal.hint), []).append(refusal.knob)
    for (why, hint), knobs in said.items():
        name = (
            "everything"
            if "all" in knobs
            else knobs[0]
            if len(knobs) == 1
            else f"{knobs[0]} and {len(knobs) - 1} more"
        )
        table.add_row(name, flat(f"{why} {hint}"))
    return table


def _diffs(console: Console, found: Findings) -> None:
    for action in found.actions[:_MOST_ACTIONS]:
        if action.diff:
            console.print()
            console.print(f"Diff for {action.cause or action.name} (Stoker changes no file)", style="bold")
            for line in action.diff.splitlines():
                style = "green" if line.startswith("+") else "red" if line.startswith("-") else ""
                console.print("  " + line, style=style, soft_wrap=True)


def to_json(found: Findings, card: dict, facts: dict | None = None) -> dict:
    """Everything: the findings, the machine card, and the facts they rest on."""
    return {"version": 1, **found.to_json(), "card": card, **({"facts": facts} if facts is not None else {})}


# --- words
# ------------------------------------------------------------------------------------------------------------

def machine(card: dict) -> str:
    """The machine in one line."""
    parts = [f"{card['cores']:g} cores" if card.get("cores") else ""]
    parts.append(f"{format_size(card['memory_bytes'])} of memory" if card.get("memory_bytes") else "")
    names = card.get("gpu_names") or []
    parts.append(", ".join(map(str, names)) if names else "no GPU" if card.get("gpu") is False else "")
    matmul = (card.get("matmul") or {}).get("float32")
    parts.append(f"{matmul:,.0f} GFLOP/s in float32" if matmul else "")
    return ", ".join(p for p in parts if p)


def speed(ratio: Range) -> str:
    """"1.8x (1.6-2.1)" for a ratio of step times."""
    low, high = (1 / max(r, 0.02) for r in (ratio.high, ratio.low))
    if ratio.value < 0.02:
        return "> 50x"
    value = f"{1 / ratio.value:.2f}x"
    return value if f"{low:.1f}" == f"{high:.1f}" else f"{value} ({low:.1f}-{high:.1f})"


def number(ms: float) -> str:
    return (
        f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}" if ms >= 0.1 else f"{ms:.3f}"
    )


def flat(text: str) -> str:
    """A text on one line: what a script or a library said may have several."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def best(found: Findings) -> Action | None:
    """The best setting that was confirmed; without one, the best that was forecast."""
    settings = [a for a in found.actions if a.cure == "setting"]
    return min(
        (a for a in settings if a.confirmed),
        key=lambda a: a.confirmed.value,
        default=settings[0] if settings else None,
    )


def _spot(file: str, line: int) -> str:
    return f"{os.path.basename(file)}:{line}"

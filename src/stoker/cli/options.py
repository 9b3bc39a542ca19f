"""What several verbs share: the way to the server, the argument that names a run, --json,
values like "2h"."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from stoker.base.errors import InvalidSpec, NotFound, StokerError
from stoker.base.spec import SIGNALS
from stoker.base.units import parse_duration, parse_size, since_midnight
from stoker.cli import output

if TYPE_CHECKING:
    from stoker.client import Client


ALL_RUNS = 1_000_000
ENDED_EARLY = "ended-early"  # the tag of a run that `stoker sweep --halve` ended
# nothing of the user's ssh config gets in the way of a command that Stoker sends
PLAIN_SSH = ("ssh", "-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-o", "ClearAllForwardings=yes")
_client: Client | None = None


def plane(start: bool = True) -> Client:
    """A client of the server, for any thread. Starts the server if it is not running, unless `start` is
    False: then the server may have any version. Raises StokerError."""
    global _client
    from stoker.client import connect

    if not start:
        return connect(start=False, any_version=True)
    if _client is None:
        _client = connect()
    return _client


class Patience:
    """Retries for a server that disappeared: tries for a limited time, and gives up earlier if the same
    failure repeats."""

    def __init__(self, for_s: float = 60.0, times: int = 30) -> None:
        self.for_s = for_s
        self.times = times
        self._since = 0.0
        self._count = 0

    def heard(self) -> None:
        """The server answered."""
        self._since, self._count = 0.0, 0

    def left_s(self) -> float:
        """Seconds until the next try; 0 if it is time to give up."""
        now = time.monotonic()
        self._since = self._since or now
        self._count += 1
        gone_s = now - self._since
        return 0.0 if gone_s > self.for_s or self._count > self.times else min(2.0, 0.05 + gone_s / 2)


class Duration(click.ParamType):
    """Converts "90s", "2h" or "1h30m" to seconds; accepts "0s" only for some options."""

    name = "duration"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        return 0.0 if self.zero and value in ("0", "0s") else parse_duration(str(value))


class Since(Duration):
    """Converts a duration as above, "today" or "yesterday" to seconds before now."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        days = {"today": 0, "yesterday": 1}.get(str(value).strip().lower())
        if days is not None:
            return since_midnight(time.time(), days)
        try:
            return super().convert(value, param, ctx)
        except InvalidSpec as e:
            raise InvalidSpec(e.message, hint=f"{e.hint} Or type today or yesterday.") from None


class Signal(click.ParamType):
    """Converts "TERM" or "SIGTERM" to "TERM". base/spec.py lists the signals that Stoker can send to a
    run."""

    name = "signal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value).upper().removeprefix("SIG")
        if name not in SIGNALS:
            raise InvalidSpec(f"'{output.shown(str(value))}' is not the name of a signal that Stoker can "
                              "send to a run.",
                              hint=f"Use one of: {', '.join(SIGNALS)}.")
        return name


class Warn(click.ParamType):
    """Converts "5m" or "5m:USR1" to (300.0, "USR1")."""

    name = "warning"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, str]:
        before, _, name = str(value).partition(":")
        return parse_duration(before), Signal().convert(name or "USR1", param, ctx)


class Gpus(click.ParamType):
    """Reads "2" as (2, ()) and "id:0,3" as (2, ("0", "3")): the number of GPUs and their ids."""

    name = "gpus"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, tuple[str, ...]]:
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdigit():
            return int(text), ()
        ids = tuple(
            dict.fromkeys(each.strip() for each in text.removeprefix("id:").split(",") if each.strip())
        )
        if not text.startswith("id:") or not ids:
            raise InvalidSpec(
                f"'{output.shown(text)}' is not a number of GPUs.", hint="--gpus 2   or   --gpus id:0,3"
            )
        return len(ids), ids


class Size(click.ParamType):
    """Converts "8GB" or "512MiB" to bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else parse_size(str(value))


class Stall(click.ParamType):
    """Converts "10m", "10m:stop" or "10m:restart" to (600.0, "warn"), and so on."""

    name = "stall"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, str]:
        after, _, act = str(value).partition(":")
        if act not in ("", "warn", "stop", "restart"):
            raise InvalidSpec(
                f"'{output.shown(str(value))}' has an unknown action. The actions are warn, stop and "
                "restart.",
                hint="--stall 10m, --stall 10m:stop or --stall 10m:restart",
            )
        return parse_duration(after), act or "warn"


class Renamed(click.Option):
    """An option with a new name. Its old names still work, but help does not list them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, self.opts[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


class Ref(click.ParamType):
    """The id of a run, a unique prefix of an id, or a name; for several runs also @TAG. Completes to
    existing names."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list:
        from click.shell_completion import CompletionItem

        try:
            runs = plane(start=False).runs(all=True)
        except StokerError:
            return []
        return [
            CompletionItem(r["name"], help=r["state"]) for r in runs if str(r["name"]).startswith(incomplete)
        ]


class Machine(click.ParamType):
    """The name of a machine. Completes to the machines of config.toml, without a server."""

    name = "machine"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list:
        from click.shell_completion import CompletionItem

        from stoker.base.config import home, load_config

        try:
            machines = load_config(home()).targets
        except StokerError:
            return []
        return [CompletionItem(name) for name in machines if name.startswith(incomplete)]


def find(ref: str, *, active: bool = False) -> dict:
    """The run that `ref` means. If several runs have this name, the newest (`active`: the newest that has
    not ended); says so on stderr."""
    run = plane().run(ref, active=active)
    say_which(ref, run)
    return run


def spread(refs: Sequence[str]) -> list[str]:
    """The references, with `@TAG` replaced by the ids of the runs with this tag, and a pattern such as `q-*`
    by the ids of the runs whose names match; newest first. Raises NotFound if there are none.

    One name means the newest run of that name. Beside others it means the run that has exactly this name:
    `train train-2` are two runs."""
    found: list[str] = []
    exact: dict[str, str] = {}
    if len(refs) > 1:
        exact = {run["name"]: run["id"] for run in plane().runs(all=True, limit=ALL_RUNS)}
    for ref in refs:
        if ref.startswith("@"):
            found += [run["id"] for run in tagged(ref[1:])]
        elif any(mark in ref for mark in "*?["):
            found += [run["id"] for run in matching(ref)]
        else:
            found.append(exact.get(ref, ref))
    return list(dict.fromkeys(found))


def matching(pattern: str) -> list[dict]:
    """All runs whose names match this shell pattern, newest first. As in `ps`, rehearsals and verifications
    count only if no other run matches. Raises NotFound."""
    found = [run for run in plane().runs(all=True, limit=ALL_RUNS) if fnmatchcase(run["name"], pattern)]
    found = [run for run in found if not run.get("purpose")] or found
    if not found:
        raise NotFound(f"No run has a name like {output.shown(pattern)}.", hint="All runs: stoker ps --all")
    return found


def tagged(tag: str) -> list[dict]:
    """All runs with this tag, newest first. Raises NotFound."""
    found = [run for run in plane().runs(all=True, limit=ALL_RUNS) if tag in (run.get("tags") or ())]
    if not found:
        raise NotFound(
            f"No run has the tag {output.shown(tag)}.", hint="All runs and their tags: stoker ps --all"
        )
    return found


def say_which(ref: str, run: dict, others: str = "All: stoker ps --all") -> None:
    """Say which run a name means if several runs have that name, and how to name the others."""
    count = run.get("same_name") or 1
    if count < 2 or output.json_wanted():
        return
    output.say(
        f"{count} runs have the name {output.shown(ref)}; Stoker uses the newest, "
        f"{output.shown(run['name'])}. {others}"
    )


def json_option(what: str = "Print JSON, for scripts.") -> Callable:
    """--json; errors become JSON too."""

    def remember(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
        output.use_json(value)
        return value

    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember, help=what)


def ref_argument() -> Callable:
    return click.argument("ref", type=Ref(), metavar="RUN")


def refs_argument() -> Callable:
    return click.argument("refs", type=Ref(), metavar="RUN...", nargs=-1, required=True)


def exit_code(run: dict) -> int:
    """The exit code for an ended run: its own, 128 + signal as shells report it, or 1 if it did not end
    successfully."""
    if run.get("exit_code") is not None:
        return int(run["exit_code"])
    return 0 if run.get("state") == "done" else 1

"""Weights & Biases: `log`, `summary` and `config` after the library has made plain values of them;
offline where nobody can give a key."""

from __future__ import annotations

import json
import os

from . import lines, owners, pictures

_written: dict = {}  # the configuration of each run, as last written
_steps: dict = {}  # of disabled runs, which count none
_axes: dict = {}  # interface -> name or pattern -> the metric that is its axis
_now: tuple = (None, 0)  # the run that logs, and its step


def install(module: object) -> None:
    """module: wandb.sdk.interface.interface."""
    from ..clock.wrapping import wrap
    wrap(module.InterfaceBase, "publish_partial_history", _logging)
    lines.after(module.InterfaceBase, "_make_config", "wandb", _config)
    if hasattr(module.InterfaceBase, "_make_summary"):
        lines.after(module.InterfaceBase, "_make_summary", "wandb", _summary)


def install_sender(module: object) -> None:
    """module: wandb.sdk.interface.interface_shared, which gets a message with plain values."""
    lines.after(module.InterfaceShared, "_publish_partial_history", "wandb", _log)
    if hasattr(module.InterfaceShared, "_publish_metric"):
        lines.after(module.InterfaceShared, "_publish_metric", "wandb", _define)


def install_disabled(module: object) -> None:
    """module: wandb.sdk.lib.noop_run. There the library converts nothing:
    what is no plain number is left out."""
    lines.after(module.NoopRun, "log", "wandb", _log_disabled)
    lines.after(module.NoopRun, "__init__", "wandb", _config_disabled)


def install_offline(module: object) -> None:
    """module: wandb.sdk.lib.wbauth.authenticate,
    whose prompt for a key raises an error where nobody can answer."""
    from ..clock.wrapping import wrap
    wrap(module, "_use_prompted_auth", lambda real: _offline(module, real))


def _offline(module: object, real: object) -> object:
    def _use_prompted_auth(*args, **kwargs):
        try:
            return real(*args, **kwargs)
        except module.term.NotATerminalError:
            if kwargs.get("no_offline"):  # wandb.login(force=True)
                raise
        text = (
            "stoker: W&B has no API key, and no terminal to ask for a key, so the run is stored in "
            "./wandb. To upload: wandb sync\n"
        )
        os.write(2, text.encode())
        return None  # what a person means who chooses "don't visualize my results"
    return _use_prompted_auth


def _logging(real: object) -> object:
    def publish_partial_history(self, run, data, user_step, step=None, *args, **kwargs):
        global _now
        _now = (run, user_step if step is None else step)
        return real(self, run, data, user_step, step, *args, **kwargs)
    return publish_partial_history


def _define(_result, self, metric) -> None:
    """`define_metric("val/*", step_metric="epoch")`."""
    if metric.step_metric:
        _axes.setdefault(owners.number(self), {})[metric.glob_name or metric.name] = metric.step_metric


def _log(_result, self, history) -> None:
    run, step = _now
    found: dict = {}
    for item in history.item:
        name = "/".join(item.nested_key) or item.key
        found[name] = (
            json.loads(item.value_json)
            if item.value_json
            else getattr(item, item.WhichOneof("value") or "value_json")
        )
    _write(run, found, step, _axes.get(owners.number(self)))
    _pictures(run, found, step)


def _log_disabled(_result, self, data, step=None, commit=None) -> None:
    key = owners.number(self)
    now = _steps.get(key, 0)
    _write(self, data, now if step is None else step)
    _steps[key] = (now if step is None else max(now, step)) + (
        commit is True or (step is None and commit is None)
    )


def _write(run: object, data: dict, step: int, axes: dict | None = None) -> None:
    values = {name: value for name, value in lines.plain(data).items() if not name.startswith("_")}
    for nth, some in owners.sorted_out("wandb", values, owners.number(run)).items():
        for axis, group in _by_axis(some, values, axes or {}).items():
            lines.write("wandb", group, step if axis == "step" else values[axis], axis=axis, nth=nth)


def _by_axis(some: dict, values: dict, axes: dict) -> dict:
    """Axis -> values. An axis that was defined counts where it is logged in the same call."""
    found: dict = {}
    for name, value in some.items():
        axis = axes.get(name) or next(
            (axes[each] for each in axes if each.endswith("*") and name.startswith(each[:-1])), "step"
        )
        found.setdefault(axis if axis in values and axis != name else "step", {})[name] = value
    return found


def _pictures(run: object, data: dict, step: int) -> None:
    for name, value in data.items():
        if type(value) is dict and value.get("_type") in ("image-file", "images/separated"):
            for i, path in enumerate(value.get("filenames") or [value.get("path")]):
                if type(path) is str:
                    pictures.of_file(
                        "wandb", f"{name} #{i + 1}" if i else name, step, os.path.join(run.dir, path)
                    )


def _summary(record, _self, *_args, **_kwargs) -> None:
    found: dict = {}
    for update in record.update:
        found["/".join(update.nested_key) or update.key] = json.loads(update.value_json)
    lines.summary(
        "wandb", {name: value for name, value in lines.plain(found).items() if not name.startswith("_")}
    )


def _config(record, _self, *_args, **_kwargs) -> None:
    found: dict = {}
    for update in record.update:
        inner = found
        *outer, name = update.nested_key or [update.key]
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[name] = json.loads(update.value_json)
    _tell(found)


def _config_disabled(_result, _self, settings, config) -> None:
    _tell(config)


def _tell(config: dict) -> None:
    from .arguments import plain

    found = {
        name: value
        for name, value in plain(config).items()
        if name != "_wandb" and _written.get(name, _written) != value
    }
    _written.update(found)
    lines.parameters("wandb", found)

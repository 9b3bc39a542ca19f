"""Trainers: Lightning, transformers, Accelerate, Keras. Each hands numbers to loggers and callbacks;
the values are plain there."""

from __future__ import annotations

from . import lines, owners


def lightning(module: object) -> None:
    """module: the logger_connector of lightning.pytorch or pytorch_lightning.
    Its log_metrics converts, and may choose the step itself."""
    from ..clock.wrapping import wrap

    name = next(
        each for each in ("convert_tensors_to_scalars", "metrics_to_scalars") if hasattr(module, each)
    )
    converted: list = []
    wrap(module, name, lambda real: _keeping(real, converted))
    wrap(module._LoggerConnector, "log_metrics", lambda real: _logging(real, converted))


def _keeping(real: object, converted: list) -> object:
    def convert(metrics):
        found = real(metrics)
        converted[:] = [dict(found)]
        return found
    return convert


def _logging(real: object, converted: list) -> object:
    def log_metrics(self, metrics, step=None):
        converted[:] = []
        result = lines.told_on(real, self, metrics, step)
        if converted:
            lines.guarded("lightning", _metrics, self, converted.pop(), step)
        return result
    return log_metrics


def _metrics(connector: object, scalars: dict, step: int | None) -> None:
    """A metric named `step` is the step, as for the loggers."""
    if step is None:
        step = scalars.pop("step", None)
    if step is None:
        step = connector.trainer.fit_loop.epoch_loop._batches_that_stepped
    _put("lightning", lines.plain(scalars), connector.trainer, step)


def transformers(module: object) -> None:
    """module: transformers.trainer_callback."""
    lines.after(module.CallbackHandler, "on_log", "transformers", _on_log, outer=True)


def _on_log(_result, self, _args, state, _control, logs) -> None:
    values = {name: value for name, value in lines.plain(logs).items() if name != "epoch"}
    _put("transformers", values, self, state.global_step)


def accelerate(module: object) -> None:
    """module: accelerate.accelerator. Values are those of the script;
    what is no plain number is left to the trackers."""
    lines.after(module.Accelerator, "log", "accelerate", _to_trackers)
    lines.after(module.Accelerator, "init_trackers", "accelerate", _of_trackers)


def _to_trackers(_result, self, values, step=None, *_args, **_kwargs) -> None:
    if self.is_main_process:
        _put("accelerate", lines.plain(values), self, step if type(step) is int else None)


def _of_trackers(_result, self, project_name, config=None, *_args, **_kwargs) -> None:
    if config and self.is_main_process:
        from .arguments import plain
        lines.parameters("accelerate", plain(config))


def keras(module: object) -> None:
    """module: keras.src.callbacks.history. The History of each `fit` gets what all callbacks get, after the
    library made numbers of it."""
    lines.after(module.History, "on_epoch_end", "keras", _epoch_ended)


def _epoch_ended(_result, self, epoch, logs=None) -> None:
    _put("keras", lines.plain(logs), self, epoch, "epoch")


def _put(source: str, values: dict, owner: object, step: int | None, axis: str = "step") -> None:
    for nth, some in owners.sorted_out(source, values, owners.number(owner)).items():
        lines.write(source, some, step, axis=axis, nth=nth)

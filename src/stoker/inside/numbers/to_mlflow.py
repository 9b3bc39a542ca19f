"""MLflow: metrics and parameters as they come to a store, of files, a database or a server.
There a value is a number already."""

from __future__ import annotations

from . import lines, owners

_inner = 0  # a store may take a batch apart and call itself
# (run, name) -> calls at step 0, which is what MLflow puts where the script says none
_without_step: dict = {}


def install_file(module: object) -> None:
    _install(module.FileStore)


def install_rest(module: object) -> None:
    _install(module.RestStore)


def install_sql(module: object) -> None:
    _install(module.SqlAlchemyStore)


def _install(store: type) -> None:
    from ..clock.wrapping import wrap
    wrap(store, "log_metric", lambda real: _around(real, lambda run, metric: _metrics(run, (metric,))))
    wrap(store, "log_param", lambda real: _around(real, lambda run, param: _params((param,))))
    wrap(store, "log_batch", lambda real: _around(real, _batch))


def _around(real: object, take: object) -> object:
    def log(self, run_id, *args, **kwargs):
        global _inner
        _inner += 1
        try:
            result = real(self, run_id, *args, **kwargs)
        finally:
            _inner -= 1
        if not _inner:
            lines.guarded("mlflow", take, run_id, *args, **kwargs)
        return result
    return log


def _batch(run_id: str, metrics: list, params: list, tags: list) -> None:
    _metrics(run_id, metrics)
    _params(params)


def _metrics(run_id: str, metrics: list) -> None:
    for metric in metrics:
        for nth, some in owners.sorted_out("mlflow", {metric.key: metric.value}, run_id).items():
            step, axis = _position(run_id, metric)
            lines.write("mlflow", lines.plain(some), step, axis=axis, nth=nth)


def _position(run_id: str, metric: object) -> tuple:
    """The order of the calls, if each is at step 0."""
    key = (run_id, metric.key)
    before = _without_step.get(key, 0)
    _without_step[key] = before + 1 if metric.step == 0 and before >= 0 else -1
    return (metric.step, "step") if metric.step or before < 1 else (before, "order")


def _params(params: list) -> None:
    from .arguments import plain
    lines.parameters("mlflow", plain({param.key: param.value for param in params}))

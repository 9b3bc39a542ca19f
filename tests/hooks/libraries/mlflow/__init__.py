"""Of MLflow 3.17: values are converted, then handed to a store."""

from contextlib import contextmanager
from types import SimpleNamespace

from .store.tracking.sqlalchemy_store import SqlAlchemyStore

_store, _run = SqlAlchemyStore(), 0


def set_tracking_uri(uri):
    pass


@contextmanager
def start_run():
    global _run
    _run += 1
    yield


def log_metric(key, value, step=None):
    _store.log_metric(str(_run), SimpleNamespace(key=key, value=float(value), step=step or 0))


def log_metrics(metrics, step=None):
    _store.log_batch(str(_run), [SimpleNamespace(key=key, value=float(value), step=step or 0) for key, value in metrics.items()], [], [])


def log_param(key, value):
    _store.log_param(str(_run), SimpleNamespace(key=key, value=str(value)))

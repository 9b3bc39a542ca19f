"""The part of this library that the hooks look into."""

from types import SimpleNamespace


class Summary:
    def __init__(self, run):
        self._run = run

    def __setitem__(self, name, value):
        self._run._interface._make_summary([((name,), value)], run=self._run)

    def update(self, values):
        self._run._interface._make_summary([((outer, inner), value) for outer, group in values.items() for inner, value in group.items()], run=self._run)


class Run:
    dir = "."

    def __init__(self, interface, config):
        self._interface, self._config, self._local_step = interface, config, 0
        interface._make_config(data=config)

    def log(self, data, step=None, commit=None):
        self._interface.publish_partial_history(self, dict(data), user_step=self._local_step, step=step, flush=commit)
        self._local_step = (self._local_step if step is None else max(step, self._local_step)) + (step is None and commit is None)

    def define_metric(self, name, step_metric=None):
        glob = name if "*" in name else ""
        self._interface._publish_metric(SimpleNamespace(name="" if glob else name, glob_name=glob, step_metric=step_metric or ""))

    @property
    def summary(self):
        return Summary(self)

    def finish(self):
        pass

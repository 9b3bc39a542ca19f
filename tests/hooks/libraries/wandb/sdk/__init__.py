"""The part of this library that the hooks look into."""

class Run:
    def __init__(self, interface, config):
        self._interface, self._config, self._local_step = interface, config, 0
        interface._make_config(data=config)

    def log(self, data, step=None, commit=None):
        self._interface.publish_partial_history(self, dict(data), user_step=self._local_step, step=step, flush=commit)
        self._local_step = (self._local_step if step is None else max(step, self._local_step)) + (step is None and commit is None)

    def finish(self):
        pass

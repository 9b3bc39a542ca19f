"""The part of this library that the hooks look into."""

import json
from types import SimpleNamespace


class InterfaceBase:
    def publish_partial_history(self, run, data, user_step, step=None, flush=None, publish_step=True):  # noqa: PLR0917
        items = [SimpleNamespace(key=name, nested_key=[], value_json=json.dumps(value, default=lambda each: each.item())) for name, value in data.items()]
        self._publish_partial_history(SimpleNamespace(item=items))

    def _make_config(self, data=None, key=None, val=None, obj=None):
        return SimpleNamespace(update=[SimpleNamespace(key=name, nested_key=[], value_json=json.dumps(value)) for name, value in data.items()])

    def _make_summary(self, summary_record, run):
        return SimpleNamespace(update=[SimpleNamespace(key="", nested_key=list(key), value_json=json.dumps(value)) for key, value in summary_record])

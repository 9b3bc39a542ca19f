"""The part of this library that the hooks look into."""

from .interface import InterfaceBase


class InterfaceShared(InterfaceBase):
    def _publish_partial_history(self, history):
        pass

    def _publish_metric(self, metric):
        pass

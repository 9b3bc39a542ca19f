"""What all knobs are: turned on and off between two steps, without ever raising."""

from __future__ import annotations

import gc
import sys

from . import told

failed: dict = {}  # knob -> how it failed in a forward: it stays off
turned: list = []  # called when a knob was turned


class Knob:
    """One knob. `value` is what it is turned to, None while it is off.
    Each kind has `_fits`, `_on` and `_off`, which may raise."""

    name = ""
    value: object = None

    def fits(self, value: object = True) -> str:
        """Why it cannot be turned here, or ""."""
        try:
            return (
                f"the forward pass already failed with this setting: {failed[self.name]}"
                if self.name in failed
                else self._fits(value)
            )
        except Exception as e:
            return f"{type(e).__name__}: {e}"

    def on(self, value: object = True) -> str:
        """Turn it, from the next step on. "" or why not."""
        if self.value == value:
            return ""
        why = self.fits(value)
        if why:
            return why
        if self.value is not None:
            self.off()
        try:
            self._on(value)
        except Exception as e:
            self.off()
            return f"{type(e).__name__}: {e}"
        self.value = value
        for call in turned:
            call()
        return ""

    def off(self) -> None:
        """As the script has it. Harmless when it is off."""
        try:
            self._off()
        except Exception as e:
            told.failed(self.name, e)
        self.value = None
        for call in turned:
            call()



def living(*paths: str) -> list:
    """The objects that live of these classes, given as module.Class; no module is imported for it."""
    homes = [(sys.modules.get(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in paths]
    kinds = tuple(getattr(home, name) for home, name in homes if hasattr(home, name))
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)] if kinds else []

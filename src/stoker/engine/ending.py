"""How this process ends, as far as the process can see:
signals that ask for an end, and whether the exit was successful."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any, cast


class Signals:
    """Inside a training loop, SIGTERM and SIGINT only set a flag; the loop checks the flag after each step.
    A second signal ends the process at once."""

    WATCHED = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.wanted: int = 0  # the signal that came
        self._before: dict[int, Any] = {}  # as signal.getsignal gave them

    def watch(self) -> None:
        """Install handlers for signals that have their default handlers.
        Has no effect when called twice, or outside the main thread."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        for number in self.WATCHED:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = handler
                signal.signal(number, self._came)

    def leave(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            self.act()
        self.wanted = number

    def act(self) -> None:
        """Do what the signal does by default."""
        number = self.wanted
        self.leave()
        signal.raise_signal(number)


class Exit:
    """Stores the argument of sys.exit, from `watch` on."""

    def __init__(self) -> None:
        self.code: object = 0
        self._real: Any = None

    def watch(self) -> None:
        """Wrap sys.exit. Has no effect when called twice."""
        if self._real is not None:
            return
        self._real = sys.exit

        def exit_and_remember(code: Any = None, /) -> Any:
            self.code = code
            self._real(code)

        sys.exit = cast("Any", exit_and_remember)

    def was_good(self) -> bool:
        """At exit: True if no exception reached the top level and sys.exit got no code other than 0."""
        raised = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        return not raised and self.code in (None, 0, False)

"""Curves as event files of TensorBoard. The package tensorboard is optional, and is imported here only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from stoker.base.errors import InvalidSpec


class Events:
    """The event file of one run. `update` appends new points."""

    def __init__(self, folder: Path) -> None:
        """Raises InvalidSpec without TensorBoard."""
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as e:
            raise InvalidSpec(
                f"TensorBoard cannot be imported ({e}).", hint="Install it: pip install tensorboard"
            ) from None
        self._event, self._summary, self._start = Event, Summary, SessionLog.START
        self._writer = EventFileWriter(str(folder))
        self._written: dict[str, list[list]] = {}

    def update(self, series: Sequence[dict]) -> list[str]:
        """Write the points that are not in the file yet. Returns the names of curves whose positions are not
        whole numbers.
        If an earlier point has changed, as after a resume that was not exact, writes a mark that makes
        TensorBoard forget the old points, and then all points again."""
        curves = _by_tag(series)
        if any(
            points[: len(self._written.get(tag, ()))] != self._written.get(tag, [])
            for tag, points in curves.items()
        ):
            self._writer.add_event(
                self._event(wall_time=time.time(), step=0, session_log={"status": self._start})
            )
            self._written = {}
        broken = []
        for tag, points in curves.items():
            whole = all(float(at).is_integer() for at, _, _ in points)
            if not whole:
                broken.append(tag)
            for i in range(len(self._written.get(tag, ())), len(points)):
                at, value, when = points[i]
                summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=float(value))])
                self._writer.add_event(
                    self._event(
                        wall_time=when or time.time(), step=int(at) if whole else i + 1, summary=summary
                    )
                )
            self._written[tag] = points
        self._writer.flush()
        return broken

    def close(self) -> None:
        """Write buffered data and close the file."""
        self._writer.close()


def _by_tag(series: Sequence[dict]) -> dict[str, list[list]]:
    """Points by name; of two sources of one name the second is named with its source."""
    found: dict[str, list[list]] = {}
    for one in series:
        tag = one["name"] if one["name"] not in found else f"{one['name']} ({one['source']})"
        found[tag] = one["points"]
    return found

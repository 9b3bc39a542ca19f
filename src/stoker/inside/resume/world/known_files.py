"""Files that are judged by more than their size and time: what set-up read, and what the script wrote."""

from __future__ import annotations

inputs: dict = {}  # path -> (size, mtime_ns) of files that were opened for reading in set-up
written: set = set()  # files that the script wrote, in all its lives

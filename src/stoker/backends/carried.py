"""The agent as it travels: one folder, named after its content.

Each version is copied once, to ROOT/agent/agent-<hash>/, where Python keeps its compiled code. A folder
that lacks a file is replaced. Several versions may be there: a run keeps the version with which it began.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import stoker.agent

SOURCE = Path(stoker.agent.__file__).parent
ENTRY = "__main__.py"


class AgentFolder:
    """The files of the agent, read once. A file that an upgrade replaces later belongs to another server."""

    def __init__(self) -> None:
        self._files = {path.name: path.read_bytes() for path in sorted(SOURCE.glob("*.py"))}
        digest = hashlib.sha256()
        for name, text in self._files.items():
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
        self.name = f"agent-{digest.hexdigest()[:16]}"

    def files(self) -> list[str]:
        """Names of the agent's files."""
        return list(self._files)

    def lay_out(self, parent: Path) -> Path:
        """Write all files, without byte code, to `parent`/`name`."""
        folder = parent / self.name
        folder.mkdir()
        for name, text in self._files.items():
            (folder / name).write_bytes(text)
        return folder

"""Write tensors to a safetensors file in pieces, with a running hash and no second copy in memory.

Format: 8 bytes length, a JSON header, then the raw bytes (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import torch

PIECE = 8 << 20
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


class Writer:
    """A file that is synced to disk when closed; its size and SHA-256 are then known."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises OSError, for example if the disk is full."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE):
            piece = view[start:start + PIECE]
            self._hash.update(piece)
            while len(piece):
                piece = piece[os.write(self._fd, piece):]
        self.size += len(view)

    def close(self) -> dict[str, object]:
        """Sync and close. Returns the entry for a manifest."""
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}

    def abandon(self) -> None:
        """Close the file without a sync."""
        os.close(self._fd)


def known(tensor: torch.Tensor) -> bool:
    """True if a safetensors file can store this tensor."""
    return tensor.dtype in _NAMES and tensor.layout == torch.strided


def write(path: Path, tensors: dict[str, torch.Tensor]) -> dict[str, object]:
    """Write contiguous CPU tensors; returns {"bytes", "sha256"}. Raises OSError."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file = Writer(path)
    try:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    except BaseException:
        file.abandon()
        raise
    return file.close()


def sha256(path: Path) -> str:
    """SHA-256 of a file's content. Raises OSError."""
    found = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(PIECE):
            found.update(piece)
    return found.hexdigest()

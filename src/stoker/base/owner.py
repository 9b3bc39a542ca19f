"""Whose a run on a shared machine is: each state folder has an id,
which is written into the folders of its runs."""

from __future__ import annotations

import os
import secrets
import socket

from stoker.base.config import Home
from stoker.base.errors import ServerError

ID_MAX = 64


def owner_of(where: Home) -> dict[str, str]:
    """`{"id", "hint"}` of this state folder: an id that is created once and never changes, and USER@HOST
    for people. Raises ServerError."""
    return {"id": _id(where), "hint": f"{_user()}@{socket.gethostname()}"}


def _id(where: Home) -> str:
    """The content of server/id; the first one who comes makes it."""
    path = where.server / "id"
    found = _read(path)
    if found:
        return found
    temp = path.with_name(f".id-{os.getpid()}")
    try:
        temp.write_text(secrets.token_hex(8) + "\n")
        try:
            os.link(temp, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links here
            os.replace(temp, path)
    except OSError as e:
        raise ServerError(
            f"{path} cannot be written: {e.strerror}.", hint="Free some space, then repeat the command."
        ) from e
    finally:
        temp.unlink(missing_ok=True)
    return _read(path)


def _read(path: os.PathLike) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            text = f.read(ID_MAX + 2).strip()
    except OSError:
        return ""
    return text if text.isalnum() and text.isascii() and len(text) <= ID_MAX else ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())

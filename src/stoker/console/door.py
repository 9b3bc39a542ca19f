"""The door of the console: links that open once, a signed cookie, and which requests may pass.
Knows nothing of pages.

Other sites can make a browser send requests here, and other users of this machine can reach the port.
So every page needs the cookie, a change needs the Origin of the console itself, and the Host must be a name
of this machine: a site whose name points here is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
from pathlib import Path
from urllib.parse import urlsplit

from stoker.base.config import Home
from stoker.base.rundir import write_whole

CODE_S = 60  # a link is good for so long
COOKIE_S = 30 * 24 * 3600
# names of this machine, whatever port is forwarded to it
OURS = frozenset({"127.0.0.1", "localhost", "[::1]"})
SAFE = frozenset({"GET", "HEAD"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "  # noqa: E501
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Kept:
    """Secret and port of one state folder, in a file that only its owner can read."""

    def __init__(self, home: Home) -> None:
        self._path = home.server / "console.json"
        told = _read(self._path)
        self.secret = bytes.fromhex(told["secret"]) if told else secrets.token_bytes(32)
        self.port: int | None = told["port"] if told else None
        self._kept = told is not None

    def keep(self, port: int) -> None:
        """Store the port for the next start."""
        if port != self.port or not self._kept:
            write_whole(self._path, json.dumps({"secret": self.secret.hex(), "port": port}).encode(), 0o600)
            self.port, self._kept = port, True


def _read(path: Path) -> dict | None:
    try:
        told = json.loads(path.read_bytes())
        sound = (
            len(bytes.fromhex(told["secret"])) == 32
            and isinstance(told["port"], int)
            and not os.stat(path).st_mode & 0o077
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return told if sound else None


class Door:
    """Makes and checks codes and cookies. Any thread may use it; times are Unix seconds."""

    def __init__(self, secret: bytes, port: int) -> None:
        self._secret = secret
        self.cookie = f"stoker-{port}"  # browsers keep cookies by name of the machine, not by port
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}  # codes that were used, until they would have ended by themselves

    def code(self, now: float) -> str:
        """A code that admits one browser within CODE_S. Any process that knows the secret can make a code."""
        return self._signed("code", now + CODE_S)

    def enter(self, code: str, now: float) -> str | None:
        """The value of a cookie for a valid code; None for an invalid or used code."""
        if not self._good("code", code, now):
            return None
        with self._lock:
            self._used = {each: until for each, until in self._used.items() if until > now}
            if code in self._used:
                return None
            self._used[code] = now + CODE_S
        return self._signed("cookie", now + COOKIE_S)

    def knows(self, cookie: str, now: float) -> bool:
        return self._good("cookie", cookie, now)

    def answer(self, question: str) -> str:
        """Proof that this is the console of a state folder."""
        return self._mac("door", question[:100])

    def _signed(self, kind: str, until: float) -> str:
        text = f"{secrets.token_urlsafe(12)}.{int(until)}"
        return f"{text}.{self._mac(kind, text)}"

    def _good(self, kind: str, value: str, now: float) -> bool:
        text, _, mac = value.rpartition(".")
        until = text.rpartition(".")[2]
        right = hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(kind, text).encode())
        return right and until.isdigit() and now < int(until)

    def _mac(self, kind: str, text: str) -> str:
        return hmac.new(
            self._secret, f"{kind}:{self.cookie}:{text}".encode("utf-8", "replace"), hashlib.sha256
        ).hexdigest()


def refusal(method: str, headers: dict[str, str]) -> str | None:
    """Why a request is refused, whoever sends it; None if it is allowed. Headers: lower-case names."""
    host = headers.get("host", "")
    if _name(host) not in OURS:
        return "The header Host does not name this machine."
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin != f"http://{host}":
        return "The header Origin names another website."
    if method not in SAFE and origin is None:
        return "A request that changes something needs the header Origin."
    if site in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
        return "This request comes from another website."
    return None


def _name(host: str) -> str:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
    return f"[{name}]" if ":" in name else name

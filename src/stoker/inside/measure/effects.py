"""What a script does to the world outside: what it would send over a network,
and whether it asks at the terminal."""

from __future__ import annotations

import io
import os
import sys

from . import order

READING = ("GET", "HEAD", "OPTIONS", "CONNECT", "TRACE")
_LIBRARIES = ("http.client", "urllib3", "httpcore", "httpx", "aiohttp", "requests", "urllib.request")
_DEEP = 40

network: list = []
outside: list = []
stdin = False
torch_is_here = False
_names: dict = {}  # address -> the name that was asked for
_allowed = False


def install() -> None:
    """Note it from here on. Where the order does not allow it,
    a write to the network ends the trial before it happens."""
    global _allowed
    _allowed = order.order.get("network") in (True, "allow")
    order.facts["side_effects"] = {"network": network, "outside": outside, "stdin": False}
    sys.addaudithook(_audit)
    try:
        sys.stdin = io.TextIOWrapper(
            io.BufferedReader(_Stdin(0, closefd=False)), encoding=sys.stdin.encoding, errors=sys.stdin.errors
        )
    except (OSError, ValueError, AttributeError):  # there is none
        pass


def wrote(what: str, path: str) -> None:
    """The script wrote a file; it went to the scratch folder."""
    if path not in outside and len(outside) < 50:
        outside.append(path)


class _Stdin(io.FileIO):
    """Tells that somebody reads."""

    def readinto(self, buffer: object) -> int | None:
        _asked()
        return super().readinto(buffer)

    def readall(self) -> bytes:
        _asked()
        return super().readall()


def _asked() -> None:
    global stdin
    stdin = True
    order.facts["side_effects"]["stdin"] = True


def _audit(event: str, args: tuple) -> None:
    if event in _EVENTS:
        try:
            _note(event, args)
        except PermissionError:
            raise
        except Exception as e:  # a fault of ours would be one of the script's call
            order.fault(event, e)


_EVENTS = frozenset(
    ("socket.connect", "urllib.Request", "http.client.send", "socket.getaddrinfo", "builtins.input")
)


def _note(event: str, args: tuple) -> None:
    if event == "socket.connect":
        _connects(args[1])
    elif event == "urllib.Request":
        if (args[3] or "GET").upper() not in READING:
            _writes(_host_of(args[0]))
    elif event == "http.client.send":
        _sends(args[0], args[1])
    elif event == "socket.getaddrinfo":
        _names["last"] = (args[0], args[1])
    elif event == "builtins.input":
        _asked()


def _connects(address: object) -> None:
    if not isinstance(address, tuple) or len(address) < 2:  # a Unix socket
        return
    host, port = str(address[0]), address[1]
    method = _method()
    if method:
        if method.upper() not in READING:
            _writes(_named(host, port))
    elif not (host.startswith("127.") or host in ("localhost", "::1", "0.0.0.0", "::")):
        _writes(_named(host, port))


def _sends(connection: object, data: object) -> None:
    if isinstance(data, (bytes, bytearray)):
        word = bytes(data[:8]).split(b" ")[0].decode("latin-1")
        if word in ("POST", "PUT", "PATCH", "DELETE"):
            _writes(f"{getattr(connection, 'host', '?')}:{getattr(connection, 'port', '?')}")


def _named(host: str, port: object) -> str:
    name = _names.get("last")
    return f"{name[0]}:{port}" if name and name[0] and str(name[1]) == str(port) else f"{host}:{port}"


def _host_of(url: object) -> str:
    return str(url).partition("://")[2].partition("/")[0] or str(url)[:80]


def _method() -> str:
    """What the HTTP request is that connects just now; "" where nobody knows."""
    frame, found = sys._getframe(1), False
    for _ in range(_DEEP):
        if frame is None:
            break
        module = frame.f_globals.get("__name__", "")
        if isinstance(module, str) and module.startswith(_LIBRARIES):
            found = True
            method = frame.f_locals.get("method") or getattr(frame.f_locals.get("request"), "method", None)
            if isinstance(method, bytes):
                method = method.decode("latin-1")
            if isinstance(method, str) and method.isupper():
                return method
        frame = frame.f_back
    return "POST" if found else ""


def _writes(where: str) -> None:
    if where not in network:
        network.append(where)
    if _allowed or not torch_is_here:
        return
    if os.getpid() != order._pid:
        raise PermissionError(f"trials must not write to {where}")
    order.facts["error"] = {"type": "network", "message": f"the script writes to {where}", **_place()}
    order.finish("error")


def _place() -> dict:
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if (
            "site-packages" not in name
            and "stoker_hooks" not in name
            and not name.startswith("<")
            and not order._of_python(name)
        ):
            return {"file": name, "line": frame.f_lineno}
        frame = frame.f_back
    return {"file": "", "line": 0}

"""The verbs of the plane, over HTTP on the server's unix socket;
the server is started, or replaced by a newer one, when needed.

Standard library only, and little of it: every command of the CLI imports this.
`websockets` comes with `attach`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse

from stoker import __version__
from stoker.base import config
from stoker.base.errors import Denied, InvalidSpec, ServerError, StokerError, UnknownField, from_json
from stoker.client.answers import (
    PIECE,
    Cut,
    Events,
    Lines,
    NotThere,
    Pieces,
    error_of,
    json_of,
    path_of,
    query_of,
    quoted,
)

TYPE_CHECKING = False  # typing itself would cost more than this module
if TYPE_CHECKING:
    from stoker.client.attach import Attached

START_S = 20.0  # a server that does not answer by then is reported
READ_S = 600.0  # for the numbers in a long log
ANSWER_S = 120.0  # for one answer; `wait` and streams have their own
AGAIN_S = 1.0  # then the server is started again, if another starter has not brought it up
LOOK_S = 0.05  # between two looks at a server that is starting or ending
LOOK_MAX_S = 15.0  # for one look
TRIES = 3  # for one request, when the server dies under it
BODY_MAX = 64 << 20  # the server's limit; said here before anything is sent
KNOWN_TO_ALL = ("/v1/server/stop",)  # means the same to every server


def connect(home: config.Home | None = None, *, start: bool = True, any_version: bool = False,
            say: Callable[[str], None] | None = None) -> Client:
    """Return a client of the running server of `home` (default $STOKER_HOME).
    `start`: start the server if it is not running, and replace a server that is older than this client
    (`say` gets one sentence about it; default: stderr). Without `start`, raises ServerError if no server
    runs. A newer server supports only reading verbs, and only one minor version apart; with `any_version`,
    only `info` and `shutdown`. Runs are never affected."""
    client = Client(home or config.home(), start=start, any_version=any_version, say=say)
    client.reach()
    return client


class Client:
    """One method per verb, with the names, arguments and results of `plane.service.Service`. Any thread
    may call any method."""

    def __init__(self, home: config.Home, *, start: bool = True, any_version: bool = False,
                 say: Callable[[str], None] | None = None) -> None:
        self.home = home
        self._start, self._any_version = start, any_version
        self._newer = ""  # the server's version, if that is newer than ours
        self._say = say or (lambda text: print(text, file=sys.stderr))

    # --- the verbs
    # -----------------------------------------------------------------------------------------------------

    def info(self) -> dict:
        return self._get("/v1/server")

    def submit(self, spec: dict, limits: dict, env: Mapping[str, str], stdin: bytes | None = None, *,
               on_name_taken: str = "refuse", dry_run: bool = False) -> dict:
        """Submit a run, or with `dry_run` return what it would send. "continue" returns the unfinished run
        of that name if it is the same run."""
        body = {
            "spec": spec,
            "limits": limits,
            "env": dict(env),
            "on_name_taken": on_name_taken,
            **({"dry_run": True} if dry_run else {}),
        }
        if stdin is not None:
            from base64 import b64encode
            body["stdin"] = b64encode(stdin).decode()
        try:
            return self._post("/v1/runs", body)
        except UnknownField as e:
            raise _older_server(e) from e

    def runs(self, *, all: bool = False, folder: str | None = None, limit: int = 200,
             active: bool = False) -> list[dict]:
        return self._get("/v1/runs", all=all, folder=folder, limit=limit, active=active or None)

    def run(self, ref: str, active: bool = False) -> dict:
        return self._get(path_of(ref), active=active)

    def show(self, ref: str) -> dict:
        return self._get(path_of(ref, "show"))

    def numbers(self, ref: str, names: Sequence[str] = (), points: int | None = None) -> dict:
        return self._call(
            "GET", path_of(ref, "numbers"), {"name": list(names), "points": points}, patience_s=READ_S
        )

    def recorded(self, ref: str, kind: str) -> dict:
        return self._get(path_of(ref, "recorded"), kind=kind)

    def picture(self, ref: str, path: str) -> bytes:
        """A captured picture, as its file."""
        return b"".join(Pieces(self._stream(path_of(ref, "picture"), {"path": path})))

    def compare(self, refs: Sequence[str], code: bool = False) -> dict:
        return self._call("GET", "/v1/compare", {"ref": list(refs), "code": code or None}, patience_s=READ_S)

    def halve(self, sweep: str, metric: str, after: int, runs: Sequence[str]) -> dict:
        return self._post(
            f"/v1/sweeps/{quoted(sweep)}/halve", {"metric": metric, "after": after, "runs": list(runs)}
        )

    def candidates(self, folder: str, command: Sequence[str]) -> list[dict]:
        return self._get("/v1/candidates", folder=folder, command=command)

    def start(self, ref: str, edited: bool = False) -> dict:
        return self._post(path_of(ref, "start"), {"edited": edited})

    def stop(self, ref: str, grace_s: Sequence[float] | None = None, force: bool = False) -> dict:
        return self._post(path_of(ref, "stop"), {"grace_s": grace_s, "force": force})

    def keep(self, ref: str, seconds: float | None = None, pin: bool | None = None) -> dict:
        return self._post(path_of(ref, "keep"), {"seconds": seconds, "pin": pin})

    def label(
        self, ref: str, add: Sequence[str] = (), remove: Sequence[str] = (), note: str | None = None
    ) -> dict:
        return self._post(path_of(ref, "label"), {"add": list(add), "remove": list(remove), "note": note})

    def rm(self, ref: str, force: bool = False) -> dict:
        return self._call("DELETE", path_of(ref), {"force": force})

    def wait(self, ref: str, timeout_s: float, outputs: bool = False) -> dict:
        """Return the run object when the run has ended (with `outputs`, when its files are here), or after
        `timeout_s`."""
        asked = {"timeout_s": timeout_s, "outputs": outputs}
        return self._call("GET", path_of(ref, "wait"), asked, patience_s=min(timeout_s, 60) + ANSWER_S)

    def gc(self, dry_run: bool = True, older_s: float | None = None) -> dict:
        return self._post("/v1/gc", {"dry_run": dry_run, "older_s": older_s})

    def top(self, target: str = "") -> dict:
        return self._get("/v1/top", target=target)

    def data(self, target: str, remove: Sequence[str] = ()) -> list[dict]:
        return self._post("/v1/data", {"target": target, "remove": list(remove)})

    def capacity(self, target: str = "local", **asked: object) -> dict:
        return self._call("GET", "/v1/capacity", {"target": target, **asked}, patience_s=LOOK_MAX_S * 20)

    def machines(self) -> list[dict]:
        return self._get("/v1/machines")

    def machine_off(self, name: str) -> dict:
        return self._post(f"/v1/machines/{quoted(name)}/off")

    def machine_withdraw(self, name: str) -> dict:
        return self._post(f"/v1/machines/{quoted(name)}/withdraw")

    def machine_found(self, name: str) -> list[dict]:
        return self._get(f"/v1/machines/{quoted(name)}/found")

    def machine_adopt(self, name: str) -> list[dict]:
        return self._post(f"/v1/machines/{quoted(name)}/adopt")

    def shutdown(self, pid: int | None = None) -> dict:
        """Ask the server to end (with `pid`, only this server). Returns when it has begun to end; runs
        continue."""
        return self._post("/v1/server/stop", {"pid": pid})

    def logs(  # noqa: PLR0917
        self,
        ref: str,
        attempt: int | None = None,
        stream: str = "out",
        offset: int = 0,
        tail: int | None = None,
        since: float | None = None,
        follow: bool = False,
    ) -> Pieces:
        """Iterate over the raw bytes of a log. An invalid request raises here; a broken stream raises
        during the iteration."""
        words = {
            "attempt": attempt,
            "stream": stream,
            "offset": offset,
            "tail": tail,
            "since": since,
            "follow": follow,
        }
        return Pieces(self._stream(path_of(ref, "logs"), words))

    def pull(self, ref: str, patterns: Sequence[str] = ()) -> Lines:
        """Copy files that the run created or modified to its folder here: see `plane.bringing.Pulling`.
        May raise StokerError during the iteration."""
        return Lines(
            self._stream(path_of(ref, "pull"), {}, json.dumps({"patterns": list(patterns)}).encode("ascii"))
        )

    def events(self) -> Iterator[dict]:
        """Iterate over changes from now on: `{"run": run}` at each change."""
        return Events(self._stream("/v1/events", {}))

    def attach(
        self, ref: str, attempt: int | None = None, out: int = 0, err: int = 0, input: bool = True
    ) -> Attached:
        """Open the live streams of a run: see `client.attach.Attached`. Waits for an attempt that does not
        exist yet."""
        from stoker.client.attach import Attached

        path = path_of(ref, "attach") + query_of({"attempt": attempt, "out": out, "err": err, "input": input})
        return self._again(
            "GET", lambda: Attached(self._socket(None), path, attempt=attempt, out=out, err=err)
        )

    # --- finding, starting and replacing the server
    # ----------------------------------------------------------------------

    def reach(self) -> dict:
        """Make sure that a server of a suitable version answers, and return its `info`."""
        info = self._find()
        if info is None:
            if not self._start:
                raise ServerError(
                    "The Stoker server is not running.", hint="To start it: stoker server start"
                )
            info = self._bring_up()
        ours, theirs = _version(__version__), _version(str(info.get("version")))
        self._newer = str(info.get("version")) if theirs > ours else ""
        if self._newer and not self._any_version and not _near(ours, theirs):
            raise self._too_old()
        if theirs < ours and self._start:
            self._replace(info)
            return self.reach()
        return info

    def _too_old(self) -> ServerError:
        return ServerError(
            (
                f"The running Stoker server is version {self._newer}; this command is the older version "
                f"{__version__}."
            ),
            hint="Use the newer stoker. Or stop the server: stoker server stop   Then repeat your command. "
                 "Runs continue.",
        )

    def _find(self) -> dict | None:
        """What the running server says of itself; None when none listens."""
        try:
            return self._exchange("GET", "/v1/server", None, LOOK_MAX_S)
        except (NotThere, Cut):
            return None

    def _bring_up(self) -> dict:
        """Start a server, together with whoever else does so at the same time; all end with the same one."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            said = _start_server(self.home, deadline)
            if "error" in said:
                raise from_json(said)
            # whoever has the lock may be starting, ending, or about to die
            again = time.monotonic() + AGAIN_S
            while time.monotonic() < again:
                if (info := self._find()) is not None:
                    return info
                time.sleep(LOOK_S)
        raise ServerError(
            f"The Stoker server did not answer within {START_S:g} s.", hint=_who_has_it(self.home)
        )

    def _replace(self, info: dict) -> None:
        self._say(f"stoker: replacing the server of version {info.get('version')} by version {__version__}; "
                  "runs continue.")
        try:
            self._exchange(
                "POST", "/v1/server/stop", json.dumps({"pid": info.get("pid")}).encode(), LOOK_MAX_S
            )
        except (NotThere, Cut, StokerError):
            pass  # it is gone, or somebody else was faster
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            now = self._find()
            if now is None or now.get("pid") != info.get("pid"):
                return
            time.sleep(LOOK_S)
        raise ServerError(
            f"The Stoker server of version {info.get('version')} did not stop.", hint=_who_has_it(self.home)
        )

    # --- one request
    # -------------------------------------------------------------------------------------------------------

    def _get(self, path: str, **query: object):
        return self._call("GET", path, query)

    def _post(self, path: str, body: dict | None = None):
        return self._call("POST", path, {}, json.dumps(body or {}).encode("ascii"))

    def _call(
        self, method: str, path: str, query: dict, body: bytes | None = None, *, patience_s: float = ANSWER_S
    ):
        if body is not None and len(body) > BODY_MAX:
            raise InvalidSpec(
                f"The request is larger than {BODY_MAX >> 20} MiB.",
                hint="Save large input in a file, and let the script open this file.",
            )
        changes = method != "GET" and path not in KNOWN_TO_ALL
        return self._again(
            method, lambda: self._exchange(method, path + query_of(query), body, patience_s), changes=changes
        )

    def _stream(
        self, path: str, query: dict, body: bytes | None = None
    ) -> tuple[HTTPResponse, socket.socket]:
        def begin() -> tuple[HTTPResponse, socket.socket]:
            answer, link = self._send(
                "GET" if body is None else "POST", path + query_of(query), body, ANSWER_S
            )
            if answer.status != 200:
                with link:
                    raise error_of(answer.status, answer.read())
            link.settimeout(None)  # a quiet log is not a dead server
            return answer, link
        return self._again("GET", begin)

    def _again(self, method: str, attempt: Callable, *, changes: bool = False):
        """The result of `attempt`; when the server went away and nothing can be done twice by it, again with
        a new server. What changes something is not asked of a newer server:
        it may mean something else by it."""
        if changes and self._newer:
            raise self._too_old()
        for _ in range(TRIES):
            try:
                return attempt()
            except NotThere:
                pass  # nothing was sent
            except Cut as e:
                if method != "GET":
                    raise ServerError(
                        (
                            "The Stoker server ended before it answered, so Stoker does not know whether "
                            "the command took effect."
                        ),
                        hint="Check the list of runs (stoker ps). If needed, repeat the command.",
                    ) from e
            self.reach()
        raise ServerError(
            "The Stoker server ended repeatedly.", hint=f"See the end of {self.home.server_log}."
        )

    def _exchange(self, method: str, path: str, body: bytes | None, patience_s: float):
        answer, link = self._send(method, path, body, patience_s)
        with link:
            try:
                raw = answer.read()
            except (OSError, HTTPException) as e:
                raise Cut from e
        if answer.status != 200:
            raise error_of(answer.status, raw)
        return json_of(raw)

    def _send(
        self, method: str, path: str, body: bytes | None, patience_s: float
    ) -> tuple[HTTPResponse, socket.socket]:
        connection = HTTPConnection("stoker")
        link = connection.sock = self._socket(patience_s)
        headers = {"Connection": "close"} | ({"Content-Type": "application/json"} if body is not None else {})
        try:
            try:
                connection.request(method, path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may have refused a large body and told us why
            return connection.getresponse(), link
        except TimeoutError as e:
            link.close()
            raise ServerError(
                f"The Stoker server did not answer within {patience_s:g} s.", hint=_who_has_it(self.home)
            ) from e
        except (OSError, HTTPException) as e:
            link.close()
            raise Cut from e
        except BaseException:
            link.close()
            raise

    def _socket(self, patience_s: float | None) -> socket.socket:
        """A connection to the server, which must run under our own user."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(patience_s)
        deadline = time.monotonic() + START_S
        while True:
            try:
                link.connect(os.fspath(self.home.socket))
                break
            except BlockingIOError:  # its queue of connections is full at the moment
                if time.monotonic() > deadline:
                    link.close()
                    raise ServerError(
                        "The Stoker server does not accept connections.", hint=_who_has_it(self.home)
                    ) from None
                time.sleep(0.01)
            except PermissionError as e:
                link.close()
                raise Denied(
                    f"{self.home.socket} cannot be opened by your user.",
                    hint="Check the owner of STOKER_HOME.",
                ) from e
            except OSError as e:
                link.close()
                raise NotThere from e
        _check_peer(link, self.home)
        return link


def _older_server(error: UnknownField) -> StokerError:
    """A server of our version number that was started before Stoker was updated:
    its refusal in words that help."""
    from dataclasses import fields

    from stoker.base.spec import Spec
    # nonsense for us too: the server is right
    if not {field.name for field in fields(Spec)}.issuperset(error.fields):
        return error
    return ServerError("The running Stoker server is older than this command and does not know these "
                       f"fields: {', '.join(error.fields)}.",
                       hint="Stop the server: stoker server stop   Then repeat your command. Runs continue.")


def _near(ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Whether a client of one version may read from a server of the newer other:
    at most one minor version lies between."""
    return ours[:1] == theirs[:1] and theirs[1:2] <= ((ours[1:2] or (0,))[0] + 1,)


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: "0.10.2rc1" is (0, 10, 2)."""
    found: list[int] = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def _check_peer(link: socket.socket, home: config.Home) -> None:
    """Refuse to hand an environment to somebody else who listens at our path."""
    import struct

    pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid():
        link.close()
        raise Denied(
            f"The server at {home.socket} (process {pid}) belongs to another user.",
            hint="export STOKER_HOME=$HOME/.stoker",
        )


def _who_has_it(home: config.Home) -> str:
    try:
        pid = int(json.loads(home.lock.read_bytes())["server"]["pid"])
    except (OSError, ValueError, LookupError, TypeError):
        pid = 0
    kill = f" If process {pid} is stuck: kill -9 {pid}   (runs continue)" if pid else ""
    return f"See the end of {home.server_log}.{kill}"


def _start_server(home: config.Home, deadline: float) -> dict:
    """Start a server in the background and return what it says: {"ready": pid}, {"held":
    true} or an error."""
    import select

    from stoker.base.daemon import begun

    process = begun(home)
    said = b""
    readable = select.poll()  # not select(): numbers above 1024 happen in notebooks
    assert process.stdout is not None  # asked for above
    readable.register(process.stdout, select.POLLIN)
    with process.stdout as pipe:
        while not any(line.startswith(b"{") for line in said.split(b"\n")[:-1]):
            waited = readable.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not waited or not (piece := os.read(pipe.fileno(), PIECE)):
                break
            said += piece
    process.wait()  # it has forked and ended; the server is nobody's child
    lines = said.decode("utf-8", "replace").strip().splitlines()
    for line in lines:
        if line.startswith("{"):
            return json_of(line.encode())
    if not lines:
        return {}
    return ServerError(
        f"The Stoker server could not be started: {lines[-1]}", hint=_who_has_it(home)
    ).to_json()

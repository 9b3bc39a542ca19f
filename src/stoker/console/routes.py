"""The routes of the console: which address shows what, and which button does what.
Each asks the source or a verb, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Protocol, TypeVar
from urllib.parse import parse_qs

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from stoker.base.errors import InvalidSpec, NotFound, StateError, StokerError
from stoker.base.state import State
from stoker.base.units import parse_duration
from stoker.console import drawn, files, logs, verbs
from stoker.console.app import Answer, asked, one, quoted, shown, wants_json
from stoker.console.source import Source
from stoker.console.words import command

FORM_MAX = 64 << 10  # bytes
POINTS, POINTS_MAX = 600, 20_000  # of one curve
FILTERS = ("state", "tag", "grep", "all", "page")

_STREAMS = CapacityLimiter(512)  # live logs at once; each holds a thread


# --- pages
# ---------------------------------------------------------------------------------------------------------------  # noqa: E501


def runs(source: Source, request: Request) -> dict:
    """The list of runs."""
    wanted = {name: one(request, name) for name in FILTERS}
    return {**source.runs(wanted), "wanted": wanted}


def run(source: Source, request: Request) -> dict:
    """One run with all details."""
    told = source.run(request.path_params["ref"])
    state = State(told["state"])
    can = {
        "stop": not state.final and state is not State.STOPPING,
        "start": state.final,
        "keep": not state.final,
        "rm": state.final,
    }
    return {"run": told, "line": drawn.timeline(told), "can": can, "key": _key(told)}


def _key(told: dict) -> str:
    """Changes when there are new points to draw."""
    numbers = told.get("numbers") or {}
    counts = sum(each["count"] for each in (numbers.get("metrics") or {}).values())
    used = int((told.get("used_s") or 0) // 10)  # its use of the machine is drawn anew then
    step = (told.get("progress") or {}).get("step")
    shown = (told["state"], told["attempts"], used, counts, numbers.get("pictures"), numbers.get("now"), step)
    return " ".join(map(str, shown))


def compare(source: Source, request: Request) -> dict:
    """A comparison of runs, as `stoker compare` shows it."""
    refs = asked(request).get("run", []) + [f"@{tag}" for tag in asked(request).get("tag", [])]
    found = source.compare(tuple(refs))
    return {
        **found,
        **drawn.table(found, one(request, "sort"), asked(request).get("metric", [])),
        "sort": one(request, "sort"),
        "refs": refs,
        "key": " ".join(
            f"{each['state']}{sum(m['count'] for m in each['metrics'].values())}" for each in found["runs"]
        ),
    }


def sweeps(source: Source, request: Request) -> dict:
    """The sweeps and their progress."""
    return source.sweeps()


def machines(source: Source, request: Request) -> dict:
    """The machines, with their runs."""
    return source.machines()


def reports(source: Source, request: Request) -> dict:
    """The reports of `stoker doctor` and `stoker tune` about this machine."""
    return source.reports()


def new_sweep(source: Source, request: Request) -> dict:
    """The form that starts a sweep, filled in from a run."""
    ref = one(request, "from")
    run = source.run(ref) if ref else next((each for each in source.runs({})["runs"]), None)
    return {"run": run, **_asked_of(run)}


def _asked_of(run: dict | None) -> dict:
    if run is None:
        return {"folder": "", "command": ""}
    folder = (run.get("spec") or {}).get("folder") or run["workdir"]
    return {"folder": folder, "command": command(run["command"])}


def machine(source: Source, request: Request) -> dict:
    """The resources of one machine; asks the machine."""
    return {"capacity": source.capacity(request.path_params["name"]), "name": request.path_params["name"]}


# --- numbers, logs, files
# ------------------------------------------------------------------------------------------------


def curves(source: Source, request: Request) -> dict:
    """Pictures of the curves of runs, losses first."""
    points = min(_whole(one(request, "points"), POINTS), POINTS_MAX)
    names = tuple(asked(request).get("name", []))
    found = []
    for ref in asked(request).get("run", []):
        try:
            found.append(source.numbers(ref, names, points))
        except NotFound:
            if not names:
                raise  # a name that only some runs have is no mistake
    return drawn.charts(found, all_of_them=bool(one(request, "all")))


def usage(source: Source, request: Request) -> dict:
    """Charts of the CPU, memory and GPUs that a run used."""
    return drawn.usage(source.recorded(request.path_params["ref"], "usage"))


def code(source: Source, request: Request) -> dict:
    """The commit and the changes that were recorded when the run was made."""
    ref = request.path_params["ref"]
    found = source.recorded(ref, "code")
    lines, cut = drawn.difference(found["diff"])
    return {"run": source.run(ref), "code": found["code"], "lines": lines, "cut": cut}


def diff(request: Request) -> Response:
    """The recorded changes, as a file."""
    ref = request.path_params["ref"]
    text = request.app.state.source.recorded(ref, "code")["diff"]
    return Response(
        text.encode("utf-8", "replace"),
        200,
        {"content-disposition": f"attachment; filename*=UTF-8''{quoted(ref)}.patch"},
        "text/x-diff; charset=utf-8",
    )


def pictures(source: Source, request: Request) -> dict:
    """The captured pictures of a run. `{"pictures", "elsewhere"}`; elsewhere: the machine that stores
    them, if not this one."""
    told = source.run(request.path_params["ref"])
    found = source.numbers(told["id"], (), POINTS)["pictures"]
    return {
        "pictures": files.by_name(told, found),
        "elsewhere": told["target"] if found and not files.here(told) else None,
    }


def picture(request: Request) -> Response:
    """One captured picture, fetched if it is on another machine. It never changes."""
    source: Source = request.app.state.source
    told = source.run(request.path_params["ref"])
    found = files.picture(told, one(request, "path"))
    pieces = (
        found.pieces() if files.here(told) else (data for data in [source.picture(told["id"], found.path)])
    )
    return _file(found, pieces, shown=True, cache="private, max-age=86400, immutable")


def spark(request: Request) -> Response:
    """A small picture of the main curve of a run."""
    source: Source = request.app.state.source
    try:
        numbers = source.numbers(request.path_params["ref"], (), drawn.SPARK_POINTS)
        picture = drawn.spark(numbers["series"], named=not one(request, "plain"))
    except StokerError:
        picture = drawn.spark([])
    return Response(picture, 200, {"cache-control": "max-age=3600"}, "image/svg+xml")


def numbers(source: Source, request: Request) -> dict:
    """All curves of a run, as `stoker plot --json` prints them."""
    return source.numbers(request.path_params["ref"], tuple(asked(request).get("name", [])), min(
        _whole(one(request, "points"), POINTS), POINTS_MAX))


def _log(source: Source, request: Request) -> logs.Log:
    return logs.Log(
        source.client, source.run(request.path_params["ref"]), _whole(one(request, "attempt"), None)
    )


def log_part(source: Source, request: Request) -> dict:
    """A part of a log: after `begin`, or before `end`."""
    return _log(source, request).part(_whole(one(request, "begin"), None), _whole(one(request, "end"), None))


def log_find(source: Source, request: Request) -> dict:
    """The position of a text (or, without a text, of an error) in a log: after `at`, or before it with
    `back`."""
    log = _log(source, request)
    back = bool(one(request, "back"))
    at = _whole(one(request, "at"), log.size if back else 0)
    return log.find(logs.pattern(one(request, "text")[:200]), at, back=back)


def log_text(request: Request) -> Response:
    """The whole log, as a file."""
    log = _log(request.app.state.source, request)
    return _stream(
        log.pieces(0, follow=False),
        "text/plain; charset=utf-8",
        {"content-disposition": f"attachment; filename*=UTF-8''{quoted(request.path_params['ref'])}.log"},
    )


def log_live(request: Request) -> Response:
    """New text of a log. If the server is not available, the stream ends, and the browser asks again."""
    begin = _whole(request.headers.get("last-event-id") or one(request, "begin"), 0)
    try:
        events = logs.Live(_log(request.app.state.source, request), begin)
    except StokerError as e:
        return Response(
            b"retry: 1000\n\n" + logs.event(e.message, name="away"), media_type="text/event-stream"
        )
    return _stream(events, "text/event-stream", {"cache-control": "no-store"})


class Closable(Protocol):
    """Pieces of an answer that can be given up."""

    def __iter__(self) -> Iterator[bytes]:
        """The pieces."""

    def close(self) -> None:
        """No more of them are wanted."""


def _stream(source: Closable, kind: str, headers: dict[str, str]) -> Response:
    """An answer out of a blocking iterator, which is closed when the browser leaves."""
    async def pieces():
        iterator, end = iter(source), object()
        try:
            while (
                piece := await run_sync(next, iterator, end, limiter=_STREAMS, abandon_on_cancel=True)
            ) is not end:
                yield piece
        finally:
            # a generator that a thread is still in; it ends with its next piece
            with contextlib.suppress(ValueError):
                source.close()
    return StreamingResponse(pieces(), 200, headers, kind)


def file(request: Request) -> Response:
    """A file of a run: as a download, or with `show` as a picture. Scripts in the file never run."""
    source: Source = request.app.state.source
    found = files.find(source.run(request.path_params["ref"]), one(request, "path"))
    return _file(found, found.pieces(), shown=bool(one(request, "show")))


def _file(found: files.File, pieces: Closable, *, shown: bool, cache: str = "no-store") -> Response:
    name = quoted(PurePosixPath(found.path).name)
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "cache-control": cache,
               "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
    if shown and found.image:
        return _stream(pieces, found.image, {**headers, "content-disposition": "inline"})
    return _stream(pieces, "application/octet-stream", headers)


def preview(source: Source, request: Request) -> dict:
    """The beginning of a text file, or the fact that the file is an image."""
    told = source.run(request.path_params["ref"])
    found = files.find(told, one(request, "path"))
    return {
        "run": told,
        "file": {
            "path": found.path,
            "size": found.size,
            "image": bool(found.image),
            "text": None if found.image else found.text,
            "table": None if found.image else found.table,
            "cut": found.size > files.TEXT_MAX,
        },
    }


Default = TypeVar("Default", int, None)


def _whole(text: str, default: Default) -> int | Default:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidSpec(f"'{text[:40]}' is not a whole number.")
    return int(text)


# --- buttons
# -------------------------------------------------------------------------------------------------------------  # noqa: E501


def stop(source: Source, ref: str, form: dict[str, str]) -> dict:
    """Stop a run. A second request has no effect."""
    if State(source.client.run(ref)["state"]).final:
        raise StateError("The run has ended already.", hint=f"To start the run again: stoker start {ref}")
    return source.client.stop(ref, force=form.get("force") == "yes")


def start(source: Source, ref: str, form: dict[str, str]) -> dict:
    """Start a run again."""
    return source.client.start(ref, edited=form.get("edited") == "yes")


def keep(source: Source, ref: str, form: dict[str, str]) -> dict:
    """Give a run more time, or protect it from gc."""
    if form.get("time"):
        return source.client.keep(ref, seconds=parse_duration(form["time"]))
    return source.client.keep(ref, pin=form.get("pin") == "yes")


def label(source: Source, ref: str, form: dict[str, str]) -> dict:
    """Add or remove a tag, or write the note."""
    tag = form.get("tag", "").strip()
    return source.client.label(
        ref,
        add=[tag] if tag else [],
        remove=[form["remove"]] if form.get("remove") else [],
        note=form.get("note"),
    )


def rm(source: Source, ref: str, form: dict[str, str]) -> dict:
    """Delete a run."""
    return source.client.rm(ref)


def sweep(source: Source, ref: str, form: dict[str, str]) -> dict:
    """Start a sweep."""
    return verbs.sweep(source.client.home, form)


def button(verb: Callable[[Source, str, dict[str, str]], dict], back: str = "") -> Callable:
    """The handler of a form: carries out its action, then shows the run, or `back`."""
    async def handle(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > FORM_MAX:
                raise InvalidSpec("The form is too large.")
        form = {
            name: values[0]
            for name, values in parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).items()
        }
        ref = request.path_params.get("ref", "")
        told = await run_sync(partial(verb, request.app.state.source, ref, form))
        request.app.state.source.forget()
        where = (
            back.format(**{name: quoted(str(value)) for name, value in told.items()})
            or f"/runs/{quoted(ref)}"
        )
        return Answer(told) if wants_json(request) else RedirectResponse(where, 303)
    return handle


def _page(path: str, template: str, ask: Callable[[Source, Request], dict]) -> list[Route]:
    handler = shown(template, ask)
    return [Route(f"{path}.json", handler), Route(path, handler)]


def _twin_only(path: str, ask: Callable[[Source, Request], dict]) -> Route:
    return Route(path, lambda request: Answer(ask(request.app.state.source, request)))


RUN = "/runs/{ref}"
ROUTES = [
    *_page("/runs", "runs.html", runs),
    *_page("/compare", "compare.html", compare),
    *_page("/sweeps", "sweeps.html", sweeps),
    *_page("/sweeps/new", "sweep.html", new_sweep),
    Route("/sweeps", button(sweep, "/runs?tag={sweep}"), methods=["POST"]),
    *_page("/reports", "reports.html", reports),
    *_page("/machines", "machines.html", machines),
    *_page("/machines/{name}", "machine.html", machine),
    _twin_only("/curves.json", curves),
    _twin_only(f"{RUN}/numbers.json", numbers),
    _twin_only(f"{RUN}/log.json", log_part),
    _twin_only(f"{RUN}/log/find.json", log_find),
    _twin_only(f"{RUN}/usage.json", usage),
    *_page(f"{RUN}/code", "code.html", code),
    Route(f"{RUN}/diff.patch", diff),
    Route(f"{RUN}/spark.svg", spark),
    Route(f"{RUN}/log.txt", log_text),
    Route(f"{RUN}/log/live", log_live),
    _twin_only(f"{RUN}/pictures.json", pictures),
    Route(f"{RUN}/picture", picture),
    Route(f"{RUN}/file", file),
    *_page(f"{RUN}/preview", "file.html", preview),
    *(Route(f"{RUN}/{verb.__name__}", button(verb), methods=["POST"]) for verb in (stop, start, keep, label)),
    Route(f"{RUN}/rm", button(rm, "/runs"), methods=["POST"]),
    *_page(RUN, "run.html", run),
]

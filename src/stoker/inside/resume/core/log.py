"""The log: in call order, every event of a life with where in the code it came from and, for most, a value.

A first life puts events in. A ghost takes them out.
In the tail, what is put is compared bit for bit with what stands there.
What the file looks like: log_file.py.
"""

from __future__ import annotations

import marshal
import os
import struct
import sys
import time
from array import array
from math import isnan

from . import bytecode, leaves, log_file, outcome, own, phases, words

NOTHING = type("Nothing", (), {"__repr__": lambda self: "nothing"})()
CAP = int(os.environ.get("STOKER_LOG_CAP") or 4 << 30)  # bytes; past it recording stops
# what is younger may be lost with the process: fewer values to compare, nothing that anybody has seen
FLUSH_S = 0.02
SHARE = 0.005  # of the time goes into writing, where a write takes long (a file system over a network)
MOST_S = 1.0
_ENTRIES = 0xFFFF  # kinds of events from so many places at most
_NOWHERE = 0xFFFFFFFF
_KINDS = _BARE = 128  # kinds of events at most
_SCALARS = frozenset((int, float, str, bytes, bool, type(None), complex))
_ARRAY = "\0array"
on_look: list = []  # called about once a second while there are events
_getframe = sys._getframe
_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one


def pack(array_like: object) -> tuple:
    """A numpy array as a value of the log."""
    return (_ARRAY, array_like.dtype.str, array_like.shape, array_like.tobytes())


def unpack(value: object) -> object:
    """The array that `pack` made a value of (a fresh, writable one); any other value as it is."""
    if type(value) is not tuple or len(value) != 4 or value[0] != _ARRAY:
        return value
    import numpy
    # one with memory of its own, as most are
    return numpy.frombuffer(value[3], dtype=value[1]).reshape(value[2]).copy()


def equal(a: object, b: object) -> bool:
    """Bit for bit; one NaN equals another."""
    try:
        return marshal.dumps(a, 2) == marshal.dumps(b, 2) or _alike(a, b)
    except ValueError:
        return False


class Spot:
    """A place in code that is not ours, from which events come."""

    __slots__ = ("entries", "last", "passed", "site")

    def __init__(self) -> None:
        # kind, or kind + _BARE for one without a value -> the number in this log of such an event from here
        self.entries: dict = {}
        self.passed = 0  # how often a shield was entered from here while recording
        # identity of a module that was called from here -> what shields.py remembers of that call
        self.last: dict = {}
        self.site: int | None = None  # ordinal of the place, in order of appearance in the log


class Log:
    """Events of one run, over all its lives. In memory until `open()`:
    a process that never trains writes nothing.

    put, spot, put_at, take, peek and kind are what the hooks call, or spots, append, append_value and
    flush_at, of which the second and third are made, where each call is felt;
    the rest is for the one who leads from phase to phase."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._before = 0  # events of this life that are no longer in _events
        self.stop = 0  # as a ghost: the event at which the image stands
        self.compared = 0  # events of the tail that were equal, and those of them with a value
        self.values_compared = 0
        self.bytes = 0
        self._names: list = []
        self._codes: dict = {}
        self._placeless: set = set()  # kinds
        self._compared: dict = {}  # kind -> what of its values the tail compares, if not all
        # (what a place in the code is called, names used there) -> ordinal, in order of appearance
        self._sites: dict = {}
        self.spots: dict = {}  # (identity of the code, place in it) -> Spot
        self._entries: dict = {}  # (kind << 1 | has a value, site) -> its number in this log
        self._codes_kept: list = []  # those of the spots: their ids are nobody else's
        self._ours: dict = {}  # identity of our own code -> it
        self._writer: log_file.Writer | None = None
        self._new: tuple = ([], [], [])  # names of kinds, names of sites, entries
        self._events, self._values = array("H"), []
        self._notes: list = []  # (event, value)
        self._noted: set = set()
        self.flush_at, self._look_at = float("inf"), 0.0  # nothing is written before there is a file
        self._reader: log_file.Reader | None = None
        # looked through once, for all images that are asked about
        self._scanned: log_file.Reader | None = None
        self.spot = self._make_spot()
        self.put_at = self._make_put_at()

    @property
    def n(self) -> int:
        """Events of this life so far."""
        return self._before + len(self._events)

    def __len__(self) -> int:
        return self.n

    def knows(self, names: tuple) -> bool:
        """Whether there may have been an event of one of these names."""
        return not self._codes.keys().isdisjoint(names)

    def kind(self, name: str, placed: bool = True, compared: object = None) -> int:
        """The number of a kind of event. The same name has the same number in all lives of a run.
        Events that are not `placed` come out of a library's code, which a ghost does not run:
        where in the code is not asked. `compared` gives what of a value the tail compares."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self._names)
            if code >= _KINDS:
                raise ValueError("too many kinds of events")
            self._names.append(name)
            self._new[0].append(name)
        if not placed:
            self._placeless.add(code)
        if compared is not None:
            self._compared[code] = compared
        return code

    def name(self, kind: int) -> str:
        return self._names[kind]

    def _make_spot(self) -> object:
        """`spot` as a closure, as `put_at` is: nearly all of recording goes through them,
        and each bytecode is felt."""
        ours, spots, identity = self._ours, self.spots, phases.identity

        def spot(f: object) -> Spot:
            """Where the frame `f` stands, or the next one outwards that is not ours."""
            found = spots.get((identity(f.f_code), f.f_lasti))
            if found is not None:
                return found
            while identity(f.f_code) in ours and f.f_back is not None:
                f = f.f_back
            found = spots.get((identity(f.f_code), f.f_lasti))
            return self._new_spot(f) if found is None else found
        return spot

    def _make_put_at(self) -> object:
        clock, scalars, tail = _monotonic, _SCALARS, phases.TAIL
        append, append_value = self.append, self.append_value = self._events.append, self._values.append

        def put_at(kind: int, value: object, spot: Spot) -> None:
            """`put` of an event with a value, when it was asked already where."""
            if phases.phase == tail:
                return self._compare(kind, value)
            if type(value) not in scalars:
                value = marshal.loads(marshal.dumps(value, 2))
            try:
                entry = spot.entries[kind]
            except KeyError:
                entry = spot.entries[kind] = self._entry((kind << 1 | 1, self._site(spot)))
            append_value(value)
            append(entry)
            if clock() > self.flush_at:
                self.flush()
        return put_at

    def put(self, kind: int, value: object = NOTHING) -> None:
        """An event that happened. What it says must consist of None, bool, int, float, complex, str, bytes,
        tuple, list, dict."""
        if kind not in self._placeless and value is not NOTHING:
            return self.put_at(kind, value, self.spot(_getframe(1)))
        if phases.phase == phases.TAIL:
            return self._compare(kind, value)
        if kind in self._placeless:
            entry = self._entry((kind << 1 | (value is not NOTHING), _NOWHERE))
        else:
            spot = self.spot(_getframe(1))
            entry = spot.entries.get(kind + _BARE)
            if entry is None:
                entry = spot.entries[kind + _BARE] = self._entry((kind << 1, self._site(spot)))
        if value is not NOTHING:
            self._values.append(value if type(value) in _SCALARS else marshal.loads(marshal.dumps(value, 2)))
        self._events.append(entry)
        if _monotonic() > self.flush_at:
            self.flush()

    def take(self, kind: int) -> object:
        """The value of the next event, which must be of this kind and from this place in the code;
        NOTHING if it has none."""
        if phases.phase != phases.TAIL and self.n >= self.stop and phases.phase == phases.GHOST:
            outcome.diverged(words.PASSED_POINT.format(event=self.n))
        reader = self._reader
        if not reader.more():
            outcome.diverged(words.LOG_ENDED.format(event=self.n, now=self._names[kind]))
        entry, where = reader.next()
        if entry >> 1 != kind:
            then = self._told(entry >> 1, where)
            outcome.diverged(
                words.OTHER_EVENT.format(event=self.n, then=then, now=self._names[kind], here=_place())
            )
        self._check_site(where)
        self._before += 1
        value = reader.value() if entry & 1 else NOTHING
        if phases.phase == phases.TAIL:
            self._after_tail_event(False)
        return value

    def peek(self) -> int | None:
        """The kind of the next recorded event; None where the record ends, or, as a ghost,
        where the image stands."""
        if (
            self._reader is None
            or not self._reader.more()
            or (phases.phase == phases.GHOST and self.n >= self.stop)
        ):
            return None
        return self._reader.peek()[0] >> 1

    def note(self, event: int, value: object) -> None:
        """Something about an earlier moment, when `event` events had been, that showed only later."""
        if event not in self._noted and (self._reader is None or event not in self._reader.notes):
            self._noted.add(event)
            self._notes.append((event, value))

    def noted(self, event: int) -> object:
        """What was noted about the moment when `event` events had been, or None."""
        return self._reader.note(event) if event in self._reader.notes else None

    def left(self) -> bool:
        """Whether recorded events are left that this life has not come to."""
        return self._reader is not None and self._reader.more()

    # -- from phase to phase

    def open(self) -> None:
        """From here on on disk, as the record of a first life."""
        if own.lies(self.path):
            set_aside(self.path)
        self._writer, self._scanned, self.flush_at = log_file.Writer(self.path), None, 0.0
        self.flush()

    def replay(self, stop: int) -> None:
        """Go to the event number `stop` as a ghost, and through the rest as its tail.
        Kinds keep their recorded numbers."""
        self._reader, self._scanned = self._scanned or log_file.Reader(self.path), None
        self.stop = stop
        for name in self._reader.names:
            self._codes[name] = len(self._names)
            self._names.append(name)
        self._entries = {entry: number for number, entry in enumerate(self._reader.entries)}
        self._new[0].clear()

    def go_on(self) -> None:
        """All recorded events are repeated: write on behind them; what was torn is cut."""
        if phases.audit:  # it reads the log of a run that goes on, and had to end before this
            outcome.diverged(words.PASSED_POINT.format(event=self.n))
        self._writer, self.flush_at = log_file.Writer(self.path, self._reader.end), 0.0
        self._reader = None

    def flush(self, sync: bool = False) -> None:
        """Everything put so far survives the death of this process; with `sync`, that of the machine.

        Called every 20 ms, less often where writing is slow, and before the script writes to a file.
        """
        writer = self._writer
        if writer is None:
            return
        if outcome.asked:
            outcome.refuse(outcome.asked.pop())  # which closes this log, by way of here
            return
        try:
            if self._events or self._notes:
                self._write(writer)
            if sync:
                writer.sync()
        except (OSError, ValueError) as e:
            self._drop()
            outcome.refuse(words.LOG_UNWRITABLE.format(error=e))

    def _write(self, writer: log_file.Writer) -> None:
        begun = _monotonic()
        writer.append(log_file.parts(self._new, self._notes, self._events, self._values))
        self.bytes = writer.end
        self._new, self._notes = ([], [], []), []
        self._forget()
        if len(self._noted) > 1000:  # only ever asked about the latest
            self._noted = set(sorted(self._noted)[-10:])
        now = _monotonic()
        self.flush_at = now + min(max(FLUSH_S, (now - begun) / SHARE), MOST_S)
        if now > self._look_at:
            self._look_at = now + 1.0
            outcome.no_image_yet()
            for call in on_look:
                call()
        if self.bytes > CAP:
            outcome.refuse(words.LOG_CAP.format(size=self.bytes >> 20))

    def close(self) -> None:
        """Write what is left; nothing is written any more."""
        self.flush()
        self._drop()

    def tail(self, events: int) -> int:
        """How many recorded events with a value stand behind the first `events` of them:
        what the tail check will look at.

        The log is never cut at an image.
        """
        self._scanned = self._scanned or log_file.Reader(self.path)
        return self._scanned.values_behind(events)

    def _drop(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self.flush_at = None, float("inf")
        self._forget()

    def _forget(self) -> None:
        self._before += len(self._events)
        del self._events[:], self._values[:]  # put_at holds on to them

    # -- the tail check

    def _compare(self, kind: int, value: object) -> None:
        reader = self._reader
        if reader is None or not reader.more():  # the tail ended within this event's own shield
            phases.end_tail()
            return self.put(kind, value)
        entry, where = reader.next()
        if entry >> 1 != kind:
            then = self._told(entry >> 1, where)
            outcome.diverged(
                words.OTHER_EVENT.format(event=self.n, then=then, now=self._names[kind], here=_place())
            )
        self._check_site(where)
        if entry & 1:
            then, part = reader.value(), self._compared.get(kind, _all)
            if value is NOTHING or not equal(part(then), part(value)):
                outcome.diverged(
                    words.OTHER_VALUE.format(
                        event=self.n,
                        what=self._names[kind],
                        then=_short(then),
                        now=_short(value),
                        place=_place(),
                        count=self.compared,
                    )
                )
        elif value is not NOTHING:
            outcome.diverged(
                words.OTHER_VALUE.format(
                    event=self.n,
                    what=self._names[kind],
                    then="nothing",
                    now=_short(value),
                    place=_place(),
                    count=self.compared,
                )
            )
        self._before += 1
        self._after_tail_event(bool(entry & 1))

    def _after_tail_event(self, with_value: bool) -> None:
        self.compared += 1
        self.values_compared += with_value
        if not self._reader.more():
            self.go_on()
            phases.end_tail()

    # -- places in the code

    def _new_spot(self, f: object) -> Spot:
        """That of the frame `f`, or of the next one outwards that is not ours."""
        f = self._not_ours(f)
        found = self.spots.get((phases.identity(f.f_code), f.f_lasti))
        if found is None:
            # a script that makes code as it goes: the same names come again
            if len(self._codes_kept) > _ENTRIES:
                self.spots.clear()
                self._codes_kept.clear()
            self._codes_kept.append(f.f_code)
            found = self.spots[phases.identity(f.f_code), f.f_lasti] = Spot()
        return found

    def _not_ours(self, f: object) -> object:
        while leaves.is_ours(f.f_code.co_filename) and f.f_back is not None:
            self._ours[phases.identity(f.f_code)] = f.f_code
            f = f.f_back
        return f

    def _site(self, spot: Spot) -> int:
        """The ordinal of the place that the event comes from which happens now."""
        if spot.site is None:
            f = self._not_ours(_getframe(1))
            spot.site = self._named_site(f, f.f_code)
        return spot.site

    def _named_site(self, f: object, code: object) -> int:
        told = f"{code.co_filename}:{f.f_lineno} in {code.co_name}+{bytecode.call_at(code, f.f_lasti)}"
        named = (told, code.co_names, code.co_freevars)
        site = self._sites.get(named)
        if site is None:
            site = self._sites[named] = len(self._sites)
            if self._reader is None:
                self._new[1].append(told)
            elif site >= len(self._reader.sites) or self._reader.sites[site] != told:
                then = self._reader.sites[site] if site < len(self._reader.sites) else "nothing new"
                outcome.diverged(words.OTHER_PLACE.format(event=self.n, then=then, now=told))
        return site

    def _entry(self, entry: tuple) -> int:
        number = self._entries.get(entry)
        if number is None:
            number = len(self._entries)
            if number > _ENTRIES:
                raise ValueError("the recorded values come from too many places in the script")
            self._entries[entry] = number
            self._new[2].append(entry)
        return number

    def _check_site(self, where: int) -> None:
        site = self._site(self.spot(_getframe(1))) if where != _NOWHERE else _NOWHERE
        if site != where:
            outcome.diverged(
                words.OTHER_PLACE.format(event=self.n, then=self._reader.sites[where], now=_place())
            )

    def _told(self, kind: int, where: int) -> str:
        return (
            self._names[kind] if where == _NOWHERE else f"{self._names[kind]} ({self._reader.sites[where]})"
        )


def set_aside(path: str) -> None:
    """Make room for a new record; of the old ones the last is kept, for whoever asks what went wrong."""
    name = os.path.basename(path)
    with own.Folder(os.path.dirname(path)) as here:
        os.replace(f"{here}/{name}", f"{here}/{name}.old")


def _place() -> str:
    """Where the script stands now."""
    f = _getframe(1)
    while f is not None and leaves.is_ours(f.f_code.co_filename):
        f = f.f_back
    return "nowhere" if f is None else f"{f.f_code.co_filename}:{f.f_lineno} in {f.f_code.co_name}"


def _all(value: object) -> object:
    return value


def _short(value: object) -> str:
    told = repr(value)
    return told if len(told) <= 60 else told[:57] + "..."


def _alike(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return (isnan(a) and isnan(b)) or struct.pack("<d", a) == struct.pack("<d", b)
    if type(a) is complex:
        return _alike(a.real, b.real) and _alike(a.imag, b.imag)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b))  # noqa: B905 - Python 3.9
    if type(a) is dict:
        return list(a) == list(b) and all(_alike(a[k], b[k]) for k in a)
    return a == b

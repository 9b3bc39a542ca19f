"""What the script prints: counted and hashed while recording, swallowed in the ghost phase, held back in the
tail until it is known to be right. The streams stay the objects that Python made;
only their `write` and `flush` are ours, from the import of torch on.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from _weakref import ref

from ...looks import isinstance
from ..core import early_log, phases, words

_fstat, _stat, _samestat = os.fstat, os.stat, os.path.samestat

_printed: list = []  # what printed, since the last hash: text or bytes of standard output
_hash = None
count = [0, 0]  # characters or bytes that the script printed on stdout and stderr, outside shields
_held: list = []  # (write as it was, what) in the tail
_own = False  # a text layer is writing to the layer below it
_patched: list = []
SENT = 1 << 14  # bytes
_sent = bytearray()  # the last of what this process has sent to a terminal
_sent_in_all = 0
_doors: list = []  # not empty: there is another way to what is printed on


def install_early() -> None:
    """A life that begins as a ghost must not print again what it printed before torch was there;
    any other one costs nothing yet."""
    if early_log.early == early_log.GHOST:
        from ...entry import imports

        install()
        imports.after("subprocess", _silence_popen)


def install() -> None:
    """Take over stdout and stderr, and what they were when Python began, for a script may have put something
    of its own around that."""
    for which, both in enumerate(((sys.__stdout__, sys.stdout), (sys.__stderr__, sys.stderr))):
        for stream in both:
            if not any(stream is each for each in _patched):
                _patch(which, stream)
    if _doors:
        another_door()


def _silence_popen(module: object) -> None:
    """Programs of set-up run again in a life on its way back, but what they print is there already."""
    init = module.Popen.__init__

    def popen(self: object, *args: object, **kwargs: object) -> None:
        if early_log.ghosting():
            for n, name in ((4, "stdout"), (5, "stderr")):
                if len(args) <= n and kwargs.get(name) is None:
                    kwargs[name] = module.DEVNULL
        init(self, *args, **kwargs)

    popen.__wrapped__ = init
    module.Popen.__init__ = popen


def leads_to(fd: int) -> bool:
    """Whether a descriptor is one more way to standard output or error.
    What is not open leads nowhere, nor does /dev/null."""
    try:
        there = _fstat(fd)
        if _samestat(there, _stat(os.devnull)):
            return False
    except OSError:
        return False
    for own in (1, 2):
        try:
            if _samestat(there, _fstat(own)):
                return True
        except OSError:  # the script has closed it
            pass
    return False


def another_door() -> None:
    """The script prints by a way that is not held back: a life that came back would print twice."""
    if phases.phase:
        from ..core import outcome

        outcome.refuse(words.PRINTS_ELSEWHERE)
    elif not _doors:
        _doors.append(True)  # before torch is there


def save() -> tuple:
    """(hash over what was printed on stdout, characters there, characters on stderr);
    both streams are flushed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    _digest()
    return (_hash.hexdigest() if _hash else "", count[0], count[1])


def sent() -> tuple:
    """What this process has sent to a terminal: how many bytes, and the last of them."""
    return _sent_in_all, bytes(_sent[-SENT:])


def release() -> None:
    """The tail was right: what it printed is printed."""
    held = _held[:]
    _held.clear()
    for write, what in held:
        try:
            write(what)
        except (OSError, ValueError):
            pass


def drop() -> None:
    """The tail was wrong: nobody sees what it printed."""
    _held.clear()


def let_go() -> None:
    """The script is at its end: the streams are Python's own again,
    for it uses them when little of us is left."""
    for stream in _patched:
        below = stream.buffer
        for layer, name in (
            (stream, "write"),
            (stream, "flush"),
            (below, "write"),
            (below, "flush"),
            (getattr(below, "raw", below), "write"),
        ):
            layer.__dict__.pop(name, None)
    _patched.clear()


def swallowed(which: int, what: object, write: object) -> bool:
    """Note what is printed, by the main thread outside shields; True if it must not go out now."""
    if phases.phase or early_log.early or phases.again:
        if phases.phase and get_ident() == phases.main and not phases.depth:
            count[which] += len(what)
            if which == 0:
                _printed.append(what)
                if len(_printed) > 2000:
                    _digest()
        if early_log.ghosting():
            return True
        if phases.phase == phases.TAIL:
            _held.append((write, what if isinstance(what, str) else bytes(what)))
            return True
    return False


def _digest() -> None:
    global _hash
    import hashlib

    if _hash is None:
        _hash = hashlib.blake2b(digest_size=16)
    for what in _printed:
        _hash.update(what.encode("utf-8", "replace") if isinstance(what, str) else what)
    _printed.clear()


def _patch(which: int, stream: object) -> None:
    below = getattr(stream, "buffer", None)
    if stream is None or below is None:  # a notebook's, a capture's: it is not ours to hold back
        return
    try:
        _patch_text(which, stream)
        _patch_bytes(which, below)
    except AttributeError:
        return
    _patched.append(stream)


def _patch_text(which: int, stream: object) -> None:
    old_write, old_flush = stream.write, stream.flush

    def write(text: str) -> int:
        global _own
        if not (phases.phase or early_log.early or phases.again):
            return old_write(text)
        if not isinstance(text, str):
            return old_write(text)  # its error is Python's own
        if swallowed(which, text, again):
            return len(text)
        if phases.phase and get_ident() == phases.main:
            phases.log.flush()
        before, _own = _own, True
        try:
            return old_write(text)
        finally:
            _own = before

    def again(text: str) -> None:
        global _own
        before, _own = _own, True
        try:
            old_write(text)
        finally:
            _own = before

    def flush() -> None:
        if phases.phase == phases.TAIL and get_ident() == phases.main and not phases.depth:
            _held.append((lambda _: flushed(), ""))  # before what is written past the stream
            return
        flushed()

    def flushed() -> None:
        global _own
        before, _own = _own, True
        try:
            old_flush()
        finally:
            _own = before

    stream.write, stream.flush = write, flush


def _patch_bytes(which: int, below: object) -> None:
    there = ref(below)
    real = type(below).write
    if os.isatty(below.fileno()):
        if hasattr(below, "raw"):
            _patch_raw(below.raw)
        else:  # python -u
            real = _noted(real)

    def write(data: object) -> int:
        now = there()
        if _own or not (phases.phase or early_log.early or phases.again):
            return real(now, data)
        if swallowed(which, data if isinstance(data, bytes) else bytes(data), again):
            return memoryview(data).nbytes
        return real(now, data)

    def again(data: bytes) -> None:
        real(there(), data)

    def flush() -> None:
        if not _own and phases.phase == phases.TAIL and get_ident() == phases.main and not phases.depth:
            _held.append((lambda _: flushed(there()), b""))  # before what is written past the stream
            return
        flushed(there())

    flushed = type(below).flush
    below.write, below.flush = write, flush


def _patch_raw(raw: object) -> None:
    """The lowest layer: what comes here is in the order in which the terminal gets it."""
    there, real = ref(raw), _noted(type(raw).write)
    raw.write = lambda data: real(there(), data)


def _noted(real: object) -> object:
    def write(raw: object, data: object) -> object:
        global _sent_in_all
        size = real(raw, data)
        if size:
            _sent_in_all += size
            _sent.extend(memoryview(data)[:size])
            if len(_sent) > 4 * SENT:
                del _sent[:-SENT]
        return size

    return write

"""Folders that travel to a machine once: a list of files with hashes,
then only the content that the machine lacks.

Both ends run this one file; the far end gets its text after that of tree.py, so it is standard library only
and runs on Python 3.8.
A parcel is a list of entries, parents first:
["d", path, mode, mtime_ns], ["l", path, mtime_ns, where it leads],
["f", path, mode, mtime_ns, size, sha256].
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import sys
import time

try:
    from stoker.hosts import tree
except ImportError:
    pass  # the far end has it already

FOLDER, LINK, FILE = "d", "l", "f"
CHUNK = 1 << 20
LINE_MAX = 256 << 20
EXIT_CHANGED = 7  # what lies there is not what was sent: send the list, and what is missing
UNUSED_S = 30 * 86400.0  # content that no run has used for so long is deleted
SWEEP_S = 86400.0
SEAL, LIST, TREE = "seal.json", "parcel.json", "tree"


class Changed(Exception):
    """The content does not match its hash."""


def survey(source, hash_of, chosen=None):
    """Make a parcel of the folder `source`, or of the files for which chosen(path) is true. hash_of(path,
    lstat) -> sha256."""
    entries = []
    for path, rel, seen in tree.walk(os.fsencode(source)):
        name, when = os.fsdecode(rel), seen.st_mtime_ns
        if not rel or (chosen is not None and not chosen(name)):
            continue
        mode = stat.S_IMODE(seen.st_mode) & 0o777
        if stat.S_ISDIR(seen.st_mode):
            entries.append([FOLDER, name, mode, when])
        elif stat.S_ISLNK(seen.st_mode):
            entries.append([LINK, name, when, os.fsdecode(os.readlink(path))])
        elif stat.S_ISREG(seen.st_mode):
            entries.append([FILE, name, mode, when, seen.st_size, hash_of(path, seen)])
    return entries


def hash_file(path, _seen=None):
    """The sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        buffer = memoryview(bytearray(min(CHUNK, os.fstat(f.fileno()).st_size + 1)))
        count = f.readinto(buffer)
        while count:
            digest.update(buffer[:count])
            count = f.readinto(buffer)
    return digest.hexdigest()


def name_of(entries, times=True):
    """Name of a parcel: equal names mean equal content. times=False ignores modification times."""
    told = (
        entries
        if times
        else [each[:-1][:2] + each[-1:] if each[0] == LINK else each[:3] + each[4:] for each in entries]
    )
    return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode("ascii")).hexdigest()


def contents(entries):
    """sha256 -> (path, size) of all files; each content once."""
    return {each[5]: (each[1], each[4]) for each in entries if each[0] == FILE}


class Wire:
    """Sends and receives JSON lines and counted bytes over two binary files."""

    def __init__(self, incoming, outgoing):
        self._in, self._out, self._rest = incoming, outgoing, b""

    def tell(self, body):
        """Send one line."""
        self.send(json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n")

    def send(self, data):
        """Send all bytes of `data`."""
        view = memoryview(data)
        while view:
            view = view[self._out.write(view):]

    def hear(self):
        """Receive the next line. Raises tree.Torn at the end of the stream."""
        parts = []
        while True:
            head, found, rest = self._rest.partition(b"\n")
            parts.append(head)
            if found:
                self._rest = rest
                break
            self._rest = self._in.read(CHUNK)
            if not self._rest or sum(map(len, parts)) > LINE_MAX:
                raise tree.Torn("the stream ended early")
        try:
            return json.loads(b"".join(parts))
        except ValueError:
            raise tree.Torn("an answer is not valid") from None

    def take(self, size):
        """Iterate over the next `size` bytes."""
        while size:
            data = self._rest[:size] or self._in.read(min(size, CHUNK))
            if not data:
                raise tree.Torn("the stream ended early")
            self._rest = self._rest[len(data):]
            size -= len(data)
            yield data


# --- the far end
# ---------------------------------------------------------------------------------------------------------

class Cache:
    """Stores content by its hash in one folder, and the lists of complete parcels."""

    def __init__(self, folder):
        self.folder = folder
        self._part, self._lock = "", None

    def path(self, sha):
        """Path of a content."""
        return os.path.join(self.folder, "objects", sha[:2], sha)

    def known(self, name):
        """Entries of a parcel that is already complete here, or None."""
        try:
            with open(self._list(name), encoding="ascii") as f:
                entries = json.load(f)
            os.utime(self._list(name))
        except (OSError, ValueError):
            return None
        return entries if name_of(entries) == name else None

    def remember(self, name, entries):
        """Record a complete parcel."""
        _write(self._list(name), json.dumps(entries, separators=(",", ":")).encode("ascii"))

    def missing(self, entries):
        """[sha256, bytes of it already here] of all content that is not here."""
        found, part = [], self._part_name() if os.path.isdir(self.folder) else ".part"
        for sha, (_path, size) in contents(entries).items():
            with contextlib.suppress(OSError):
                if os.stat(self.path(sha)).st_size == size:
                    continue
            found.append([sha, _size(self.path(sha) + part)])
        return found

    def _part_name(self):
        """How unfinished files end. Whoever comes while another writes begins files of its own."""
        if not self._part:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            self._lock = os.open(
                os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            self._part = ".part"
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._part = f".part-{os.getpid()}"
        return self._part

    def receive(self, wire, entries):
        """Store everything that `Sender.send` sends. A content gets its final name only if its hash is
        right. Raises Changed."""
        sizes, made = {sha: size for sha, (_path, size) in contents(entries).items()}, set()
        ending, objects = self._part_name(), os.path.join(self.folder, "objects")
        if not os.path.isdir(objects):
            with tree.spread(self.folder):
                os.makedirs(objects, exist_ok=True)
        while True:
            told = wire.hear()
            if "end" in told:
                return
            sha, begin = told["sha"], told["from"]
            if sha not in sizes or not 0 <= begin <= sizes[sha]:
                raise tree.Torn("the sender sent content that was not requested")
            path = self.path(sha)
            part = path + ending
            if path[:-len(sha)] not in made:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                made.add(path[:-len(sha)])
            with open(part, "r+b" if begin else "wb", buffering=0) as f:
                digest = _begun(f, begin)
                f.truncate()
                whole = tree.Whole(f)
                for data in wire.take(sizes[sha] - begin):
                    digest.update(data)
                    whole.write(data)
            if digest.hexdigest() != sha:
                os.unlink(part)
                raise Changed(told.get("path", sha))
            os.rename(part, path)

    def put(self, entry, out):
        """Write the content of a file entry to the descriptor `out`, and check its hash. Raises Changed
        and removes the content if the hash is wrong."""
        sha, size, digest = entry[5], entry[4], hashlib.sha256()
        path, left, room = self.path(sha), size, min(CHUNK, size + 1)
        try:
            with open(path, "rb", buffering=0) as f:
                data = f.read(room)
                while data:
                    digest.update(data)
                    left -= len(data)
                    while data:
                        data = data[os.write(out, data):]
                    data = f.read(room)
                if time.time() - os.fstat(f.fileno()).st_mtime > SWEEP_S:
                    os.utime(path)
        except FileNotFoundError:
            raise Changed(entry[1]) from None
        if left or digest.hexdigest() != sha:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise Changed(entry[1])

    def sweep(self, now):
        """Delete content that no run used for a long time; checks once a day."""
        mark = os.path.join(self.folder, "swept")
        with contextlib.suppress(OSError):
            if now - os.stat(mark).st_mtime < SWEEP_S:
                return
        _write(mark, b"")
        for top, _folders, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(top, name)
                with contextlib.suppress(OSError):
                    if now - os.stat(path).st_mtime > UNUSED_S:
                        os.unlink(path)

    def _list(self, name):
        return os.path.join(self.folder, "parcels", name[:64].replace("/", "_"))


def lay_out(entries, folder, put, link=None):
    """Create all entries in the empty folder `folder`. put(entry, descriptor) writes the content of a
    file. link(entry, path), if given, creates the whole file if possible; then all files are read-only."""
    read_only = link is not None
    made, later = {""}, []
    for entry in entries:
        kind, name = entry[0], entry[1]
        parent, _, last = name.rpartition("/")
        if parent not in made or last in ("", ".", "..") or "\0" in name:
            raise tree.Torn(f"a name points outside of the folder: {name!r}")
        path = os.path.join(folder, os.fsencode(name))
        if kind == FOLDER:
            os.mkdir(path, 0o700)
            made.add(name)
            later.append((path, entry))
        elif kind == LINK:
            os.symlink(os.fsencode(entry[3]), path)
            with contextlib.suppress(OSError, NotImplementedError):
                os.utime(path, ns=(entry[2], entry[2]), follow_symlinks=False)
        else:
            mode, times = entry[2] & (0o555 if read_only else 0o777), (entry[3], entry[3])
            if link is not None and link(entry, path):
                os.chmod(path, mode)
                os.utime(path, ns=times)
                continue
            out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                put(entry, out)
                os.fchmod(out, mode)
                os.utime(out, ns=times)
            finally:
                os.close(out)
    for path, entry in reversed(later):
        os.utime(path, ns=(entry[3], entry[3]))
        os.chmod(path, entry[2] & (0o555 if read_only else 0o777) | (0 if read_only else 0o700))


def deliver(cache, target, at, wire):
    """Create the folder `target` from the data that the sender transmits, with the parcel in its folder
    `at`. It is complete or absent."""
    hello = wire.hear()
    target = os.fsencode(target)
    with tree.beside(target, True) as temp:
        lay_out(hello["own"], temp, lambda entry, out: _take_file(wire, entry[4], out))
        entries = None if hello.get("whole") else cache.known(hello["parcel"])
        if entries is None:
            wire.tell({"missing": None})
            entries = wire.hear()
            if name_of(entries) != hello["parcel"]:
                raise tree.Torn("the list of files is not complete")
        missing = cache.missing(entries)
        wire.tell({"missing": missing})
        if missing:
            cache.receive(wire, entries)
        inside = os.path.join(temp, os.fsencode(at))
        os.mkdir(inside, 0o700)
        lay_out(entries, inside, cache.put)
        _like(inside, hello["top"])
        cache.remember(hello["parcel"], entries)
    cache.sweep(time.time())


def keep(data, wire):
    """Store a dataset in the folder `data` as it was sent, and print its path. A changed copy is renamed
    and never used again."""
    hello = wire.hear()
    folder = os.fsencode(os.path.join(data.folder, hello["parcel"][:32]))
    if _intact(folder):
        wire.tell({"missing": [], "at": os.fsdecode(os.path.join(folder, os.fsencode(TREE)))})
        return
    wire.tell({"missing": None})
    entries = wire.hear()
    if name_of(entries, times=False) != hello["parcel"]:
        raise tree.Torn("the list of files is not complete")
    parts = Cache(os.fsdecode(folder) + ".part")
    missing = parts.missing(entries)
    wire.tell({"missing": missing})
    if missing:
        parts.receive(wire, entries)
    with tree.beside(folder, True) as temp:
        inside, used = os.path.join(temp, os.fsencode(TREE)), set()

        def link(entry, path):
            if entry[5] in used:
                return False  # a second file with that content is a real copy
            used.add(entry[5])
            os.link(parts.path(entry[5]), path)
            return True
        os.mkdir(inside, 0o700)
        lay_out(entries, inside, parts.put, link)
        tree.remove(os.fsencode(parts.folder))
        _seal(os.fsdecode(temp), entries, hello["label"])
    wire.tell({"at": os.fsdecode(os.path.join(folder, os.fsencode(TREE)))})


def _seal(folder, entries, label):
    """Note down how the files of a dataset look now, to the time of their last change,
    which nobody can set back."""
    _write(
        os.path.join(folder, SEAL),
        json.dumps(
            {
                "label": label,
                "entries": entries,
                "seen": _seen(folder),
                "bytes": sum(each[4] for each in entries if each[0] == FILE),
                "files": sum(each[0] == FILE for each in entries),
            }
        ).encode("ascii"),
    )


def _seen(folder):
    """{path: [size, mtime_ns, ctime_ns]} of all files and links below the folder's tree."""
    found = {}
    for _path, rel, seen in tree.walk(os.fsencode(os.path.join(folder, TREE))):
        if rel and not stat.S_ISDIR(seen.st_mode):
            found[os.fsdecode(rel)] = [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]
    return found


def _intact(folder):
    """Whether a dataset is as it was sent. One that is not is renamed;
    a file that was only touched is hashed again."""
    place = os.fsdecode(folder)
    try:
        with open(os.path.join(place, SEAL), encoding="ascii") as f:
            seal = json.load(f)
        now = _seen(place)
        files = {each[1]: each for each in seal["entries"] if each[0] != FOLDER}
        touched = [path for path in now if now[path] != seal["seen"].get(path)]
        good = now.keys() == files.keys() and all(_same(place, files[path]) for path in touched)
    except FileNotFoundError:
        if not os.path.isdir(folder):
            return False
        good = False
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        os.rename(folder, folder + b".changed-%d" % time.time_ns())
    elif touched:
        _seal(place, seal["entries"], seal["label"])
    return good


def _same(place, entry):
    path = os.path.join(os.fsencode(place), os.fsencode(TREE), os.fsencode(entry[1]))
    if entry[0] == LINK:
        return os.path.islink(path) and os.readlink(path) == os.fsencode(entry[3])
    return os.path.isfile(path) and not os.path.islink(path) and hash_file(path) == entry[5]


def copy_out(data, source, target, wire):
    """Make `target` a writable copy of a dataset, if `target` does not exist."""
    if not os.path.lexists(target):
        with tree.beside(os.fsencode(target), True) as temp:
            for path, rel, seen in tree.walk(os.fsencode(source)):
                to, mode = os.path.join(temp, rel), stat.S_IMODE(seen.st_mode) | stat.S_IWUSR
                if not rel:
                    continue
                if stat.S_ISDIR(seen.st_mode):
                    os.mkdir(to, mode)
                elif stat.S_ISLNK(seen.st_mode):
                    os.symlink(os.readlink(path), to)
                else:
                    out = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                    try:
                        tree.copy_file(path, out)
                        os.fchmod(out, mode)
                    finally:
                        os.close(out)
    wire.tell({"at": target})


def tell_data(data, *words):
    """List the datasets here; deletes the given names first."""
    *names, wire = words
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(data.folder)):
            folder = os.path.join(data.folder, name)
            seal, path = {}, os.path.join(folder, SEAL)
            with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as f:
                seal = json.load(f)
            state = (
                "unfinished"
                if name.endswith(".part")
                else "changed"
                if ".changed-" in name or not seal
                else "whole"
            )
            removed = name in names or name.split(".")[0] in names
            found.append(
                {
                    "id": name,
                    "label": seal.get("label"),
                    "files": seal.get("files"),
                    "bytes": seal.get("bytes"),
                    "state": state,
                    "at": os.path.join(folder, TREE),
                    "removed": removed,
                }
            )
            if removed:
                tree.remove(os.fsencode(folder))
    wire.tell({"data": found})


def ask(cache, wire):
    """Report which content of a parcel is missing here; creates nothing."""
    wire.tell({"missing": cache.missing(wire.hear())})


def _begun(f, begin):
    """The hash of the first `begin` bytes of an open file, which stands behind them then."""
    digest = hashlib.sha256()
    while begin:
        data = f.read(min(CHUNK, begin))
        if not data:
            break  # shorter than it was: the whole hash will not be right
        digest.update(data)
        begin -= len(data)
    return digest


def _take_file(wire, size, out):
    with open(out, "wb", buffering=0, closefd=False) as f:
        whole = tree.Whole(f)
        for data in wire.take(size):
            whole.write(data)


def _like(folder, told):
    os.chmod(folder, told[0] | 0o700)
    os.utime(folder, ns=(told[1], told[1]))


def _write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temp = f"{path}.new-{os.getpid()}"
    with open(temp, "wb") as f:
        f.write(data)
    os.rename(temp, path)


def _size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


# --- the near end
# --------------------------------------------------------------------------------------------------------

class Sender:
    """Sends the content of a parcel whose files are below `folder`. Calls tell(bytes sent, bytes in all)
    regularly."""

    def __init__(self, wire, folder, entries, tell=None):
        self._wire, self._folder, self._tell = wire, os.fsencode(folder), tell or (lambda sent, whole: None)
        self._contents = contents(entries)

    def send(self, missing):
        """Send all content that the receiver requested. Raises Changed if a file differs from the list."""
        whole = sum(self._contents[sha][1] - have for sha, have in missing)
        sent = 0
        self._tell(0, whole)
        for sha, have in missing:
            path, size = self._contents[sha]
            begin = have if have <= size else 0
            self._wire.tell({"sha": sha, "from": begin, "path": path})
            for data in self._pieces(path, begin, size):
                self._wire.send(data)
                sent += len(data)
                self._tell(sent, whole)
        if missing:
            self._wire.tell({"end": True})

    def _pieces(self, path, begin, size):
        try:
            with open(os.path.join(self._folder, os.fsencode(path)), "rb", buffering=0) as f:
                f.seek(begin)
                while begin < size:
                    data = f.read(min(CHUNK, size - begin))
                    if not data:
                        raise Changed(path)
                    begin += len(data)
                    yield data
        except FileNotFoundError:
            raise Changed(path) from None


def main(verb, cache, *words):
    """Entry point on the remote machine. A failure prints one line on stderr and sets the exit code."""
    try:
        raw = {"buffering": 0, "closefd": False}
        with open(0, "rb", **raw) as incoming, open(1, "wb", **raw) as outgoing:
            VERBS[verb](Cache(cache), *words, Wire(incoming, outgoing))
    except tree.Exists as e:
        return tree.say(tree.EXIT_EXISTS, e)
    except tree.Torn as e:
        return tree.say(tree.EXIT_TORN, e)
    except Changed as e:
        return tree.say(EXIT_CHANGED, e)
    except OSError as e:
        return tree.say(tree.EXIT_OS, e)
    return 0


VERBS = {"deliver": deliver, "ask": ask, "keep": keep, "copy": copy_out, "data": tell_data}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[3:]))

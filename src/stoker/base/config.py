"""Where Stoker keeps its things on this machine, and the few settings a user may write into config.toml."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from stoker.base.errors import Denied, InvalidSpec
from stoker.base.units import parse_duration, parse_size

SOCKET_PATH_MAX = 100  # the kernel takes 107 bytes; ssh control paths and others need a few
FULL = (errno.ENOSPC, errno.EDQUOT)
# of disk, kept for the database: once in its write-ahead log, once for the next server
RESERVE_BYTES = 5 << 20
RESERVE_SHARE = 16  # of the room on a small disk at most one part in so many is kept
RESERVE_MIN_BYTES = 128 << 10  # less is of no use
OWN_NAMES = frozenset(
    {
        "server",
        "spool",
        "runs",
        "tune",
        "settings",
        "config.toml",
        "agent",
        "watch",
        "cache",
        "data",
        "venvs",
        "lost+found",
    }
)  # in a state folder
# in the environment of our own daemons: the file that records their pid and start time
DAEMON_MARK = "STOKER_DAEMON"
SEE = "See docs/reference/config.md."
RUN_MARK = "STOKER_RUN"  # in the environment of a run: its id


@dataclass(frozen=True)
class Home:
    """The state folder ($STOKER_HOME) and the paths in it. It belongs to one machine and is never shared
    with another."""

    path: Path

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def database(self) -> Path:
        return self.server / "stoker.db"

    @property
    def lock(self) -> Path:
        return self.server / "lock"

    @property
    def server_log(self) -> Path:
        return self.server / "log"

    @property
    def reserve(self) -> Path:
        return self.server / "reserve"

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def tune(self) -> Path:
        """Folder of the tuner's working files: rooms of trials, speed of the machine."""
        return self.path / "tune"

    @property
    def settings(self) -> Path:
        """Folder of the settings that the tuner found, one file per script."""
        return self.path / "settings"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def socket(self) -> Path:
        """Path of the server's socket; in a private folder below /tmp if the usual path is too long for a
        socket.
        Does not use $TMPDIR, so that clients in other shells or batch jobs find the same socket."""
        usual = self.server / "sock"
        if len(os.fsencode(usual)) <= SOCKET_PATH_MAX:
            return usual
        import hashlib  # here, since every command imports this module and few need it

        short = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path("/tmp") / f"stoker-{os.getuid()}" / f"{short}.sock"


def home() -> Home:
    """The state folder: $STOKER_HOME, by default ~/.stoker. Creates nothing."""
    text = os.environ.get("STOKER_HOME")
    return Home(Path(text).expanduser().absolute() if text else Path.home() / ".stoker")


def make_home(where: Home) -> Home:
    """Create the folders with mode 0700. Raises Denied with a hint if this is not possible or not safe.
    Does not change a folder that belongs to another user or holds files of other programs."""
    _check_ours(where)
    try:
        try:
            _probe(where)
        except OSError as e:
            if e.errno not in FULL or not where.reserve.exists():
                raise
            # this is what it was kept for: stop, rm and gc must work on a full disk
            where.reserve.unlink(missing_ok=True)
            _probe(where)
    except OSError as e:
        raise Denied(
            f"The state folder {where.path} cannot be written ({e.strerror}).",
            hint="Free some space or choose another folder: export STOKER_HOME=/some/local/folder",
        ) from e
    if stat.S_IMODE(where.path.stat().st_mode) & 0o077:
        where.path.chmod(0o700)
    kind = filesystem_type(where.path)
    if kind in NETWORK_FILESYSTEMS:
        raise Denied(
            (
                f"The state folder {where.path} is on a network file system ({kind}), where locks and "
                "SQLite are not safe."
            ),
            hint=(
                f"export STOKER_HOME=/var/tmp/stoker-{os.getuid()}   (any folder on this machine's own "
                "disk)"
            ),
        )
    if where.socket.parent != where.server:
        private_folder(where.socket.parent)
    return where


def _check_ours(where: Home) -> None:
    """Raises Denied when there is a folder already that Stoker may not take."""
    try:
        seen = where.path.stat()
        names = set(os.listdir(where.path)) if stat.S_ISDIR(seen.st_mode) else set()
    except OSError:
        return  # there is none, or it is told later why it cannot be used
    other = f"export STOKER_HOME={where.path}/stoker"
    if seen.st_uid != os.getuid():
        raise Denied(
            f"The state folder {where.path} belongs to another user.", hint="export STOKER_HOME=$HOME/.stoker"
        )
    if any(
        (where.server / name).exists()
        for name in (where.database.name, where.lock.name, where.server_log.name)
    ):
        return
    if names - OWN_NAMES:
        raise Denied(
            f"The folder {where.path} contains files of other programs, so it cannot be the state folder.",
            hint=other,
        )
    if seen.st_mode & (stat.S_ISVTX | stat.S_IWOTH):
        raise Denied(
            f"The folder {where.path} is shared by all users, so it cannot be the state folder.", hint=other
        )


def reserve_bytes(folder: Path | str) -> int:
    """Bytes on the disk of `folder` that are reserved for the database; 0 if the disk is nearly full.
    Raises OSError."""
    room = os.statvfs(folder)
    kept = min(RESERVE_BYTES, room.f_bavail * room.f_frsize // RESERVE_SHARE)
    return kept if kept >= RESERVE_MIN_BYTES else 0


def _probe(where: Home) -> None:
    for folder in (where.path, where.server, where.spool, where.runs):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = where.server / ".write"
    probe.write_bytes(b"x")
    probe.unlink(missing_ok=True)  # another starter may have been here too


def keep_reserve(where: Home) -> None:
    """Reserve disk space, so that a server can start even if a run fills the disk. Does nothing on a full
    disk."""
    try:
        size = reserve_bytes(where.server)
        if where.reserve.exists() or not size:
            return
        fd = os.open(where.reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError:
        where.reserve.unlink(missing_ok=True)


def private_folder(folder: Path) -> Path:
    """Return `folder` for sockets, created if necessary. Raises Denied if other users have access to it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or stat.S_IMODE(seen.st_mode) & 0o077:
        raise Denied(
            f"Other users may have access to {folder}, so Stoker does not use the folder.",
            hint=f"Remove this folder (Stoker creates it again), or: chmod 700 {folder}",
        )
    if stat.S_IMODE(seen.st_mode) != 0o700:
        folder.chmod(0o700)  # it was created under a umask that takes rights from its owner
    return folder


NETWORK_FILESYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph afs 9p panfs orangefs wekafs fuse.sshfs "
    "fuse.glusterfs fuse.gcsfuse fuse.rclone "
    "fuse.s3fs fuse.juicefs".split()
)


def filesystem_type(path: Path | str) -> str:
    """File system type of the mount that contains `path`, from /proc/self/mountinfo; "" without this file."""
    target = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
            for line in f:
                left, _, right = line.partition(" - ")
                mount = left.split()[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
                inside = target == mount or target.startswith(mount.rstrip("/") + "/")
                if inside and len(mount) >= len(best):
                    best, kind = mount, right.split()[0]
    except OSError:
        return ""
    return kind


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """A [targets.NAME] table of config.toml."""

    name: str
    host: str = ""  # empty: this machine; else what one types after `ssh`
    root: str = ""  # the folder on the machine that holds runs/; empty: ~/.stoker there, $STOKER_HOME here
    backend: str = "process"  # how a run is held there; stoker/backends/registry.py lists them
    options: dict = field(default_factory=dict)  # the keys of that backend, which reads them
    gpus: int | None = None  # None: as many as the machine shows
    slots: int | None = None  # None: CPU slots are not counted
    off: str = ""  # the command that switches the machine off; empty: it keeps running
    # from the end of its last run: then it is switched off, whatever is not copied
    off_latest_s: float = 12 * 3600.0
    off_after_s: float = 300.0  # of quiet, once all files are copied
    # its files are there again when it is switched on, so nothing needs to be copied before
    disk_survives: bool = False
    index_url: str = ""  # where pip and uv there find packages (a mirror); empty: as they are set up there
    # the interpreter there for scripts and for the word `python`; empty: what a login finds as python3.
    # In config.toml, it can be the folder of an environment
    python: str = ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """config.toml. Every field has a default, so the file need not exist."""

    copy_limit_bytes: int = 2_000_000_000  # a larger working folder is not copied
    # of files that come home by themselves when a run on another machine has ended
    pull_limit_bytes: int = 1_000_000_000
    slots: int | None = None  # CPU slots of this machine; None: not counted
    targets: dict[str, TargetConfig] = field(default_factory=dict)


def load_config(where: Home) -> Config:
    """Read config.toml. Raises InvalidSpec naming the line or key that is wrong."""
    import tomllib  # here, since a client never reads the file

    try:
        body = tomllib.loads(where.config.read_text("utf-8"))
    except FileNotFoundError:
        body = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InvalidSpec(f"{where.config} is not valid TOML: {e}.", hint=SEE) from e
    values: dict = {}
    targets = {"local": TargetConfig(name="local")}
    for key, value in body.items():
        if key == "copy_limit":
            values["copy_limit_bytes"] = parse_size(str(value))
        elif key == "pull_limit":
            values["pull_limit_bytes"] = 0 if str(value) == "0" else parse_size(str(value))
        elif key == "slots" and isinstance(value, int) and value >= 0:
            values["slots"] = value
        elif key == "targets" and isinstance(value, dict):
            for name, table in value.items():
                targets[name] = _target(where, name, table)
        else:
            raise InvalidSpec(
                f"{where.config}: '{key}' is not a setting, or its value has the wrong type.", hint=SEE
            )
    if values.get("slots") is not None and targets["local"].slots is None:
        targets["local"] = replace(targets["local"], slots=values["slots"])
    return Config(targets=targets, **values)


def interpreter_in(python: str) -> str:
    """The interpreter for a path on another machine: of an interpreter, or of the folder of an environment.
    A name without a folder stays as it is."""
    folder, name = os.path.split(python.rstrip("/"))
    if not folder or name.startswith(("python", "pypy")) or os.path.basename(folder) == "bin":
        return python
    return os.path.join(folder, name, "bin", "python")


def _target(where: Home, name: str, table: object) -> TargetConfig:
    kinds = {
        "host": str,
        "root": str,
        "backend": str,
        "gpus": int,
        "slots": int,
        "python": str,
        "index_url": str,
        "off": str,
        "off_latest": str,
        "off_after": str,
        "disk_survives": bool,
    }
    own = (
        {k: v for k, v in table.items() if k not in kinds}
        if isinstance(table, dict) and "backend" in table
        else {}
    )
    if not isinstance(table, dict) or any(
        not isinstance(v, kinds.get(k, ())) for k, v in table.items() if k not in own
    ):
        raise InvalidSpec(
            f"{where.config}: [targets.{name}] has an unknown setting, or a value of the wrong type. "
            f"The table accepts {', '.join(kinds)}.",
            hint=SEE,
        )
    values = {k: v for k, v in table.items() if k not in own}
    for key in ("off_latest", "off_after"):
        if key in values:
            values[f"{key}_s"] = 0.0 if values[key] in ("0", "0s") else parse_duration(values[key])
            del values[key]
    if "python" in values:
        values["python"] = interpreter_in(values["python"])
    # it is shown in lists of processes and kept with the run
    if "@" in values.get("index_url", "").partition("://")[2].partition("/")[0]:
        raise InvalidSpec(
            f"{where.config}: the `index_url` of [targets.{name}] must not contain a user name or password.",
            hint=(
                "Write the user name and password into ~/.netrc or into pip's own configuration on that "
                "machine."
            ),
        )
    return TargetConfig(name=name, options=own, **values)

"""The run's first process: its environment, its terminal, the moments between fork and exec."""

from __future__ import annotations

import errno
import os
import signal
import struct

from .machine import enter_group
from .processes import close_inherited, restore_oom_score
from .reading import Broken, read_bytes, read_regular
from .words import (
    ATTEMPTS, ENV, ENV_MAX, HOOKS, LOGIN_ENV, RESUME, RUN_DIR_MARK, RUN_MARK, SETTINGS, Problem, encode,
    number,
)
from .writing import write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt


def run_environment(att: Attempt, spec: dict, cwd: str, gpus: str) -> dict[bytes, bytes]:
    """The environment of the run, as bytes: what the client sent, and our few variables.

    The `env` file comes first. With `machine_env` (a run on another machine) it holds only the variables of
    `env_names`, and is added to a login's environment there. Added: STOKER_RUN=<id>, STOKER_RUN_DIR,
    STOKER_ATTEMPT, HOME (`spec.home`), PYTHONUNBUFFERED=1 (`unbuffered`), CUDA_VISIBLE_DEVICES (`gpus`),
    and those of `hook_environment`.
    """
    try:
        packed = read_regular(os.path.join(att.run_dir, ENV), ENV_MAX)
    except (OSError, Broken):
        packed = encode(
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\0HOME=%s\0"
            % os.path.expanduser("~")
        )
    env: dict[bytes, bytes] = {}
    if spec.get("machine_env"):
        env = {encode(k): encode(v) for k, v in os.environ.items() if k in LOGIN_ENV or k.startswith("LC_")}
    for item in packed.split(b"\0"):
        if b"=" in item[1:]:
            name, _, value = item.partition(b"=")
            env[name] = value
    for name in (b"STOKER_DAEMON", b"STOKER_CRASH_AT", b"STOKER_IDENTITY"):
        env.pop(name, None)
    ours = {RUN_MARK: att.id, RUN_DIR_MARK: att.run_dir, "STOKER_ATTEMPT": str(att.n)}
    if b"PWD" in env:
        ours["PWD"] = cwd
    if spec.get("home"):
        ours["HOME"] = spec["home"]
    if spec.get("unbuffered"):
        ours["PYTHONUNBUFFERED"] = "1"
    if gpus:
        ours["CUDA_VISIBLE_DEVICES"] = gpus
    hook_environment(att, spec, env, ours)
    env.update((encode(k), encode(v)) for k, v in ours.items())
    return env


def hook_environment(att: Attempt, spec: dict, env: dict[bytes, bytes], ours: dict[str, str]) -> None:
    """Our sitecustomize first in PYTHONPATH, and what it needs to know."""
    # its own name: Python looks at words in it (base/vendor.py)
    hooks = os.path.realpath(os.path.join(att.run_dir, HOOKS))
    records, resume = os.path.join(att.folder, HOOKS), os.path.join(att.run_dir, RESUME)
    if not spec.get("hooks") or not os.path.isdir(hooks) or ":" in hooks:  # a colon would end the entry
        return
    try:
        os.close(att.made_folder(ATTEMPTS, str(att.n), HOOKS))
        os.close(att.made_folder(RESUME))
    except OSError:
        return  # a full disk: the run is worth more than what we would remember of it
    env[b"PYTHONPATH"] = b":".join([encode(hooks), *([env[b"PYTHONPATH"]] if env.get(b"PYTHONPATH") else [])])
    ours.update(
        {"STOKER_HOOKS": records, "STOKER_RESUME": spec.get("resume") or "off", "STOKER_RESUME_DIR": resume}
    )
    if spec.get("audit"):
        ours["STOKER_AUDIT"] = "on"
    if spec.get("settings"):
        settings = os.path.join(att.run_dir, SETTINGS)
        try:
            write_json(settings, spec["settings"])
            ours["STOKER_SETTINGS"] = settings
        except OSError:
            pass  # it runs as the script has it
    if spec.get("resume") == "auto" and b"PYTHONHASHSEED" not in env:
        import zlib
        # sets of text have the same order in each life
        ours["PYTHONHASHSEED"] = str(zlib.crc32(encode(att.id)))


def open_pty(inherit: dict) -> tuple[int, int]:
    """A pty whose output is not rewritten: the log gets the script's own bytes, the client restores CR LF.
    It has the size of the terminal that asked before the run can look at it."""
    import termios
    try:
        master, slave = os.openpty()
    except OSError as e:
        raise Problem("start_failed", "no pseudo-terminal could be opened (%s)" % e.strerror) from None
    mode = termios.tcgetattr(slave)
    mode[0] |= 0o40000  # IUTF8
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    try:
        rows, cols = inherit.get("window") or (24, 80)
        set_window(master, rows, cols)
    except (OSError, TypeError, ValueError, struct.error):
        set_window(master, 24, 80)
    return master, slave


def set_window(fd: int, rows: int, cols: int) -> None:
    """Give a terminal its size, in characters."""
    import fcntl
    import termios
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def default_signals() -> None:
    """In a forked child that is about to become another program: no handler of ours, nothing held back."""
    signal.set_wakeup_fd(-1)
    for sig in signal.valid_signals():
        if sig not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(sig, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def become_run(
    argv: list[bytes],
    env: dict[bytes, bytes],
    cwd: bytes,
    *,
    stdio: list[int],
    slave: int,
    mask: int,
    report: int,
    inherit: dict,
    group: str,
) -> None:
    """In the forked child: a session of its own, default signals, nothing of ours left open; then exec.
    Never returns."""
    step = "it"
    try:
        os.setsid()
        if slave >= 0:
            import fcntl
            import termios
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        step = "the folder " + cwd.decode("utf-8", "replace")
        os.chdir(cwd)
        step = argv[0].decode("utf-8", "replace")
        default_signals()
        restore_oom_score()
        enter_group(group)
        os.umask(int(number(inherit.get("umask"), mask)) & 0o777)
        for target, fd in enumerate(stdio):
            os.dup2(fd, target)
        close_inherited({report})
        if inherit.get("host") == os.uname().nodename:
            take_over(inherit)
        exec_found(argv, env)
    except Problem as e:
        os.write(report, encode(e.detail)[:2000])
    except OSError as e:
        os.write(report, encode("%s: %s" % (step, e.strerror))[:2000])
    except BaseException as e:
        os.write(report, repr(e).encode()[:2000])
    finally:
        os._exit(127)


def take_over(inherit: dict) -> None:
    """What the user's shell has, and not what the server had that happened to start first:
    CPUs, niceness, soft limits.
    What is not ours to raise stays as it is."""
    try:
        os.sched_setaffinity(0, [int(c) for c in inherit["cpus"]])
    except (KeyError, OSError, TypeError, ValueError):
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, int(inherit["nice"]))
    except (KeyError, OSError, TypeError, ValueError):
        pass
    import resource
    limits = inherit.get("rlimits")
    for name, soft in (limits.items() if isinstance(limits, dict) else ()):
        try:
            kind = getattr(resource, "RLIMIT_" + name)
            hard = resource.getrlimit(kind)[1]
            below = hard == resource.RLIM_INFINITY or 0 <= soft < hard
            resource.setrlimit(kind, (soft if below else hard, hard))
        except (AttributeError, OSError, TypeError, ValueError):
            pass


def exec_found(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """exec along the run's own PATH.
    Raises Problem with a sentence that says what is wrong with the command."""
    if argv[0].startswith(b"~/"):  # the home of this machine, of which the command's sender knows nothing
        argv = [os.path.expanduser(argv[0]), *argv[1:]]
    name = argv[0]
    shown = name.decode("utf-8", "replace")
    path = env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    places = [name] if b"/" in name else [os.path.join(d or b".", name) for d in path.split(b":")]
    denied = None
    for place in places:
        try:
            os.execve(place, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(place):
                first = read_bytes(os.fsdecode(place), 200).split(b"\n")[0]
                named = (
                    first[2:].strip().decode("utf-8", "replace") if first.startswith(b"#!") else "its loader"
                )
                raise Problem(
                    "start_failed", "%s cannot run: its interpreter %s does not exist" % (shown, named)
                ) from None
        except PermissionError:
            denied = denied or place
        except OSError as e:
            if e.errno == errno.ENOEXEC:
                raise Problem("start_failed", "%s is not a program: it has no #! line" % shown) from None
            raise
    if denied is None:
        raise Problem(
            "start_failed",
            "%s: no such file" % shown if b"/" in name else "%s: no such command on PATH" % shown,
        )
    if os.path.isdir(denied):
        raise Problem("start_failed", "%s is a folder" % shown)
    raise Problem("start_failed", "%s is not executable" % shown)

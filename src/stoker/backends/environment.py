"""Builds a Python environment on a machine from uv.lock or requirements.txt, once per content,
and runs a command in it.

The far end runs this file as a part of the run, so it is standard library only and runs on Python 3.8.
What it prints is in the run's log. Arguments:
the folder of all environments, the mirror or "", "--", the command.

An environment is made in its final place, since it cannot be moved.
Only the file `complete`, written last, makes it one that is used:
whatever a kill leaves behind is deleted by the next run that wants the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

LOCKS = ("uv.lock", "requirements.txt")  # the first that is there
# of the machine's own Python: they fit its driver
KEPT = re.compile(r"torch|torchvision|torchaudio|triton|nvidia-.*")
COMPLETE = "complete"
FAILED = 125
TOLD = (
    "Collecting ",
    "Downloading ",
    "Building ",
    "Installing ",
    "Successfully ",
    "Resolved ",
    "Prepared ",
    "Installed ",
    " + ",
)
LINES_KEPT = 15
SHOW = """
import json, sys, sysconfig
from importlib import metadata
found = {(each.metadata["Name"] or "").lower().replace("_", "-"): each.version for each in metadata.distributions()}
print(json.dumps({"prefix": sys.prefix, "version": sys.version, "installed": found,
                  "paths": [each for each in sys.path if each.endswith("-packages")]}))
"""  # noqa: E501


class Failed(Exception):
    """The reason why there is no environment, as a sentence, and a hint."""


def main(words):
    """Make the environment if it is missing, then execute the command."""
    folder, mirror, _, *command = words
    try:
        python = ready(os.path.abspath(folder), mirror)
    except Failed as e:
        sys.stderr.write("stoker: " + "\n        ".join(e.args) + "\n")
        sys.exit(FAILED)
    except OSError as e:
        sys.stderr.write(f"stoker: The environment cannot be created: {e.filename}: {e.strerror}.\n")
        sys.exit(FAILED)
    bin_ = os.path.dirname(python)
    env = dict(
        os.environ, VIRTUAL_ENV=os.path.dirname(bin_), PATH=bin_ + os.pathsep + os.environ.get("PATH", "")
    )
    if re.fullmatch(r"python[0-9.]*", os.path.basename(command[0])):
        command[0] = python
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, env)
    except OSError as e:
        sys.stderr.write(f"{command[0]}: {e.strerror}\n")
        sys.exit(127 if isinstance(e, FileNotFoundError) else 126)


def ready(folder, mirror):
    """Return the interpreter of the environment; build the environment if necessary. Raises Failed,
    OSError."""
    lock = next((name for name in LOCKS if os.path.isfile(name)), None)
    if lock is None:
        raise Failed("There is neither uv.lock nor requirements.txt in the copy of the working folder.",
                     "Add one of these files, or leave out --install.")
    own = told_by(sys.executable)
    with open(lock, "rb") as f:
        text = f.read()
    kept = {name: version for name, version in own["installed"].items() if KEPT.fullmatch(name)}
    key = [lock, hashlib.sha256(text).hexdigest(), own["prefix"], own["version"], sorted(kept.items())]
    path = os.path.join(folder, hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16])
    python = os.path.join(path, "bin", "python")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(path + ".lock", "w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another run that installs {lock}")
            fcntl.flock(held, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(path, COMPLETE)):
            return python
        if os.path.lexists(path):
            shutil.rmtree(path)  # of a build that was cut
        try:
            build(path, lock, own, kept, mirror)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
    return python


def build(path, lock, own, kept, mirror):
    """Make the environment, and mark it as complete. Raises Failed, OSError."""
    say(f"installing {lock} into {path}")
    python, uv = os.path.join(path, "bin", "python"), find_uv()
    run(
        [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", path],
        "The environment could not be created",
    )
    site = told_by(python)["paths"][0]
    # its own Python may be an environment itself
    with open(os.path.join(site, "_of_the_machine.pth"), "w") as f:
        f.write("".join(each + "\n" for each in own["paths"]))
    wanted, kept_lines = os.path.join(path, "wanted.txt"), os.path.join(path, "kept.txt")
    with open(wanted, "w") as f:
        f.write(requirements(lock, uv, kept))
    if uv:
        # uv does not see packages of another environment: it is told that these are not wanted
        with open(kept_lines, "w") as f:
            f.write("".join(f'{name} ; python_version < "3"\n' for name in kept))
        words = [
            uv,
            "pip",
            "install",
            "--python",
            python,
            "--override",
            kept_lines,
            *(["--default-index", mirror] if mirror else []),
        ]
    else:
        with open(kept_lines, "w") as f:
            f.write("".join(f"{name}=={version}\n" for name, version in kept.items()))
        words = [*pip_of(python), "install", "--disable-pip-version-check", "--no-input", "-c", kept_lines,
                 *(["--index-url", mirror] if mirror else [])]
    run([*words, "-r", wanted], f"{lock} could not be installed")
    with open(os.path.join(path, COMPLETE + ".new"), "w") as f:
        json.dump({"lock": lock, "python": own["version"], "kept": kept, "by": "uv" if uv else "pip"}, f)
        f.flush()
        os.fsync(f.fileno())
    os.rename(os.path.join(path, COMPLETE + ".new"), os.path.join(path, COMPLETE))


def find_uv():
    """Return the path of uv, also in folders that a login without start-up files does not search; None if
    there is no uv."""
    usual = (os.path.expanduser(each) for each in ("~/.local/bin/uv", "~/.cargo/bin/uv"))
    return shutil.which("uv") or next((each for each in usual if os.access(each, os.X_OK)), None)


def requirements(lock, uv, kept):
    """Lines to install: those of the lock file, without packages that the machine already has. Raises
    Failed."""
    if lock == "uv.lock":
        if not uv:
            raise Failed(
                "uv.lock needs uv, which this machine does not have.",
                (
                    "On the machine: pip install uv   Or write a requirements.txt: "
                    "uv export --no-hashes -o requirements.txt"
                ),
            )
        text = run(
            [uv, "export", "--frozen", "--no-hashes", "--no-emit-project", "--no-annotate", "--no-header"],
            "`uv export` of uv.lock failed",
            quiet=True,
        )
    else:
        with open(lock, encoding="utf-8", errors="surrogateescape") as f:
            text = f.read()
    lines = []
    for line in text.splitlines():
        name = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
        known = name and kept.get(name.group(1).lower().replace("_", "-"))
        if known:
            say(
                f"using {name.group(1)} {known}, which this machine already has (requested: {line.strip()})"
            )
        elif re.match(r"\s*-(r|c|-requirement|-constraint)\b", line):
            lines.append(
                re.sub(r"^(\s*-\S+[ =])\s*(\S+)", lambda m: m.group(1) + os.path.abspath(m.group(2)), line)
            )
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def pip_of(python):
    """Arguments that run pip for this interpreter. Raises Failed."""
    if subprocess.run(
        [python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode:
        run([python, "-m", "ensurepip", "--default-pip"], "This machine has neither uv nor pip")
    return [python, "-m", "pip"]


def run(words, sentence, quiet=False):
    """Return the output of a program; progress lines are passed on unless `quiet`. Raises Failed with its
    last lines."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    lines = []
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=None if quiet else subprocess.STDOUT, env=env) as process:
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            lines.append(line)
            if not quiet and line.startswith(TOLD):
                say(line.strip())
    if process.returncode:
        last = [line for line in lines if line][-LINES_KEPT:]
        raise Failed(f"{sentence} (exit code {process.returncode}).", *last,
                     "Correct the cause, then start the run again. "
                     "Stoker has deleted the incomplete environment.")
    return "\n".join(lines) + "\n"


def told_by(python):
    """Facts that an interpreter reports about itself and its packages. Raises Failed."""
    done = subprocess.run(
        [python, "-I", "-c", SHOW], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
    )
    try:
        return json.loads(done.stdout.decode("utf-8", "replace").splitlines()[-1])
    except (ValueError, IndexError):
        raise Failed(
            f"{python} does not run.", "See the Pythons of a machine: stoker machine check NAME"
        ) from None


def say(line):
    """Write a line of progress to the run's log."""
    sys.stdout.write(f"stoker: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

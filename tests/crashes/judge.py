"""Do crashes read as under plain python? `python tests/crashes/judge.py [--plain] [NAME ...]`.

Each script of scripts/ ends by an error. It runs under plain python and under `stoker run`, in the same folder and environment, without
input. Equal must be: stderr, stdout and exit code. Only process ids, addresses and times are normalised. `stoker show` must name the place
of the error: the line that is marked `# here` in the script, or in the package that it imports (`# here or at FILE:LINE` where an error has
two places: the file that cannot be parsed, and its import). A first line `# interrupt at: TEXT` asks for a SIGINT (Ctrl-C) when stdout
shows TEXT. `--plain` compares two runs under plain python instead, without Stoker: so the scripts themselves are checked.
"""

from __future__ import annotations

import difflib
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))

from benchmarks.ground import STOKER, Ground  # noqa: E402

SCRIPTS = Path(__file__).resolve().with_name("scripts")
KINDS = ("forward", "backward", "optimizer", "scheduler", "loader", "workers", "collate", "open", "os", "input", "json", "numpy", "torchload",
         "disk", "interrupt")
NAMES = tuple(f"{kind}_{n}" for kind in KINDS for n in (1, 2, 3))
LIMIT_S = 600  # for a script that hangs; on a busy machine two minutes are too few for one that imports torch
_NORMAL = ((re.compile(rb"0x[0-9a-f]{6,}"), b"0xADDRESS"), (re.compile(rb"\bpid(\(s\))?[ :=]+\d+"), b"pid PID"),
           (re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?"), b"TIME"))
_REPORT = re.compile(rb"(?m)^stoker: .*\n\Z")  # what `stoker run` itself says at the end
_MARK = re.compile(r"  # here(?: or at (\S+):(\d+))?$")
_TOLD = re.compile(r"\((\S+), line (\d+)\)")
_PACKAGE = re.compile(r"(?m)^ *(?:from|import) (\w+lib)\b")


@dataclass(frozen=True)
class Ended:
    """A process that has ended: exit code as a shell gives it, and what it printed."""

    code: int
    out: bytes
    err: bytes


@dataclass(frozen=True)
class Verdict:
    """One script. `unlike` tells how the output differs, `reason` how the reason is wrong; both are empty when all is right."""

    name: str
    unlike: str
    reason: str

    @property
    def right(self) -> bool:
        return not self.unlike and not self.reason

    def line(self) -> str:
        return f"{'right' if self.right else 'WRONG'}  {self.name:<13} {'; '.join(filter(None, (self.unlike and 'output differs', self.reason)))}"


def normal(text: bytes) -> bytes:
    """Without process ids, addresses and times."""
    for pattern, word in _NORMAL:
        text = pattern.sub(word, text)
    return text


def places(name: str) -> set[tuple[str, int]]:
    """File name and line of each mark of a script."""
    script = SCRIPTS / f"{name}.py"
    files = [script]
    for package in set(_PACKAGE.findall(script.read_text())):
        files += (SCRIPTS / package).glob("*.py")
    found = set()
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if mark := _MARK.search(line):
                found |= {(path.name, number)} | ({(mark[1], int(mark[2]))} if mark[1] else set())
    return found


def ended(argv: list[str], cwd: Path, env: dict[str, str], interrupt_at: str) -> Ended:
    """Run a command to its end, with SIGINT when its stdout shows a text."""
    with subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as proc:
        limit = threading.Timer(LIMIT_S, proc.kill)
        limit.start()
        err: list[bytes] = []
        reader = threading.Thread(target=lambda: err.append(proc.stderr.read()))
        reader.start()
        out = b""
        for line in proc.stdout:
            out += line
            if interrupt_at and line.strip() == interrupt_at.encode():
                proc.send_signal(signal.SIGINT)
        reader.join()
        code = proc.wait()
        limit.cancel()
    return Ended(128 - code if code < 0 else code, out, err[0])


def fresh(ground: Ground) -> Path:
    """A new copy of all scripts, always at the same path."""
    folder = ground.work / "scripts"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def plain(ground: Ground, name: str) -> Ended:
    """The script under plain python."""
    return ended([sys.executable, f"{name}.py"], fresh(ground), ground.env, _interrupt(name))


def judged(ground: Ground, name: str) -> Verdict:
    """The script under both."""
    expected = plain(ground, name)
    argv = [STOKER, "run", "--new", "--name", name, "--", sys.executable, f"{name}.py"]
    seen = ended(argv, fresh(ground), ground.env, _interrupt(name))
    return Verdict(name, unlike(expected, Ended(seen.code, seen.out, _REPORT.sub(b"", seen.err))), wrong_reason(ground.show(name), name))


def unlike(expected: Ended, seen: Ended) -> str:
    """The differences as a diff; empty when there are none."""
    found = [] if expected.code == seen.code else [f"exit code {seen.code} instead of {expected.code}"]
    for stream in ("out", "err"):
        a, b = (normal(getattr(each, stream)).decode(errors="backslashreplace").splitlines(keepends=True) for each in (expected, seen))
        found += difflib.unified_diff(a, b, f"std{stream} of python", f"std{stream} of stoker run", n=1)
    return "\n".join(line.rstrip("\n") for line in found)


def wrong_reason(run: dict, name: str) -> str:
    """What is wrong with the place that `stoker show` names; empty when it is right."""
    place = (run.get("evidence") or {}).get("exception") or {}
    seen = (Path(place.get("file") or "").name, place.get("line"))
    marked = places(name)
    if seen not in marked:
        return f"the reason is at {seen[0] or 'no file'}:{seen[1]}, right is {' or '.join(f'{file}:{line}' for file, line in sorted(marked))}"
    told = _TOLD.findall(run["sentence"])  # none where the reason has a sentence of its own, as a full disk has
    return "" if told in ([], [(seen[0], str(seen[1]))]) else f"show names another place: {run['sentence']}"


def steady(ground: Ground, name: str) -> Verdict:
    """The script twice under plain python: it must fail, always in the same way."""
    first = plain(ground, name)
    mark = "" if places(name) and first.code else f"no place is marked, or it ended well: exit code {first.code}"
    return Verdict(name, unlike(first, plain(ground, name)), mark)


def verdicts(ground: Ground, names: Sequence[str] = NAMES) -> Iterator[Verdict]:
    """One after another, in one state folder."""
    for name in names:
        yield judged(ground, name)


def _interrupt(name: str) -> str:
    first = (SCRIPTS / f"{name}.py").read_text().partition("\n")[0]
    return first.removeprefix("# interrupt at: ") if first.startswith("# interrupt at: ") else ""


def main() -> int:
    """Print each verdict and each difference."""
    names = [word for word in sys.argv[1:] if word != "--plain"] or NAMES
    judge = steady if "--plain" in sys.argv else judged
    ground = Ground()
    wrong = 0
    try:
        for verdict in (judge(ground, name) for name in names):
            wrong += not verdict.right
            print("\n".join(filter(None, (verdict.line(), verdict.unlike))), flush=True)
    finally:
        left = ground.close()
    print(f"{len(names) - wrong} of {len(names)} are right", *left, sep="\n")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())

"""Asks a user's own interpreter what it has, in a child of it with the user's environment.
Imports no package of the user's.

One question is one process start (about 30 ms), so all that is wanted is asked at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# a cold interpreter on a network disk takes seconds; silence is "unknown", never "missing"
ASK_TIMEOUT_S = 10.0
_MARK = "stoker-answer:"  # a user's sitecustomize may print to the same pipe

# Runs in the user's interpreter, so it is written for old ones too.
_PROGRAM = r"""
import json, sys
q = json.loads(sys.argv[1])
a = {"executable": sys.executable, "version": list(sys.version_info[:3]), "prefix": sys.prefix}
a["base_prefix"] = getattr(sys, "base_prefix", sys.prefix)
if sys.path and sys.path[0] == "":
    del sys.path[0]
a["path"] = list(sys.path)
sys.path[:0] = q["path"]
a["missing"] = []
if q["modules"]:
    from importlib.util import find_spec
    for name in q["modules"]:
        try:
            if name not in sys.modules and find_spec(name) is None:
                a["missing"].append(name)
        except Exception:
            pass
a["syntax"] = None
if q["compile"]:
    try:
        with open(q["compile"], "rb") as f:
            compile(f.read(), q["compile"], "exec", 1024, True)
    except SyntaxError as e:
        a["syntax"] = [e.lineno or 0, str(e.msg)]
    except Exception:
        pass
if q["finders"]:
    a["finders"] = []
    for i, f in enumerate(sys.meta_path):
        m = sys.modules.get(getattr(f, "__module__", "") or "")
        own = getattr(m, "MAPPING", None)
        if not isinstance(own, dict):
            own = getattr(f, "_redirections", None)
        kind = getattr(f, "__name__", None) or type(f).__name__
        own = {str(k): str(v) for k, v in (own or {}).items()}
        a["finders"].append({"kind": kind, "module": getattr(f, "__module__", ""), "mapping": own})
if q["distributions"]:
    from importlib.metadata import version, PackageNotFoundError
    a["distributions"] = {}
    for name in q["distributions"]:
        try:
            a["distributions"][name] = version(name)
        except PackageNotFoundError:
            pass
    if "torch" not in a["missing"] and "torch" in q["modules"]:
        import os
        from importlib.util import find_spec
        where = (find_spec("torch").submodule_search_locations or [""])[0]
        try:
            ns = {}
            with open(os.path.join(where, "version.py")) as f:
                exec(compile(f.read(), "version.py", "exec"), ns)
            a["torch"] = {"version": str(ns.get("__version__", "")), "cuda": ns.get("cuda"), "hip": ns.get("hip")}
        except Exception:
            pass
sys.stdout.write("\n" + q["mark"] + json.dumps(a) + "\n")
"""  # noqa: E501


@dataclass(frozen=True)
class Answer:
    """What an interpreter said of itself. `missing`: the asked modules it cannot find; `syntax`:
    (line, message) or None."""

    executable: str
    version: tuple[int, int, int]
    prefix: str
    base_prefix: str
    path: tuple[str, ...]
    missing: frozenset[str]
    syntax: tuple[int, str] | None
    finders: tuple[dict, ...] = ()
    distributions: dict[str, str] = field(default_factory=dict)
    torch: dict | None = None  # {"version", "cuda": "12.4"|None, "hip"}, read from torch's version.py


@dataclass(frozen=True)
class Silence:
    """An interpreter gave no answer: why, in the words of the system or of its standard error."""

    why: str


def ask(
    interpreter: str | Sequence[str],
    folder: Path,
    env: dict[str, str],
    *,
    modules: Iterable[str] = (),
    path: Sequence[str] = (),
    compiles: Path | None = None,
    finders: bool = False,
    distributions: Iterable[str] = (),
    timeout_s: float = ASK_TIMEOUT_S,
) -> Answer | Silence:
    """Start `interpreter` (a path, or a path with its options) in `folder` with `env` and ask.

    modules: top-level names to look for, with `path` in front of sys.path. compiles: a script to parse.
        Nothing of the user's is imported or run,
    except what the interpreter itself runs as it starts.
    """
    words = [interpreter] if isinstance(interpreter, str) else list(interpreter)
    question = {
        "modules": sorted(modules),
        "path": list(path),
        "compile": os.fspath(compiles) if compiles else "",
        "finders": finders,
        "distributions": sorted(distributions),
        "mark": _MARK,
    }
    done = quiet([*words, "-c", _PROGRAM, json.dumps(question)], folder, env, timeout_s)
    if isinstance(done, Silence):
        return done
    code, out, err = done
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        if line.startswith(_MARK):
            return _answer(json.loads(line.removeprefix(_MARK)))
    said = err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code} without output"]
    return Silence(said[-1] if said[0].startswith("Traceback") else said[0])


def quiet(
    argv: Sequence[str], folder: Path, env: dict[str, str], timeout_s: float
) -> tuple[int, bytes, bytes] | Silence:
    """(code, stdout, stderr) of a short command without input;
    Silence when it cannot start or takes too long."""
    try:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as e:
        return Silence(getattr(e, "strerror", None) or str(e))
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return Silence(f"no answer within {timeout_s:g} s")
    return child.returncode, out, err


def _answer(body: dict) -> Answer:
    syntax = body.get("syntax")
    return Answer(
        executable=body["executable"] or "",
        version=tuple(body["version"]),
        prefix=body["prefix"],
        base_prefix=body["base_prefix"],
        path=tuple(body["path"]),
        missing=frozenset(body["missing"]),
        syntax=(syntax[0], syntax[1]) if syntax else None,
        finders=tuple(body.get("finders", ())),
        distributions=body.get("distributions", {}),
        torch=body.get("torch"),
    )

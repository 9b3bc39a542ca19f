"""What a typed command means in the user's folder and environment:
which program, which interpreter, which script.

Runs nothing of the user's but the interpreter itself, to ask a shim where it leads.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker.base.errors import Denied, InvalidSpec
from stoker.base.near import near
from stoker.doctor import python

Asked = python.Answer | python.Silence | None

_PYTHON_NAME = re.compile(r"(python|pypy|graalpy)[0-9.]*t?")
_PYTHON_FILE = re.compile(r"(python|pypy|graalpy)")
_LAUNCHERS = frozenset(
    {"torchrun", "accelerate", "deepspeed", "composer", "horovodrun", "colossalai", "lightning", "fabric"}
)
LAUNCHER_MODULES = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "torch.distributed.elastic.multiprocessing.launch",
        "accelerate.commands.launch",
        "deepspeed.launcher.runner",
        "deepspeed",
    }
)
_VALUE_FLAGS = "WXQ"  # python's own options that take a value
_ISOLATING = "IEsSP"  # they change what can be imported
_SHELL_WORDS = re.compile(r"&&|\|\||[|;<>]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# a program's private environment, never what `python` is meant to be
_TOOL_MARKS = ("pipx_metadata.json", "uv-receipt.toml")
_COMMON = ("python", "python3", "torchrun", "accelerate", "bash", "make")
_BUILTINS = frozenset({"source", ".", "cd", "export", "conda", "alias", "ulimit", "set"})
_NEAR_LIMIT = 2_000


@dataclass(frozen=True)
class Reading:
    """argv: what to execute. script: the Python file it will run, if one was found. interpreter:
    the Python that runs it.

    import_path: what Python puts in front of sys.path for that script. options: python's options that
        change what can be imported. shims:
    programs that choose an interpreter by folder (pyenv and the like); `settle` must ask one of them.
    """

    argv: tuple[str, ...]
    script: Path | None = None
    interpreter: str | None = None
    import_path: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    shims: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def read(command: Sequence[str], folder: Path, env: dict[str, str]) -> Reading:
    """The reading of a command. Raises InvalidSpec or Denied, naming what to type instead,
    where it cannot be started."""
    if not command or not command[0].strip():
        raise InvalidSpec(
            "There is no command to run.",
            hint="stoker run train.py   or   stoker run -- python train.py --lr 0.1",
        )
    if not folder.is_dir():
        raise InvalidSpec(
            f"The folder {folder} does not exist.", hint="Change to the folder of your script first."
        )
    first = command[0]
    if first.endswith(".ipynb"):
        raise _notebook(first)
    if " " in first.strip() and not os.path.lexists(folder / first):  # "python train.py" in quotes
        raise _not_found(command, folder, env)
    if _PYTHON_NAME.fullmatch(os.path.basename(first)):
        return _python_command(command, folder, env)
    if first.endswith(".py") and ((folder / first).exists() or not _which(first, folder, env)):
        return _script_command(command, folder, env)
    return _program(command, folder, env)


def settle(
    reading: Reading,
    folder: Path,
    env: dict[str, str],
    *,
    modules: Sequence[str] = (),
    compiles: Path | None = None,
    timeout_s: float = python.ASK_TIMEOUT_S,
    **more: Any,
) -> tuple[Reading, Asked]:
    """The reading with a real interpreter in place of a shim, and the answer about `modules`,
    from one process.

    None as the answer: there was nothing to ask, or nobody to ask.
    Raises InvalidSpec where a shim leads to no Python.
    """
    if not reading.interpreter or not (reading.shims or modules or compiles or more):
        return reading, None
    answer: Asked = None
    for candidate in reading.shims or (reading.interpreter,):
        answer = python.ask(
            [candidate, *reading.options],
            folder,
            env,
            modules=modules,
            path=reading.import_path,
            compiles=compiles,
            timeout_s=timeout_s,
            **more,
        )
        if isinstance(answer, python.Answer):
            break
    if not reading.shims:
        return reading, answer
    if isinstance(answer, python.Silence):
        raise InvalidSpec(
            f"{reading.shims[0]} finds no Python here: {answer.why.rstrip('.')}.",
            hint=(
                "To see why, run `python --version` in this folder. With pyenv, `pyenv versions` lists the "
                "installed Pythons."
            ),
        )
    found = (answer.executable if answer else "") or reading.interpreter
    argv = tuple(found if n == 0 and word in reading.shims else word for n, word in enumerate(reading.argv))
    return replace(reading, argv=argv, interpreter=found, shims=()), answer


# --- the three kinds of commands
# -----------------------------------------------------------------------------------------

def _script_command(command: Sequence[str], folder: Path, env: dict[str, str]) -> Reading:
    """`train.py --lr 0.1`: the script under what `python` means here."""
    script = _readable_script(command[0], folder)
    found, shims, warnings = _find_python(("python", "python3"), folder, env)
    word = command[0] if not command[0].startswith("-") else f"./{command[0]}"
    return Reading(
        argv=(found, word, *command[1:]),
        script=script,
        interpreter=found,
        import_path=_beside(script),
        shims=shims,
        warnings=tuple(warnings),
    )


def _python_command(command: Sequence[str], folder: Path, env: dict[str, str]) -> Reading:
    """`python [options] train.py`, `python -m module`, `.venv/bin/python ...`:
    the interpreter made absolute."""
    first = command[0]
    if "/" in first:
        found = _absolute(first, folder)
        _check_executable(first, Path(found), folder)
        shims: tuple[str, ...] = (found,) if _is_shim(found) else ()
        warnings: list[str] = []
    else:
        names = (first, "python3") if first == "python" else (first,)
        found, shims, warnings = _find_python(names, folder, env)
        if os.path.basename(found) != first and not shims:
            warnings.append(f"There is no {first} here, so Stoker uses {found}.")
    options, module, rest = _python_options(command[1:])
    script, path = _python_target(module, rest, folder)
    return Reading(
        argv=(found, *command[1:]),
        script=script,
        interpreter=found,
        import_path=path,
        options=options,
        shims=shims,
        warnings=tuple(warnings),
    )


def _program(command: Sequence[str], folder: Path, env: dict[str, str]) -> Reading:
    """Anything else: found as a shell finds it. A launcher's script and interpreter are told too."""
    first = command[0]
    if "/" in first:
        path = Path(_absolute(first, folder))
        _check_executable(first, path, folder)
        # a copied folder brings its own ./run.sh
        keep = not os.path.isabs(first) and not _in_environment(path)
        argv0 = first if keep else os.fspath(path)
    else:
        found = _which(first, folder, env)
        if not found:
            raise _not_found(command, folder, env)
        path = Path(_behind_shim(found, folder, env))
        argv0 = os.fspath(path)
    shebang = _shebang(path)
    argv = (argv0, *command[1:])
    if shebang is None:  # a shell runs a file without a first line by itself; the kernel does not
        argv = ("/bin/sh", *argv)
    elif shebang:
        _check_shebang(path, shebang)
    name = os.path.basename(first)
    interpreter = (
        _shebang_python(path, folder, env) if name in _LAUNCHERS or _is_python_shebang(shebang) else None
    )
    script = _first_script(command[1:], folder, strict=name in _LAUNCHERS)
    return Reading(
        argv=argv, script=script, interpreter=interpreter, import_path=_beside(script) if script else ()
    )


# --- which python
# --------------------------------------------------------------------------------------------------------

def _find_python(
    names: Sequence[str], folder: Path, env: dict[str, str]
) -> tuple[str, tuple[str, ...], list[str]]:
    """(path, the shims to ask in turn, warnings) of the first of `names` on the user's PATH."""
    found = [p for p in (_which(name, folder, env) for name in names) if p]
    if not found:
        raise InvalidSpec(
            f"There is no {names[0]} on your PATH.",
            hint="Activate your environment first (source .venv/bin/activate, conda activate NAME), or "
                 "name a Python: stoker run -- /path/to/python train.py",
        )
    warnings = []
    venv = env.get("VIRTUAL_ENV", "")
    if (
        venv
        and not _is_shim(found[0])
        and os.path.realpath(os.path.dirname(found[0])) != os.path.realpath(os.path.join(venv, "bin"))
    ):
        warnings.append(
            f"The environment {venv} is active, but Stoker uses {found[0]}, which comes first in your PATH."
        )
    return found[0], tuple(found) if _is_shim(found[0]) else (), warnings


def _which(name: str, folder: Path, env: dict[str, str]) -> str:
    """The file that typing `name` in `folder` starts, absolute and with its links kept; "" for none."""
    if "/" in name:
        path = _absolute(name, folder)
        return path if os.path.isfile(path) and os.access(path, os.X_OK) else ""
    for entry in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(_absolute(entry or ".", folder), name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and not _is_tool_environment(path):
            return path
    return ""


def _is_tool_environment(path: str) -> bool:
    """True for the python of an environment that pipx or uv made for one program, such as our own."""
    if not _PYTHON_NAME.fullmatch(os.path.basename(path)):
        return False
    prefix = os.path.dirname(os.path.dirname(path))
    return any(os.path.exists(os.path.join(prefix, mark)) for mark in _TOOL_MARKS)


def _is_shim(path: str) -> bool:
    """True for a program that picks a Python by folder (pyenv, asdf, mise):
    its answer may change, so it must be asked now.

    A link of a virtual environment is no shim and is kept as it is:
    behind the link it would lose the environment.
    """
    if os.path.basename(os.path.dirname(path)) == "shims":
        return True
    real = os.path.realpath(path)
    return real != path and not _PYTHON_FILE.match(os.path.basename(real))


def _behind_shim(path: str, folder: Path, env: dict[str, str]) -> str:
    """The program a pyenv shim leads to here; other programs as they are."""
    shims, name = os.path.split(path)
    pyenv = os.path.join(os.path.dirname(shims), "libexec", "pyenv")
    if os.path.basename(shims) != "shims" or not os.access(pyenv, os.X_OK):
        return path
    done = python.quiet([pyenv, "which", name], folder, env, python.ASK_TIMEOUT_S)
    if isinstance(done, python.Silence):
        return path
    if done[0] != 0:
        said = done[2].decode("utf-8", "replace").strip().splitlines()
        raise InvalidSpec(
            (
                f"{path} finds no program here: "
                f"{said[0].rstrip('.') if said else 'pyenv has no version with this program'}."
            ),
            hint="To list the Pythons: pyenv versions   To choose a Python: pyenv local VERSION",
        )
    return os.fsdecode(done[1].strip()) or path


# --- python's own command line
# -------------------------------------------------------------------------------------------

def _python_options(words: Sequence[str]) -> tuple[tuple[str, ...], str | None, list[str]]:
    """(options that change imports, module of -m or None, the rest from the script on;
    empty for -c and standard input)."""
    kept: list[str] = []
    n = 0
    while n < len(words):
        word = words[n]
        if word == "--":
            return tuple(kept), None, list(words[n + 1:])
        if not word.startswith("-") or word == "-":
            return tuple(kept), None, [] if word == "-" else list(words[n:])
        if word.startswith("--"):
            n += 2 if word == "--check-hash-based-pycs" else 1
            continue
        for at, letter in enumerate(word[1:], 1):
            value = word[at + 1:]
            if letter == "c":
                return tuple(kept), None, []
            if letter == "m":
                rest = list(words[n + (1 if value else 2):])
                return tuple(kept), value or (words[n + 1] if n + 1 < len(words) else ""), rest
            if letter in _VALUE_FLAGS:
                n += 0 if value else 1
                break
            if letter in _ISOLATING:
                kept.append(f"-{letter}")
        n += 1
    return tuple(kept), None, []


def _python_target(
    module: str | None, rest: Sequence[str], folder: Path
) -> tuple[Path | None, tuple[str, ...]]:
    """(script, its sys.path entry) of what python is told to run."""
    if module is not None:
        own = _local_module(module, folder)
        if own:
            return own, (os.fspath(folder),)
        script = _first_script(rest, folder, strict=module in LAUNCHER_MODULES)
        return script, _beside(script) if script else (os.fspath(folder),)
    if not rest:
        return None, (os.fspath(folder),)
    if rest[0].endswith(".ipynb"):
        raise _notebook(rest[0])
    path = folder / rest[0]
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise _directory(rest[0], path)
        return path / "__main__.py", (os.fspath(path),)
    script = _readable_script(rest[0], folder)
    return script, _beside(script)


def _local_module(name: str, folder: Path) -> Path | None:
    base = folder.joinpath(*name.split("."))
    choices = (base.with_name(base.name + ".py"), base / "__main__.py") if name else ()
    return next((p for p in choices if p.is_file()), None)


def _first_script(words: Sequence[str], folder: Path, strict: bool) -> Path | None:
    """The .py file among a launcher's words; with `strict` an error when one is named that does not exist."""
    named = [w for w in words if w.endswith(".py") and not w.startswith("-")]
    for word in named:
        if (folder / word).is_file():
            return folder / word
    if strict and named:
        raise _no_file(named[0], folder)
    for flag, value in itertools.pairwise(words):
        if flag in ("-m", "--module"):
            return _local_module(value, folder)
    return None


def _beside(script: Path) -> tuple[str, ...]:
    return (os.path.dirname(os.path.realpath(script)),)


# --- files and what is wrong with them
# ------------------------------------------------------------------------------------

def _readable_script(word: str, folder: Path) -> Path:
    path = folder / word
    if path.is_dir():
        raise _directory(word, path)
    if not path.exists():
        raise _no_file(word, folder)
    if path.is_file() and not os.access(path, os.R_OK):
        raise Denied(
            f"{word} cannot be read: permission denied.",
            hint=f"chmod u+r {word}   (or ask the owner of the file)",
        )
    return path


def _check_executable(word: str, path: Path, folder: Path) -> None:
    if path.is_dir():
        raise _directory(word, path)
    if not path.exists():
        raise _no_file(word, folder)
    if not os.access(path, os.X_OK):
        typed = shlex.quote(word)
        by_shell = f"   or   stoker run -- bash {typed}" if path.suffix in ("", ".sh", ".bash") else ""
        raise InvalidSpec(f"{word} is not executable.", hint=f"chmod +x {typed}{by_shell}")


def _shebang(path: Path) -> str | None:
    """The first line of a script without "#!"; "" for a binary;
    None for a text file that has no such line."""
    try:
        with path.open("rb") as f:
            head = f.read(512)
    except OSError:
        return ""
    if head.startswith(b"#!"):
        return head[2:].split(b"\n")[0].decode("utf-8", "replace").strip(" \t")
    return "" if b"\0" in head or not head else None


def _check_shebang(path: Path, shebang: str) -> None:
    wanted = next(iter(shebang.split()), "")
    if shebang.endswith("\r"):
        raise InvalidSpec(
            f"{path.name} has Windows line endings, so the system looks for a program named '{wanted}\\r'.",
            hint=f"sed -i 's/\\r$//' {path.name}",
        )
    if not os.path.exists(wanted):
        raise InvalidSpec(
            f"The first line of {path.name} names "
            + (f"{wanted}, which does not exist here." if wanted else "no program."),
            hint="Correct the first line, or name the program: stoker run -- bash SCRIPT",
        )


def _is_python_shebang(shebang: str | None) -> bool:
    words = (shebang or "").split()
    return any(_PYTHON_NAME.fullmatch(os.path.basename(w)) for w in words[:2])


def _shebang_python(path: Path, folder: Path, env: dict[str, str]) -> str | None:
    """The Python that a console script starts:
    its first line, `env NAME`, or pip's detour through sh for long paths."""
    try:
        head = path.open("rb").read(4096).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    words = head[0][2:].split() if head and head[0].startswith("#!") else []
    if len(words) > 1 and os.path.basename(words[0]) == "env":
        return _which(words[-1], folder, env) or None
    if words and _PYTHON_NAME.fullmatch(os.path.basename(words[0])):
        return words[0]
    detour = re.search(r"""'''exec' "?([^"\n]+?)"? "\$0\"""", "\n".join(head[:3]))
    return detour[1] if detour else None


def _in_environment(path: Path) -> bool:
    """True for a program of a virtual or conda environment: such a folder is never part of a frozen copy."""
    prefix = path.parent.parent
    return (prefix / "pyvenv.cfg").exists() or (prefix / "conda-meta").is_dir()


def _absolute(word: str, folder: Path) -> str:
    """Absolute and tidy, with links kept."""
    return os.path.normpath(os.path.join(os.path.abspath(folder), os.path.expanduser(word)))


def _notebook(word: str) -> InvalidSpec:
    script = shlex.quote(word.removesuffix(".ipynb") + ".py")
    return InvalidSpec(f"{word} is a notebook, not a script.",
                       hint=f"jupyter nbconvert --to script {shlex.quote(word)}   then   stoker run {script}")


def _directory(word: str, path: Path) -> InvalidSpec:
    inside = [n for n in ("train.py", "main.py", "run.py", "__main__.py") if (path / n).is_file()]
    hint = (
        f"stoker run {shlex.quote(os.path.join(word, inside[0]))}"
        if inside
        else "Name a file: stoker run train.py"
    )
    return InvalidSpec(f"{word} is a folder, not a program.", hint=hint)


def _no_file(word: str, folder: Path) -> InvalidSpec:
    found = nearest(word, folder)
    hint = (
        f"Did you mean {' or '.join(map(shlex.quote, found))}?"
        if found
        else f"The current folder is {folder}."
    )
    return InvalidSpec(f"There is no file {shlex.quote(word)} here.", hint=hint)


def _not_found(command: Sequence[str], folder: Path, env: dict[str, str]) -> InvalidSpec:
    word = command[0]
    if _ASSIGNMENT.match(word):
        return InvalidSpec(
            f"'{word}' is a shell assignment, not a program.", hint=f"stoker run -- env {' '.join(command)}"
        )
    if " " in word.strip():
        return _no_such_words(word, folder, env)
    if (folder / word).is_dir():
        return _directory(word, folder / word)
    if (folder / word).is_file():
        if os.access(folder / word, os.X_OK):
            return InvalidSpec(
                f"{word} is not on your PATH, but a file here has that name.", hint=f"stoker run ./{word}"
            )
        return InvalidSpec(
            f"{word} is a file here, but is not executable.",
            hint=f"chmod +x {word}, then: stoker run ./{word}",
        )
    if word in _BUILTINS:
        return InvalidSpec(f"'{word}' is a built-in command of the shell, not a program.",
                           hint=f"stoker run -- bash -c '{' '.join(command)} && ...'")
    found = near(word, _COMMON, 1) or nearest(word, folder)
    hint = (f"Did you mean {' or '.join(map(shlex.quote, found))}?" if found
            else f"Install the program, or type its path. Your PATH: {env.get('PATH', 'not set')}")
    return InvalidSpec(f"There is no program {word} on your PATH.", hint=hint)


def _no_such_words(word: str, folder: Path, env: dict[str, str]) -> InvalidSpec:
    """For one word with spaces in it: a name that has some, or a whole command in quotes?"""
    parts = word.split()
    if _SHELL_WORDS.search(word):
        return InvalidSpec(
            f"There is no program named '{word}'.", hint=f"stoker run -- bash -c {shlex.quote(word)}"
        )
    script_first = (folder / parts[0]).is_file() and parts[0].endswith(".py")
    starts_scripts = parts[0] in _LAUNCHERS or _PYTHON_NAME.fullmatch(os.path.basename(parts[0]))
    command = script_first or starts_scripts or any(part.startswith("-") for part in parts)
    if command or (_which(parts[0], folder, env) and not nearest(word, folder)):
        unquoted = word if script_first else f"-- {word}"
        return InvalidSpec(
            f"There is no program named '{word}'.", hint=f"Remove the quotes: stoker run {unquoted}"
        )
    return _no_file(word, folder)


def nearest(word: str, folder: Path, count: int = 3) -> list[str]:
    """Files under `folder` whose name is close to `word`, as one would type them."""
    wanted = os.path.basename(word)
    names: dict[str, str] = {}
    for path in _some_files(folder):
        names.setdefault(os.path.basename(path), path)
    stem, suffix = os.path.splitext(wanted)
    stems: dict[str, list[str]] = {}
    for name, path in names.items():
        if not suffix or name.endswith(suffix):
            stems.setdefault(os.path.splitext(name)[0], []).append(path)
    same = [names[wanted]] if wanted in names else []
    close = [path for found in near(stem, stems, count) for path in sorted(stems[found])]
    return (same + [path for path in close if path not in same])[:count]


def _some_files(folder: Path, depth: int = 2) -> Iterator[str]:
    """Relative paths of at most _NEAR_LIMIT files, the near ones first."""
    level, seen = [""], 0
    for _ in range(depth + 1):
        deeper = []
        for base in level:
            try:
                entries = sorted(os.scandir(folder / base), key=lambda e: e.name)
            except OSError:
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and entry.name not in (
                        "__pycache__",
                        "node_modules",
                        "venv",
                    ):
                        deeper.append(os.path.join(base, entry.name))
                    continue
                seen += 1
                if seen > _NEAR_LIMIT:
                    return
                yield os.path.join(base, entry.name)
        level = deeper

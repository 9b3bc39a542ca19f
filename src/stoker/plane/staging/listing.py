"""Lists what belongs to a working folder: what git would keep, or everything but junk, less what
.stokerignore names."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stoker.base.config import home
from stoker.base.errors import Denied, InvalidSpec
from stoker.base.reading import JUNK, is_environment
from stoker.plane.staging import git_folder

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".stokerignore"
_GIT_TIME_S = 60.0


@dataclass
class Listing:
    """Relative paths of files and links, and of empty folders; `left_out`: path -> reason, for users."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def belongings(folder: Path, away_from: Path | None = None, without: tuple[str, ...] = ()) -> Listing:
    """Content of a copy of `folder`. `away_from`: a path that is being written, which is never included;
    neither is $STOKER_HOME. without: relative paths to leave out, such as data that is sent separately.
    Raises Denied for an unreadable folder, InvalidSpec for an unreadable .stokerignore."""
    ignored = _read_ignore(folder)
    listing = _by_git(folder, reincludes=bool(ignored and ignored.reincludes)) or _by_walk(folder)
    ours = [os.path.realpath(p) for p in (home().path, away_from) if p]
    inside = tuple(
        os.path.relpath(p, os.path.realpath(folder))
        for p in ours
        if p.startswith(os.path.realpath(folder) + os.sep)
    )
    if inside:
        listing.files = [f for f in listing.files if not _under(f, inside)]
        listing.folders = [f for f in listing.folders if not _under(f, inside)]
    if without:
        listing.files = [path for path in listing.files if not _under(path, without)]
        listing.folders = [path for path in listing.folders if not _under(path, without)]
        listing.left_out = {
            path: why for path, why in listing.left_out.items() if not _under(path.rstrip("/"), without)
        }
        listing.left_out |= dict.fromkeys(without, "data")
    if ignored:
        _apply(ignored, listing)
    return listing


def _under(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == p or path.startswith(p + os.sep) for p in prefixes)


# --- by git
# ------------------------------------------------------------------------------------------------------------

def _by_git(folder: Path, reincludes: bool) -> Listing | None:
    """Tracked and untracked-not-ignored files, with those of submodules and nested repositories; None:
    no repository speaks for it."""
    if not git_folder.in_repository(folder):
        return None
    inside = git_folder.ask(folder, "rev-parse", "--is-inside-work-tree", "--show-prefix")
    if inside is None:
        return None
    said = inside.answer(time.monotonic() + _GIT_TIME_S).split(b"\n")
    if not inside.ok or said[0] != b"true":
        return None
    # a folder that an outer repository ignores is nobody's code but its own
    if said[1:2] != [b""] and _is_ignored(folder):
        return None
    listing = Listing()
    _git_files(folder, "", listing, set(), reincludes)
    return listing


def _is_ignored(folder: Path) -> bool:
    asked = git_folder.ask(folder, "check-ignore", "-q", ".")
    if asked is None:
        return False
    asked.answer(time.monotonic() + _GIT_TIME_S)
    return asked.ok


def _git_files(top: Path, base: str, listing: Listing, seen: set[str], reincludes: bool) -> None:
    here = top / base
    asked = [_start(here, "-t", "--cached", "--others"), _start(here, "--others", "--ignored", "--directory")]
    if reincludes:
        asked.append(_start(here, "--others", "--ignored"))
    kept, dropped, *ignored = [_whole(here, *a) for a in asked]
    untracked = [name[2:] for name in kept if name.startswith("? ")]
    environments = tuple(
        os.path.dirname(n)
        for n in untracked
        if os.path.basename(n) == "pyvenv.cfg" or n.endswith("/conda-meta/history")
    )
    environments = tuple(e.removesuffix("/conda-meta") for e in environments if e)
    for entry in kept:
        name = entry[2:].rstrip("/")
        path = os.path.join(base, name)
        if path in seen:  # a file in conflict has several entries
            continue
        seen.add(path)
        if entry.startswith("? ") and (_is_junk(name) or _under(name, environments)):
            continue
        _git_entry(top, path, listing, seen, reincludes)
    for name in (n for n in dropped if not _is_junk(n.rstrip("/"))):
        listing.left_out[os.path.join(base, name)] = "ignored by git"
    for names in ignored:
        listing.files += [os.path.join(base, n) for n in names if not _is_junk(n) and not n.endswith("/")]


def _git_entry(top: Path, path: str, listing: Listing, seen: set[str], reincludes: bool) -> None:
    full = os.path.join(top, path)
    if os.path.islink(full) or not os.path.isdir(full):
        listing.files.append(path)
    elif os.path.lexists(os.path.join(full, ".git")):
        _git_files(top, path, listing, seen, reincludes)
    elif not os.listdir(full):
        listing.folders.append(path)
        listing.left_out[path + "/"] = (
            "the submodule has not been fetched yet; to fetch the submodule: git submodule update --init"
        )


def _is_junk(path: str) -> bool:
    return path.endswith(".pyc") or not JUNK.isdisjoint(path.split("/"))


def _start(folder: Path, *options: str) -> tuple[git_folder.Asked, IO[bytes]]:
    said = tempfile.TemporaryFile()  # noqa: SIM115 - _whole reads and closes it
    asked = git_folder.ask(folder, "ls-files", "-z", "--exclude-standard", *options, stderr=said.fileno())
    assert asked is not None  # git has said that this is a repository
    return asked, said


def _whole(folder: Path, asked: git_folder.Asked, said: IO[bytes]) -> list[str]:
    with said:
        out = asked.answer(time.monotonic() + _GIT_TIME_S)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    if "could not open directory" in text:
        raise Denied(f"A folder cannot be read: {text.strip().splitlines()[0].removeprefix('warning: ')}.",
                     hint=f"Make the folder readable (chmod u+rx), or add its name to {IGNORE_FILE} and "
                          ".gitignore.")
    if not asked.ok:
        why = (
            f"git took longer than {_GIT_TIME_S:g} s"
            if asked.cut
            else (text.strip().splitlines() or ["git failed"])[-1]
        )
        raise InvalidSpec(
            f"git cannot list {folder}: {why}.",
            hint="Run `git status` in that folder, or run without --copy.",
        )
    return git_folder.paths(out)


# --- by walking
# ----------------------------------------------------------------------------------------------------------

def _by_walk(folder: Path) -> Listing:
    """Everything but junk and environments. Links are not followed."""
    listing = Listing()
    stack = [""]
    while stack:
        base = stack.pop()
        try:
            with os.scandir(os.path.join(folder, base)) as entries:
                items = list(entries)
        except OSError as e:
            raise Denied(f"The folder {os.path.join(folder, base)} cannot be read ({e.strerror}).",
                         hint=f"chmod u+rx {base or folder}   or add its name to {IGNORE_FILE}") from e
        if base and is_environment(items):
            listing.left_out[base + "/"] = "a Python environment"
            continue
        kept = len(listing.files) + len(stack)
        for entry in items:
            path = os.path.join(base, entry.name)
            if entry.name in JUNK:
                continue
            if not entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith(".pyc"):
                    listing.files.append(path)
            else:
                stack.append(path)
        if base and kept == len(listing.files) + len(stack):
            listing.folders.append(base)
    return listing


# --- .stokerignore
# -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Ignore:
    spec: GitIgnoreSpec
    reincludes: bool  # a line with "!" may bring back what git ignores


def _read_ignore(folder: Path) -> _Ignore | None:
    try:
        lines = (folder / IGNORE_FILE).read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise Denied(
            f"{folder / IGNORE_FILE} cannot be read ({e.strerror}).", hint=f"chmod u+r {IGNORE_FILE}"
        ) from e
    from pathspec import GitIgnoreSpec  # only folders that have such a file pay for it

    try:
        return _Ignore(GitIgnoreSpec.from_lines(lines), any(line.startswith("!") for line in lines))
    except ValueError as e:
        raise InvalidSpec(
            f"{IGNORE_FILE} is not valid: {e}.", hint="The format is that of .gitignore."
        ) from e


def _apply(ignored: _Ignore, listing: Listing) -> None:
    by_git = tuple(p for p, why in listing.left_out.items() if why == "ignored by git")
    kept: list[str] = []
    for path in listing.files:
        verdict = ignored.spec.check_file(path).include
        if verdict:
            top = path.split(os.sep)[0]
            listing.left_out.setdefault(top if top == path else f"{top}/...", f"listed in {IGNORE_FILE}")
        elif verdict is False or not ignored.reincludes or not _within(path, by_git):
            kept.append(path)
    listing.files = kept
    listing.folders = [f for f in listing.folders if not ignored.spec.match_file(f + "/")]


def _within(path: str, left_out: tuple[str, ...]) -> bool:
    return any(path == p or (p.endswith("/") and path.startswith(p)) for p in left_out)


def sizes(folder: Path, files: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """(path, lstat) of each file that still exists."""
    for path in files:
        try:
            yield path, os.lstat(os.path.join(folder, path))
        except FileNotFoundError:
            continue  # deleted, though git still tracks it
        except NotADirectoryError:
            continue

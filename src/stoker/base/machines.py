"""The [targets.NAME] tables of config.toml, added and removed as text:
comments and everything else in the file stay as they are."""

from __future__ import annotations

import json
import re
import shlex
from urllib.parse import urlsplit

from stoker.base.config import Home, TargetConfig, load_config, make_home
from stoker.base.errors import InvalidSpec, StateError
from stoker.base.rundir import write_whole
from stoker.base.units import format_duration, parse_duration

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_HEADER = re.compile(r"\s*\[")


def address_of(text: str) -> str:
    """Convert an address to the arguments of `ssh`: `ssh://root@host:123` becomes `-p 123 root@host`; other
    text stays as it is.
    Raises InvalidSpec."""
    if not text.startswith("ssh://"):
        return text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as e:
        raise InvalidSpec(
            f"{text} is not an address: {e}.", hint="ssh://root@connect.example.com:12345"
        ) from e
    if parts.password is not None:
        raise InvalidSpec(
            "The address contains a password, which other users of this machine could read.",
            hint="Set up a key: ssh-copy-id USER@HOST",
        )
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidSpec(
            f"{text} is not the address of a machine.", hint="ssh://root@connect.example.com:12345"
        )
    host = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname
    return shlex.join([*(["-p", str(port)] if port else []), host])


def add(where: Home, machine: TargetConfig) -> None:
    """Append a table for this machine to config.toml. Raises InvalidSpec for a bad name, StateError if the
    name exists."""
    if not _NAME.fullmatch(machine.name):
        raise InvalidSpec(
            f"{machine.name!r} cannot be the name of a machine: a name has up to 40 letters, digits, "
            "'-' and '_'.",
            hint="stoker machine add box ssh://root@connect.example.com:12345",
        )
    given = {"host": machine.host, "root": machine.root or None, "gpus": machine.gpus, "slots": machine.slots,
             "python": machine.python or None, **_off(machine)}
    values = {key: value for key, value in given.items() if value is not None}
    if machine.name in load_config(where).targets:
        raise StateError(f"A machine with the name {machine.name} already exists.",
                         hint=_to_change(where, machine.name, values))
    before = _text(where)
    lines = [f"[targets.{machine.name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    text = "\n".join([*([before.rstrip("\n"), ""] if before.strip() else []), *lines, ""])
    if _targets_in(text) != {**_targets_in(before), machine.name: values}:
        raise InvalidSpec(
            f"Stoker cannot add a table to {where.config}.",
            hint=f"Add [targets.{machine.name}] yourself in {where.config}.",
        )
    make_home(where)
    _write(where, text)


def _to_change(where: Home, name: str, values: dict) -> str:
    """What to do if a machine exists that should have these values."""
    if name == "local":
        return f"{name} is the name of this machine. Choose another name."
    now = _targets_in(_text(where)).get(name, {})
    new = {key: value for key, value in values.items() if now.get(key) != value}
    how = f"To change the machine without removing it, {setting(where, name, new)}\n" if new else ""
    return f"{how}List the machines: stoker machine ls   Remove this machine: stoker machine rm {name}"


def setting(where: Home, name: str, values: dict) -> str:
    """How a user writes values into the table of a machine: "write into FILE ...", and the lines to copy."""
    now = _targets_in(_text(where)).get(name)
    lines = [f"  {key} = {_toml(value)}" for key, value in values.items()]
    if now is None:  # of this machine, whose table need not exist
        place, lines = "at the end", [f"  [targets.{name}]", *lines]
    else:
        old = [key for key in values if key in now]
        place = f"below the line [targets.{name}]"
        place += f", in place of the old {', '.join(old)}" if old else ""
    return "\n".join([f"write into {where.config}, {place}:", *lines])


def set_off(where: Home, machine: TargetConfig) -> None:
    """Write the `off` settings into the machine's table, which must not have them yet. Raises InvalidSpec
    if this is not possible."""
    before = _text(where)
    lines = [f"{key} = {_toml(value)}\n" for key, value in _off(machine).items() if value is not None]
    text = _after_header(before, machine.name, lines)
    wanted = {key: value for key, value in _off(machine).items() if value is not None}
    tables = _targets_in(before)
    if _targets_in(text) != {**tables, machine.name: {**tables.get(machine.name, {}), **wanted}}:
        raise InvalidSpec(f"Stoker cannot write `off` into the table of {machine.name} in {where.config}.",
                          hint=f"Add this line to the table with an editor: off = {_toml(machine.off)}")
    _write(where, text)


def _after_header(text: str, name: str, lines: list[str]) -> str:
    """The text with these lines under [targets.NAME]."""
    found = []
    for line in text.splitlines(keepends=True):
        found.append(line)
        if _header(name).fullmatch(line.rstrip("\n")):
            found += lines if line.endswith("\n") else ["\n", *lines]
    return "".join(found)


def _header(name: str) -> re.Pattern[str]:
    return re.compile(rf"\s*\[\s*targets\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*\]\s*(#.*)?")


def off_words(command: str) -> list[str]:
    """Split an `off` command into arguments; no shell reads it. Raises InvalidSpec."""
    try:
        words = shlex.split(command)
    except ValueError as e:
        raise InvalidSpec(f"--off {command!r} is not a command: {e}.", hint="--off 'shutdown -h now'") from e
    if not words:
        raise InvalidSpec("--off is empty.", hint="--off 'shutdown -h now'")
    return words


def _off(machine: TargetConfig) -> dict:
    """The keys of how it is switched off; None for those that say nothing."""
    if not machine.off:
        return {}
    off_words(machine.off)
    return {
        "off": machine.off,
        "off_latest": _duration(machine.off_latest_s),
        "off_after": _duration(machine.off_after_s),
        "disk_survives": machine.disk_survives or None,
    }


def _duration(seconds: float) -> str:
    """As `parse_duration` reads it, exactly."""
    text = format_duration(seconds).replace(" ", "")
    return text if not seconds or parse_duration(text) == seconds else f"{seconds:.3f}s"


def remove(where: Home, name: str) -> None:
    """Remove the table of a machine from config.toml. Raises InvalidSpec if there is none, or if it is not
    written as a table."""
    load_config(where)
    before = _targets_in(_text(where))
    if name not in before:
        raise InvalidSpec(
            f"There is no machine {name} in {where.config}.", hint="All machines: stoker machine ls"
        )
    text = _without(_text(where), name)
    if _targets_in(text) != {each: table for each, table in before.items() if each != name}:
        raise InvalidSpec(
            f"Stoker cannot find the table of {name} in {where.config}.",
            hint=f"Remove {name} from that file with an editor.",
        )
    _write(where, text)


def _without(text: str, name: str) -> str:
    """The text without the lines from [targets.NAME] to the next table."""
    header = _header(name)
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            inside = bool(header.fullmatch(line.rstrip("\n")))
        if not inside:
            kept.append(line)
    return "".join(kept)


def _targets_in(text: str) -> dict:
    import tomllib

    try:
        return tomllib.loads(text).get("targets", {})
    except tomllib.TOMLDecodeError:
        return {"": text}  # equal to nothing


def _text(where: Home) -> str:
    try:
        return where.config.read_text("utf-8")
    except FileNotFoundError:
        return ""


def _write(where: Home, text: str) -> None:
    write_whole(where.config, text.encode(), 0o600)


def _toml(value: str | int) -> str:
    """A string or boolean of JSON is one of TOML, but for DEL."""
    if isinstance(value, bool):
        return json.dumps(value)
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        if isinstance(value, str)
        else str(value)
    )

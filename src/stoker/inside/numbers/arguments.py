"""Parameters: what argparse, click and Hydra made of the command line."""

from __future__ import annotations

import sys

from . import lines

_SECRET = ("api_key", "apikey", "token", "secret", "password", "passwd", "credential", "credentials", "auth")
_LAUNCHERS = (
    "torch.distributed.",
    "accelerate.commands.",
    "deepspeed.launcher.",
    "lightning.fabric.cli",
    "hydra.",
)


def argparse(module: object) -> None:
    """Parsers of the whole command line; inner ones, and those of other texts, are left out."""
    lines.after(module.ArgumentParser, "parse_known_args", "argparse", _parsed)


def click(module: object) -> None:
    """module: click.core."""
    from ..clock.wrapping import wrap
    wrap(module.Command, "invoke", _invoking)


def hydra(module: object) -> None:
    """module: hydra.core.utils, which writes the composed configuration into `.hydra/config.yaml`."""
    lines.after(module, "_save_config", "hydra", _composed)


def plain(values: object, deep: int = 0) -> dict:
    """Text, numbers, flags, lists and dicts of them. Other objects are left out, and so are secrets."""
    found = {}
    for name, value in values.items():
        if type(name) is str and not _secret(name):
            inner = value if type(value) is dict else _fields(value)
            if inner is not None and deep < 8:
                found[name] = plain(inner, deep + 1)
            elif _is_plain(value) or (type(value) in (list, tuple) and all(map(_is_plain, value))):
                found[name] = value
    return found


def _fields(value: object) -> dict | None:
    """What a dataclass holds; None of anything else."""
    kind = type(value)
    return (
        object.__getattribute__(value, "__dict__")
        if "__dataclass_fields__" in kind.__dict__ and kind.__dictoffset__
        else None
    )


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (str, int, float, bool)


def _secret(name: str) -> bool:
    padded = f"_{name.lower().replace('-', '_').replace('.', '_')}_"
    return any(f"_{word}_" in padded for word in _SECRET)


def _parsed(result, _self, args=None, namespace=None, **_kwargs) -> None:
    namespace, rest = result
    whole = sys.argv[1:]
    if (args is None or list(args) == whole) and not _is_launcher():
        lines.parameters("argparse" if not rest else "argparse (a part)", plain(vars(namespace)))


def _is_launcher() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_LAUNCHERS):
            return True
        main = frame.f_globals.get("__spec__") if frame.f_globals.get("__name__") == "__main__" else None
        if main is not None and main.name.startswith(_LAUNCHERS):
            return True
        frame = frame.f_back
    return False


def _invoking(real: object) -> object:
    def invoke(self, ctx):
        lines.guarded("click", _invoked, ctx)
        return real(self, ctx)
    return invoke


def _invoked(context: object) -> None:
    if not _is_launcher():
        lines.parameters("click", plain(context.params))


def _composed(_result, config, filename, *_args, **_kwargs) -> None:
    if filename == "config.yaml":
        container = sys.modules["omegaconf"].OmegaConf.to_container
        lines.parameters("hydra", plain(container(config, resolve=False)))


def omegaconf(module: object) -> None:
    """module: omegaconf.omegaconf. What is merged with the command line (`OmegaConf.from_cli`) is the
    configuration of the script."""
    from ..clock.wrapping import dressed
    kind, asked = module.OmegaConf, []

    def from_cli(*args, real=kind.from_cli, **kwargs):
        found = real(*args, **kwargs)
        asked[:] = [found]
        return found

    def merge(*configs, real=kind.merge, **kwargs):
        found = real(*configs, **kwargs)
        if asked and any(each is asked[0] for each in configs):
            lines.guarded("omegaconf", _merged, kind, found)
        return found

    kind.from_cli, kind.merge = (
        staticmethod(dressed(real, new)) for real, new in ((kind.from_cli, from_cli), (kind.merge, merge))
    )


def _merged(kind: object, config: object) -> None:
    container = kind.to_container(config, resolve=False)
    if type(container) is dict:
        lines.parameters("omegaconf", plain(container))

"""Stoker runs trainings, resumes them exactly, and says why they ended."""

__version__ = "0.1.0"


_ENGINE = {
    "Engine": "engine",
    "Trainer": "trainer",
    "Task": "task",
    "EMA": "ema",
    "save_checkpoint": "plain",
    "load_checkpoint": "plain",
}


def __getattr__(name: str) -> object:
    """`stoker.Engine` and its relatives, imported when they are first asked for:
    `import stoker` never loads torch."""
    from importlib import import_module

    if name == "sched":
        return import_module("stoker.engine.sched")
    if name in _ENGINE:
        return getattr(import_module(f"stoker.engine.{_ENGINE[name]}"), name)
    raise AttributeError(f"module 'stoker' has no attribute {name!r}")

"""Stoker runs trainings, resumes them exactly, and says why they ended."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`stoker.Engine`, imported when it is first asked for: `import stoker` never loads torch."""
    if name == "Engine":
        from stoker.engine.engine import Engine
        return Engine
    raise AttributeError(f"module 'stoker' has no attribute {name!r}")

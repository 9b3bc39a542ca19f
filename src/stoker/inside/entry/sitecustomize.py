"""Python imports the first `sitecustomize` that it finds when it starts.
This one starts the hooks of Stoker, then lets the one that it hides run as if it were the first, and takes
its folder out of sys.path. `stoker run --no-hooks` runs without it."""

import os
import sys


def _step_aside(here):
    """sys.path as it would be without us, and the sitecustomize that would have been found."""
    sys.path[:] = [each for each in sys.path if each != here]
    sys.path_importer_cache.pop(here, None)
    ours = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as e:
        if e.name != "sitecustomize":
            raise  # as `site` tells it of a sitecustomize that fails
        if ours is not None:
            sys.modules[__name__] = ours  # importing ends with a look at sys.modules


def _hook():
    from stoker_hooks import unseen
    unseen.install()
    from stoker_hooks import entry
    entry.begin()


def _begin():
    # before anybody replaces them
    here, write, leave = os.path.dirname(os.path.abspath(__file__)), os.write, os._exit
    if os.environ.get("STOKER_HOOKS"):
        try:
            from stoker_hooks import keeping_bytecode
            keeping_bytecode(_hook)
        except Exception as e:  # a fault of ours must never be one of the script's
            write(
                2,
                (
                    f"stoker: the hooks could not start ({type(e).__name__}: {e}); the script runs without "
                    "hooks\n"
                ).encode(),
            )
            if os.environ.get("STOKER_AUDIT") == "child":
                leave(1)  # without them it would train for real, beside the run
    _step_aside(here)


_begin()

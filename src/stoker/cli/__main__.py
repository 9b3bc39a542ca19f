"""Entry point of the `stoker` command. It imports the rest itself,
so that a Ctrl-C in the first moments is quiet too."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from stoker.cli.main import main as typed
    except KeyboardInterrupt:
        return 130
    return typed()


if __name__ == "__main__":
    sys.exit(main())

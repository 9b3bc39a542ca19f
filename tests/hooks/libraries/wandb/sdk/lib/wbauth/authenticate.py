"""The part of this library that the hooks look into."""

class term:
    class NotATerminalError(Exception):
        pass


def _use_prompted_auth(*, no_offline):
    raise term.NotATerminalError

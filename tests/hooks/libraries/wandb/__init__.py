"""Of wandb 0.31: the path of `init` and `log` through its interface, and where a key is asked for."""

import sys

from .sdk import Run
from .sdk.interface.interface_shared import InterfaceShared
from .sdk.lib import noop_run
from .sdk.lib.wbauth import authenticate


def init(project=None, mode=None, config=None):
    run = noop_run.NoopRun(None, config or {}) if mode == "disabled" else Run(InterfaceShared(), config or {})
    if mode is None:
        authenticate._use_prompted_auth(no_offline=False)
    sys.modules[__name__].log = run.log
    return run

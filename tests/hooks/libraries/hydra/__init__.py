"""Of Hydra 1.3: the composed configuration is written before the function is called."""

import sys

from .core.utils import _save_config


def main(config_path, config_name, version_base):
    def decorate(function):
        def run():
            config = {"lr": 0.1, "model": {"width": 8, "twice": "${model.width}"}}
            config.update((name, float(value)) for name, value in (word.split("=") for word in sys.argv[1:] if word.startswith("lr=")))
            _save_config(config, "config.yaml", ".hydra")
            function(config)
        return run
    return decorate

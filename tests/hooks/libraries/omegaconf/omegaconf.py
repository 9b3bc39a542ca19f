"""The part of this library that the hooks look into."""

import sys


class OmegaConf:
    @staticmethod
    def to_container(config, resolve):
        return config

    @staticmethod
    def from_cli():
        return {name: int(value) for name, _, value in (word.partition("=") for word in sys.argv[1:])}

    @staticmethod
    def merge(*configs):
        return {name: value for config in configs for name, value in config.items()}

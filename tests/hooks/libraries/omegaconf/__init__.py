"""The part of this library that the hooks look into."""

from .omegaconf import OmegaConf as OmegaConf

"""What forward_3 builds its model from."""
from .blocks import Attention
from .loss import criterion

__all__ = ["Attention", "criterion"]

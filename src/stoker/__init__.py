"""Stoker takes training code to any machine, keeps its GPU fed, and never loses its work."""

__version__ = "0.1.0"

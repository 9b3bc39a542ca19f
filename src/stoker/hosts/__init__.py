"""Reach a machine: run, open, put, get, forward. This machine and any ssh box look the same from above."""

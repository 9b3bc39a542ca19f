"""Code that runs inside the user's own Python: it observes, applies settings and remembers. Standard library only, Python 3.9 and newer."""

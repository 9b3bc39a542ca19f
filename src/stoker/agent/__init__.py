"""The agent: what starts a run on a machine, keeps it, ends it and says why it ended.

It travels as this one folder. Standard library only, Python 3.8 to 3.13, Linux; it imports nothing of ours and needs no server, no
network and no rights. Run it as `python -I -S .../agent/__main__.py VERB ...`; docs/reference/contracts.md, section 1, is what it promises.
"""

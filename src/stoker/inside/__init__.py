"""Code that runs inside the user's own Python: it observes, applies settings and remembers.
Standard library only, Python 3.9 and newer.

Rooms, each of which imports only those before it: entry (which part works in which process;
what all may use) · clock (where the time of a step goes) · numbers (what the script logs) · settings (what
the tuner found, applied) · measure (the tuner's part in the script) · rehearse (a script for GPUs tried on a
CPU) · resume (exact resume). The files beside the rooms serve several of them:
paths, looks, wrote, scratch, copied, unseen. None imports anything of Stoker outside this folder.
"""

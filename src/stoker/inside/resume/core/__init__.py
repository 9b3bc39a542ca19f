"""core: what all other rooms stand on.

It answers for the phases of a life (phases), the events of a life and their log (log, log_file, and early_log
before torch is there), how a recording ends or another life begins (outcome, words), where Stoker writes and
deletes (own, copies, store), when an image is wanted (pace) and how long the way back to one is
(resume_cost), what an object is (leaves, caches, bytecode), and for each private part of
CPython, numpy and torch (internals). It imports no other room.
"""

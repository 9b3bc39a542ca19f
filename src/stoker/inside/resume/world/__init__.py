"""world: what a script asks of the world and does to it.

It answers for answers that are the same in each life (asked: clocks, chance and the file system;
rng, programs, threads), for files that are written, undone and put back (files, opening, handles,
descriptors, effects, journal, undo, as_found, foreign_writers), for what is printed (streams, printed, bars),
and for what else Python tells of (audit_hook, at_exit, spawned). It imports core.
"""

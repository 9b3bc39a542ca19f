"""state: what a script can reach, and what changes of it.

It answers for the walk over all of it (walk and walk_..., stack_values, library_held), for what no path leads
to (reachability), for memory that is copied once (storages, joined), for things that are made again
(generators, reopened, warning_filters), and for noticing a change where a ghost does not go (changed, watch,
watch_kinds). It imports core and world.
"""

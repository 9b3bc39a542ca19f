"""The plane: what is known of all runs and machines, what is decided about them,
and the verbs that users call (service).

Rooms: store (the database) · control (decisions, the reconciler) · staging (files to and from machines) ·
numbers (curves). Beside them:
submit, request and precheck (a new run) · capacity (what a machine has, and the order of the queue) · targets
and machines (each machine;
reach: whether it answers; clocks: its time) · present, detail, steps, resume and own_files (what `ps` and
    `show` tell) · logs.
"""

"""The agent: it starts a run on a machine, keeps it, ends it and says why it ended.

It travels as this one folder. It needs Linux and Python 3.8 to 3.13 with the standard library. It imports
nothing else of Stoker, and needs no server, no network and no rights.

An attempt: claiming (takes it, and the leases of its GPUs) · spawning (its processes) · holding (the
parent; restarts a dead agent) · keeping (limits, the end, restarts of the run) · ladder (signals) ·
standstill (quiet, stalled) · explaining (the reason of its end).
Questions: polling and observing (in which phase a run is) · looking (files of a run) · reading and
following (logs). The machine: off, watchman (switching it off) · machine, machinewide (what it has) ·
owning (whose a run is).

Formats: verbs (calls and errors) · door (frames) · reading (`FILES`: fields of each file of a run folder) ·
attempts (agent.json) · keeping (heartbeat, events.jsonl) · telemetry (telemetry.jsonl, `probe`) ·
explaining (exit.json) · wishes (stop.json, keep.json) · standstill (still.json) · observing (the
observation).

The two caretakers of an attempt
- The *holder* has its own session. It is a child subreaper and the parent of the run. It owns the pty
  master and the pipes, and is the only writer of out.log and err.log.
- The *agent proper* is a child of the holder. If it dies, the holder forks another. It also holds the
  reading ends of the pipes.
- If the holder dies, the agent proper writes the logs until the process tree has ended, so the run gets no
  SIGPIPE. If both are dead, the run gets SIGPIPE at its next output.
- Without a pty, stdout and stderr of the run are one pipe into out.log. With `split_stderr`, stderr is a
  second pipe into err.log.
- At the end, the caretakers move the content of the pipes into the logs, write exit.json and close the
  pipes. A process that Stoker left running then gets SIGPIPE if it prints.
- Both carry STOKER_DAEMON=<path of agent.json>, so that the agent of another run recognizes them by that
  record (pid and start). Both drop an inherited STOKER_RUN.

A caretaker that is stopped (SIGSTOP, a debugger)
- Each looks at the other every 2 s. It counts as stopped if it was stopped at three looks in a row and has
  not run in between.
- The holder kills a stopped agent proper and forks another. After the second time, stop ladders have no
  grace.
- The agent proper sends SIGCONT to a stopped holder. If that does not help, it forwards signals itself,
  reads the wait status of the ended run from /proc, and moves the content of the pipes into the logs.
- `stop --grace 0 0` waits 5 s for the end, or for a heartbeat that says `stopping`. Then it ends the
  process tree and both caretakers, and settles the attempt.
"""

"""The agent: what starts a run on a machine, keeps it, ends it and says why it ended.

It travels as this one folder. Standard library only, Python 3.8 to 3.13, Linux;
it imports nothing of ours and needs no server, no network and no rights.
Run it as `python -I -S .../agent/__main__.py VERB ...`;
docs/reference/contracts.md, section 1, is what it promises.

An attempt: claiming (takes it, and the leases of its GPUs) · spawning (its processes) · holding (the parent;
restarts a dead agent) · keeping (limits, the end, restarts of the run) · ladder (signals) · standstill
(quiet, stalled) · explaining (the reason of its end).
Questions: polling and observing (in which phase a run is) · looking (files of a run) · reading and following
(logs). The machine: off, watchman (switching it off) · machine,
machinewide (what it has) · owning (whose a run is).
"""

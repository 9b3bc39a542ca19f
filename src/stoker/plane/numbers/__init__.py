"""The numbers of a run: what the engine and the hooks wrote, and what a script only printed.
Reads and computes; writes nothing."""

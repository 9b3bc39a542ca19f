"""Measurements of the real program, from outside: one file a claim.
`python -m benchmarks.run --short` prints them all."""

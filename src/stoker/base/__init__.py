"""The words every room shares: errors, units, spec, state, run folder, config. Standard library only."""

"""Exact resume of an unmodified script, by ghost replay: record, kill, replay as a ghost, restore, check the tail."""

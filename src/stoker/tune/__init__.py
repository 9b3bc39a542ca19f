"""The tuner: measure where the time of an unmodified training goes, forecast what would be faster, find it,
prove it, or refuse."""

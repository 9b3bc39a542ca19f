"""`stoker run`: from the command line to the end of a run that is followed."""

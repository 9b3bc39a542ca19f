"""What travels, both ways: code to a run, files back home. May import store."""

"""Of transformers 5.24: what its Trainer logs goes through its callbacks."""

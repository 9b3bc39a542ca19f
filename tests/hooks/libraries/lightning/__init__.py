"""Of Lightning 2.6: what `self.log` gathered is converted and handed to each logger."""

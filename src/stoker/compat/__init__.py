"""Old fronts on Stoker's engine: scripts written for other libraries run on it, and resume."""

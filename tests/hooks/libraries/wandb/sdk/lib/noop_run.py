class NoopRun:
    def __init__(self, settings, config):
        pass

    def log(self, *args, **kwargs):
        pass

    finish = log

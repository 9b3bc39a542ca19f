"""The part of this library that the hooks look into."""

class Accelerator:
    is_main_process = True

    def __init__(self, log_with, project_dir):
        pass

    def init_trackers(self, project_name, config=None, init_kwargs=None):
        pass

    def log(self, values, step=None, log_kwargs=None):
        pass

    def end_training(self):
        pass

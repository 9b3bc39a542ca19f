# settings of an experiment, without torch
import os


class Settings:
    def __init__(self, path):
        self.values = {}
        self.read(path)

    def read(self, path, depth=0):
        if not os.path.exists(path) and depth == 0:
            with open(path, "w") as f:
                f.write("lr=0.1\nepochs=3\ninclude=%s.local\n" % path)
        with open(path) as f:  # here
            for line in f:
                key, _, value = line.strip().partition("=")
                if key == "include":
                    self.read(value, depth + 1)
                else:
                    self.values[key] = value


settings = Settings("experiment.cfg")
print(settings.values)

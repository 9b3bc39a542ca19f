"""A comma too many in a configuration."""
import json

with open("config.json", "w") as f:
    f.write('{"lr": 0.1, "epochs": 3, "layers": [16, 16,]}')


def load_config(name):
    with open(name) as f:
        return json.load(f)  # here


config = load_config("config.json")
print(config["lr"])

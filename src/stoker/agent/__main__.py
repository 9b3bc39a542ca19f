"""The agent's entry: it reads the folder that it stands in,
wherever that was copied to and however it is named there."""

import os
import sys

folder, name = os.path.split(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(folder)
sys.exit(__import__(name + ".verbs", fromlist=["main"]).main(sys.argv))

"""The parts into which the time of a training is divided, in words."""

from __future__ import annotations

WORDS = {
    "data": "waiting for data",
    "start": "starting workers",
    "transfer": "copying to the GPU",
    "forward": "forward and loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "save": "saving",
    "log": "printing, logging",
    "image": "images of exact resume",
    "evaluation": "evaluation",
    "other": "other code of the script",
    "gap": "idle, waiting for the script",
}

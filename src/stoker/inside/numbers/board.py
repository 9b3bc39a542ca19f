"""TensorBoard: each scalar and picture that goes into an event file.
Under `FileWriter.add_summary` a scalar is a float in a message already, and a picture is encoded."""

from __future__ import annotations

from ..clock.wrapping import wrap
from . import lines, pictures


def install(module: object) -> None:
    """module: torch.utils.tensorboard.writer or tensorboardX.writer."""
    wrap(module.FileWriter, "add_summary", _seen)


def _seen(real: object) -> object:
    def add_summary(self, summary, global_step=None, *args, **kwargs):
        lines.guarded("tensorboard", _take, self, summary, global_step)
        return real(self, summary, global_step, *args, **kwargs)
    return add_summary


def _take(writer: object, summary: object, step: object) -> None:
    given = step if type(step) in (int, float) else None
    values = {}
    for value in summary.value:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            values[value.tag] = value.simple_value
        elif kind == "image":
            pictures.keep("tensorboard", value.tag, given, value.image.encoded_image_string)
    if values:
        lines.write("tensorboard", values, given, folder=writer.get_logdir())

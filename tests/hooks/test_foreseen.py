"""What would refuse an image in the next life refuses it when it is taken: weights in bytes, a clock that nobody repeats. A real training, one
life."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_fate_lives import LOOP, Trial, trial  # noqa: F401

pytestmark = pytest.mark.timeout(300)
WEIGHTS = "weights that the script saved into memory"
PARTS = """
    if i == 0:
        import io, pickle, zlib, time
        import numpy as np
    buffer = io.BytesIO()
    torch.save({saved}, buffer)
    content = buffer.getvalue()
    held = {held}
    del buffer, content
    time.sleep(0.02)
"""


def _script(held: str, saved: str = "m.state_dict()", before: str = "") -> str:
    return before + LOOP.format(steps=30_000, more=PARTS.format(saved=saved, held=held).strip())


@pytest.mark.parametrize("held", ["{'a': [content]}", "zlib.compress(content)", "buffer", "pickle.dumps(m.state_dict())"])
def test_weights_in_memory_refuse_the_image(trial: Trial, held: str) -> None:  # noqa: F811
    trial.start(_script(held), every="5steps")
    trial.until(lambda: WEIGHTS in str(trial.state().get("points_passed")))
    assert not trial.state().get("image") and "held" in str(trial.state()["points_passed"])


@pytest.mark.parametrize(("held", "saved"), [("content", "{'epoch': i}"), ("open('x.pt', 'rb').read()", "m.state_dict(), 'x.pt'); torch.save(1")])
def test_other_bytes_do_not(trial: Trial, held: str, saved: str) -> None:  # noqa: F811
    trial.start(_script(held, saved), every="5steps")
    trial.until(lambda: trial.state().get("image"))
    assert WEIGHTS not in str(trial.state()["points_passed"])


def test_a_clock_that_is_not_recorded_refuses_the_image(trial: Trial) -> None:  # noqa: F811
    trial.start(_script("0", before="import numpy as np\nrun = f'out/{np.datetime64(\"now\")}'\n"), every="5steps")
    trial.until(lambda: "that Stoker did not record" in str(trial.state().get("points_passed")))
    assert not trial.state().get("image") and "run in the script" in str(trial.state()["points_passed"])

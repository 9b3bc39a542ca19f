"""A run on another machine, behind a real sshd, in the console: its captured pictures are fetched when a page asks for them."""

from __future__ import annotations

import struct
import sys

import pytest
from benchmarks.ground import Ground
from console_place import start_console

from real.sshd import Sshd

DRAWS = """
from matplotlib.figure import Figure
for n in (1, 2):
    figure = Figure(figsize=(n, 1))
    figure.subplots().plot([1, n])
    figure.savefig("curve.png", dpi=100)
"""


@pytest.mark.real("sshd")
def test_the_pictures_of_a_run_on_another_machine_are_shown(ground: Ground, sshd: Sshd):
    settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
    ground.home.mkdir()
    (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n'
                                             f'python = "{sys.executable}"\n')
    ground.script("draws.py", DRAWS)
    ground.stoker("run", "--on", "far", "--name", "draws", "draws.py").ok()
    _, reader = start_console(ground)
    reader.enter()
    told = reader.json("/runs/draws/pictures.json")
    assert told["elsewhere"] == "far"
    assert [(each["name"], each["source"], len(each["steps"])) for each in told["pictures"]] == [("curve", "matplotlib", 2)]
    widths = []
    for _, path in told["pictures"][0]["steps"]:
        answer = reader.open("GET", f"/runs/draws/picture?path={path}")
        data = answer.read()
        assert answer.headers["Content-Type"] == "image/png" and data.startswith(b"\x89PNG")
        widths.append(struct.unpack(">I", data[16:20])[0])
    assert widths == [100, 200]
    for path in ("attempts/1/out.log", "attempts/1/hooks/pictures/../numbers.jsonl", "attempts/1/hooks/pictures/none.png", "/etc/passwd"):
        reader.get(f"/runs/draws/picture?path={path}", 404)

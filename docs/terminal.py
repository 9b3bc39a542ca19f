"""Runs the examples of README and tutorials for real:
`python docs/terminal.py [SCENE...]` prints what a terminal showed;
the scene `picture` is drawn as docs/images/terminal.svg.
Everything happens in a throw-away folder with a STOKER_HOME of its own.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPO = Path(__file__).resolve().parents[1]
TUTORIALS = Path(__file__).with_name("tutorials")
PICTURE = Path(__file__).with_name("images") / "terminal.svg"
COLUMNS = 100
BAD_SCRIPT = """\
import torch
import wandb

wandb.init(project="digits")
model = torch.nn.Linear(64, 10).cuda()
losses = []
"""


class Terminal:
    """A folder with the example in it, a STOKER_HOME beside it, and the text of what was typed and shown."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.folder = room / "my-project"
        shutil.copytree(REPO / "examples" / "digits", self.folder)
        (self.folder / "old.py").write_text(BAD_SCRIPT)
        self.shown = ""

    def write(self, name: str, page: str) -> None:
        """Save the first Python script of a tutorial, as its reader does."""
        script = re.search(r"^```python\n(.*?)^```", (TUTORIALS / page).read_text(), re.M | re.S)
        (self.folder / name).write_text(script[1])

    def environment(self) -> dict[str, str]:
        """This process' environment with the throw-away home, and without the settings of a run around it."""
        mine = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{mine['PATH']}"
        return {
            **mine,
            "STOKER_HOME": str(self.room / ".stoker"),
            "PATH": path,
            "VIRTUAL_ENV": sys.prefix,
            "TERM": "xterm-256color",
        }

    def ask(self, command: str) -> str:
        """What a command shows on a terminal of its own, as bytes decoded, colours included."""
        child, terminal = pty.fork()
        if child == 0:
            termios.tcsetwinsize(0, (40, COLUMNS))
            os.chdir(self.folder)
            words = shlex.split(command)
            os.execvpe(words[0], words, self.environment())
        termios.tcsetwinsize(terminal, (40, COLUMNS))
        chunks = []
        while chunk := _read(terminal):
            chunks.append(chunk)
        os.close(terminal)
        os.waitpid(child, 0)
        text = re.sub(r"[ \r]+\n", "\n", b"".join(chunks).decode(errors="replace"))
        return text.replace(sys.prefix, "/home/you/.venv").replace(str(self.room), "/home/you")

    def type(self, command: str) -> None:
        """Run a command and keep it, with what it shows."""
        self.keep(f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\n{self.ask(command)}")

    def keep(self, text: str) -> None:
        """Add to the transcript, and print it."""
        self.shown += text
        print(
            re.sub(r" +$", "", Text.from_ansi(text).plain, flags=re.M),
            end="" if text.endswith("\n") else "\n",
            flush=True,
        )

    def wait(self, command: str, told: str, seconds: float = 400) -> None:
        """Until what the command shows has these words in it."""
        deadline = time.monotonic() + seconds
        while told not in self.ask(command):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{command} does not show {told!r}")
            time.sleep(0.5)

    def close(self) -> None:
        """End its runs and its server."""
        for run in json.loads(self.ask("stoker ps --json")):
            self.ask(f"stoker stop --force {run['id']}")
        self.ask("stoker server stop")

    def kill(self, name: str) -> None:
        """SIGKILL to the Python process that a run trains in."""
        folder = Path(
            json.loads(self.ask(f"stoker show --json {name}").replace("/home/you", str(self.room)))["folder"]
        )
        lines = (folder / "attempts" / "1" / "hooks" / "processes.jsonl").read_text().splitlines()
        pid = json.loads(lines[0])["pid"]
        os.kill(pid, signal.SIGKILL)
        self.keep(f"$ kill -9 {pid}\n")


def _read(terminal: int) -> bytes:
    """The next bytes; none when the other side has been closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def picture(terminal: Terminal) -> None:
    """A run that finishes, one that fails, and the list of both."""
    terminal.type("stoker run train.py --epochs 4")
    terminal.type("stoker run -d --name base train.py --epochs 200")
    terminal.wait("stoker logs base", "epoch  1/")
    terminal.type("stoker ps")
    terminal.type("stoker logs --tail 2 base")
    terminal.type("stoker stop base")
    terminal.shown = re.sub(r"\n{2,}", "\n", terminal.shown)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(terminal.shown.rstrip()))
    PICTURE.parent.mkdir(exist_ok=True)
    svg = console.export_svg(title="stoker")
    # no font is fetched from anywhere
    PICTURE.write_text(re.sub(r"\s*@font-face \{.*?\}(?=\n)", "", svg, flags=re.S))


def start(terminal: Terminal) -> None:
    """What `make run` shows."""
    terminal.type("stoker run train.py")
    terminal.type("stoker show train")


def background(terminal: Terminal) -> None:
    """In the background, listed, followed, stopped."""
    terminal.type("stoker run -d --name base --time 2h train.py --epochs 200")
    terminal.wait("stoker logs base", "epoch  2/")
    terminal.type("stoker ps")
    terminal.type("stoker logs --tail 2 base")
    terminal.type("stoker stop base")
    terminal.type("stoker ps")


def killed(terminal: Terminal) -> None:
    """Killed after its first image, and resumed."""
    terminal.type("stoker run -d --name night train.py --epochs 400")
    terminal.wait("stoker show night", "image taken")
    terminal.kill("night")
    terminal.wait("stoker show night", "SIGKILL")
    terminal.type("stoker show night")
    terminal.type("stoker start night")
    terminal.wait("stoker show night", "lost steps repeated")
    terminal.type("stoker show night")
    terminal.ask("stoker stop night")


def why(terminal: Terminal) -> None:
    """A run that fails."""
    terminal.type("stoker run train.py --batch-size 0")
    terminal.type("stoker show train")


def doctor(terminal: Terminal) -> None:
    """What is wrong with a script, before it runs."""
    terminal.type("stoker doctor old.py")


def tune(terminal: Terminal) -> None:
    """What makes the example faster."""
    terminal.type("stoker tune --force train.py --epochs 100")


def first_run(terminal: Terminal) -> None:
    """The tutorial docs/tutorials/first-run.md."""
    terminal.type("stoker run train.py")
    terminal.type("stoker show train")
    terminal.type("stoker run -d --name long train.py --epochs 200")
    terminal.wait("stoker logs long", "epoch 10/")
    terminal.type("stoker ps")
    terminal.type("stoker logs -n 2 long")
    terminal.type("stoker stop long")
    terminal.type("stoker start long")
    terminal.wait("stoker show long", "lost steps repeated")
    terminal.type("stoker show long")
    terminal.type("stoker stop long")
    terminal.type("stoker rm --yes train long")
    terminal.type("stoker ps")


def killed_and_resumed(terminal: Terminal) -> None:
    """The tutorial docs/tutorials/killed-and-resumed.md."""
    terminal.write("sine.py", "killed-and-resumed.md")
    terminal.type("python sine.py")
    terminal.type("stoker run -d --name curve --env STOKER_IMAGE_EVERY=2s sine.py")
    terminal.wait("stoker show curve", "image taken")
    terminal.kill("curve")
    terminal.wait("stoker show curve", "SIGKILL")
    terminal.type("stoker show curve")
    terminal.type("stoker start curve")
    terminal.type("stoker wait curve")
    terminal.type("stoker logs curve")
    terminal.type("stoker show curve")


def faster(terminal: Terminal) -> None:
    """The tutorial docs/tutorials/faster.md."""
    terminal.write("dots.py", "faster.md")
    terminal.type("stoker run dots.py --epochs 3")
    terminal.type("stoker show dots")
    terminal.type("stoker tune --force dots.py --epochs 20")
    terminal.type("stoker run dots.py --epochs 20")
    terminal.type("stoker show dots")
    terminal.type("stoker tune --show dots.py")
    terminal.type("stoker tune --forget dots.py")


README_SCENES = (picture, start, background, killed, why, doctor, tune)
TUTORIAL_SCENES = (first_run, killed_and_resumed, faster)
SCENES: dict[str, Callable[[Terminal], None]] = {f.__name__: f for f in (*README_SCENES, *TUTORIAL_SCENES)}


def main(names: list[str]) -> int:
    """Play the named scenes, or all of them, each in a folder of its own."""
    for name in names or SCENES:
        print(f"--- {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="stoker-") as room:
            terminal = Terminal(Path(room))
            try:
                SCENES[name](terminal)
            finally:
                terminal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

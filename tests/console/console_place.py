"""What the tests of the console share: scripts, a browser's side of HTTP, the start of a console."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground

EVIL = "<img src=x onerror=alert(1)>"
LONG = """
for i in range(60_000):
    print(f"line {i} " + "." * 40 + (" ValueError: the middle" if i == 30_000 else ""))
"""
TRAIN = """
import base64, sys
scale = float(sys.argv[sys.argv.index("--lr") + 1]) if "--lr" in sys.argv else 1.0
print("\\x1b[31mred\\x1b[0m <img src=x onerror=alert(1)> </pre>", flush=True)
for epoch in range(int(sys.argv[1])):
    print(f"Epoch {epoch + 1}/{sys.argv[1]} loss: {scale / (epoch + 1):.4f} val_loss: {1.1 * scale / (epoch + 1):.4f}", flush=True)
open("note.txt", "w").write("<script>alert(1)</script>")
open("table.csv", "w").write("epoch,note\\n1,<b>bold</b>\\n2,\\"a, b\\"\\n")
open("a<b>&.txt", "w").write("odd name")
open("dot.png", "wb").write(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))
"""
WAITS = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("first line", flush=True)
while True:
    time.sleep(0.2)
    print("one more", flush=True)
"""


@dataclass
class Reader:
    """Asks the console as a browser does, with the cookie it was given."""

    url: str
    cookie: str = ""
    host: str = field(init=False)

    def __post_init__(self) -> None:
        self.host = self.url.split("/")[2]

    def open(self, method: str, path: str, body: str | None = None, **headers: str) -> HTTPResponse:
        """The answer; the connection ends with it."""
        link = HTTPConnection(self.host, timeout=60)
        sent = {"Cookie": self.cookie, **({"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {})}
        link.request(method, path, body, sent | {name.replace("_", "-"): value for name, value in headers.items()})
        return link.getresponse()

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        answer = self.open("GET", path, **headers)
        text = answer.read().decode()
        assert answer.status == status, f"{path}: {answer.status}\n{text[:2000]}"
        return text

    def json(self, path: str) -> dict:
        return json.loads(self.get(path))

    def post(self, path: str, body: str = "", status: int = 303) -> str:
        answer = self.open("POST", path, body, Origin=f"http://{self.host}")
        text = answer.read().decode()
        assert answer.status == status, f"{path}: {answer.status}\n{text[:2000]}"
        return text

    def enter(self) -> Reader:
        """Use the link."""
        answer = self.open("GET", self.url[self.url.index("/enter"):])
        assert answer.status == 303, answer.read()
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        answer.read()
        return self


def start_console(ground: Ground, *options: str) -> tuple[subprocess.Popen, Reader]:
    """`stoker ui --json`, once it has printed its link."""
    process = ground.start_stoker("ui", "--json", *options, stdout=subprocess.PIPE)
    return process, Reader(json.loads(process.stdout.readline())["url"])


@dataclass
class Place:
    """What the tests of a file share: a run that ended, a run that goes on, and a console on both."""

    ground: Ground
    reader: Reader
    process: subprocess.Popen
    ended: dict
    active: dict

"""What a script prints and writes across a kill: nothing twice, nothing missing, each file as in a life that nobody ended."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from lives import live

KILL = "if i == {at} and os.environ['STOKER_ATTEMPT'] == '1': os.kill(os.getpid(), 9)"

MANY = '''
import csv, gzip, io, json, logging, os, pathlib, shutil, sys
logging.basicConfig(filename="early.log", level=logging.INFO, format="%(message)s")
begin()
import numpy as np, torch
say = logging.StreamHandler(sys.stderr)
logging.getLogger().addHandler(say)
os.makedirs("out/deep", exist_ok=True)
table = csv.writer(open("out/table.csv", "w", newline=""))
held = open("out/held.txt", "w")
added = open("out/added.txt", "ab")
packed = gzip.GzipFile("out/packed.gz", "w", mtime=0)
raw = os.fdopen(os.dup(1), "w") if False else None
for i in range(30):
    held.write(f"{i} " * 50)
    table.writerow([i, held.tell()])
    added.write(b"x" * i); added.flush()
    packed.write(str(i).encode() * 1000)
    print("line", i, flush=i % 4 == 0)
    sys.stdout.write(f"written {i}\\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(b"bytes %d\\n" % i); sys.stdout.buffer.flush()
    os.write(1, b"low %d\\n" % i)
    logging.info("step %d", i)
    with open("out/again.txt", "w") as f:
        f.write(f"again {i}")
    with open("out/list.json", "a") as f:
        json.dump(i, f)
    torch.save({"i": i, "t": torch.full((4,), float(i))}, "out/last.pt")
    np.save("out/now.npy", np.arange(i))
    os.replace("out/now.npy", "out/deep/now.npy")
    shutil.copy("out/again.txt", f"out/deep/{i % 3}.txt")
    if i % 5 == 0:
        shutil.rmtree("out/scratch", ignore_errors=True)
        os.makedirs("out/scratch")
        pathlib.Path("out/scratch/a").write_text(str(i))
    assert open("out/again.txt").read() == f"again {i}" and open("out/list.json").read().endswith(str(i))
    assert sorted(os.listdir("out/deep"))[0] == "0.txt"
    if i in (3, 10): image()
    KILL
print("end", torch.load("out/last.pt")["t"].sum().item())
'''


def _files(folder: Path) -> dict:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_all_kinds_of_writing(tmp_path: Path) -> None:
    """The second image is the one that counts; the kill comes in the middle of a line's life."""
    script = MANY.replace("KILL", KILL.format(at=22))
    whole = live(tmp_path / "whole", script, attempt=2)
    assert whole.returncode == 0, whole.stderr
    one = live(tmp_path / "cut", script)
    assert one.returncode == -9, one.stderr
    two = live(tmp_path / "cut", script, attempt=2)
    assert two.returncode == 0, two.stderr
    lines = whole.stdout.splitlines()
    assert two.stdout.splitlines() == lines[lines.index("low 10") + 1:]
    assert two.stderr.split() == [word for i in range(11, 30) for word in ("step", str(i))]
    want, got = _files(tmp_path / "whole" / "work"), _files(tmp_path / "cut" / "work")
    assert want.keys() == got.keys()
    assert {name for name in want if want[name] != got[name]} == set()
    kept = [path for path in (tmp_path / "cut" / "resume" / "aside" / "2").rglob("*") if path.is_file()]
    assert any(path.name.startswith("held.txt.from-byte") or path.name == "last.pt" for path in kept)


def test_what_no_hook_knows_is_refused(tmp_path: Path) -> None:
    """A descriptor opened past Python's open, a writable map, a file that is read back while it is open: no image, and the reason says which."""
    for lines, told in (
        ("import ctypes\nfd = ctypes.CDLL(None).open(b'past.bin', 0o101, 0o600)", "past.bin"),
        ("import numpy\nm = numpy.memmap('map.bin', mode='w+', shape=(10,))", "map.bin"),
        ("f = open('both.txt', 'w+'); f.write('abc'); f.seek(0); assert f.read() == 'abc'", "both.txt"),
    ):
        script = f"import os\nbegin()\nfrom stoker.inside.resume.core import phases\nlife.enter(); phases.leave()\n{lines}\nimage()\nprint('goes on')"
        done = live(tmp_path / told, script)
        state = (tmp_path / told / "resume" / "state.json")
        assert told in done.stderr or told in state.read_text(), (done.stderr, done.stdout)


def test_a_file_read_back_and_changed_later_ends_the_recording(tmp_path: Path) -> None:
    script = """
import os
begin()
from stoker.inside.resume.core import phases
phases.enter(); phases.leave()
open("big.bin", "wb").write(b"a" * 3_000_000)
assert len(open("big.bin", "rb").read()) == 3_000_000
open("big.bin", "ab").write(b"b")
image()
"""
    done = live(tmp_path / "run", script)
    assert "big.bin" in done.stderr and "Impossible" in done.stderr
    assert "big.bin" in (tmp_path / "run" / "resume" / "state.json").read_text()


def test_what_is_read_back_again_and_again_stands_in_the_log_once(tmp_path: Path) -> None:
    """Each life of three knows by heart what the one before it knew: as a ghost, in its tail and behind that."""
    script = """
import os
begin()
open("own.bin", "wb").write(bytes(range(200)) * 500)
total = 0
for i in range(60):
    if i % 10 == 0: open("turns.bin", "wb").write(bytes([i]) * 50_000)
    total += open("own.bin", "rb").read()[i] + open("turns.bin", "rb").read()[-1]
    print(i, total, flush=True)
    if i == 34: image()
    if (i, os.environ["STOKER_ATTEMPT"]) in ((42, "1"), (57, "2")): os.kill(os.getpid(), 9)
"""
    whole = live(tmp_path / "whole", script, attempt=3)
    assert whole.returncode == 0, whole.stderr
    for attempt in (1, 2, 3):
        done = live(tmp_path / "cut", script, attempt=attempt)
        assert done.returncode == (-9 if attempt < 3 else 0), done.stderr
        assert done.stdout in whole.stdout
    assert done.stdout.startswith("35 ") and whole.stdout.endswith(done.stdout)
    once = 500 * 200 + 6 * 50_000
    assert once < (tmp_path / "cut" / "resume" / "log").stat().st_size < 1.1 * once


def test_tensorboard_file_is_the_same(tmp_path: Path) -> None:
    script = """
import os
begin()
from torch.utils.tensorboard import SummaryWriter
w = SummaryWriter("tb")
for i in range(60):
    w.add_scalar("loss", 1 / (i + 1), i)
    if i % 7 == 0: w.flush()
    if i == 20: image()
    KILL
w.close()
name, = os.listdir("tb")
print(name, os.path.getsize("tb/" + name))
"""
    script = script.replace("KILL", KILL.format(at=45))
    one = live(tmp_path / "run", script)
    assert one.returncode == -9, one.stderr
    two = live(tmp_path / "run", script, attempt=2)
    assert two.returncode == 0, two.stderr
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    name, = (tmp_path / "run" / "work" / "tb").iterdir()
    steps = [event.step for event in EventFileLoader(str(name)).Load() if event.summary.value]
    assert steps == list(range(60))


def test_a_process_without_a_recording_is_untouched(tmp_path: Path) -> None:
    """Before torch is there, and in a child, all hooks step aside: same bytes, same objects, same errors."""
    script = """
import os, sys, io
assert type(sys.stdout) is io.TextIOWrapper and not sys.stdout.isatty() and sys.stdout.fileno() == 1
with open("a", "w", encoding="utf-16", newline="\\r\\n") as f:
    assert type(f) is io.TextIOWrapper and f.name == "a" and f.mode == "w"
    f.write("x\\n")
assert open("a", "rb").read() == "x\\r\\n".encode("utf-16")
try:
    open("nowhere/b")
except FileNotFoundError as e:
    assert e.filename == "nowhere/b"
sys.stdout.reconfigure(line_buffering=True)
print("said", file=sys.stderr)
begin()
print("parent")
sys.stdout.flush()
pid = os.fork()
if not pid:
    print("child"); sys.stdout.flush(); open("c", "w").write("c"); os._exit(0)
os.waitpid(pid, 0)
print(open("c").read())
"""
    done = live(tmp_path / "run", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "parent\nchild\nc\n"

"""A run whose script does random things to its files, with two images: what the tests of the undo journal share."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]

# A child does random things to the files below `work`, in a run whose images were taken at two moments.
CHILD = '''
import json, os, random, shutil, signal, sys
sys.path.insert(0, {src!r})
from stoker.inside.resume.core import log, phases; from stoker.inside.resume.world import audit_hook, effects, files, journal
files.install_early()
base, seed, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
phases.folder = os.path.join(base, "resume")
os.makedirs(phases.folder, exist_ok=True)
phases.log = log.Log(os.path.join(phases.folder, "log"))
phases.log.open()
phases.phase = phases.RECORD
audit_hook.listen_to_files()
effects._patch_shutil(shutil)
rnd = random.Random(seed)
os.chdir(os.path.join(base, "work"))
names = ["a", "b", "c", "d/e", "d/f", "big", "l"]
held = []
count = 0


def shape():
    found = {{}}
    for here, folders, there in os.walk("."):
        for name in folders:
            path = os.path.join(here, name)
            found[path] = os.readlink(path) if os.path.islink(path) else "folder"
        for name in there:
            path = os.path.join(here, name)
            found[path] = os.readlink(path) if os.path.islink(path) else open(path, "rb").read().hex()
    return found


def step():
    one, two = rnd.choice(names), rnd.choice(names)
    text = f"{{rnd.random()}}\\n" * rnd.randint(1, 30)
    what = rnd.choice(["write", "write", "append", "append", "hold", "held", "held", "inside", "remove", "rename", "replace", "link", "folder",
                       "tree", "move", "cut", "copy", "big", "low", "drop"])
    if what == "write":
        open(one, "w").write(text)
    elif what == "append":
        open(one, "a").write(text)
    elif what == "hold" and len(held) < 3:
        held.append(open(one, rnd.choice(["w", "a", "w+", "wb"])))
    elif what == "held" and held:
        f = rnd.choice(held)
        f.write(text.encode() if "b" in f.mode else text)
        f.flush()
    elif what == "drop" and held:
        held.pop(rnd.randrange(len(held))).close()
    elif what == "inside" and held:
        f = rnd.choice(held)
        f.seek(rnd.choice([0, 0, 5]))
        f.write(b"X" if "b" in f.mode else "X")
        f.flush()
        f.seek(0, 2)
    elif what == "remove":
        os.remove(one)
    elif what == "rename":
        os.rename(one, two)
    elif what == "replace":
        open("tmp", "w").write(text)
        os.replace("tmp", one)
    elif what == "link":
        os.symlink(rnd.choice(["a", "nowhere"]), "l")
    elif what == "folder":
        os.makedirs(rnd.choice(["d", "n/m"]), exist_ok=True)
    elif what == "tree":
        shutil.rmtree(rnd.choice(["d", "n"]))
    elif what == "move":
        os.rename(*rnd.choice([("d", "n"), ("n", "d"), ("n", "o"), ("o", "d")]))
    elif what == "cut":
        os.truncate(one, 3)
    elif what == "copy":
        shutil.copyfile(one, two)
    elif what == "big":
        open("big", "wb").write(os.urandom(8) * 200_000)
    elif what == "low":
        fd = os.open(one, os.O_RDWR | os.O_CREAT)
        os.write(fd, b"low")
        os.close(fd)


def image(n):
    os.sync()
    state = None
    try:
        state = files.save()
    except journal.Impossible:
        while held:
            held.pop().close()
        state = files.save()
    phases.depth = 1
    with open(os.path.join(phases.folder, f"image{{n}}"), "w") as f:
        json.dump([state["epoch"], files._sizes(state["open"]), shape()], f)
    phases.depth = 0


seen = 0


def killer(event, args):
    global seen
    if event in ("open", "os.remove", "os.rename", "os.mkdir", "os.truncate", "os.rmdir", "os.symlink"):
        path = args[0]
        if event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR) or str(path).startswith(phases.folder):
            return
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


for i in range(90):
    try:
        step()
    except OSError:
        pass
    if i == 25:
        image(1)
    if i == 55:
        image(2)
        if kill_at:
            sys.addaudithook(killer)
os._exit(0)
'''

# In a process with `kill_at`: SIGKILL at that change of a file; 0 is never.
KILLER = '''
seen = 0


def killer(event, args):
    global seen
    if event in ("open", "os.remove", "os.rename", "os.mkdir", "os.truncate", "os.rmdir", "os.symlink", "os.link", "os.utime"):
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


if kill_at:
    sys.addaudithook(killer)
'''
UNDO = '''
import json, os, signal, sys
sys.path.insert(0, {src!r})
from stoker.inside.resume.core import phases; from stoker.inside.resume.world import as_found, journal
base, n, kill_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
phases.folder, phases.attempt = os.path.join(base, "resume"), 2
''' + KILLER + '''epoch, sizes, _ = json.load(open(os.path.join(phases.folder, "image" + n)))
as_found.put_back(epoch, {{path: tuple(each) for path, each in sizes.items()}})
'''


def run(code: str, *args: object) -> int:
    done = subprocess.run([sys.executable, "-c", code.format(src=str(REPO / "src")), *map(str, args)], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode in (0, 3, -9), done.stderr
    assert "stoker:" not in done.stderr, done.stderr
    return done.returncode


def shape_of(folder: Path) -> dict:
    found = {}
    for here, folders, files in os.walk(folder):
        for name in folders:
            path = Path(here, name)
            found["./" + str(path.relative_to(folder))] = os.readlink(path) if path.is_symlink() else "folder"
        for name in files:
            path = Path(here, name)
            found["./" + str(path.relative_to(folder))] = os.readlink(path) if path.is_symlink() else path.read_bytes().hex()
    return found


def same(base: Path, n: int) -> None:
    then = json.loads((base / "resume" / f"image{n}").read_text())[2]
    now = shape_of(base / "work")
    then = {os.path.normpath(path): each for path, each in then.items()}
    now = {os.path.normpath(path): each for path, each in now.items()}
    short = {path: (then.get(path, "-")[:40], now.get(path, "-")[:40]) for path in then.keys() | now.keys() if then.get(path) != now.get(path)}
    assert not short


def begin(tmp_path: Path, seed: int, kill_at: int = 0) -> Path:
    base = tmp_path / str(seed)
    (base / "work" / "d").mkdir(parents=True)
    for name in ("a", "d/e", "big"):
        (base / "work" / name).write_bytes(hashlib.sha256(name.encode()).digest() * (60_000 if name == "big" else 4))
    run(CHILD, base, seed, kill_at)
    return base

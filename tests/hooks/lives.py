"""Lives of a small script under the file and clock hooks alone, without tensors: `image()` in it is where an image is taken, and where a
ghost becomes the real thing again. Run as `python lives.py FOLDER SCRIPT` under STOKER_ATTEMPT=N."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import types
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def live(folder: Path, script: str, attempt: int = 1, **more: str) -> subprocess.CompletedProcess:
    """One life of `script` in `folder`, to its end or its death."""
    folder.mkdir(exist_ok=True)
    path = folder / "script.py"
    if not path.exists() or path.read_text() != script:
        path.write_text(script)
    (folder / "work").mkdir(exist_ok=True)
    env = {**os.environ, "STOKER_ATTEMPT": str(attempt), "STOKER_RESUME": "auto", "STOKER_RESUME_DIR": str(folder / "resume"),
           "PYTHONPATH": os.pathsep.join([str(REPO / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]), "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "STOKER_RESUME_DEBUG": "1", **more}
    return subprocess.run([sys.executable, __file__, str(folder), str(path)], cwd=folder / "work", env=env, capture_output=True, text=True,
                          timeout=100, check=False)


def _main(folder: str, script: str) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "stoker"]:
        del sys.modules[name]
    from stoker.inside.ghost import files, world

    if int(os.environ.get("STOKER_RESUME_TRIES", "0")) > 0:
        print("DIVERGED", flush=True)
        os._exit(3)
    os.makedirs(os.environ["STOKER_RESUME_DIR"], exist_ok=True)
    files.install_early()
    world.install_early()
    os.environ.pop("PYTHONPATH", None)
    sys.argv = [script]
    code = compile(Path(script).read_text(), script, "exec")
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, image=image, begin=begin)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def begin() -> None:
    """In the place of `import torch`: what happens then."""
    import torch  # noqa: F401

    from stoker.inside.ghost import allow, checks, fate, files, life, log, world

    before, life.depth = life.depth, 1
    life.folder = os.environ["STOKER_RESUME_DIR"]
    life.attempt = int(os.environ["STOKER_ATTEMPT"])
    fate.remember_start()
    life.log = log.Log(os.path.join(life.folder, "log"))
    state = os.path.join(life.folder, "state")
    if life.attempt > 1 and os.path.exists(state):
        with open(state, "rb") as f:
            events, told = marshal.loads(f.read())
        life.target = types.SimpleNamespace(n=1, events=events, meta={"parts": {"files": told}})
        life.log.replay(events)
    else:
        life.log.open()
    life.phase = life.SETUP
    life.off_in_children()
    why = world.install()
    files.install()
    checks.install()
    allow.install()
    life.depth = before
    if why:
        fate.refuse(why) if life.target is None else fate.diverged(why)


def image() -> None:
    """Here an image is taken; here a ghost that has come to it becomes real."""
    from stoker.inside.ghost import files, life

    if life.phase == life.SETUP:
        life.enter()
        life.leave()
    before, life.depth = life.depth, 1
    try:
        if life.phase == life.RECORD:
            events, state = len(life.log), files.save()
            life.log.flush()
            with open(os.path.join(life.folder, "state"), "wb") as f:
                f.write(marshal.dumps((events, state)))
            os.makedirs(os.path.join(life.folder, "images", "1"), exist_ok=True)
            with open(os.path.join(life.folder, "images", "1", "manifest.json"), "w", encoding="ascii") as f:
                f.write("{}")
        elif life.phase == life.GHOST and len(life.log) == life.target.events:
            files.put_back()
            files.load(life.target.meta["parts"]["files"])
            life.end_ghost()
    finally:
        life.depth = before


if __name__ == "__main__":
    _main(*sys.argv[1:3])

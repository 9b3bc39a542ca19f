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
    from stoker.inside.resume.world import asked, files

    if int(os.environ.get("STOKER_RESUME_TRIES", "0")) > 0:
        print("DIVERGED", flush=True)
        os._exit(3)
    os.makedirs(os.environ["STOKER_RESUME_DIR"], exist_ok=True)
    files.install_early()
    asked.install_early()
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

    from stoker.inside.resume.core import log, outcome, phases
    from stoker.inside.resume.image import checks, unsupported
    from stoker.inside.resume.world import asked, files

    before, phases.depth = phases.depth, 1
    phases.folder = os.environ["STOKER_RESUME_DIR"]
    phases.attempt = int(os.environ["STOKER_ATTEMPT"])
    outcome.remember_start()
    phases.log = log.Log(os.path.join(phases.folder, "log"))
    state = os.path.join(phases.folder, "state")
    if phases.attempt > 1 and os.path.exists(state):
        with open(state, "rb") as f:
            events, told = marshal.loads(f.read())
        phases.target = types.SimpleNamespace(n=1, events=events, meta={"parts": {"files": told}})
        phases.log.replay(events)
    else:
        phases.log.open()
    phases.phase = phases.SETUP
    phases.off_in_children()
    why = asked.install()
    files.install()
    checks.install()
    unsupported.install()
    phases.depth = before
    if why:
        outcome.refuse(why) if phases.target is None else outcome.diverged(why)


def image() -> None:
    """Here an image is taken; here a ghost that has come to it becomes real."""
    from stoker.inside.resume.core import phases
    from stoker.inside.resume.world import files

    if phases.phase == phases.SETUP:
        phases.enter()
        phases.leave()
    before, phases.depth = phases.depth, 1
    try:
        if phases.phase == phases.RECORD:
            events, state = len(phases.log), files.save()
            phases.log.flush()
            with open(os.path.join(phases.folder, "state"), "wb") as f:
                f.write(marshal.dumps((events, state)))
            os.makedirs(os.path.join(phases.folder, "images", "1"), exist_ok=True)
            with open(os.path.join(phases.folder, "images", "1", "manifest.json"), "w", encoding="ascii") as f:
                f.write("{}")
        elif phases.phase == phases.GHOST and len(phases.log) == phases.target.events:
            files.put_back()
            files.load(phases.target.meta["parts"]["files"])
            phases.end_ghost()
    finally:
        phases.depth = before


if __name__ == "__main__":
    _main(*sys.argv[1:3])

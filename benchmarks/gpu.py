"""What Stoker does on one GPU: `python benchmarks/gpu.py [--only NAME]
[--device cpu] [--out FILE] [--within SECONDS]`.

Each part is a process of its own with a deadline.
What it finds is appended to FILE as JSON lines at once, so a cut loses nothing.
The parts that ask whether bits are equal run side by side;
the parts that measure time follow, one after another. `--device cpu` tries every part with small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "resume")]

SCRIPTS = REPO / "benchmarks" / "on_gpu"
MARK = "GPU_CAMPAIGN"  # in the environment of all processes of a part
# part: (deadline in seconds, may run beside others)
PARTS = {
    "engine-kills": (170, True),
    "unmodified": (200, True),
    "verify-resume": (170, True),
    "tools": (90, True),
    "engine-cost": (70, False),
    "recording": (150, False),
    "tune": (130, False),
}


class Report:
    """A file of JSON lines, and the same on the terminal."""

    def __init__(self, path: Path, device: str, work: Path) -> None:
        self.path, self.device, self.work = path, device, work
        self.small = device == "cpu"
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def add(self, part: str, name: str, **facts: object) -> None:
        """One finding."""
        at_s = round(time.monotonic() - self._began, 1)
        line = json.dumps(
            {"part": part, "name": name, "device": self.device, "at_s": at_s, **facts}, default=str
        )
        with self._lock, open(self.path, "a", encoding="utf-8") as f:
            f.write(line + "\n")
        print(line[:600], flush=True)

    @contextmanager
    def guarded(self, part: str, name: str):
        """An exception becomes a finding; the next cell goes on."""
        try:
            yield
        except Exception as e:
            self.add(part, name, error=f"{type(e).__name__}: {e}"[:1500], where=traceback.format_exc()[-700:])

    def ground(self):
        """A state folder of its own, with its server; the campaign removes it even if the part is cut."""
        from benchmarks.ground import Ground

        made = Ground()
        made.env["PATH"] = f"{made.env['PATH']}:{os.environ.get('PATH', '')}"
        with open(self.work / "roots", "a", encoding="utf-8") as f:
            f.write(f"{made.root}\n")
        return made


def python(script: str, *words: str, cwd: Path, out: Path | None = None, **more: str) -> subprocess.Popen:
    """A script of benchmarks/on_gpu without Stoker, in a process group of its own."""
    env = (
        {k: v for k, v in os.environ.items() if not k.startswith("STOKER")} | {"OMP_NUM_THREADS": "1"} | more
    )
    with open(out or cwd / "out", "ab") as f:
        return subprocess.Popen(
            [sys.executable, str(SCRIPTS / script), *words],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=f,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end_group(process: subprocess.Popen) -> None:
    """SIGKILL to a process and what it started, as a power cut would."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def machine(device: str) -> dict:
    """What this was measured on."""
    import torch

    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }
    if device == "cuda":
        done = subprocess.run(
            [
                "nvidia-smi",
                "--query-gpu=name,driver_version,memory.total,memory.used",
                "--format=csv,noheader",
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        found |= {
            "gpu": torch.cuda.get_device_name(0),
            "cudnn": torch.backends.cudnn.version(),
            "nvidia-smi": done.stdout.strip(),
        }
        torch.ones(8, device="cuda").sum().item()
    return found


# ---- parts

def part_function(name: str) -> Callable[[Report], None]:
    from benchmarks import gpu_cost, gpu_resume, gpu_tools

    return {
        "engine-kills": gpu_resume.engine_kills,
        "unmodified": gpu_resume.unmodified,
        "verify-resume": gpu_resume.verify,
        "tools": gpu_tools.tools,
        "engine-cost": gpu_cost.engine,
        "recording": gpu_cost.recording,
        "tune": gpu_tools.tune,
    }[name]


def inside(name: str, report: Report) -> int:
    """The part itself, in its own process."""
    with report.guarded(name, "the part"):
        part_function(name)(report)
    return 0


def of_part(mark: str) -> list[int]:
    """Pids of the processes with this mark in their environment, but this one."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in text.split(b"\0"):
                found.append(int(entry.name))
    return found


def outside(name: str, report: Report, limit_s: float) -> None:
    """A part in a process of its own, ended at its deadline with everything that it started."""
    mark = uuid.uuid4().hex
    work = Path(tempfile.mkdtemp(prefix="st-gpu-", dir="/tmp"))
    (work / "tmp").mkdir()
    env = {**os.environ, MARK: mark, "TMPDIR": str(work / "tmp")}
    began = time.monotonic()
    argv = [
        sys.executable,
        __file__,
        "--device",
        report.device,
        "--out",
        str(report.path),
        "--inside",
        name,
        "--work",
        str(work),
    ]
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = "cut at its deadline"
    finally:
        process.kill()
        process.wait()
        left = of_part(mark)
        deadline = time.monotonic() + 10
        while (there := of_part(mark)) and time.monotonic() < deadline:
            for pid in there:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.1)
        roots = (work / "roots").read_text().split() if (work / "roots").exists() else []
        for root in (*roots, work):
            shutil.rmtree(root, ignore_errors=True)
    report.add(name, "end", code=code, seconds=round(time.monotonic() - began, 1), left=len(left))


def campaign(names: list[str], report: Report, within_s: float) -> None:
    """All parts; none goes on after `within_s`."""
    deadline = time.monotonic() + within_s

    def one(name: str) -> None:
        limit_s = min(PARTS[name][0], deadline - time.monotonic())
        if limit_s < 15:
            report.add(name, "end", code="no time left")
            return
        outside(name, report, limit_s)

    together = [name for name in names if PARTS[name][1]]
    if together:
        with ThreadPoolExecutor(1 if report.small else len(together)) as pool:
            list(pool.map(one, together))
    for name in names:
        if not PARTS[name][1]:
            one(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", action="append", choices=PARTS, help="may be given again")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"))
    parser.add_argument("--within", type=float, default=480, metavar="SECONDS")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    report = Report(args.out.resolve(), args.device, args.work or Path(tempfile.gettempdir()))
    if args.inside:
        return inside(args.inside, report)
    report.add("machine", "machine", **machine(args.device))
    campaign(args.only or list(PARTS), report, args.within)
    return 0


if __name__ == "__main__":
    sys.exit(main())

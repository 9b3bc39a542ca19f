"""Same path: whether the life that begins is the one that was recorded, as far as can be told before it has
done anything: its code, its words, its data, its Python and torch, its machine.
What is not understood at all stands in unsupported.py.

Compared are the script, imported files of the user's, files that are read, versions, threads, machine,
argv, and the environment variables that change results.
"""

from __future__ import annotations

import importlib
import os
import sys

from ...looks import attributes, isinstance
from ..core import early_log, leaves, outcome, phases, words
from ..world import known_files

SMALL = 64 << 10  # bytes: of inputs up to here the content counts, of larger ones size and time
VARIABLES = (
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "NUMEXPR_",
    "GOTO_",
    "BLIS_",
    "VECLIB_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH",
    "PYTORCH_",
    "ATEN_",
    "DNNL_",
    "ONEDNN_",
    "NCCL_",
    "CUDA_LAUNCH_BLOCKING",
    "LD_PRELOAD",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "PYTHONDEVMODE",
    "MALLOC_",
)
_ENTRY = os.path.join(os.path.dirname(leaves.HERE[:-1]), "sitecustomize.py")  # ours
_code: dict = {}  # path -> (mtime_ns, size, hash at first sight)
_theirs: set = set()  # files of modules that are not the user's
_fixed: dict = {}  # what does not change while a process lives
_begun_ns = 0
_at_setup_end: set = set()  # names of modules


def install() -> None:
    """torch is there: what this process is."""
    global _begun_ns
    _begun_ns = _process_began_ns()
    _fixed.update(identity())
    phases.on_setup_end.append(lambda: _at_setup_end.update(sys.modules))


def save() -> dict:
    """What a life that goes to this image must agree with. ValueError:
    the sentence why nobody can tell that later."""
    return {**_fixed, "code": user_code(), "imported": _imported(),
            "inputs": {path: (*seen, _small(path, seen[0])) for path, seen in known_files.inputs.items()}}


def compare(then: dict) -> list[str]:
    """The sentences that say in what this life differs from the recorded one, each with what to do;
    before it has done anything."""
    found = []
    for name, value in _fixed.items():
        if then.get(name) != value:
            found.append(_told(name, then.get(name), value))
    for path, (_, _, digest) in then["code"].items():
        if _hash(path) != digest:
            found.append(
                (words.SAME_SCRIPT if path == then["script"] else words.SAME_MODULE).format(path=path)
            )
    for path, (size, mtime, digest) in then["inputs"].items():
        if not _same_input(path, size, mtime, digest):
            found.append(words.SAME_INPUT.format(path=path))
    return found


def compare_at_image(then: dict) -> list[str]:
    """As compare, of what is only known once the script has come to the image."""
    code = user_code()
    found = [words.NOT_IMPORTED.format(path=path) for path in sorted(then["code"].keys() - code.keys())]
    return found + [
        words.IMPORTED_NOW.format(path=path) for path in sorted(code.keys() - then["code"].keys())
    ]


def _imported() -> list:
    """Names of the modules, of the script's own or of packages,
    that were imported since set-up ended, in their order."""
    late = [
        (name, attributes(module).get("__file__"))
        for name, module in list(sys.modules.items())
        if name not in _at_setup_end
    ]
    return [
        name for name, path in late if isinstance(path, str) and early_log.classify(path) == early_log.YES
    ]


def import_again(then: dict) -> None:
    """As a ghost, before `compare_at_image`: a forward or a data set, which is not called, imported some
    modules of the recorded life. What they print and write is there already."""
    before, phases.depth, phases.again = phases.depth, 1, True
    try:
        for name in then.get("imported") or ():
            if name not in sys.modules:
                try:
                    importlib.import_module(name)
                except Exception:
                    # it was not imported by its name, or from a place that was known then:
                    # what it is for, is compared
                    pass
    finally:
        phases.depth, phases.again = before, False


def identity() -> dict:
    """What this process is: words, versions, machine, variables that change numbers."""
    import torch

    numpy = sys.modules.get("numpy")
    return {
        "argv": tuple(sys.argv), "cwd": os.getcwd(), "script": script(), "python": sys.version,
        "flags": tuple(sys.flags)[:13],
        "torch": str(torch.__version__), "numpy": str(getattr(numpy, "__version__", "")),
        "start_threads": torch.get_num_threads(),
        "cpu": _cpu(), "capability": _capability(torch), "gpus": _gpus(torch),
        "variables": tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(VARIABLES))),  # noqa: E501
    }  # fmt: skip


def script() -> str:
    """The file of the script, "" if there is none."""
    main = sys.modules.get("__main__")
    path = attributes(main).get("__file__")
    return os.path.abspath(path) if path else ""


def user_code() -> dict:
    """path -> (mtime_ns, size, hash) of the script and of every imported file that is neither Python's nor an
    installed package's."""
    files = {}
    for module in list(sys.modules.values()):
        path = attributes(module).get("__file__")
        if not isinstance(path, str) or path in _theirs:
            continue
        if early_log.classify(path) != early_log.YES or "site-packages" in path or "dist-packages" in path:
            _theirs.add(path)
            continue
        path = os.path.abspath(path)
        if path == _ENTRY:
            continue
        known = _code.get(path)
        if known is None:
            known = _first_sight(path)
        if known is not None:
            files[path] = known
    return files


class Edited(outcome.Obstacle, ValueError):
    """A file of the script's is not what this process has read."""


def _first_sight(path: str) -> tuple | None:
    """Its hash now is that of the code that runs, unless the file was written since the process began."""
    try:
        now = os.stat(path)
    except OSError:
        return None
    if now.st_mtime_ns > _begun_ns and path not in known_files.written:
        raise Edited(words.EDITED_MEANWHILE.format(path=path))
    _code[path] = (now.st_mtime_ns, now.st_size, _hash(path))
    return _code[path]


def _hash(path: str) -> str:
    import hashlib

    try:
        with open(path, "rb") as f:
            return hashlib.blake2b(f.read(), digest_size=16).hexdigest()
    except OSError:
        return ""


def _small(path: str, size: int) -> str:
    return _hash(path) if size <= SMALL else ""


def _same_input(path: str, size: int, mtime: int, digest: str) -> bool:
    try:
        now = os.stat(path)
    except OSError:
        return False
    if digest and now.st_size == size:
        return _hash(path) == digest
    return (now.st_size, now.st_mtime_ns) == (size, mtime)


def _told(name: str, then: object, now: object) -> str:
    if name == "variables":
        differ = sorted({each[0] for each in set(then or ()) ^ set(now)})
        return words.SAME_VARIABLES.format(names=", ".join(differ))
    sentences = {
        "argv": words.SAME_ARGV,
        "cwd": words.SAME_CWD,
        "script": words.SAME_NAME,
        "start_threads": words.SAME_THREADS,
        "cpu": words.SAME_MACHINE,
        "capability": words.SAME_MACHINE,
        "gpus": words.SAME_GPU,
    }
    return sentences.get(name, words.SAME_VERSION).format(what=name, then=_short(then), now=_short(now))


def _short(value: object) -> str:
    if isinstance(value, tuple):
        value = " ".join(str(each) for each in value)
    told = str(value).replace("\n", " ")
    return told if len(told) < 80 else told[:77] + "..."


def _cpu() -> tuple:
    """Model and features: kernels are chosen by them."""
    found = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                name, _, value = line.partition(":")
                if not line.strip():
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    features = found.get("flags", found.get("Features", ""))
    return (
        found.get("model name", found.get("CPU part", "")),
        str(sum(hash_of(each) for each in features.split()) & 0xFFFFFFFF),
    )


def hash_of(text: str) -> int:
    """A number of a word that is the same in each process."""
    from zlib import crc32

    return crc32(text.encode())


def _capability(torch: object) -> str:
    try:
        return torch.backends.cpu.get_cpu_capability()
    except (AttributeError, RuntimeError):
        return ""


def _gpus(torch: object) -> tuple:
    """Models, and the version of CUDA that torch is made for; asked without starting CUDA.
    The driver's version is in /proc."""
    if not torch.cuda.is_available():
        return ()
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as f:
            driver = f.readline().strip()
    except OSError:
        driver = ""
    models = []
    try:
        for name in sorted(os.listdir("/proc/driver/nvidia/gpus")):
            with open(
                f"/proc/driver/nvidia/gpus/{name}/information", encoding="ascii", errors="replace"
            ) as f:
                models.append(f.readline().partition(":")[2].strip())
    except OSError:
        pass
    return (driver, str(torch.version.cuda), *sorted(set(models)))


def _process_began_ns() -> int:
    """When this process began, by the wall clock, in ns; one clock tick early."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as f:
            ticks = int(f.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="ascii") as f:
            boot = next(int(line.split()[1]) for line in f if line.startswith("btime"))
    except (OSError, ValueError, StopIteration):
        return 0
    return (boot + 1) * 1_000_000_000 + ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def young() -> str:
    """What already stands in the way of a resume, "" if nothing is known to."""
    from . import unsupported

    if not phases.phase:
        return ""
    return unsupported.standing()

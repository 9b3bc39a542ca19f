"""Looks at the GPUs: what the driver says, and whether the user's torch fits it. Never starts CUDA."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.base.units import format_size
from stoker.doctor import python
from stoker.doctor.finding import Finding

_VERSION_MISMATCH, _NO_DRIVER = 18, 9  # of NVML


@dataclass(frozen=True)
class Gpus:
    """What the NVIDIA driver says. error: why it says nothing, "" where there is simply no GPU. cuda:
    newest it can run, (12, 4)."""

    names: tuple[str, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    driver: str = ""
    cuda: tuple[int, int] | None = None
    error: str = ""
    hidden: bool = False  # CUDA_VISIBLE_DEVICES hides them all
    other: bool = False  # an AMD GPU, which this does not look into

    @property
    def none(self) -> bool:
        """True when a program started now sees no GPU at all."""
        return not self.other and (self.hidden or not self.names)


def gpus(env: dict[str, str]) -> Gpus:
    """What the NVIDIA driver says, through its library; through nvidia-smi where that cannot be loaded."""
    visible = env.get("CUDA_VISIBLE_DEVICES", "all").strip()
    hidden = not visible or visible.startswith("-1") or visible.lower() in ("none", "nodevfiles")
    other = os.path.exists("/dev/kfd")
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return _by_program(env, hidden, other)
    code = library.nvmlInit_v2()
    if code:
        return Gpus(error=_nvml_error(code), hidden=hidden, other=other)
    try:
        return _by_library(library, hidden, other)
    finally:
        library.nvmlShutdown()


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _by_library(nvml: ctypes.CDLL, hidden: bool, other: bool) -> Gpus:
    text, number, memory, handle = (
        ctypes.create_string_buffer(96),
        ctypes.c_int(),
        _Memory(),
        ctypes.c_void_p(),
    )
    driver = text.value.decode() if nvml.nvmlSystemGetDriverVersion(text, 96) == 0 else ""
    cuda = (
        (number.value // 1000, number.value % 1000 // 10)
        if nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0
        else None
    )
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
    names, sizes = [], []
    for n in range(number.value):
        if nvml.nvmlDeviceGetHandleByIndex_v2(n, ctypes.byref(handle)):
            continue
        names.append(text.value.decode() if nvml.nvmlDeviceGetName(handle, text, 96) == 0 else "GPU")
        sizes.append(memory.total if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0 else 0)
    return Gpus(tuple(names), tuple(sizes), driver, cuda, "", hidden, other)


def _by_program(env: dict[str, str], hidden: bool, other: bool) -> Gpus:
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if not program:
        there = _nvidia_on_the_bus()
        return Gpus(
            error="this machine has an NVIDIA GPU, but no driver" if there else "", hidden=hidden, other=other
        )
    done = python.quiet(
        [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"],
        Path("/"),
        env,
        10.0,
    )
    if isinstance(done, python.Silence) or done[0]:
        said = (
            done.why
            if isinstance(done, python.Silence)
            else (done[1] + done[2]).decode("utf-8", "replace").strip().splitlines()[:1]
        )
        return Gpus(
            error=f"nvidia-smi fails: {said if isinstance(said, str) else ' '.join(said)}",
            hidden=hidden,
            other=other,
        )
    rows = [
        r.rsplit(",", 2) for r in done[1].decode("utf-8", "replace").strip().splitlines() if r.count(",") >= 2
    ]
    sizes = tuple(int(r[1]) * 2**20 if r[1].strip().isdigit() else 0 for r in rows)
    return Gpus(
        tuple(r[0].strip() for r in rows), sizes, rows[0][2].strip() if rows else "", None, "", hidden, other
    )


def _nvml_error(code: int) -> str:
    if code == _VERSION_MISMATCH:
        return "the loaded driver and its library have different versions; reboot, or restart the container"
    if code == _NO_DRIVER:
        return "this machine has an NVIDIA GPU, but its driver is not loaded" if _nvidia_on_the_bus() else ""
    return f"the NVIDIA driver returns error {code}"


def _nvidia_on_the_bus() -> bool:
    for vendor in glob.glob("/sys/bus/pci/devices/*/vendor"):
        if _line(Path(vendor)) == "0x10de" and _line(Path(vendor).with_name("class")).startswith("0x03"):
            return True
    return False


def gpu_findings(seen: Gpus) -> Iterator[Finding]:
    """What there is to say about the GPUs alone."""
    if seen.error:
        yield Finding("fail", "gpu", f"No GPU can be used: {seen.error}.",
                      "Run nvidia-smi. If this is a container, start the container with --gpus all.")
    elif seen.hidden and seen.names:
        yield Finding(
            "warn",
            "gpu",
            f"CUDA_VISIBLE_DEVICES hides all {len(seen.names)} GPUs of this machine.",
            "unset CUDA_VISIBLE_DEVICES",
        )
    elif seen.names:
        kinds = {
            f"{seen.names.count(n)} x {n} ({format_size(m)})": None
            for n, m in zip(seen.names, seen.memory_bytes, strict=True)
        }
        newest = f", CUDA up to {seen.cuda[0]}.{seen.cuda[1]}" if seen.cuda else ""
        yield Finding("ok", "gpu", f"{', '.join(kinds)}; driver {seen.driver}{newest}.")
    elif not seen.other:
        yield Finding("note", "gpu", "No GPU is visible; programs run on the CPU.")


def torch_findings(torch: dict | None, seen: Gpus) -> Iterator[Finding]:
    """Does this torch fit this driver. torch: as in `python.Answer`; None says nothing."""
    if torch is None:
        return
    build = (
        f"CUDA {torch['cuda']}"
        if torch.get("cuda")
        else f"ROCm {torch['hip']}"
        if torch.get("hip")
        else "CPU only"
    )
    needed = tuple(int(p) for p in str(torch.get("cuda") or "").split(".")[:2] if p.isdigit())
    if seen.names and not torch.get("cuda"):
        yield Finding(
            "warn",
            "torch",
            f"torch {torch['version']} is built for {build} and will not use the GPU.",
            f"Install a CUDA build of torch (this driver supports {_up_to(seen)}).",
        )
    elif needed and seen.cuda and needed[0] > seen.cuda[0]:
        yield Finding(
            "fail",
            "torch",
            (
                f"torch {torch['version']} is built for {build}, but driver {seen.driver} supports "
                f"{_up_to(seen)}."
            ),
            "Install a build of torch for the CUDA version of the driver, or install a newer driver.",
        )
    else:
        yield Finding("ok", "torch", f"torch {torch['version']}, {build}.")


def _up_to(seen: Gpus) -> str:
    return f"CUDA up to {seen.cuda[0]}.{seen.cuda[1]}" if seen.cuda else "an unknown CUDA version"


def _line(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""

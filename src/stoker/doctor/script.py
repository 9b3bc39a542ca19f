"""Reads a training script for what will disappoint:
missing imports, CUDA without a GPU, questions, downloads, keys, terminals.

Never runs it. What it cannot know for sure is a "note";
"fail" is kept for what is sure to fail.
"""

from __future__ import annotations

import ast
import netrc
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.doctor import python
from stoker.doctor.downloads import SHELLS, downloads
from stoker.doctor.finding import Finding
from stoker.doctor.reader import Call, Reader, Surroundings, dotted, read
from stoker.doctor.source import Source

PIP_NAMES = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "git": "gitpython",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "hydra": "hydra-core",
}
_IMPLIED = {"torch.utils.tensorboard": "tensorboard"}  # modules whose import needs another package
_REMOVED = {
    "distutils": "This module is now part of setuptools: pip install setuptools",
    "imp": "Python 3.12 removed this module: use importlib",
    "asyncore": "Python 3.12 removed this module",
    "cgi": "Python 3.13 removed this module",
}
_NEEDS_CUDA = frozenset(
    f"torch.cuda.{n}"
    for n in (
        "set_device",
        "current_device",
        "get_device_name",
        "get_device_properties",
        "get_device_capability",
        "synchronize",
        "mem_get_info",
    )
)
_CUDA_TEXT = re.compile(r"cuda(:\d+)?")
_ASKS_FOR_GPU = re.compile(r"cuda|gpu|device|accel|mps|available", re.IGNORECASE)
_CPU_WORD = re.compile(r"(.*=)?cpu|--(no|disable)[-_](cuda|gpu|accel).*|--cpu")
_TERMINAL = frozenset(
    {
        "os.get_terminal_size",
        "os.getlogin",
        "os.ttyname",
        "curses.initscr",
        "curses.wrapper",
        "termios.tcgetattr",
        "tty.setraw",
        "tty.setcbreak",
    }
)
_RANK_NAME = re.compile(r"(local_?|self\.)*_?(local_?rank|rank|gpu(_?id)?)", re.IGNORECASE)
_ASK_FIRST = (
    'Let the script choose the device: `device = "cuda" if torch.cuda.is_available() else "cpu"`. Or use an '
    'option of the script, such as --device cpu.'
)
_NCCL = 'init_process_group("nccl")'
_PER_GPU = "one process per GPU"
_IN_DOUBT = re.compile(  # in scripts that look for a GPU themselves, or have another kind of device
    r"is_available|device_count|CUDA_VISIBLE_DEVICES|nvidia|no_cuda|disable_cuda|transfer_to_npu|gpu_migration"
    r"|torch_(npu|musa|mlu|xla)|\.(cuda|to)\s*=[^=]|def\s+(cuda|to)\b|setattr"
)
_STATELESS = re.compile(r"loss|criteri", re.IGNORECASE)  # modules without weights: .cuda() does nothing


def look(sources: Sequence[Source], around: Surroundings) -> Iterator[Finding]:
    """All findings about a script and the files it imports, in the order of the files."""
    yield from _syntax(sources, around)
    yield from missing_imports(sources, around)
    for n, source in enumerate(sources):
        if source.tree is None:
            continue
        reader = read(source, around.command, main=n == 0)
        for look_for in (_cuda, _questions, downloads, _wandb, _terminal):
            yield from look_for(reader, around)


def implied(sources: Sequence[Source]) -> Iterator[str]:
    """Top-level modules that are needed though no line names them."""
    for source in sources:
        yield from (_IMPLIED[i.module] for i in source.imports if i.module in _IMPLIED)


# --- what Python needs
# ---------------------------------------------------------------------------------------------------

def _syntax(sources: Sequence[Source], around: Surroundings) -> Iterator[Finding]:
    for n, source in enumerate(sources):
        if source.problem is None:
            continue
        wrong = source.problem
        if n == 0 and around.answer:
            if around.answer.syntax is None:
                continue  # our Python cannot read it, the user's can
            wrong = around.answer.syntax
        yield Finding(
            "fail" if n == 0 and around.answer else "warn",
            "syntax",
            f"Syntax error: {wrong[1]}.",
            "Correct the line, or use the Python version that the script needs.",
            around.name(source),
            wrong[0],
        )


def missing_imports(sources: Sequence[Source], around: Surroundings) -> Iterator[Finding]:
    """Imports that the interpreter cannot find; guarded ones are the script's own business."""
    if around.answer is None:
        return
    unsure = any(s.installs or s.changes_path for s in sources)
    told: set[str] = set()
    for source in sources:
        for item in source.imports:
            needed = _IMPLIED.get(item.module) if item.top not in around.answer.missing else item.top
            if item.kind == "maybe" or needed not in around.answer.missing or needed in told:
                continue
            told.add(needed)
            level = (
                "note"
                if item.kind == "later"
                else "warn"
                if (unsure and needed != "torch") or source.installs
                else "fail"
            )
            when = "when a function is called" if item.kind == "later" else "at start"
            if unsure:
                when += "; the script changes its import path, so this import may still work"
            yield Finding(
                level,
                "import",
                f"The script imports {item.module} ({when}), but {around.answer.executable} has no {needed}.",
                _install(needed, around.answer),
                around.name(source),
                item.line,
            )


def _install(module: str, answer: python.Answer) -> str:
    return _REMOVED.get(module) or f"{answer.executable} -m pip install {PIP_NAMES.get(module, module)}"


# --- CUDA
# ------------------------------------------------------------------------------------------------------------

def _cuda(reader: Reader, around: Surroundings) -> Iterator[Finding]:
    """Hard-coded CUDA where no GPU is visible. Behind a question for a GPU it is fine;
    behind another `if` it is a note; where it is reached whenever the script runs, the run fails."""
    if not around.no_gpu or any(_CPU_WORD.fullmatch(w) for w in around.command):
        return
    lines: dict[tuple[str, bool], dict[int, str]] = {}
    for line, what, guards in _cuda_uses(reader):
        if not any(_ASKS_FOR_GPU.search(g) for g in guards):
            lines.setdefault(("note" if guards else "warn", what == _NCCL), {}).setdefault(line, what)
    fatal = _fatal_lines(reader)
    for (level, nccl), found in sorted(lines.items(), key=lambda each: min(each[1])):
        sure = sorted(fatal & set(found)) if level == "warn" else []
        first = sure[0] if sure else min(found)
        more = sorted(n for n in found if n != first)
        listed = ", ".join([*map(str, more[:5]), *(["and more"] if len(more) > 5 else [])])
        also = f" The same problem in line{'s' if len(more) > 1 else ''} {listed}." if more else ""
        sometimes = " in some cases" if level == "note" else ""
        text = (
            f"The script starts one process per GPU{sometimes}. No GPU is visible, so the script would start "
            "no process and train nothing."
            if found[first] == _PER_GPU
            else f"{found[first]} needs a GPU{sometimes}, but no GPU is visible."
        )
        yield Finding("fail" if sure else level, "cuda", f"{text}{also}",
                      _cuda_hint(first, nccl, bool(sure)), around.name(reader.source), first)


def _cuda_uses(reader: Reader) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for call in reader.calls:
        what = _cuda_call(call)
        if what:
            yield call.line, what, call.guards
    for text in reader.texts:
        if _CUDA_TEXT.fullmatch(text.value) and text.role in ("assigned to device", "default of device"):
            yield text.line, f'device "{text.value}"', text.guards


def _cuda_hint(line: int, nccl: bool, sure: bool) -> str:
    if nccl:
        return (
            f'In line {line}, replace "nccl" by this expression: '
            '"nccl" if torch.cuda.is_available() else "gloo"'
        )
    if sure:
        return (
            f"In line {line}, write `.to(device)`. Before that line, add: "
            'device = "cuda" if torch.cuda.is_available() else "cpu"'
        )
    return _ASK_FIRST


def _fatal_lines(reader: Reader) -> set[int]:
    """Lines that need a GPU and are reached whenever the script runs. Empty if anything in its text may
    decide otherwise."""
    torch = any(each.top == "torch" for each in reader.source.imports)
    if not torch or _IN_DOUBT.search(reader.source.text):
        return set()
    return {call.line for call in reader.calls if call.certain and not call.guards and _is_fatal(call)}


def _is_fatal(call: Call) -> bool:
    what = _cuda_call(call)
    given = [*call.node.args, *(k.value for k in call.node.keywords)]
    literal = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in given)
    if what == _NCCL:
        return literal
    of = ast.unparse(call.node.func.value) if isinstance(call.node.func, ast.Attribute) else ""
    moved = call.method == "cuda" or (call.method == "to" and literal)
    return bool(what) and moved and not _STATELESS.search(of)


def _cuda_call(call: Call) -> str:
    if (
        call.method == "cuda"
        and not call.name.startswith(("torch.cuda", "torch.version"))
        and len(call.args) <= 1
    ):
        return ".cuda()"
    if call.name in _NEEDS_CUDA:
        return f"{call.name}()"
    if call.name.endswith("init_process_group") and "nccl" in (
        *call.positional_texts[:1],
        call.keywords.get("backend"),
    ):
        return _NCCL
    if call.name.endswith("device_count") and call.inside.endswith(("spawn", "nprocs", "world_size")):
        return _PER_GPU
    if call.method == "to" and len(call.args) == 1 and _RANK_NAME.fullmatch(dotted(call.args[0])):
        return f".to({dotted(call.args[0])})"
    named = (
        *call.positional_texts[:1],
        call.keywords.get("device", ""),
        call.keywords.get("map_location", ""),
    )
    devices = [t for t in named if _CUDA_TEXT.fullmatch(t)]
    if devices and (
        call.method == "to"
        or call.name == "torch.device"
        or "device" in call.keywords
        or "map_location" in call.keywords
    ):
        return f'{call.method or call.name}("{devices[0]}")'
    return ""


# --- questions, terminals, keys
# ------------------------------------------------------------------------------------------

def _questions(reader: Reader, around: Surroundings) -> Iterator[Finding]:
    for call in reader.calls:
        if call.name == "input" and not call.shadowed and len(call.args) <= 1 and not call.keywords:
            yield Finding(
                "note" if call.guards else "warn",
                "question",
                "The script calls input(), but a detached run has no input.",
                "Run in the foreground, use --stdin FILE, or pass the answer as an option of the script.",
                around.name(reader.source),
                call.line,
            )
        elif (
            call.name in ("pdb.set_trace", "breakpoint", "ipdb.set_trace", "getpass.getpass")
            and not call.shadowed
        ):
            yield Finding(
                "warn",
                "question",
                f"{call.name}() waits for keyboard input.",
                "Remove this call before you start a detached run.",
                around.name(reader.source),
                call.line,
            )


def _terminal(reader: Reader, around: Surroundings) -> Iterator[Finding]:
    for call in reader.calls:
        stty = call.name in SHELLS and any(re.search(r"(^|\s)stty\b", t) for t in call.texts)
        if (stty or call.name in _TERMINAL) and not call.forgiven:
            what = "stty" if stty else f"{call.name}()"
            yield Finding(
                "warn",
                "terminal",
                f"{what} needs a terminal. A detached run has no terminal, so this call fails there.",
                (
                    "Run in the foreground and detach with Ctrl-Z. Or use shutil.get_terminal_size(): "
                    "this function also works without a terminal."
                ),
                around.name(reader.source),
                call.line,
            )


def _wandb(reader: Reader, around: Surroundings) -> Iterator[Finding]:
    env = around.env
    if (
        env.get("WANDB_API_KEY")
        or env.get("WANDB_DISABLED")
        or env.get("WANDB_MODE", "online") in ("offline", "disabled", "dryrun")
    ):
        return
    if _wandb_login(around):
        return
    for call in reader.calls:
        if call.name != "wandb.init" and not call.name.endswith(".WandbLogger"):
            continue
        if call.keywords.get("mode", "online") != "online" or call.keywords.get("offline") == "True":
            continue
        yield Finding(
            "note" if call.guards else "warn",
            "wandb",
            f"{call.name} has no API key, so the run fails or asks for a key.",
            "To log in: wandb login   To store the data locally: export WANDB_MODE=offline",
            around.name(reader.source),
            call.line,
        )
        return


def _wandb_login(around: Surroundings) -> bool:
    env = around.env
    files = (env.get("NETRC"), os.path.join(around.home, ".netrc"), os.path.join(around.home, "_netrc"))
    for path in files:
        try:
            if path and any("wandb" in host for host in netrc.netrc(path).hosts):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    try:
        settings = Path(
            env.get("WANDB_CONFIG_DIR") or os.path.join(around.home, ".config/wandb"), "settings"
        ).read_text("utf-8", "replace")
    except OSError:
        return False
    return bool(
        re.search(
            r"^\s*(mode\s*=\s*(offline|disabled)|disabled\s*=\s*true|base_url\s*=)", settings, re.MULTILINE
        )
    )


# --- the repository
# ------------------------------------------------------------------------------------------------------

def submodules(folder: Path) -> Iterator[Finding]:
    """Git submodules that were not fetched, of the repository that holds `folder`."""
    top = next(
        (p for p in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(p / ".git")), None
    )
    if top is None:
        return
    try:
        lines = (top / ".gitmodules").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for n, line in enumerate(lines, 1):
        key, _, value = line.partition("=")
        if key.strip() != "path":
            continue
        place = top / value.strip().strip('"')
        if not place.is_dir() or not any(place.iterdir()):
            yield Finding(
                "warn",
                "submodule",
                f"The submodule {value.strip()} has not been fetched yet: its folder is empty.",
                "git submodule update --init --recursive",
                os.path.relpath(top / ".gitmodules", folder),
                n,
            )

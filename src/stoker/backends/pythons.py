"""Looks on a machine for interpreters: of a login shell, an interactive one, conda and virtual environments,
each with its torch, and with the modules that it lacks.

The far end runs this file, so it is standard library only and runs on Python 3.8.
Nothing is imported from what it finds.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys

SHELL_S = 8.0  # for a shell with its start-up files
ASK_S = 5.0
MOST = 40
MARK = "stoker-python:"
SHOW = """
import json, os, sys, sysconfig
torch = ""
for place in {sysconfig.get_path(name) for name in ("purelib", "platlib")} | {each for each in sys.path if each.endswith("-packages")}:
    try:
        names = os.listdir(place)
    except OSError:
        continue
    torch = torch or next((n[6:-10] for n in names if n.startswith("torch-") and n.endswith(".dist-info")), "")
told = {"version": "%d.%d.%d" % sys.version_info[:3], "torch": torch, "prefix": sys.prefix, "executable": sys.executable}
sys.path[:] = [each for each in sys.path if each]
def lacks(name):
    import importlib.util
    try:
        return importlib.util.find_spec(name) is None
    except Exception:
        return True
told["lacks"] = [name for name in sys.argv[1:] if lacks(name)]
# PEP 668: pip refuses to install there
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
told["managed"] = sys.prefix == sys.base_prefix and os.path.exists(marker)
print(json.dumps(told))
"""  # noqa: E501
PLACES = (
    (
        "conda",
        (
            "/opt/conda",
            "/opt/miniconda3",
            "/root/miniconda3",
            "~/miniconda3",
            "~/anaconda3",
            "~/miniforge3",
            "~/mambaforge",
            "/opt/conda/envs/*",
            "/root/miniconda3/envs/*",
            "~/miniconda3/envs/*",
            "~/anaconda3/envs/*",
            "~/miniforge3/envs/*",
            "~/mambaforge/envs/*",
            "~/.conda/envs/*",
        ),
    ),
    (
        "venv",
        (
            "~/env",
            "~/venv",
            "~/.venv",
            "~/*/venv",
            "~/*/.venv",
            "~/*/env",
            "~/.virtualenvs/*",
            "/venv",
            "/opt/venv",
            "/workspace/venv",
            "/workspace/.venv",
        ),
    ),
)


def find(modules=()):
    """`{"python", "version", "torch", "found": "login shell" | ..., "typed"}` of each interpreter;
    interpreters of shells come first. `typed`: what a user types for `--python`, such as ~/env.
    With `modules`, also `lacks`: the modules that the interpreter does not find, and `managed`: pip cannot
    install packages for the interpreter."""
    wanted = []
    for words, flags in (("login shell", "-lc"), ("interactive shell", "-ic")):
        wanted += [(path, words) for path in of_shell(flags)]
    for name in ("python3", "python"):
        wanted += [
            (os.path.join(folder, name), "PATH")
            for folder in os.environ.get("PATH", "").split(os.pathsep)
            if folder
        ]
    wanted += [(os.path.join(each, "bin", "python"), "conda") for each in listed_by_conda()]
    venvs = sorted(glob.glob(os.path.expanduser("~/*/pyvenv.cfg")))
    wanted += [(os.path.join(os.path.dirname(each), "bin", "python"), "venv") for each in venvs[:MOST]]
    for words, patterns in PLACES:
        for pattern in patterns:
            wanted += [
                (os.path.join(each, "bin", "python"), words)
                for each in sorted(glob.glob(os.path.expanduser(pattern)))
            ]
    found = {}
    for path, words in wanted:
        if len(found) < MOST and path not in found and os.access(path, os.X_OK) and os.path.isfile(path):
            told = ask(path, modules)
            if told and (os.path.realpath(path), told["prefix"]) not in [
                each["same"] for each in found.values()
            ]:
                found[path] = {
                    "python": path,
                    "found": words,
                    "version": told["version"],
                    "torch": told["torch"],
                    "typed": typed(path, told["prefix"]),
                    **({"lacks": told["lacks"], "managed": told["managed"]} if modules else {}),
                    "same": (os.path.realpath(path), told["prefix"]),
                }
    return [{name: value for name, value in each.items() if name != "same"} for each in found.values()]


def of_shell(flags):
    """Interpreters that `python3` and `python` mean in the user's shell; [] if the shell does not answer."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    asked = "; ".join(f"command -v {name} | sed 's/^/{MARK}/'" for name in ("python3", "python"))
    text = run([shell, flags, asked], SHELL_S)
    return [line[len(MARK):] for line in text.splitlines() if line.startswith(MARK + "/")]


def listed_by_conda():
    """Environments in conda's own list."""
    try:
        with open(os.path.expanduser("~/.conda/environments.txt")) as f:
            return [line.strip() for line in f if line.startswith("/")]
    except (OSError, ValueError):
        return []


def typed(path, prefix):
    """The folder of an environment, or the path of another interpreter; with ~ for the home folder."""
    marked = any(os.path.exists(os.path.join(prefix, each)) for each in ("pyvenv.cfg", "conda-meta"))
    # `--python` takes a folder with such a name for an interpreter
    named = os.path.basename(prefix).startswith(("python", "pypy"))
    if marked and not named and path.startswith(os.path.join(prefix, "bin") + "/"):
        path = prefix
    home = os.path.expanduser("~")
    return "~" + path[len(home):] if home != "/" and path.startswith(home + "/") else path


def ask(python, modules=()):
    """What SHOW prints about an interpreter; None if it does not answer."""
    try:
        told = json.loads(run([python, "-I", "-c", SHOW, *modules], ASK_S).splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return told if isinstance(told, dict) else None


def run(argv, limit_s):
    """Output of a program, at most 100 kB; "" if it fails or takes too long."""
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.communicate(timeout=limit_s)[0][:100000].decode("utf-8", "replace")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return ""
    except OSError:
        return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(find(sys.argv[1:])) + "\n")

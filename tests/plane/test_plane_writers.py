"""Which commands may write files to their folder: trainings and all unknown programs, but nothing that only waits and sends a message."""

from __future__ import annotations

import shlex

import pytest

from stoker.plane.writers import may_write

TEXTS_QUIET = [
    "stoker wait job; echo told $?",
    'stoker wait job; mail -s "job ended with exit code $?" you@example.com </dev/null',
    "stoker wait job && notify-send 'job ended'",
    "stoker wait job 2>&1; echo told >/dev/null",
    "while ! stoker wait job; do sleep 5; done",
    "if stoker wait job; then echo 'it > worked'; fi",
]
QUIET = [
    *(["sh", "-c", text] for text in TEXTS_QUIET),
    *map(str.split, ["sleep 600", "/opt/x/bin/stoker wait job", "stoker ps"]),
]
TEXTS_LOUD = [
    "make train", "stoker wait job; make train", "stoker wait job; python train.py", "cd a && exec python -m b", "echo told > told.txt",
    "echo told >> $HOME/told", "echo told >1", "date | tee told", "stoker wait job; ./next.sh", "echo $(make train)", "echo `make train`", "f() { make; }; f",
    "$NEXT", "stoker pull job", "stoker wait job; stoker run train.py", "curl -sO https://example.com/x", "curl --output x example.com", "nvidia-smi -l 1 -f gpu.csv", "cat <<EOF\nx\nEOF\nmake",
    'echo "<" ; make', "echo 'no end", 'sleep 1 # "\nmake train\n# "', "ls | xargs make", "env -S 'make train'",
    "env '-Smake train'", "source go.sh", "sleep 1\nmake", "sleep 1 &> log", "x() (make)", "if make; then true; fi", "nohup train &", "ntfy sub x make",
]
LOUD = [
    *(["sh", "-c", text] for text in TEXTS_LOUD),
    *map(str.split, ["train.py", "python train.py", "python -m pkg.train", "bash train.sh", "torchrun --nproc_per_node 2 train.py", "make train", "./train.sh",
                     "./sleep 5", "bin/mail x", "nice -n 5 make", "env A=1 python train.py", "accelerate launch train.py", "srun train", "sh", "bash -s", "cp a b", "stoker"]),
]


@pytest.mark.parametrize("command", QUIET, ids=shlex.join)
def test_what_only_waits_and_tells_writes_nothing(command: list[str]) -> None:
    assert not may_write(command)


@pytest.mark.parametrize("command", LOUD, ids=shlex.join)
def test_what_trains_or_is_not_known_may_write(command: list[str]) -> None:
    assert may_write(command)

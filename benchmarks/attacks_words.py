"""Attacks by words: what a run writes, and what it is called, must not steer a terminal or forge a line."""

from __future__ import annotations

from benchmarks.attacks import Attack, attack
from benchmarks.ground import Ground, until

ATTACKS: list[Attack] = []
GROUP = "logs and words"
EVIL = "\\u001b[31m\\u009b2J\\udc9b5m\\u202egnp.\\nforged line"  # as JSON writes it
SCRIPT = """
import os, pathlib, sys, time
r = pathlib.Path(os.environ["STOKER_RUN_DIR"])
a = r / "attempts" / "1"
evil = r'{evil}'
(r / "code" / "commit.json").write_text('{{"commit": "' + evil + '", "dirty": true}}')
(r / "resume").mkdir(exist_ok=True)
(r / "resume" / "state.json").write_text('{{"state": "' + evil + '", "reason": "' + evil + '"}}')
pathlib.Path(sys.argv[1]).touch()
{more}
"""


def _bad(text: bytes) -> list[bytes]:
    """What a terminal would obey, or read from right to left, and lines that nobody of Stoker's wrote."""
    marks = (b"\x1b[31m", b"\xc2\x9b", b"\x9b", "\u202e".encode())
    return [mark for mark in marks if mark in text] + [
        line for line in text.splitlines() if line.startswith(b"forged line")
    ]


def _told(ground: Ground, more: str) -> None:
    mark = ground.root / "words"
    mark.unlink(missing_ok=True)
    script = ground.script("words.py", SCRIPT.format(evil=EVIL, more=more))
    run = ground.detach("--", "python", "-I", str(script), str(mark))
    until(mark.exists, 20, "the words")
    texts = [_all(ground, run["id"])]
    done = ground.stoker("stop", "--force", run["id"])
    ground.wait_state(run["id"])
    texts += [done.stdout + done.stderr, _all(ground, run["id"])]
    for text in texts:
        assert not _bad(text), f"{_bad(text)!r} in {text!r}"
    reason = ground.show(run["id"])["reason"]
    assert reason in ("stopped_by_user", "unknown", "nonzero_exit"), f"the reason is {reason!r}"


def _all(ground: Ground, run_id: str) -> bytes:
    told = [ground.stoker(*words) for words in (("show", run_id), ("ps", "-a"), ("top",))]
    term = ground.terminal("show", run_id)
    term.wait()
    seen = bytes(term.seen)
    term.close()
    return b"".join(done.stdout + done.stderr for done in told) + seen


@attack(ATTACKS, GROUP, "escapes in commit.json and state.json")
def files(ground: Ground) -> None:
    _told(ground, "time.sleep(100)")


@attack(ATTACKS, GROUP, "escapes in the reason of stop.json")
def stop_reason(ground: Ground) -> None:
    _told(
        ground,
        """(a / "stop.json").write_text('{"reason": "' + evil + '", "grace_s": [0, 0]}'); time.sleep(100)""",
    )


@attack(ATTACKS, GROUP, "escapes in a forged exit.json")
def forged_exit(ground: Ground) -> None:
    _told(
        ground,
        """(a / "exit.json").write_text('{"code": 1, "reason": "' + evil + '", "signal_name": "' + evil + '", "evidence": '
    '{"detail": "' + evil + '", "tail": "' + evil + '", "' + evil + '": "' + evil + '"}}'); time.sleep(15)""",  # noqa: E501
    )


@attack(ATTACKS, GROUP, "an exception with escapes")
def exception(ground: Ground) -> None:
    _told(ground, """raise ValueError("\\x1b[31m\\x9b2J\\u202e\\nforged line")""")


@attack(ATTACKS, GROUP, "file names with escapes and raw bytes")
def file_names(ground: Ground) -> None:
    _told(
        ground,
        """os.chdir(os.path.dirname(sys.argv[0]) or "."); os.close(os.open(b"\\x9b31m\\x1b[31m", os.O_CREAT)); time.sleep(100)""",  # noqa: E501
    )


@attack(ATTACKS, GROUP, "names that no run may have", quick=True)
def names(ground: Ground) -> None:
    for name in ("-x", "--", "a\nb", "a\x1b[31m", "../x", "a/b", "\u202egnp", "a\x9bm"):
        done = ground.stoker("run", "-d", f"--name={name}", "--", "true")
        assert done.code == 125 and "hint:" in done.err, f"{name!r} was taken"
        assert not _bad(done.stderr), done.stderr

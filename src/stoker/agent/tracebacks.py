"""The last words of a run in its log: exceptions, and where in the script they came from."""

from __future__ import annotations

import os
import re
import signal

from .machine import is_local
from .words import signal_number


def clean_lines(raw: bytes) -> list[str]:
    """Lines as a person saw them: tolerant of any bytes, without colours, progress bars cut at CR."""
    text = re.sub(
        r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])",
        "",
        raw.decode("utf-8", "replace"),
    )
    return re.split(r"\r\n|\r|\n", text)


class LastWords:
    """What the end of a log says: the exception that ended the run,
    and under torchrun the first failing rank's own.

    exception: {"type", "message", "file", "line", "rank"?} or None. said: the texts of that exception and
        of those it was raised from. child_signal:
    the signal that killed the first failing rank, or 0.
    """

    def __init__(
        self,
        lines: list[str],
        *,
        stderr_at: int,
        cwd: str,
        ends: list[dict],
        pid: int | None,
        in_order: bool,
        hooked: frozenset = frozenset(),
    ) -> None:
        self.hooked = hooked
        self.lines, self.stderr_at, self.cwd, self.ends, self.pid, self.in_order = (
            lines,
            stderr_at,
            cwd,
            ends,
            pid,
            in_order,
        )
        every, self.aside = parse_exceptions(lines, cwd)
        self.found = [e for e in every if not e["thread"]]
        self.threads = [e for e in every if e["thread"]]
        self.handled = 0  # lines up to here tell of exceptions that the script handled
        self.root_rank: int | None = None
        self.child_signal = 0
        self.failed_ranks = 0
        self._launcher(lines)
        self._spawner(lines)
        chosen = self.chosen = self._choose()
        self.said = ""
        self.exception = None
        if chosen is not None:
            self.said = "\n".join("%s: %s" % (e["type"], e["message"]) for e in [chosen] + chosen["from"])
            rank = chosen["rank"] if chosen["rank"] is not None else self.root_rank
            self.exception = {
                "type": chosen["type"],
                "message": chosen["message"][:1000],
                "file": chosen["file"],
                "line": chosen["line"],
            }
            if rank is not None:
                self.exception["rank"] = rank

    def _launcher(self, lines: list[str]) -> None:
        """torchrun's table: which rank failed first, and how."""
        at = next(
            (i for i in range(len(lines) - 1, -1, -1) if "Root Cause (first observed failure)" in lines[i]),
            None,
        )
        if at is None:
            return
        for line in lines[at:at + 12]:
            rank = re.search(r"\brank\s*:\s*(\d+) \(local_rank", line)
            code = re.search(r"\bexitcode\s*:\s*(-?\d+)", line)
            if rank:
                self.root_rank = int(rank.group(1))
            if code:
                self.child_signal = max(0, -int(code.group(1)))
        self.failed_ranks = 1 + sum(
            1 for line in lines[max(0, at - 200) : at] if re.search(r"\brank\s*:\s*\d+ \(local_rank", line)
        )

    def _spawner(self, lines: list[str]) -> None:
        """As `_launcher`, for torch.multiprocessing.spawn."""
        import re
        for line in lines:
            killed = re.search(r"\bprocess (\d+) terminated with signal (SIG[A-Z0-9]+)", line)
            raised = re.search(r"^-- Process (\d+) terminated with the following error", line)
            found = killed or raised
            if found:
                self.root_rank, self.child_signal = (
                    int(found.group(1)),
                    signal_number(killed.group(2)) if killed else 0,
                )
                self.failed_ranks = 1

    def aborted_after(self, lines: list[str]) -> bool:
        """Did the abort that ended it come of the exception, as that left the interpreter? Nothing but the
        abort's own words follows."""
        if self.exception is None or self.chosen is None:
            return False
        import re

        words = re.compile(
            r"terminate called|what\(\)|Exception raised from|frame #|Aborted|core dumped|Fatal Python "
            r"error|\W*$|\s"
        )
        return all(words.match(line) for line in lines[self.chosen["at"] + 1:])

    def _choose(self) -> dict | None:
        own = [e for e in self.found if not e["launcher"]]
        if self.root_rank is None:
            return self._of_process(own)
        # killed: what other ranks say is an effect, unless it is what the failed rank aborted of
        if self.child_signal:
            aborted = self.child_signal == signal.SIGABRT
            own = [
                e
                for e in own
                if e["rank"] == self.root_rank or (aborted and e["rank"] is None and not e["secondary"])
            ]
            return own[-1] if own else None
        told = next(
            (
                end["uncaught"]
                for end in reversed(self.ends)
                if end["rank"] == str(self.root_rank) and end["uncaught"]
            ),
            None,
        )
        ranked = [self._as_told(told)] if told else [e for e in own if e["rank"] == self.root_rank]
        causes = [e for e in own[-self.failed_ranks:] if not e["secondary"]]
        # a rank whose peer is gone may be seen to fail before the peer that failed
        if ranked and not (ranked[-1]["secondary"] and causes):
            return ranked[-1]
        return causes[0] if causes else (own[-1] if own else None)

    def _of_process(self, own: list[dict]) -> dict | None:
        """What the main process says of its end decides.
        Without its word, and where it handled all of its exceptions,
        only a traceback counts that was printed last."""
        main = next((end for end in reversed(self.ends) if end["pid"] == self.pid), None)
        if main is not None and main["uncaught"]:
            told = self._as_told(main["uncaught"])
            if not told["launcher"]:
                return told
        elif main is not None or self.in_order or any(self.lines[self.stderr_at:]):
            counted = [
                e for e in self.found if self._printed_last(e) or (main is None and self._ended_a_process(e))
            ]
            if self.found and not counted:
                self.handled = self.found[-1]["at"] + 1
            return self._last([e for e in counted if not e["launcher"]] or counted, main)
        return self._last(own or self.found, main)

    def _last(self, found: list[dict], main: dict | None) -> dict | None:
        """Of a hooked process that left by os._exit the log alone can tell:
        there a thread's exception that was printed last counts too."""
        silent = main is None and self.pid in self.hooked
        threads = [e for e in self.threads if self._printed_last(e)] if silent else []
        kept = found or threads
        return kept[-1] if kept else None

    def _as_told(self, told: dict) -> dict:
        """The exception that a process says it ended by, with what the log has of it:
        chain, all lines of the message, and a traceback of another process that the message quotes."""
        alike = [e for e in self.found if e["type"] == told["type"]]
        same = [e for e in alike if self._is(e, told)]
        if not same:
            texts = [
                e["message"]
                for e in alike
                if told["message"] is None or e["message"].startswith(told["message"])
            ]
            message = texts[-1] if texts else told["message"] or ""
            made = make_exception(
                told["type"], message, {"frames": told["frames"], "from": []}, None, self.cwd
            )
            return dict(made, at=len(self.lines) - 1)
        chosen = same[-1]
        for e in self.found:
            if e["at"] > chosen["at"] and e["quoted"]:
                chosen = e
        return chosen

    def _is(self, e: dict, told: dict) -> bool:
        """Is this traceback of that exception? What cannot be compiled
        is shown at a place that is no frame."""
        if e["type"] != told["type"] or e["type"] in ("SyntaxError", "IndentationError", "TabError"):
            return e["type"] == told["type"]
        place = make_exception(told["type"], "", {"frames": told["frames"], "from": []}, None, self.cwd)
        return (e["file"], e["line"]) == (place["file"], place["line"])

    def _ended_a_process(self, e: dict) -> bool:
        return any(end["uncaught"] and self._is(e, end["uncaught"]) for end in self.ends)

    def _printed_last(self, e: dict) -> bool:
        """In its own stream, but for what launchers, libraries and the interpreter print at an end."""
        end = self.stderr_at if e["at"] < self.stderr_at else len(self.lines)
        after = re.compile(
            r"\W*$|\[\w+\]:\s*\[[WEI]|\[?[WEI]\d{4} |wandb: |Set the environment variable HYDRA_FULL_ERROR|"
            r"CUDA kernel errors might|For debugging consider passing|Compile with "
            r"`TORCH_USE_CUDA_DSA|terminate called|"
            r"Aborted|Fatal Python error|"
            r"make(?:\[\d+\])?: |srun: |slurmstepd: |.*\bresource_tracker\b|  warnings\.warn\("
        )
        return all(at in self.aside or after.match(self.lines[at]) for at in range(e["at"] + 1, end))


def parse_exceptions(lines: list[str], cwd: str) -> tuple[list[dict], set[int]]:
    """All Python exceptions in a text, in the order in which they end;
    lines of interleaved ranks are told apart by prefix.

    Also the lines that end nothing: of errors that Python only tells of, of threads, and those that a message
    goes on with."""
    header = re.compile(r"Traceback \(most recent call last\):\s*$")
    prefix = re.compile(r"^\[(?:rank|default|[a-z_]+)(\d+)\]:\s?")
    frame = re.compile(r'^\s*File "(.+)", line (\d+)(?:, in .*)?$')
    final = re.compile(r"^((?:(?:[^\W\d]\w*|<locals>)\.)*[^\W\d]\w*)(?::(?: (.*))?)?$")
    told_only = re.compile(r"Exception ignored |(Exception in thread )|Error in atexit\._run_exitfuncs")
    chained = re.compile(
        r"^(During handling of the above exception|The above exception was the direct cause)"
    )
    open_: dict[int | None, dict] = {}
    ended: dict[int | None, dict] = {}  # the last one of each rank: for chains and message lines
    # ranks whose next traceback is of an error that Python only tells of; True: a thread's
    ignored: dict[int | None, bool] = {}
    aside: set[int] = set()
    found: list[dict] = []
    for at_line, line in enumerate(lines):
        m = prefix.match(line)
        rank = int(m.group(1)) if m else None
        text = line[m.end():] if m else line
        if text.startswith(("  | ", "  +-")):  # a group of exceptions: what is within it stands further in
            text = text[4:]
        only = told_only.match(text)
        if only:
            ignored[rank] = bool(only.group(1))
            aside.add(at_line)
            continue
        if rank in ignored or (rank in open_ and open_[rank]["ignored"]):
            aside.add(at_line)
        if header.search(text):
            previous = ended.get(rank)
            chain = [previous] + previous["from"] if previous is not None and previous.get("chained") else []
            # what a quoted one led to is quoted too
            quoted = "Original Traceback" in text or bool(chain and chain[0]["quoted"])
            open_[rank] = {
                "frames": [],
                "from": chain,
                "ignored": rank in ignored,
                "thread": ignored.pop(rank, False),
                "quoted": quoted,
            }
            continue
        at = frame.match(text)
        block = open_.get(rank)
        if at:
            if block is None:  # a SyntaxError at the top has no header
                block = open_[rank] = {
                    "frames": [],
                    "from": [],
                    "ignored": False,
                    "thread": False,
                    "quoted": False,
                }
            block["frames"].append((at.group(1), int(at.group(2))))
            continue
        if block is None:
            last = ended.get(rank)
            if last is not None:
                if chained.match(text):
                    last["chained"] = True
                elif last["open"] and text[:1] in ("\t", " ") and text.strip() and last["open"] < 6:
                    last["message"] += "\n" + text.strip()
                    last["open"] += 1
                    aside.add(at_line)
                elif text.strip():
                    last["open"] = 0
            continue
        if not text.strip() or text[0] in " \t|+":
            continue
        m = final.match(text)
        if not m or not block["frames"] and "." not in m.group(1) and not m.group(1)[0].isupper():
            continue
        del open_[rank]
        e = dict(
            make_exception(m.group(1), m.group(2) or "", block, rank, cwd),
            at=at_line,
            quoted=block["quoted"],
            thread=block["thread"],
        )
        if block["ignored"]:  # of a `__del__`: it ends nothing
            ended.pop(rank, None)
            found += [e] if e["thread"] else []
            continue
        found.append(e)
        ended[rank] = e
    return found, aside


def make_exception(kind: str, message: str, block: dict, rank: int | None, cwd: str) -> dict:
    """The innermost frame of the user's own code names file and line, else the innermost of a library;
    Stoker's frames never do.

    A command of `python -c` or on stdin is the user's own code too. A file that is not there counts less:
    its name is made up, or it is gone.
    """
    library = re.compile(r"(/site-packages/|/dist-packages/|/lib/python\d|^<)")
    frames = [f for f in block["frames"] if "/stoker_hooks/" not in f[0]]
    command = frames[0][0] if frames and frames[0][0] in ("<string>", "<stdin>") else None
    own = [f for f in frames if f[0] == command or not library.search(f[0])]
    there = next((f for f in reversed(own) if f[0] == command or is_there(os.path.join(cwd, f[0]))), None)
    file, line = there or (own or frames or [(None, None)])[-1]
    launcher = kind.endswith(("ChildFailedError", "ProcessExitedException")) or any(
        "/torch/distributed/run.py" in f
        or "/torch/distributed/launcher/" in f
        or "/distributed/elastic/" in f
        for f, _ in block["frames"]
    )
    effect = (
        r"Connection (closed|reset) by peer|Broken pipe|remote process exited|Socket "
        r"Timeout|SignalException|store.*closed"
    )
    secondary = bool(re.search(effect, kind + " " + message))
    return {
        "type": kind,
        "message": message,
        "file": file,
        "line": line,
        "rank": rank,
        "from": block["from"],
        "launcher": launcher,
        "secondary": secondary,
        "open": 1,
    }


def is_there(path: str) -> bool:
    """A remote file system may hang: what lies there is taken as it is said."""
    return not is_local(path) or os.path.exists(path)

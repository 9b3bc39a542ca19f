"""`stoker run` in the foreground is like plain python: the same bytes, streams, signals and exit code, on a terminal and on pipes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
from benchmarks.ground import STOKER, Ground, Terminal, kill, until

COLOURFUL = r"""
import sys, os
print("plain line")
sys.stderr.write("to stderr\n"); sys.stderr.flush()
sys.stdout.write("\rprogress 10%"); sys.stdout.flush()
sys.stdout.write("\rprogress 99%\n"); sys.stdout.flush()
os.write(1, b"\x1b[31mred\x1b[0m \xff\xfe \x00 \t|\n\n")
print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size() if os.isatty(1) else None)
sys.exit(7)
"""
SLEEPER = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"
COUNTER = """
import os, sys, time
for i in range(int(sys.argv[1])):
    os.write(1, b"line %d\\n" % i)
    if len(sys.argv) > 2: os.write(2, b"error %d\\n" % i)
    time.sleep(0.02)
"""


def lines(word: str, count: int) -> bytes:
    return b"".join(f"{word} {i}\n".encode() for i in range(count))


def plain(ground: Ground, *argv: str) -> Terminal:
    """Plain python on a terminal, for comparison."""
    return ground.terminal(argv=[sys.executable, *argv])


# ---- bytes

def test_a_terminal_sees_the_bytes_of_plain_python(place: Ground):
    place.script("train.py", COLOURFUL)
    bare, ours = plain(place, "train.py"), place.terminal("run", "train.py")
    assert (bare.wait(), ours.wait()) == (7, 7)
    told = ours.seen[len(bare.seen):]
    assert ours.seen[:len(bare.seen)] == bare.seen
    assert told.startswith(b"stoker: ") and told.count(b"\n") == 1
    assert ours.settings() == ours.initial
    ours.close()
    bare.close()


def test_a_run_never_sees_another_size_than_that_of_its_terminal(place: Ground):
    place.script("train.py", "import os, sys\nprint(os.get_terminal_size())\nsys.stdin.read(1)\n")
    for words in (["train.py"], ["--copy", "train.py"]):
        term = Terminal([STOKER, "run", "--new", *words], place.work, place.env, rows=31, columns=97)
        term.expect(b"columns=97, lines=31")
        term.send(b"\n")
        assert term.wait() == 0
        term.close()


def test_pipes_carry_the_bytes_of_plain_python(place: Ground):
    place.script("train.py", COLOURFUL)
    bare = subprocess.run([sys.executable, "train.py"], cwd=place.work, input=b"", capture_output=True, check=False)
    done = place.stoker("run", "train.py")
    assert (done.stdout, done.code) == (bare.stdout, bare.returncode)
    assert done.stderr.startswith(bare.stderr)
    assert done.stderr[len(bare.stderr):].startswith(b"stoker: ")


def test_a_run_that_ends_well_is_told_nothing_about(ground: Ground):
    done = ground.stoker("run", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.code) == (b"out\n", b"err\n", 0)


def test_one_file_for_both_streams_keeps_their_order(place: Ground):
    place.script("train.py", COUNTER)
    with open(place.root / "both", "wb") as f:
        subprocess.run([STOKER, "run", "train.py", "20", "x"], cwd=place.work, env=place.env, stdin=subprocess.DEVNULL, stdout=f, stderr=f, check=True)
    assert (place.root / "both").read_bytes() == b"".join(b"line %d\nerror %d\n" % (i, i) for i in range(20))


def test_buffering_is_that_of_plain_python(place: Ground):
    assert place.stoker("run", "--", "python", "-c", "import os; print(os.environ.get('PYTHONUNBUFFERED'))").out == "None\n"


@pytest.mark.parametrize(("command", "code"), [
    (["true"], 0), (["false"], 1), (["sh", "-c", "exit 42"], 42), (["sh", "-c", "kill -TERM $$"], 143), (["sh", "-c", "kill -KILL $$"], 137),
    (["python", "-c", "raise SystemExit(255)"], 255),
])
def test_the_exit_code_is_the_runs(place: Ground, command: list[str], code: int):
    assert place.stoker("run", "--", *command).code == code


def test_the_exit_line_says_what_to_type_next(ground: Ground):
    done = ground.stoker("run", "--name", "broken", "--", "sh", "-c", "exit 3")
    assert done.code == 3
    assert "exit code 3" in done.err and "stoker logs" in done.err


# ---- stdin

def test_stdin_is_passed_through_to_its_end(place: Ground):
    data = os.urandom(3_000_000)
    done = place.stoker("run", "--", "sh", "-c", "sha256sum; echo more", stdin=data)
    bare = subprocess.run(["sha256sum"], input=data, capture_output=True, check=True)
    assert done.stdout == bare.stdout + b"more\n"


def test_stdin_from_a_file_and_from_nothing(place: Ground):
    (place.work / "words").write_bytes(b"a\x00b\n")
    with open(place.work / "words", "rb") as f:
        done = subprocess.run([STOKER, "run", "cat"], cwd=place.work, env=place.env, stdin=f, capture_output=True, check=True)
    assert done.stdout == b"a\x00b\n"
    for closing in ("<&-", "</dev/null"):
        done = subprocess.run(["sh", "-c", f"{STOKER} run -- sh -c 'cat; echo end' {closing}"], cwd=place.work, env=place.env,
                              capture_output=True, check=True, timeout=60)
        assert done.stdout == b"end\n"


def test_a_pipe_that_is_written_to_later(place: Ground):
    place.script("echo.py", "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)\nprint('end')\n")
    client = place.start_stoker("run", "echo.py", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    for word in (b"one\n", b"two\n"):
        client.stdin.write(word)
        assert client.stdout.readline() == b"got " + word
    client.stdin.close()
    assert client.stdout.read() == b"end\n"
    assert client.wait(20) == 0


def test_closed_output_of_the_client(place: Ground):
    done = subprocess.run(["sh", "-c", f"{STOKER} run -- sh -c 'echo x; echo y >&2; exit 5' >&- 2>&-"], cwd=place.work, env=place.env, check=False,
                          timeout=60)
    assert done.returncode == 5


def test_a_reader_that_leaves(ground: Ground):
    """`| head -1`: the client leaves with SIGPIPE's code and the run goes on."""
    ground.script("train.py", COUNTER)
    client = ground.start_stoker("run", "--name", "mine", "train.py", "100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stdout.readline() == b"line 0\n"
    client.stdout.close()
    assert client.wait(20) == 141
    assert client.stderr.read().decode().count("stoker attach mine") == 1
    assert ground.wait_state("mine")["state"] == "done"
    assert ground.stoker("logs", "mine").stdout == lines("line", 100)


# ---- signals

# The handler writes past print: a signal that comes while "begun" is on its way would find print at work, which is an error of Python's.
STUBBORN = """
import os, signal, time
for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda n, frame: os.write(1, f"got {signal.Signals(n).name}\\n".encode()))
print("begun", flush=True)
while True: time.sleep(0.05)
"""


def test_signals_of_the_client_are_handed_on(ground: Ground):
    ground.script("train.py", STUBBORN)
    client = ground.start_stoker("run", "--grace", "1s", "train.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stdout.readline() == b"begun\n"
    for sign in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGINT):
        client.send_signal(sign)
        line = client.stdout.readline()
        assert line == b"got " + sign.name.encode() + b"\n", line or (client.wait(20), client.stderr.read(), ground.runs())
    client.send_signal(signal.SIGINT)
    assert client.wait(40) not in (0, None)
    assert ground.runs()[0]["state"] == "stopped"
    assert b"Ending the run" in client.stderr.read()


def test_a_terminated_client_ends_a_run_that_does_not_catch_it(ground: Ground):
    ground.script("train.py", SLEEPER)
    client = ground.start_stoker("run", "train.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout.readline() == b"begun\n"
    client.terminate()
    assert client.wait(20) == 128 + signal.SIGTERM
    assert ground.runs()[0]["reason"] == "stopped_by_user"


@pytest.mark.parametrize(("words", "turns"), [
    ("run --new -- sh -c 'cat; echo $0' $lr < /dev/null", 3), ("run --new -d -- sh -c 'cat; echo $0' $lr", 3), ("run --new -- sh -c 'cat; echo $0' $lr", 1),
    ("run --new -- sh -c 'sleep 0.5; echo $0' $lr", 4), ("run --new -- true", 4), ("run --new -- sh -c 'read line; sleep 0.5' $lr", 2),
])
def test_a_run_in_a_loop_over_a_list_takes_from_it_what_it_reads(ground: Ground, words: str, turns: int):
    (ground.work / "list").write_text("0.1\n0.2\n0.3\n" + ("0.4\n" if turns != 3 else ""))
    subprocess.run(["bash", "-c", f"while read lr; do {shlex.quote(STOKER)} {words}; done < list"], cwd=ground.work, env=ground.env, check=True,
                   capture_output=True, timeout=60)
    assert len(ground.runs()) == turns


def test_a_list_in_a_pipe_that_a_run_took_and_did_not_read_is_told(ground: Ground):
    loop = f"printf '0.1\\n0.2\\n' | while read lr; do {shlex.quote(STOKER)} run --new -- sh -c 'sleep 0.5'; done"
    told = subprocess.run(["bash", "-c", loop], cwd=ground.work, env=ground.env, check=True, capture_output=True, text=True, timeout=60).stderr
    assert told == "stoker: Stoker read stdin (4 B), but the run did not read this input. In a shell loop, add `< /dev/null` to the command.\n"


def test_a_list_in_a_pipe_is_left_to_the_loop_by_a_script_that_reads_no_input(ground: Ground):
    ground.script("train.py", "import sys, time\ntime.sleep(1.5)\nprint('lr', sys.argv[1])\n")
    loop = f"printf '0.1\\n0.2\\n0.3\\n' | while read lr; do {shlex.quote(STOKER)} run --new train.py $lr | tail -1; done"
    told = subprocess.run(["bash", "-c", loop], cwd=ground.work, env=ground.env, check=True, capture_output=True, text=True, timeout=120)
    assert told.stdout.splitlines() == ["lr 0.1", "lr 0.2", "lr 0.3"]
    assert "stdin" not in told.stderr


@pytest.mark.parametrize("text", ["import ask\n", "import sys\nprint('got', sys.stdin.read().strip())\n"], ids=["a module asks", "the script reads"])
def test_a_run_in_a_shell_script_gets_the_pipe_of_the_shell_script(ground: Ground, text: str):
    (ground.work / "ask.py").write_text("print('got', input())\n")
    ground.script("train.py", text)
    (ground.work / "wrap.sh").write_text(f"{shlex.quote(STOKER)} run train.py\necho ended\n")
    told = subprocess.run(["bash", "-c", "printf 'yes\\n' | sh wrap.sh"], cwd=ground.work, env=ground.env, check=True, capture_output=True, text=True, timeout=120)
    assert told.stdout.splitlines() == ["got yes", "ended"], told.stderr


@pytest.mark.parametrize("line, told", [
    ("printf '0.1\\n' | STOKER run -d cat -n", True),
    ("STOKER run -d cat -n < list", True),
    ("printf '' | STOKER run -d cat -n", False),
    ("STOKER run -d cat -n < /dev/null", False),
    ("STOKER run -d --stdin list cat -n < list", False),
    ("while read lr; do STOKER run -d cat -n; break; done < list", False),
    ("printf '1\\n2\\n' | while read lr; do STOKER run -d cat -n; break; done", False),
])
def test_stdin_that_a_run_in_the_background_does_not_get_is_told(place: Ground, line: str, told: bool):
    (place.work / "list").write_text("0.1\n0.2\n")
    line = line.replace("STOKER", shlex.quote(STOKER))
    done = subprocess.run(["bash", "-c", f"{line}; true"], cwd=place.work, env=place.env, check=True, capture_output=True, text=True, timeout=60)
    said = "the run is in the background, so it does not get the data on stdin. Save the data in a file, then type: stoker run -d --stdin FILE cat -n"
    assert (said in done.stderr) == told


def test_ctrl_c_on_pipes_is_what_python_gets(place: Ground):
    place.script("train.py", "import time\ntry: print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('bye'); raise SystemExit(3)\n")
    client = place.start_stoker("run", "train.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout.readline() == b"begun\n"
    client.send_signal(signal.SIGINT)
    assert client.stdout.read() == b"bye\n"
    assert client.wait(20) == 3


def test_ctrl_c_code_of_a_run_that_dies_of_it(place: Ground):
    place.script("train.py", SLEEPER)
    term = place.terminal("run", "train.py")
    term.expect(b"begun")
    term.send(b"\x03")
    assert term.wait() == -signal.SIGINT, "130 in a shell"
    assert b"KeyboardInterrupt" in term.seen
    assert term.settings() == term.initial
    term.close()


def test_ctrl_c_ends_a_loop_in_the_shell(place: Ground):
    place.script("train.py", SLEEPER)
    place.script("saves.py", "import time\ntry: print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('saved')\n")
    for name, tells, code in (("train.py", b"KeyboardInterrupt", -signal.SIGINT), ("saves.py", b"saved", 0)):
        loop = f"for lr in 1 2; do {shlex.quote(STOKER)} run --new {name}; test $lr$? = 10 && break; done"
        term = place.terminal(argv=["bash", "-c", loop])
        term.expect(b"begun")
        term.send(b"\x03")
        assert term.wait() == code, "a run that caught it and ended well lets the loop go on, as with python"
        assert tells in term.seen and term.seen.count(b"begun") == 1
        term.close()


def test_ctrl_c_beside_tee_is_not_called_leaving(ground: Ground):
    ground.script("train.py", "import itertools, time\nfor i in itertools.count(): print('begun', i, flush=True); time.sleep(0.01)\n")
    term = ground.terminal(argv=["bash", "-c", f"{shlex.quote(STOKER)} run train.py | cat"])
    term.expect(b"begun")
    term.send(b"\x03")
    term.wait()
    assert b"continues" not in term.seen
    until(lambda: ground.runs()[0]["state"] == "stopped")
    term.close()


def test_ctrl_c_does_not_wait_behind_input_that_the_run_does_not_take(ground: Ground):
    ground.script("train.py", "import os, sys, time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    client = ground.start_stoker("run", "train.py", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.set_blocking(client.stdin.fileno(), False)
    until((ground.work / "begun").exists, 40, "the start")

    filled_at = time.monotonic()

    def full() -> bool:
        """The pipe to the client took nothing for a second: everything between it and the run is full."""
        nonlocal filled_at
        try:
            while os.write(client.stdin.fileno(), b"x" * 65536):
                filled_at = time.monotonic()
        except BlockingIOError:
            return time.monotonic() - filled_at > 1
    until(full, 60, "a full pipe")
    client.send_signal(signal.SIGINT)
    assert client.wait(40) == -signal.SIGINT
    assert ground.runs()[0]["reason"] == "stopped_by_user"


def test_hangup_leaves_the_run_going_and_nohup_leaves_the_client_too(ground: Ground):
    ground.script("train.py", SLEEPER)
    client = ground.start_stoker("run", "--name", "one", "train.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout.readline() == b"begun\n"
    client.send_signal(signal.SIGHUP)
    assert client.wait(20) == 129
    assert ground.show("one")["state"] == "running"
    deaf = subprocess.Popen(["nohup", STOKER, "run", "--new", "--name", "two", "train.py"], cwd=ground.work, env=ground.env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    ground.keep(deaf)
    assert deaf.stdout.readline() == b"begun\n"
    deaf.send_signal(signal.SIGHUP)
    ground.stoker("stop", "--force", "two").ok()
    assert deaf.wait(30) != 129


# ---- the terminal

def test_ctrl_z_and_back_with_keyboard_and_size(ground: Ground):
    ground.script("train.py", "import os\nprint('begun', flush=True)\nprint('got', input(), os.get_terminal_size(), flush=True)\ninput()\n")
    term = ground.terminal("run", "--name", "two words", "train.py")
    term.expect(b"begun")
    term.send(b"\x1a")
    assert term.wait() == 0
    assert b"stoker attach 'two words'" in term.seen
    assert term.settings() == term.initial
    term.close()
    back = Terminal([STOKER, "attach", "two words"], ground.work, ground.env, rows=50, columns=132)
    ground.keep(back.proc)
    back.expect(b"begun\r\n")
    until(lambda: back.pump() or not back.settings()[3] & 0o10, 20, "raw keys")
    back.send(b"hellp\x7fo\r")
    back.expect(b"got hello os.terminal_size(columns=132, lines=50)")
    back.send(b"\x04")
    assert back.wait() == 1
    assert b"EOFError" in back.seen
    assert back.settings() == back.initial
    back.close()


RAW_KEYS = """
import os, sys, termios, time, tty
before = termios.tcgetattr(0)
{}
print("begun", flush=True)
while (key := os.read(0, 1)) != b"q": print("key", key, flush=True)
termios.tcsetattr(0, termios.TCSANOW, before)
print("as before", flush=True)
time.sleep(600)
"""
NO_SUSPEND = "now = termios.tcgetattr(0); now[3] &= ~termios.ICANON; now[6][termios.VSUSP] = b'\\0'; termios.tcsetattr(0, termios.TCSANOW, now)"


@pytest.mark.parametrize(("how", "keys"), [("tty.setraw(0)", [b"\x1a", b"\x03", b"\x03", b"\x03"]), (NO_SUSPEND, [b"\x1a"])])
def test_ctrl_z_and_ctrl_c_are_plain_keys_for_a_program_that_asked_for_them(ground: Ground, how: str, keys: list[bytes]):
    ground.script("edit.py", RAW_KEYS.format(how))
    term = ground.terminal("run", "--name", "mine", "edit.py")
    term.expect(b"begun")
    for n, key in enumerate(keys, 1):
        term.send(key)
        until(lambda n=n: term.pump() or term.seen.count(b"key") == n, 20, "the key")
    assert all(b"key " + repr(key).encode() in term.seen for key in keys)
    assert b"Ending the run" not in term.seen and term.proc.poll() is None
    term.send(b"q")
    term.expect(b"as before")
    term.send(b"\x1a")
    assert term.wait() == 0
    assert b"stoker attach mine" in term.seen
    assert term.settings() == term.initial
    term.close()
    back = ground.terminal("attach")
    back.expect(b"the newest active run: mine")
    back.expect(b"as before")
    until(lambda: back.pump() or not back.settings()[3] & 0o10, 20, "raw keys")
    back.send(b"\x03")
    back.wait()
    assert ground.wait_state("mine")["reason"] == "stopped_by_user"
    back.close()


def test_a_late_prompt_is_explained(ground: Ground):
    ground.script("train.sh", "(trap '' HUP INT; exec sleep 600) & (trap '' HUP INT; exec sleep 601) & sleep 0.3; echo end\n")
    term = ground.terminal("run", "--name", "mine", "--grace", "2s", "bash", "train.sh")
    assert term.wait(30) == 0
    assert b"end\r\n" in term.seen  # the notice comes by another way than the output, and may be there first
    assert b"Stoker ends 2 processes that the command left running: sleep, sleep\r\n" in term.seen
    term.close()
    assert "Stoker ended 2 processes that the attempt left running: sleep, sleep" in ground.stoker("show", "mine").ok().out
    assert ground.stoker("run", "--new", "--grace", "2s", "bash", "train.sh").err == "", "nobody is told who is not there"


def test_a_killed_client_gives_the_terminal_back(ground: Ground):
    ground.script("train.py", SLEEPER)
    term = ground.terminal("run", "--name", "mine", "train.py")
    term.expect(b"begun")
    kill(term.proc.pid)
    until(lambda: term.settings() == term.initial, 10, "the old settings")
    term.close()
    assert ground.show("mine")["state"] == "running"


def test_in_the_background_of_a_shell_it_is_not_stopped(ground: Ground):
    ground.script("train.py", COUNTER)
    shell = ground.terminal(argv=["bash", "-c", f"set -m; {STOKER} run --name mine train.py 5 & wait; echo shell-end $?"])
    shell.expect(b"shell-end 0")
    assert b"".join(b"line %d\r\n" % i for i in range(5)) in shell.seen
    shell.wait()
    shell.close()


def test_typed_ahead_is_not_lost(ground: Ground):
    ground.script("train.py", "print('got', input())")
    term = ground.terminal("run", "train.py")
    term.send(b"early\r")
    term.expect(b"got early", timeout_s=40)
    assert term.wait() == 0
    term.close()


def test_modes_of_the_screen_are_undone_when_it_is_left(ground: Ground):
    ground.script("train.py", "import time\nprint('\\x1b[?1049h\\x1b[?25lbegun', flush=True)\ntime.sleep(600)\n")
    term = ground.terminal("run", "train.py")
    term.expect(b"begun")
    term.send(b"\x1a")
    assert term.wait() == 0
    assert b"\x1b[?1049l" in term.seen and b"\x1b[?25h" in term.seen
    term.close()


def test_no_terminal_when_told_so(place: Ground):
    place.script("train.py", "import os; print([os.isatty(i) for i in range(3)])")
    for flag, seen in (("--no-tty", b"[False, False, False]\r\n"), ("--tty", b"[True, True, True]\r\n")):
        term = place.terminal("run", "--new", flag, "train.py")
        assert term.wait() == 0
        assert term.seen == seen
        term.close()
    assert place.stoker("run", "--tty", "train.py").out == "[True, True, True]\n"


def test_visitors_do_not_end_the_input_of_a_run(ground: Ground):
    ground.script("echo.py", "import sys\nprint('begun', flush=True)\nfor line in sys.stdin: print('got', line, end='', flush=True)\nprint('end')\n")
    client = ground.start_stoker("run", "--name", "mine", "echo.py", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert client.stdout.readline() == b"begun\n"
    visitor = ground.start_stoker("attach", "mine", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    visitor.stdin.write(b"from the visitor\n")
    visitor.stdin.close()
    assert client.stdout.readline() == b"got from the visitor\n"
    client.stdin.write(b"from the owner\n")
    assert client.stdout.readline() == b"got from the owner\n"
    client.stdin.close()
    assert client.stdout.read() == b"end\n"
    assert visitor.stdout.read() == b"begun\ngot from the visitor\ngot from the owner\nend\n"
    assert (client.wait(20), visitor.wait(20)) == (0, 0)


def test_who_only_watches_types_nothing(ground: Ground):
    ground.script("train.py", "print('begun', flush=True)\nprint('got', input())\n")
    term = ground.terminal("run", "--name", "mine", "train.py")
    term.expect(b"begun")
    watcher = ground.terminal("attach", "--no-input", "mine")
    watcher.expect(b"begun")
    watcher.send(b"not for the run\r\x03")
    assert watcher.wait() == 130
    watcher.close()
    term.send(b"typed\r")
    term.expect(b"got typed")
    assert term.wait() == 0
    term.close()


def test_attaching_to_a_long_log_begins_at_a_whole_line(ground: Ground):
    ground.script("train.py", "import time\nfor i in range(3000): print('line', i)\nprint('begun', flush=True)\ntime.sleep(600)\n")
    run = ground.detach("--name", "mine", "train.py")
    ground.until_log(run["id"], b"begun")
    back = ground.start_stoker("attach", "--no-input", "mine", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    first = back.stdout.readline()
    assert first.startswith(b"line ") and first != b"line 0\n"


def test_an_ended_run_cannot_be_attached(ground: Ground):
    ground.stoker("run", "--name", "mine", "--", "true")
    done = ground.stoker("attach", "mine")
    assert done.code == 6
    assert "stoker logs mine" in done.err
    assert ground.stoker("attach").err == "error: There are no active runs.\nhint: All runs: stoker ps --all\n"


# ---- when the server dies

@pytest.mark.parametrize("streams", ["pty", "pipes"])
def test_kill_9_of_the_server_loses_and_doubles_nothing(ground: Ground, streams: str):
    ground.script("train.py", COUNTER)
    if streams == "pty":
        term = ground.terminal("run", "train.py", "300")
        for reached in (40, 150):
            term.expect(b"line %d\r\n" % reached)
            ground.kill_server()
        assert term.wait(60) == 0
        assert term.seen == lines("line", 300).replace(b"\n", b"\r\n")
        term.close()
        return
    out, err = ground.root / "out", ground.root / "err"
    with open(out, "wb") as o, open(err, "wb") as e:
        client = ground.start_stoker("run", "train.py", "300", "both", stdin=subprocess.DEVNULL, stdout=o, stderr=e)
        for reached in (b"line 40\n", b"line 150\n"):
            until(lambda reached=reached: reached in out.read_bytes(), 40, str(reached))
            ground.kill_server()
        assert client.wait(60) == 0
    assert out.read_bytes() == lines("line", 300)
    assert err.read_bytes() == lines("error", 300)


def test_what_was_said_while_the_server_was_away_is_not_lost_when_the_run_has_ended_meanwhile(ground: Ground):
    ground.script("train.py", "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('end')\nraise SystemExit(7)\n")
    client = ground.start_stoker("run", "train.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout.readline() == b"begun\n"
    run_id = ground.runs()[0]["id"]
    os.kill(client.pid, signal.SIGSTOP)  # so that it comes back late
    ground.kill_server()
    (ground.work / "go").touch()
    until(lambda: ground.json_file(run_id, 1, "exit.json"), 30, "the end of the run")
    ground.wait_state(run_id, "failed")
    os.kill(client.pid, signal.SIGCONT)
    assert client.stdout.read() == b"end\n"
    assert client.wait(30) == 7


def test_keys_work_after_the_server_was_killed(ground: Ground):
    ground.script("train.py", "print('begun', flush=True)\nprint('got', input())\n")
    term = ground.terminal("run", "train.py")
    term.expect(b"begun")
    ground.kill_server()
    ground.server_pid()
    term.send(b"hello\r")
    term.expect(b"got hello", timeout_s=40)
    assert term.wait() == 0
    term.close()


def test_leaving_while_the_server_is_away(ground: Ground):
    ground.script("train.py", SLEEPER)
    term = ground.terminal("run", "--name", "mine", "train.py")
    term.expect(b"begun")
    ground.kill_server()
    term.send(b"\x1a")
    assert term.wait(40) == 0
    term.close()
    assert ground.show("mine")["state"] == "running"


# ---- waiting, restarts, again

def one_slot(ground: Ground) -> dict:
    ground.home.mkdir(mode=0o700)
    (ground.home / "config.toml").write_text("slots = 1\n")
    ground.script("train.py", SLEEPER)
    run = ground.detach("--name", "first", "--slots", "1", "train.py")
    ground.wait_state(run["id"], "running")
    return run


def test_a_run_that_waits_says_for_what_and_ctrl_c_cancels_it(ground: Ground):
    one_slot(ground)
    term = ground.terminal("run", "--name", "second", "--slots", "1", "--", "echo", "never")
    term.expect(b"second waits for")
    term.expect(b"first")
    assert b"never" not in term.seen
    term.send(b"\x03")
    assert term.wait(30) != 0
    term.close()
    assert ground.wait_state("second")["reason"] == "stopped_by_user"


def test_a_run_that_waits_can_be_left_and_starts_in_its_turn(ground: Ground):
    one_slot(ground)
    client = ground.start_stoker("run", "--name", "third", "--slots", "1", "--", "echo", "my turn", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
    assert b"third waits for" in client.stderr.readline()
    term = ground.terminal("run", "--name", "second", "--slots", "1", "--", "true")
    term.expect(b"waits for")
    term.send(b"\x1a")
    assert term.wait(30) == 0
    term.close()
    assert ground.show("second")["state"] == "pending"
    ground.stoker("stop", "--force", "first").ok()
    assert client.stdout.read() == b"my turn\n"
    assert ground.wait_state("second")["state"] == "done"


def test_automatic_restarts_are_followed(place: Ground):
    place.script("train.py", "import os, sys\nn = os.environ['STOKER_ATTEMPT']\nprint('attempt', n)\nsys.exit(0 if n == '3' else 1)\n")
    done = place.stoker("run", "--restarts", "3", "--backoff", "0.1s", "train.py")
    assert (done.out, done.code) == ("attempt 1\nattempt 2\nattempt 3\n", 0)


def test_the_same_command_again_in_a_script_is_a_new_run_and_says_so(ground: Ground):
    ground.script("train.py", "raise SystemExit(1)")
    ground.stoker("run", "train.py")
    again = ground.stoker("run", "train.py")
    assert len(ground.runs()) == 2
    assert "stoker start" in again.err
    assert "stoker start" not in ground.stoker("run", "--new", "train.py").err.replace("Next: stoker start", "")
    runs = len(ground.runs())
    ground.stoker("run", "--yes", "train.py")
    assert len(ground.runs()) == runs


@pytest.mark.parametrize("words", [(), ("--yes",), ("--stdin", "names.txt")])
def test_a_run_that_lacked_input_is_not_retried_by_a_command_that_has_input(ground: Ground, words: tuple[str, ...]):
    ground.script("train.py", "print('hello', input())\n")
    (ground.work / "names.txt").write_text("Ann\n")
    first = ground.detach("train.py")
    ground.wait_state(first["id"], "failed")
    term = ground.terminal("run", *words, "train.py")
    if "--stdin" not in words:
        term.send(b"Ann\n")
    assert term.wait() == 0
    assert f"starting a new run, because {first['name']} had no input on stdin, and this command has input".encode() in term.seen
    assert b"hello Ann" in term.seen and b"[Y/n]" not in term.seen
    term.close()
    assert len(ground.runs()) == 2


def test_a_run_in_the_background_that_needs_no_input_is_retried_on_a_terminal(ground: Ground):
    ground.script("train.py", "import os\nraise SystemExit(os.environ['STOKER_ATTEMPT'] == '1')\n")
    ground.wait_state(ground.detach("train.py")["id"], "failed")
    term = ground.terminal("run", "train.py")
    term.expect(b"Retry in the same run? [Y/n]")
    term.send(b"\r")
    assert term.wait() == 0
    term.close()
    assert len(ground.runs()) == 1


def test_start_and_follow_shows_only_the_new_attempt(ground: Ground):
    ground.script("train.py", "import os\nprint('attempt', os.environ['STOKER_ATTEMPT'])\nraise SystemExit(int(os.environ['STOKER_ATTEMPT']))\n")
    assert ground.stoker("run", "--name", "mine", "train.py").code == 1
    again = ground.stoker("start", "--attach", "mine")
    assert (again.out, again.code) == ("attempt 2\n", 2)


def test_fast_commands_are_not_lost_between_submit_and_attach(place: Ground):
    for i in range(5):
        done = place.stoker("run", "--new", "--", "echo", str(i))
        assert (done.out, done.code) == (f"{i}\n", 0)

"""Being there: attach with input, window size and signals; several at once; read and follow; the pty's own bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

from agentkit import alive, wait_for

PY = sys.executable
ECHO = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print('got', line.strip(), flush=True)\nprint('end of input')"


def test_a_stream_begins_with_meta_and_ends_with_exit(new_run):
    run = new_run(["sh", "-c", "echo out; echo err >&2; sleep 0.3; echo more; exit 5"], split_stderr=True)
    run.start()
    attached = run.attach()
    assert attached.frame() == (b"m", json.dumps({"attempt": 1, "tty": False, "out": 0, "err": 0}).encode())
    rest = attached.rest()
    attached.leave()
    assert rest[b"o"] == b"out\nmore\n" and rest[b"r"] == b"err\n" and json.loads(rest[b"x"]) == run.end()


def test_from_offsets_and_after_the_end(new_run):
    run = new_run(["sh", "-c", "echo 0123456789; echo abcdef >&2"], split_stderr=True)
    run.start()
    run.end()
    attached = run.attach(1, "--out", 4, "--err", "-3", "--no-input")
    rest = attached.rest()
    attached.leave()
    assert rest[b"o"] == b"456789\n" and rest[b"r"] == b"ef\n" and json.loads(rest[b"x"])["code"] == 0


def test_input_reaches_a_pipe_and_e_ends_it(new_run):
    run = new_run([PY, "-c", ECHO], stdin="attached")
    run.start()
    attached = run.attach()
    attached.until(b"ready\n")
    attached.send(b"i", b"one\n")
    attached.until(b"got one\n")
    attached.leave()
    again = run.attach(1, "--out", "6")
    again.until(b"got one\n")
    assert alive(run.run_pid())  # leaving did not end its input
    again.send(b"i", b"two\n")
    again.send(b"e")
    assert again.rest()[b"o"].endswith(b"got two\nend of input\n")
    again.leave()
    assert run.end()["code"] == 0


def test_input_typed_before_the_run_reads_is_kept_in_order(new_run):
    run = new_run([PY, "-c", "import sys, time, hashlib; time.sleep(0.5); print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"], stdin="attached")
    run.start()
    data = bytes(range(256)) * 8192  # 2 MB: much more than anybody buffers
    attached = run.attach()

    def type_it() -> None:
        for i in range(0, len(data), 10000):
            attached.send(b"i", data[i:i + 10000])
        attached.send(b"e")
    typist = threading.Thread(target=type_it)
    typist.start()
    out = attached.rest()[b"o"]
    typist.join()
    attached.leave()
    import hashlib
    assert out.decode().strip() == hashlib.sha256(data).hexdigest()


def test_a_run_that_never_reads_makes_the_caller_wait_and_costs_no_memory(new_run):
    run = new_run(["sleep", "100"], stdin="attached")
    run.start()
    attached = run.attach()
    sent = threading.Event()

    def type_it() -> None:
        try:
            attached.send(b"i", b"x" * 900_000)
            for _ in range(40):
                attached.send(b"i", b"x" * 900_000)
            sent.set()
        except (BrokenPipeError, ValueError):
            pass
    typist = threading.Thread(target=type_it)
    typist.start()
    time.sleep(1.5)
    assert not sent.is_set()
    assert memory_kb(run.holder()) < 20_000
    run.stop("--grace", 0, 0)
    run.end()
    attached.leave()
    typist.join()


def memory_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def test_a_pty_is_a_terminal_with_the_scripts_own_bytes(new_run):
    body = ("import sys, os\nprint(all(os.isatty(i) for i in (0, 1, 2)), os.get_terminal_size())\nsys.stdout.write('a\\nb\\r\\nc\\n')\n"
            "print(os.ttyname(0) == os.ttyname(1), os.tcgetpgrp(0) == os.getpgrp())\nsys.stdout.flush(); input()")
    run = new_run([PY, "-c", body], tty=True, stdin="attached")
    run.start()
    attached = run.attach()
    assert json.loads(attached.frame()[1])["tty"] is True
    attached.until(b"True True\n")
    attached.send(b"i", b"\n")
    attached.rest()
    attached.leave()
    assert run.out().startswith(b"True os.terminal_size(columns=80, lines=24)\na\nb\r\nc\nTrue True\n")


def test_window_size_and_ctrl_c_and_ctrl_d_in_a_pty(new_run):
    body = ("import signal, os, sys\nsignal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'size %d %d\\n' % os.get_terminal_size()))\n"
            "print('up', flush=True)\n"
            "try:\n try:\n  while True: print('line', input(), flush=True)\n except EOFError: print('eof', flush=True)\n"
            " import time; time.sleep(100)\nexcept KeyboardInterrupt: print('interrupted', flush=True); sys.exit(130)")
    run = new_run([PY, "-c", body], tty=True, stdin="attached")
    run.start()
    attached = run.attach()
    attached.until(b"up\n")
    attached.send(b"w", json.dumps({"rows": 50, "cols": 132}).encode())
    attached.until(b"size 132 50\n")
    attached.send(b"i", b"hello\n")
    attached.until(b"line hello\n")
    attached.send(b"e")
    attached.until(b"eof\n")
    attached.send(b"i", b"\x03")
    attached.rest()
    attached.leave()
    end = run.end()
    assert end["code"] == 130 and end["reason"] == "stopped_by_user"


def test_two_attached_at_once_see_the_same_and_both_may_type(new_run):
    run = new_run([PY, "-c", ECHO], stdin="attached")
    run.start()
    one, two = run.attach(), run.attach()
    one.until(b"ready\n")
    two.until(b"ready\n")
    one.send(b"i", b"from one\n")
    two.until(b"got from one\n")
    two.send(b"i", b"from two\n")
    one.until(b"got from two\n")
    two.leave()
    one.send(b"e")
    assert one.rest()[b"o"].endswith(b"end of input\n")
    one.leave()


def test_an_attachment_whose_reader_has_gone_leaves(new_run):
    run = new_run(["sleep", "100"])
    run.start()
    attached = run.attach(1, "--no-input")
    attached.frame()
    attached.process.stdout.close()
    assert attached.process.wait(10) == 0
    attached.process.stdin.close()


def test_an_attachment_ends_when_the_caretakers_are_dead(new_run):
    run = new_run(["sleep", "100"])
    run.start()
    attached = run.attach()
    attached.frame()
    run.kill_caretakers()
    assert b"x" not in attached.rest()
    attached.leave()


def test_read_from_an_offset_with_limit_and_follow(new_run):
    run = new_run(["sh", "-c", "printf 0123456789; sleep 0.5; printf abc"])
    run.start()
    follower = subprocess.Popen(run.argv("read", run.dir, 1, "out", 8, "--follow"), stdout=subprocess.PIPE)
    assert follower.communicate(timeout=30)[0] in (b"89abc", b"abc", b"0123456789abc"[8:])
    run.end()
    def read(*args: object) -> bytes:
        return subprocess.run(run.argv("read", run.dir, 1, *args), capture_output=True, check=True).stdout
    assert read("out", 0) == b"0123456789abc" and read("out", 3, "--limit", 4) == b"3456" and read("out", 99) == b"" and read("out", -3) == b"abc"
    missing = subprocess.run(run.argv("read", run.dir, 9, "out", 0), capture_output=True, check=False)
    assert missing.returncode == 1 and json.loads(missing.stderr)["error"] == "absent"


def test_waiting_for_input_is_told_from_busy(new_run):
    asks = new_run([PY, "-c", "print('name?', flush=True); input()"], stdin="attached")
    pty = new_run([PY, "-c", "print('name?', flush=True); input()"], stdin="attached", tty=True)
    busy = new_run([PY, "-c", "while True: pass"], stdin="attached")
    sleeping = new_run(["sleep", "100"], stdin="attached")
    for run in (asks, pty, busy, sleeping):
        run.start()
    for run in (asks, pty):
        wait_for(lambda run=run: run.poll()["waits_for_input"], "seen to wait", timeout=15, pause=0.2)
    assert not busy.poll()["waits_for_input"] and not sleeping.poll()["waits_for_input"]


def test_fast_output_through_a_pty_is_whole(new_run):
    run = new_run([PY, "-c", "import sys\nfor i in range(200000): sys.stdout.write('%08d\\n' % i)"], tty=True)
    run.start()
    run.end()
    assert run.out() == b"".join(b"%08d\n" % i for i in range(200000))


def test_a_signal_that_asks_reaches_the_first_process_only_and_ends_nothing(new_run):
    """As Slurm's warning does: workers without a handler would die of it, and what goes wrong later has a cause of its own."""
    body = ("import os, signal, subprocess, time\nasked = []\nsignal.signal(signal.SIGUSR1, lambda *_: asked.append(os.write(1, b'saved\\n')))\n"
            "worker = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\nprint('up', flush=True)\n"
            "while not asked: time.sleep(0.01)\nworker.stdin.close()\n"
            "raise ValueError('worker %d' % worker.wait())")
    for tty in (False, True):
        run = new_run([PY, "-c", body], tty=tty, stdin="attached")
        run.start()
        attached = run.attach()
        attached.until(b"up")
        attached.send(b"s", b"USR1")
        attached.rest()
        attached.leave()
        end = run.end()
        assert b"saved" in run.out()
        assert (end["reason"], end["evidence"]["exception"]["message"]) == ("nonzero_exit", "worker 0")

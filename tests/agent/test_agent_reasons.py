"""Why did it end: every reason with its evidence, read out of real ends and of real texts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from agentkit import wait_for

from stoker.agent.tracebacks import LastWords
from stoker.base.state import sentence, what_next

PY = sys.executable


def script(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def ended(run) -> dict:
    run.start()
    return run.end()


def test_a_traceback_gives_type_message_file_and_line_of_the_users_code(new_run, tmp_path):
    path = script(tmp_path, """\
        import json
        def load():
            return json.loads("{")
        load()
        """)
    end = ended(new_run([PY, path]))
    found = end["evidence"]["exception"]
    assert end["reason"] == "nonzero_exit" and end["evidence"]["code"] == 1
    assert found["type"] == "json.decoder.JSONDecodeError" and (found["file"], found["line"]) == (path, 3)
    assert "Traceback" in end["evidence"]["tail"]


def test_of_a_chain_the_raised_one_counts_and_multi_line_messages_are_kept(new_run, tmp_path):
    path = script(tmp_path, """\
        try:
            {}["x"]
        except KeyError:
            raise RuntimeError("Error(s) in loading:\\n\\tsize mismatch for fc.weight")
        """)
    found = ended(new_run([PY, path], split_stderr=True))["evidence"]["exception"]
    assert found["type"] == "RuntimeError" and found["message"] == "Error(s) in loading:\nsize mismatch for fc.weight" and found["line"] == 4


@pytest.mark.parametrize("frames, named", [
    ([("/w/train.py", 7), ("/x/hooks-1/stoker_hooks/resume/world/opening.py", 39)], ("/w/train.py", 7)),
    ([("/e/site-packages/lib/a.py", 3), ("/x/hooks-1/stoker_hooks/resume/world/opening.py", 39)], ("/e/site-packages/lib/a.py", 3)),
    ([("/x/hooks-1/stoker_hooks/resume/world/opening.py", 39)], (None, None)),
])
def test_frames_of_stoker_name_nothing(new_run, tmp_path, frames, named):
    text = "\n".join(["Traceback (most recent call last):", *(f'  File "{file}", line {line}, in f' for file, line in frames), "OSError: no"])
    found = ended(new_run([PY, script(tmp_path, f"import sys\nsys.exit({text!r})")]))["evidence"]["exception"]
    assert (found["type"], found["file"], found["line"]) == ("OSError", *named)


def test_a_group_of_exceptions_is_the_reason_itself(new_run, tmp_path):
    path = script(tmp_path, """\
        def first():
            raise ValueError("one")
        try:
            first()
        except ValueError as e:
            raise ExceptionGroup("some", [e, KeyError("two")])
        """)
    found = ended(new_run([PY, path]))["evidence"]["exception"]
    assert found == {"type": "ExceptionGroup", "message": "some (2 sub-exceptions)", "file": path, "line": 6}


def test_an_error_that_python_ignores_is_not_the_reason(new_run, tmp_path):
    path = script(tmp_path, """\
        class Archive:
            def __del__(self):
                raise OSError("cannot close")
        held = Archive()
        raise ValueError("wrong")
        """)
    end = ended(new_run([PY, path]))
    assert "cannot close" in end["evidence"]["tail"]
    assert end["evidence"]["exception"] == {"type": "ValueError", "message": "wrong", "file": path, "line": 5}


@pytest.mark.parametrize(("then", "named"), [
    ("for step in range(3): print('step', step, file=sys.stderr)\nsys.exit(3)", None),
    ("sys.exit(1)", "ValueError"),
    ("print('on stdout')\nsys.exit(1)", "ValueError"),
    ("print('Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.', file=sys.stderr)\nsys.exit(1)", "ValueError"),
])
def test_a_traceback_counts_only_if_it_is_what_was_printed_last(new_run, tmp_path, then, named):
    path = script(tmp_path, f"import sys, traceback\ntry: int('CUDA out of memory')\nexcept ValueError: traceback.print_exc()\n{then}\n")
    end = ended(new_run([PY, path], split_stderr=True))
    assert end["reason"] == "nonzero_exit" or named
    assert end["evidence"].get("exception", {}).get("type") == named


def test_the_exception_of_a_thread_is_not_the_reason(new_run, tmp_path):
    path = script(tmp_path, """\
        import atexit, sys, threading
        atexit.register(lambda: {}["at exit"])
        threading.Thread(target=lambda: 1 / 0).start()
        sys.exit("config is wrong")
        """)
    end = ended(new_run([PY, path], split_stderr=True))
    assert "ZeroDivisionError" in end["evidence"]["tail"] and "exception" not in end["evidence"]


@pytest.mark.parametrize("kind", ["\u041e\u0448\u0438\u0431\u043a\u0430", "\u6570\u636e", "made.<locals>.Wrong"])
def test_an_exception_of_any_name_is_read(new_run, tmp_path, kind):
    name = kind.rpartition(".")[2]
    path = script(tmp_path, f"def made():\n    class {name}(Exception): pass\n    {name}.__qualname__ = {kind!r}\n    raise {name}('wrong')\nmade()\n")
    found = ended(new_run([PY, path], env={"PYTHONUTF8": "1"}))["evidence"]["exception"]
    assert found == {"type": kind, "message": "wrong", "file": path, "line": 4}


def test_the_code_of_a_command_counts_and_a_made_up_name_does_not(new_run, tmp_path):
    text = "import json\ndef load(text):\n    return json.loads(text)\neval(compile('load(\"{\")', 'made-up.py', 'eval'))\n"
    found = ended(new_run([PY, "-c", text]))["evidence"]["exception"]
    assert (found["file"], found["line"]) == ("<string>", 3)
    path = script(tmp_path, text.replace("json.loads(text)", "eval(compile('1/0', 'made-up.py', 'eval'))"))
    found = ended(new_run([PY, path]))["evidence"]["exception"]
    assert (found["file"], found["line"]) == (path, 3)


def test_a_syntax_error_has_file_and_line(new_run, tmp_path):
    path = script(tmp_path, "x = (1,\n")
    found = ended(new_run([PY, path]))["evidence"]["exception"]
    assert found["type"] == "SyntaxError" and found["file"] == path and found["line"] == 1


def test_bytes_that_are_not_utf8_and_colours_do_not_hide_the_exception(new_run, tmp_path):
    path = script(tmp_path, r"""
        import sys
        sys.stdout.buffer.write(b"\xff\xfe\x1b[31m loss 1\r loss 2\r" * 1000)
        sys.stdout.flush()
        sys.stderr.write("\x1b[1mTraceback (most recent call last):\x1b[0m\n  File \x1b[35m\"t.py\"\x1b[0m, line \x1b[35m3\x1b[0m, in f\n\x1b[1;31mValueError\x1b[0m: \x1b[35mbad\x1b[0m\n")
        sys.exit(1)
        """)
    assert ended(new_run([PY, path]))["evidence"]["exception"] == {"type": "ValueError", "message": "bad", "file": "t.py", "line": 3}


@pytest.mark.parametrize(("text", "reason"), [
    ("raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')", "gpu_oom"),
    ("class OutOfMemoryError(RuntimeError): pass\nOutOfMemoryError.__module__ = 'torch'\nraise OutOfMemoryError('CUDA out of memory.')", "gpu_oom"),
    ("raise RuntimeError('CUDA error: an illegal memory access was encountered')", "gpu_fault"),
    ("raise RuntimeError('CUDA error: uncorrectable ECC error encountered')", "gpu_fault"),
    ("raise RuntimeError('CUDA error: device-side assert triggered')", "nonzero_exit"),
    ("try:\n raise RuntimeError('CUDA out of memory')\nexcept RuntimeError as e:\n import traceback; traceback.print_exc()\nprint('smaller batch')\nraise ValueError('bad label')",
     "nonzero_exit"),
    ("import os; os.abort()", "crashed"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", "crashed"),
    ("import sys; sys.exit(0)", "exited"),
])
def test_the_reason_that_a_text_means(new_run, tmp_path, text, reason):
    assert ended(new_run([PY, script(tmp_path, text)]))["reason"] == reason


def test_a_certain_text_gives_a_hint(new_run, tmp_path):
    end = ended(new_run([PY, script(tmp_path, "input('name? ')")]))
    assert end["evidence"]["exception"]["type"] == "EOFError" and "--stdin" in end["evidence"]["hint_text"]
    launched = ended(new_run([PY, "-c", "raise ValueError('environment variable RANK expected, but not set')"]))
    assert "stoker run --ranks N" in launched["evidence"]["hint_text"]
    assert "hint_text" not in ended(new_run([PY, "-c", "raise ValueError('x')"]))["evidence"]


def root_with_mounts() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 1 MB and 200 inodes."""
    if not root_with_mounts():
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "none", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_disk_full_names_the_path_with_bytes_and_inodes(new_run, tmp_path, small_disk):
    path = script(tmp_path, f"open('{small_disk}/model.pt', 'wb').write(b'x' * 4000000)")
    end = ended(new_run([PY, path]))
    assert end["reason"] == "disk_full" and end["evidence"]["disk_free_bytes"] == 0 and end["evidence"]["inodes_free"] > 100
    assert end["evidence"]["path"].startswith(str(small_disk)) or "No space" in end["evidence"]["exception"]["message"]


def test_inodes_used_up_is_disk_full_too(new_run, tmp_path, small_disk):
    path = script(tmp_path, f"for i in range(1000): open(f'{small_disk}/{{i}}', 'w')")
    end = ended(new_run([PY, path]))
    assert end["reason"] == "disk_full" and end["evidence"]["inodes_free"] == 0 and end["evidence"]["disk_free_bytes"] > 0
    assert sentence(end["reason"], end["evidence"]) == f"The file system {small_disk} has no free inodes (200 in use): too many files."
    assert end["evidence"]["path"].startswith(str(small_disk))


@pytest.mark.parametrize("tty", [False, True], ids=["pipe", "pty"])
def test_a_full_disk_under_the_run_folder_never_stops_a_run_and_the_gap_is_marked(new_run, tmp_path, small_disk, tty):
    go = tmp_path / "go"
    body = f"""\
        import os, sys, time
        for i in range(30000): sys.stdout.write('first %07d ' % i + 'x' * 80 + '\\n')
        sys.stdout.flush()
        open({str(tmp_path / 'written')!r}, 'w').close()
        while not os.path.exists({str(go)!r}): time.sleep(0.02)
        print('after')
        """
    run = new_run([PY, script(tmp_path, body)], tty=tty, root=small_disk / "root")
    filler = small_disk / "filler"
    run.start()
    wait_for((tmp_path / "written").exists, "3 MB went through a full disk")
    assert run.phase() == "running"
    size = len(run.out())
    filler.exists()
    shrink(run.attempt() / "out.log", 200_000)
    go.touch()
    end = run.end()
    assert end["code"] == 0 and end["reason"] == "exited"
    out = run.out()
    lost = 30000 * (len("first 0000000 ") + 81) - size
    assert b"\n[stoker: %d bytes of output lost here: disk full]\nafter\n" % lost in out
    cut, gap = end["gaps"]
    assert (cut["why"], cut["bytes"], cut["offset"]) == ("another program truncated the log", size - 200_000, 200_000)
    assert (gap["bytes"], gap["log"]) == (lost, "out.log") and [e["bytes"] for e in run.events() if e["event"] == "gap"] == [cut["bytes"], lost]


def shrink(path: Path, size: int) -> None:
    """Make room, as a user would by deleting something."""
    os.truncate(path, size)


def test_last_words_fit_on_a_full_disk(new_run, tmp_path, small_disk):
    path = script(tmp_path, f"""\
        try:
            with open('{small_disk}/filler', 'wb', buffering=0) as f:
                while True: f.write(b'x' * 100)
        except OSError: pass
        import sys
        sys.exit(6)
        """)
    end = ended(new_run([PY, path], tty=True, root=small_disk / "root"))
    assert end["code"] == 6 and end["reason"] == "disk_full" and end["evidence"]["disk_free_bytes"] < 4096


@pytest.fixture
def small_memory():
    """A memory cgroup of 64 MB: gives a function that moves a pid into it."""
    name = f"stoker-test-{os.getpid()}"
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    try:
        if v1.is_dir():
            group = v1 / name
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text("67108864")
        elif "memory" in (v2 / "cgroup.subtree_control").read_text():
            group = v2 / name
            group.mkdir()
            (group / "memory.max").write_text("67108864")
        else:
            pytest.skip("no memory controller to make a cgroup in")
    except OSError as e:
        pytest.skip(f"a memory cgroup cannot be made here: {e}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text().split(), "the cgroup is empty")
    group.rmdir()


def test_out_of_memory_in_a_cgroup_is_host_oom(new_run, tmp_path, small_memory):
    path = script(tmp_path, "import time\ntime.sleep(0.3)\nx = bytearray(1 << 20)\nwhile True: x += bytes(1 << 20)")
    run = new_run([PY, path])
    subprocess.run(["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(small_memory), *run.argv("start", run.dir, 1)], check=True,
                   stdout=subprocess.DEVNULL)
    end = run.end()
    assert end["reason"] == "host_oom" and end["signal_name"] == "SIGKILL"
    assert "memory limit of 67.1 MB" in sentence(end["reason"], end["evidence"])
    assert end["evidence"]["oom_kill_after"] > end["evidence"]["oom_kill_before"]
    wait_for(lambda: not run.processes(), "the caretakers leave")


def torchrun() -> list[str]:
    pytest.importorskip("torch", reason="torch is not installed")
    return [PY, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_the_cause_counts_where_torchrun_saw_its_effect_first():
    """Rank 0 lost its peer, and was seen to end before rank 1, which failed."""
    lines = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 6, in <module>
[rank1]:     raise ValueError("its own mistake")
[rank1]: ValueError: its own mistake
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 7, in <module>
[rank0]:     dist.all_reduce(torch.ones(1))
[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:1234
train.py FAILED
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 12)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 11)""".splitlines()
    found = LastWords(lines, stderr_at=0, cwd="/", ends=[], pid=None, in_order=False).exception
    assert (found["type"], found["rank"], found["line"]) == ("ValueError", 1, 6)


@pytest.mark.slow
@pytest.mark.parametrize("split", [False, True])
def test_torchrun_gives_the_first_failing_ranks_own_traceback(new_run, tmp_path, split):
    path = script(tmp_path, """\
        import torch, time
        import torch.distributed as dist
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            time.sleep(0.3)
            raise ValueError("rank one's own mistake")
        dist.all_reduce(torch.ones(1))
        dist.barrier()
        """)
    run = new_run([*torchrun(), path], split_stderr=split, env={"OMP_NUM_THREADS": "1"})
    end = ended(run)
    assert end["reason"] == "nonzero_exit"
    assert end["evidence"]["exception"] == {"type": "ValueError", "message": "rank one's own mistake", "file": path, "line": 6, "rank": 1}


@pytest.mark.slow
def test_torchrun_without_prefixes_and_a_rank_that_crashes(new_run, tmp_path):
    plain = script(tmp_path, "import os, time\nif os.environ['RANK'] == '0': raise KeyError('label')\ntime.sleep(60)", "plain.py")
    end = ended(new_run([*torchrun(), plain], env={"OMP_NUM_THREADS": "1"}))
    found = end["evidence"]["exception"]
    assert (found["type"], found["file"], found["line"], found["rank"]) == ("KeyError", plain, 2, 0)
    crash = script(tmp_path, "import os, time, signal\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(60)", "crash.py")
    end = ended(new_run([*torchrun(), crash], env={"OMP_NUM_THREADS": "1"}))
    assert end["reason"] == "crashed" and end["evidence"]["signal_name"] == "SIGSEGV" and end["code"] == 1


@pytest.mark.parametrize(("then", "reason"), [("", "nonzero_exit"), ("print('one more line', file=sys.stderr, flush=True)", "crashed")])
def test_a_python_error_counts_more_than_the_abort_that_follows_it(new_run, tmp_path, then, reason):
    """Threads of compiled code abort as Python goes. An error that was caught, long before an abort, explains nothing."""
    path = script(tmp_path, f"""\
        import atexit, os, sys
        def end():
            {then or 'pass'}
            os.abort()
        atexit.register(end)
        open("data.npy")
        """)
    end = ended(new_run([PY, path]))
    assert end["reason"] == reason and end["signal_name"] == "SIGABRT"
    assert end["evidence"]["exception"]["type"] == "FileNotFoundError" and end["evidence"]["exception"]["line"] == 6


RANKS = """\
    import atexit, os, signal, sys, time
    rank = int(os.environ["RANK"])
    if rank == 1:
        time.sleep(0.5)
        if "--killed" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        atexit.register(os.abort)
        open("data-of-rank-1.npy")
    time.sleep(100)
    """


@pytest.mark.slow
def test_the_error_of_a_rank_counts_more_than_its_abort(new_run, tmp_path):
    end = ended(new_run([*torchrun(), script(tmp_path, RANKS)], env={"OMP_NUM_THREADS": "1"}))
    found = end["evidence"]["exception"]
    assert end["reason"] == "nonzero_exit" and (found["type"], found["rank"], found["line"]) == ("FileNotFoundError", 1, 8)
    assert sentence(end["reason"], end["evidence"]).startswith("Failed with exit code 1: rank 1 failed with FileNotFoundError")


@pytest.mark.slow
def test_a_rank_that_was_killed_is_named_with_the_signal(new_run, tmp_path):
    end = ended(new_run([*torchrun(), script(tmp_path, RANKS), "--killed"], env={"OMP_NUM_THREADS": "1"}))
    assert end["reason"] == "killed" and (end["evidence"]["rank"], end["evidence"]["signal_name"]) == (1, "SIGKILL")
    assert sentence(end["reason"], end["evidence"]) == "Rank 1 was killed by SIGKILL (not sent by Stoker)."


@pytest.mark.slow
def test_a_spawned_rank_that_was_killed_is_named_with_the_signal(new_run, tmp_path):
    path = script(tmp_path, """\
        import os, time
        import torch.multiprocessing as mp
        def main(rank):
            if rank == 1:
                os.kill(os.getpid(), 9)
            time.sleep(60)
        if __name__ == "__main__":
            mp.spawn(main, nprocs=2)
        """)
    pytest.importorskip("torch", reason="torch is not installed")
    end = ended(new_run([PY, path], env={"OMP_NUM_THREADS": "1"}))
    assert sentence(end["reason"], end["evidence"]) == "Rank 1 was killed by SIGKILL (not sent by Stoker)."


@pytest.mark.slow
def test_shared_memory_that_is_full_is_not_the_disk(new_run, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    if not root_with_mounts():
        pytest.skip("a small /dev/shm needs root")
    path = script(tmp_path, """\
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Large(Dataset):
            def __len__(self):
                return 200
            def __getitem__(self, index):
                return torch.ones(500_000)
        for batch in DataLoader(Large(), batch_size=16, num_workers=2):
            pass
        """)
    run = new_run([PY, path], env={"OMP_NUM_THREADS": "1"})
    subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=24m none /dev/shm && exec "$@"', "sh", *run.argv("start", run.dir, 1)],
                   check=True, stdout=subprocess.DEVNULL)
    end = run.end()
    assert end["reason"] == "disk_full" and end["evidence"]["kind"] == "shm" and end["evidence"]["mount"] == "/dev/shm"
    assert sentence(end["reason"], end["evidence"]) == "/dev/shm is full (25.2 MB)." and "--shm-size" in what_next(end["reason"], end["evidence"], "x")


def test_a_worker_that_met_a_bus_error_found_shared_memory_full(new_run, tmp_path):
    words = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."
    end = ended(new_run([PY, script(tmp_path, f"raise RuntimeError({words!r})")]))
    assert end["reason"] == "disk_full" and end["evidence"]["kind"] == "shm"


def test_a_quota_is_not_the_disk(new_run, tmp_path):
    end = ended(new_run([PY, script(tmp_path, "import errno, os\nraise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), 'model.pt')")]))
    assert end["evidence"]["kind"] == "quota" and sentence(end["reason"], end["evidence"]).startswith("The disk quota is used up on /")

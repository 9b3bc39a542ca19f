"""Runs whose processes leave while the process table is read: none of them may be missed."""

from __future__ import annotations

from agentkit import alive, wait_for

CHAIN = """
use POSIX;
for (1 .. 6) { exit 0 if fork(); POSIX::setsid(); select(undef, undef, undef, rand(0.004)); }
open(my $f, ">", $ARGV[0] . ".part"); print $f $$; close $f; rename $ARGV[0] . ".part", $ARGV[0];
sleep 600;
"""


def test_a_chain_of_forks_leaves_nobody(new_run, tmp_path):
    """The first process ends at once; its descendants change pid, parent and session five times within milliseconds."""
    for n in range(20):
        told = tmp_path / f"daemon-{n}"
        run = new_run(["perl", "-e", CHAIN, str(told)])
        run.start()
        end = run.end()
        assert (end["reason"], end["leftovers"]["survivors"]) == ("exited", [])
        wait_for(lambda run=run: not run.processes(), "everybody leaves")
        if told.exists():
            daemon = int(told.read_text())
            assert not alive(daemon) and daemon in [p["pid"] for p in end["leftovers"]["found"]]

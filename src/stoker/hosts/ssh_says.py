"""What ssh says when it fails, as one sentence with what to type next."""

from __future__ import annotations

import re

from stoker.base.errors import TargetError

# (what ssh says, our sentence, what to type, whether trying again may help); the first that fits is taken
SAYINGS = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "The host key of {host} has changed.",
        (
            "If the machine was reinstalled: `ssh-keygen -R {name}`, then `ssh {host}`, and compare the new "
            "key. If the machine was not reinstalled, the change may be an attack."
        ),
        False,
    ),
    (
        r"Host key verification failed|No .* host key is known",
        "The host key of {host} is unknown.",
        "Log in once: ssh {host}   Answer yes only if the key that ssh shows is the key of the machine.",
        False,
    ),
    (
        r"Permission denied \(|Too many authentication failures|No more authentication methods",
        "{host} refused the ssh key.",
        "Set up a key: ssh-copy-id {host}   Then this command must work without a password: ssh {host} true",
        False,
    ),
    (
        r"[Bb]ad (configuration option|owner or permissions)|bad configuration options|extra arguments",
        "Your ssh configuration has a mistake.",
        "To see the line: ssh {host} true",
        False,
    ),
    (
        r"Temporary failure in name resolution",
        "The name lookup for {host} failed.",
        "Is this machine online? To test: ssh {host} true",
        True,
    ),
    (
        r"Could not resolve hostname",
        "There is no machine with the name {host}.",
        "Check the name. To test: ssh {host} true",
        False,
    ),
    (
        r"Connection refused",
        "{host} refused the connection: its sshd is not running on this port.",
        "Is the machine still starting, or has the port changed? To test: ssh {host} true",
        True,
    ),
    (
        r"[Tt]imed out|No route to host|Network is unreachable",
        "{host} does not answer.",
        "Is {host} switched on, and is this machine online? To test: ssh {host} true",
        True,
    ),
    (
        r"Unable to negotiate|no matching ",
        "{host} and the ssh client of this machine support no common algorithm.",
        "To see why: ssh -v {host}",
        False,
    ),
)


def explain(stderr: str, host: str, code: int | None) -> TargetError:
    """The error for an ssh that ended before Stoker's command ran, from its stderr and exit code (255: ssh
    itself failed)."""
    # in the sentence, without the options of ssh; the hint has what to type
    where = host.rsplit(maxsplit=1)[-1]
    name = where.rpartition("@")[2]
    for pattern, sentence, hint, retry in SAYINGS:
        if re.search(pattern, stderr):
            return TargetError(
                sentence.format(host=where), hint=hint.format(host=host, name=name), retry=retry
            )
    said = [line for line in stderr.strip().splitlines() if line.strip()]
    last = f" ({said[-1].strip()})" if said else ""
    if code not in (None, 255):
        return TargetError(f"{where} accepted the login but did not run the command{last}.", retry=False,
                           hint=f"This must print ok: ssh {host} echo ok")
    return TargetError(
        f"{where} cannot be reached{last}.", hint=f"To test the connection: ssh {host} true", retry=True
    )

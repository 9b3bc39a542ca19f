"""What ssh says when it fails, as one sentence with what to type next."""

from __future__ import annotations

import re

from stoker.base.errors import TargetError

# (what ssh says, our sentence, what to type, whether trying again may help); the first that fits is taken
SAYINGS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "{host} shows another host key than before.",
     "Was the machine made anew? Then: ssh-keygen -R {name}, and `ssh {host}` to compare the new key. If not, beware.", False),
    (r"Host key verification failed|No .* host key is known", "The host key of {host} is not known yet.",
     "Type `ssh {host}` once, compare the key and answer yes.", False),
    (r"Permission denied \(|Too many authentication failures|No more authentication methods", "{host} does not let us in with a key.",
     "Set up a key: ssh-copy-id {host}   (then `ssh {host} true` must work without a question)", False),
    (r"[Bb]ad (configuration option|owner or permissions)|bad configuration options|extra arguments",
     "Your ssh configuration has a mistake.", "`ssh {host} true` names the line.", False),
    (r"Temporary failure in name resolution", "The name of {host} cannot be looked up now.",
     "Is this machine online? ssh {host} true", True),
    (r"Could not resolve hostname", "There is no machine called {host}.",
     "Check the name: ssh {host} true", False),
    (r"Connection refused", "{host} is there, but its sshd does not answer.",
     "Is it still starting, or has its port changed? ssh {host} true", True),
    (r"[Tt]imed out|No route to host|Network is unreachable", "{host} does not answer.",
     "Is it switched on, and this machine online? ssh {host} true", True),
    (r"Unable to negotiate|no matching ", "{host} and the ssh of this machine do not understand each other.",
     "`ssh -v {host}` says why.", False),
)


def explain(stderr: str, host: str, code: int | None) -> TargetError:
    """The error for an ssh that ended before a command of ours ran, from its stderr and exit code (255: ssh itself failed)."""
    name = host.rsplit(maxsplit=1)[-1].rpartition("@")[2]
    for pattern, sentence, hint, retry in SAYINGS:
        if re.search(pattern, stderr):
            return TargetError(sentence.format(host=host), hint=hint.format(host=host, name=name), retry=retry)
    said = [line for line in stderr.strip().splitlines() if line.strip()]
    last = f" ({said[-1].strip()})" if said else ""
    if code not in (None, 255):
        return TargetError(f"{host} let us in but did not run our command{last}.", retry=False,
                           hint=f"This must print ok: ssh {host} echo ok")
    return TargetError(f"{host} cannot be reached{last}.", hint=f"Does this work? ssh {host} true", retry=True)

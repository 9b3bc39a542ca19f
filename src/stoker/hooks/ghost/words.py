"""Every sentence with which exact resume refuses, passes a point or gives an image up. docs/resume.md lists them from here.

REFUSED: the run is "not resumable: ..." from there on. PASSED: this moment is no good for an image, the next may be.
DIVERGED: a life that was to repeat another one does not; an older image, or the start, takes its place.
"""

from __future__ import annotations

# -- the log and the way a life goes (log, fate, points)
LOG_CAP = "the log of this run is {size} MiB: the script takes more values out of tensors than can be kept (STOKER_LOG_CAP)"
LOG_UNWRITABLE = "the log cannot be written: {error}"
LOG_ENDED = "the recorded life ended at event {event}, this one went on ({now})"
PASSED_POINT = "event {event}: this life went past the place where the image was taken"
OTHER_EVENT = "event {event}: recorded was {then}, now it is {now} at {here}"
OTHER_PLACE = "event {event} comes from another place: recorded was {then}, now {now}"
OTHER_VALUE = "event {event}, {behind} after the image: {what} gave {then} when it was recorded, now {now}, at {place}"
ENDED_AS_GHOST = "the script ended before it came to the image"
ENDED_IN_TAIL = "the script ended earlier than when it was recorded"
TWO_PROCESSES = "two processes train: pid {one} and pid {two}; only one process per run can be resumed"
INTERNAL = "a fault of the hooks themselves: {error}"
RAISED = "an error inside a shielded call ({error}) was caught by the script, which went on"
OLD_GRAPH = "backward reached a graph from before the image"
UNSUPPORTED = "this version is not supported: {why}"
FORKED_TRACE = "a debugger, a profiler or a coverage tool traces this process"
NO_CLEAN_FRAME = "every line that could be used stands inside an expression that holds intermediate values"
UNKNOWN_BYTECODE = "the bytecode of {code} is not understood"

# -- values and shields
NOT_A_VALUE = "a value of type {type} left a tensor through {what}"
BIG_ARRAY = "an array of {size} MiB was taken out of a tensor through {what}"
EXPORTED = "the memory of a tensor was handed out through {what}"
SPARSE_GRAD = "sparse gradients are not understood yet"
UNKNOWN_OUTPUT = "{what} returned a {type}, which is not understood"

# -- the world, files and checks
EARLY_MUCH = "the script asked the clock or the file system too often before it imported torch"
EARLY_OTHER = "before it imported torch, the script did something else than in the recorded life ({now})"
EARLY_LESS = "before it imported torch, the script did less than in the recorded life"
EARLY_GONE = "what the script learned before it imported torch is not recorded"
OTHER_QUESTION = "the script asks {name} about {now!r}, in the recorded life it was {then!r}"

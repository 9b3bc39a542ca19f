"""Every sentence with which exact resume refuses, passes a point or gives an image up.
docs/reference/refusals.md lists them from here.

REFUSED: the run is "not resumable: ..." from there on. PASSED:
this moment is no good for an image, the next may be.
DIVERGED: a life that was to repeat another one does not; an older image, or the start, takes its place.
"""

from __future__ import annotations

# -- recording and replay
LOG_CAP = (
    "the log for exact resume is too large ({size} MiB, limit STOKER_LOG_CAP): "
    "the script reads too many values from tensors or files"
)
LOG_MOVES = "Stoker is still writing printed text to the log of the run"
LOG_UNWRITABLE = "the log for exact resume cannot be written: {error}"
LOG_ENDED = "the recording ended at event {event}, but the script continued ({now})"
PASSED_POINT = (
    "the script repeated all events up to the image, but did not reach the line of the image (event {event})"
)
OTHER_EVENT = "event {event} differs at {here} (recorded: {then}; now: {now})"
OTHER_PLACE = "event {event} comes from a different line (recorded: {then}; now: {now})"
OTHER_VALUE = (
    "event {event} ({count} events after the image): {what} differs at {place} (recorded: {then}; now: {now})"
)
ENDED_AS_GHOST = "the script ended before it reached the image"
RAISED_AS_GHOST = "the script failed before it reached the image: {error}"
ENDED_IN_TAIL = "the script ended earlier than in the recording"
TWO_PROCESSES = "two processes train: pid {one} and pid {two}; only one process per run can be resumed"
INTERNAL = "an internal error of Stoker's hooks: {error}"
RAISED = (
    "the script handled an error in a call of a model or loader ({error}); "
    "a resume skips this call, so it cannot repeat the error"
)
OLD_GRAPH = "a call of backward() used a graph that is older than the image"
UNSUPPORTED = "this version is not supported: {why}"
NO_CLEAN_FRAME = (
    "an image is not possible in the middle of an expression, and the whole training runs inside an "
    "expression"
)
NO_IMAGE = "no image was possible so far: {reason}"
NO_POINT = "the script reached no line where an image is possible"
UNKNOWN_BYTECODE = "the bytecode of {code} is not supported"

# -- audits: a difference makes the run "not resumable"; the other sentences follow "not audited:"
AUDIT = "an audit of steps {then} to {now} ended in a different state than the run: {what}"
AUDIT_GPU = (
    "an audit must not use a GPU, but this Python sees a GPU. For a training on the CPU, hide the GPU: "
    "CUDA_VISIBLE_DEVICES="
)
AUDIT_DISK = "the disk has no space for three images"
AUDIT_ROOM = "the images could not be kept for the audit: {error}"
AUDIT_NOTHING = "there are too few recorded values after the image to compare"
AUDIT_GRAPH = "the script still holds an autograd graph that existed at the image"
AUDIT_NOT_AGAIN = "the audit ran the script from its start, but did not reach the image"
AUDIT_OUTSIDE = (
    "before training, the script does something that must not run twice at the same time ({what}, {where})"
)
AUDIT_CALL = "the script calls os.{name}, which Stoker's sandbox cannot block"
AUDIT_FILES = "the run changed its files while they were copied"
AUDIT_LATE = "the run changed {path} again before the audit read it"
AUDIT_LARGE = "{path} is too large: Stoker could not copy its content at the image"
AUDIT_LONG_AGO = (
    "the audit was too slow: {path} changed after the image, and its content at the image is lost"
)
AUDIT_MACHINE = "not enough memory, disk space or open files: {error}"

# -- parts of sentences: what differs
AUDIT_LOADERS = "{what} of loader {n}"
AUDIT_FILE = "an open file"
AUDIT_PRINTED = "what the script printed"
AUDIT_RANDOM = "the state of {name}"

# -- values taken from tensors
NOT_A_VALUE = "{what} took a value of type {type} from a tensor"
BIG_ARRAY = "{what} took an array of {size} MiB from a tensor"
EXPORTED = "{what} gave direct access to the memory of a tensor"
SPARSE_GRAD = (
    "a sparse gradient is supported only in COO layout, and only for a parameter of a module or optimizer"
)
UNKNOWN_OUTPUT = "{what} returned a {type}, which is not supported"

# -- system calls, files and printed text
EARLY_MUCH = "before importing torch, the script read the clock or the file system too often"
EARLY_OTHER = "before importing torch, the script did something different from the recording ({now})"
EARLY_LESS = "before importing torch, the script did less than in the recording"
EARLY_GONE = "the values that the script read before importing torch are not recorded"
OTHER_QUESTION = "the script calls {name} with {now!r} (recorded: {then!r})"
TEMPLATES = (
    "the recording was written by a newer version (output form {number}; this version knows {known} forms)"
)
OTHER_MODULE = "a different module or optimizer (recorded: number {then}; now: number {now}, {type})"
UNDO_TREE = "a folder with more than {count} entries was renamed and could not be restored: {path}"
UNDO_NAMES = "the script overwrites {path}, but this file has a second name (a hard link)"
UNDO_CAP = (
    "the script overwrote many files after the last image: copies of these files need more than {size} MiB "
    "({path})"
)
UNDO_ROOM = "the disk has no space to copy {path} ({size} MiB) before the script overwrites it"
UNDO_FAILED = "no copy of {path} could be made: {error}"
UNDO_GONE = "the copies of files that belong to this image are missing"
WEIGHTS_IN_MEMORY = (
    "{name} holds weights that the script saved into memory (torch.save into a buffer); "
    "a resume cannot restore these bytes"
)
OTHER_CLOCK = (
    "{name} holds a time ({value}) that Stoker did not record, because the script read it from another clock"
)
UNDO_LOST = "another program changed {path}, so its content at the image cannot be restored"
FILE_GONE = "{path} is open for writing, but was removed or replaced"
FILE_NOT_OPEN = "{path} was open at the image, but is not open now"
FILE_OPEN = "{path} is open now, but was not open at the image"
FILE_OTHER = "a different file is open (at the image: {then}; now: {now})"
FILE_PLACE = "the position in {path} differs (at the image: {then}; now: {now})"
FILE_SIZE = "the size of {path} differs (at the image: {then} bytes; now: {now})"
READS_OPEN = "{path} is open for writing and is read at the same time"
READ_ON = (
    "a model or loader opened {path}, and the file is still open; a resume skips this call, so it cannot "
    "continue to read the file"
)
READ_MUCH = "{path} is too large for the log of exact resume"
READ_CHANGED = "{path} changed after the script read it"
READ_BACK = "the script wrote {path}, read it, and then changed it"
OTHER_PRINTS = "the printed text differs from the recording (recorded: {then} characters; now: {now})"
WRITER_STUCK = "the writer thread {name} has not written all its data to its file"
UNKNOWN_WRITER = "{path} is open for writing without a Python file object (os.open, a database, a C library)"
PAST_FILE = "{path} is open as a Python file object, and {name} also writes to its descriptor"
OPENED_PAST = "{path} is opened for writing without open(), so a resume cannot block the write"
PRINTS_ELSEWHERE = (
    "the script prints in another way than through sys.stdout and sys.stderr (such as /dev/stdout or "
    "faulthandler)"
)
UNKNOWN_MAP = "{path} is a writable memory map"
FOREIGN_TRACE = "a debugger, a profiler or a coverage tool traces this process"
OTHER_POINT = "the script is at a different {what} (at the image: {then}; now: {now})"

# -- data loaders
LOADER_THREAD = "a background thread reads a DataLoader"
LOADER_ORDER = "a DataLoader returns batches in the order in which workers finish (in_order=False)"
LOADER_PIPES = "a DataLoader reads torchdata pipes, which are not supported yet"
LOADER_OWN = "{type} overrides {name} of DataLoader, which is not supported"
LOADER_OWN_ITERATOR = "a DataLoader returned an unknown iterator type ({type})"
LOADER_UNKNOWN = "an iterator over a DataLoader was created where Stoker could not see it"
LOADER_FAILED = "a DataLoader raised an error ({error})"
LOADER_ITERABLE_PERSISTENT = (
    "persistent workers read an iterable data set for a second epoch, which is not supported"
)
LOADER_DRAWS = (
    "a sampler or an iterable data set draws too many numbers from a random generator that the script also "
    "uses"
)
LOADER_CHANGES_ITSELF = (
    "{what} changes while the iterable data set is read, so a resume cannot read the data set again"
)
LOADER_CHANGED = "{what} was changed, but loader workers still use its old value"
LOADER_OTHERS = "the script has different DataLoaders than in the recording"
LOADER_GONE = "iterator number {n} over a DataLoader no longer exists"
LOADER_ENDED = "the script uses an iterator over a DataLoader, but the image does not contain this iterator"
LOADER_OTHER_DATA = "a data set, or an object that it uses, changed after its workers started"
LOADER_OTHER_INDICES = "a loader returns different samples than in the recording"
LOADER_SHORT = "a loader returns fewer batches than in the recording"
LOADER_SEED = "a loader's workers would get a different seed than in the recording"
WORKER_CHANGED = "in a loader worker, {what}"
SAMPLER_UNREADABLE = "a sampler cannot be saved: {what}"
SAMPLER_OTHER = "a sampler differs from the image"

# -- objects, images, and changes since the recording
NOT_SAVED = "exact resume does not support this object yet: {what}"
GRAPH_ALIVE = (
    "{name} keeps an autograd graph that a call of backward() could still use (to release the graph: "
    ".item() or .detach())"
)
GRAPH_KEPT = "an autograd graph that the script built before the image still existed when the recording ended"
UNKNOWN_TYPE = "the training may change {name}, but exact resume does not support its type, {type}"
TAKES_BYTES = "{name} may hold pickled data; exact resume cannot restore an object of the type {type}"
UNSEEN_TENSOR = "Stoker cannot find the variable that holds a tensor {shape} {dtype} (held by {who})"
UNSEEN_ARRAY = "Stoker cannot find the variable that holds an array {shape} {dtype} (held by {who})"
FROZEN = "the script calls gc.freeze, so Stoker cannot see all objects"
TOO_MANY_SHIFTS = "calls of models and loaders, which a resume skips, change more than {count} variables"
SHORT_TAIL = "only {count} values were recorded after the image, too few to detect a wrong resume"
OTHER_STACK = "the script is at a different line (at the image: {then}; now: {now})"
OTHER_STATE = "{name} has changed (then: {then}; now: {now})"
ALIAS = "the same as "
NOT_BUILT = "a resume cannot create {name} again"
MAP_REPLACED = "the memory-mapped file {path} was replaced or removed"
ADDRESS = "{name} is the address of {what}, which differs in each process"
NOT_MADE = (
    "a forward pass or a data set creates {name}; a resume skips this call, so it cannot create {name} again"
)
SAME_SCRIPT = (
    "{path} was edited after the recording. To resume, restore the old file; "
    "otherwise the run restarts from scratch"
)
SAME_MODULE = (
    "{path} differs from the code of the recording. To resume, restore the file; "
    "otherwise the run restarts from scratch"
)
NOT_IMPORTED = (
    "a model or loader loaded {path}; a resume skips this call, and cannot import the file by its name"
)
IMPORTED_NOW = "{path} is imported now, but was not imported at the image"
SAME_INPUT = (
    "the input {path} changed after the recording. To resume, restore the file; "
    "otherwise the run restarts from scratch"
)
SAME_ARGV = "command-line arguments changed (recorded: {then}; now: {now})"
SAME_CWD = "the working folder changed (recorded: {then}; now: {now})"
SAME_NAME = "the script file changed (recorded: {then}; now: {now})"
SAME_VERSION = "{what} changed (recorded: {then}; now: {now}); to resume, use the recorded version"
SAME_THREADS = (
    "the number of threads changed (recorded: {then}; now: {now}), so sums would round differently; "
    "set OMP_NUM_THREADS"
)
SAME_MACHINE = "the processor changed (recorded: {then}; now: {now}), so results would round differently"
SAME_GPU = "the GPU or its driver changed (recorded: {then}; now: {now}), so results would round differently"
SAME_VARIABLES = "environment variables that change numerical results have changed: {names}"
EDITED_MEANWHILE = "{path} was edited while the script was running, so the running code differs from the file"
ENGINE = "the script uses stoker.Engine, which saves and resumes by itself"
DISTRIBUTED = "torch.distributed is in use; runs of several processes cannot be resumed exactly yet"
THREAD = "a thread of the script works during training ({name}, {where})"
SPAWNED = (
    "the script trains in processes that it starts; exact resume supports only a training in the first "
    "process"
)
CHILD = "a process that the script started is still running ({name}, process {pid})"
OWN_EXTENSION = "{path} is an unknown C extension"
PROCESS = "the script starts another program during training ({what}, {where})"
SOCKET = "the script uses the network during training ({where})"
LIBRARY = "the script loads {name} through ctypes during training"
FUNCTION_IN_C = "the script calls the C function {name} through ctypes ({where})"
DATABASE = "the script writes to the database {path}"
COMPILE = "torch.compile is in use; compiled code cannot be resumed exactly yet"
JIT = "torch.jit is in use; scripted code cannot be resumed exactly yet"
CUDA_GRAPH = "CUDA graphs are in use; they cannot be resumed exactly yet"
C_WRITER = "a C library, not Python, writes {path}"
INTERRUPT = "the script was interrupted (KeyboardInterrupt) at a moment that a resume cannot repeat"
SIGNAL = "a signal handler of the script ran (signal {number}) at a moment that a resume cannot repeat"

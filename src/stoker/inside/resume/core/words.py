"""Every sentence with which exact resume refuses, passes a point or gives an image up.
docs/reference/refusals.md lists them from here.

REFUSED: the run is "not resumable: ..." from there on. PASSED:
this moment is no good for an image, the next may be.
DIVERGED: a life that was to repeat another one does not; an older image, or the start, takes its place.
"""

from __future__ import annotations

# -- recording and replay
LOG_CAP = (
    "the log for exact resume is too large ({size} MiB): the script reads too many values from tensors or "
    "files. To raise the limit, set STOKER_LOG_CAP (bytes)"
)
LOG_MOVES = "Stoker could not measure the length of the printed text, because the run's log is still growing"
LOG_UNWRITABLE = "the log for exact resume cannot be written: {error}"
LOG_ENDED = "the recording ended at event {event}, but the resumed script continued (next event: {now})"
PASSED_POINT = (
    "the resumed script repeated all events before the image, but did not reach the line at which the image "
    "was taken (event {event})"
)
OTHER_EVENT = (
    "at event {event} ({here}), the resumed script differs from the recording (recorded: {then}; now: "
    "{now})"
)
OTHER_PLACE = "event {event} comes from a different line of code (recorded: {then}; now: {now})"
OTHER_VALUE = (
    "event {event} ({count} events after the image): {what} differs at {place} (recorded: {then}; now: {now})"
)
ENDED_AS_GHOST = "the resumed script ended before it reached the image"
RAISED_AS_GHOST = "the resumed script raised an error before it reached the image: {error}"
ENDED_IN_TAIL = "the resumed script ended earlier than the recording"
TWO_PROCESSES = (
    "two processes train (pid {one} and pid {two}), but exact resume supports only one training process per "
    "run"
)
INTERNAL = "an internal error of Stoker's hooks: {error}"
RAISED = (
    "the script caught an error of a model or loader ({error}); a resume skips calls of models and loaders, "
    "so a resume cannot repeat this error"
)
OLD_GRAPH = (
    "the script called backward() on an autograd graph that is older than the image; an image contains no "
    "graphs"
)
NO_CLEAN_FRAME = (
    "the training runs inside one expression, but Stoker can take an image only between two lines of a "
    "script"
)
NO_IMAGE = "no image was possible so far: {reason}"
NO_POINT = "the script reached no line at which Stoker can take an image"

# -- audits
AUDIT = "an audit of steps {first} to {last} ended in a different state than the run: {what}"
AUDIT_GPU = (
    "an audit must not use a GPU, but the script can see a GPU. If the training uses only the CPU, set "
    "CUDA_VISIBLE_DEVICES= (empty)"
)
AUDIT_DISK = "an audit needs free disk space for three images, but the disk has too little free space"
AUDIT_ROOM = "Stoker could not prepare the audit: {error}"
AUDIT_NOTHING = "Stoker recorded too few values after the image, so the audit has nothing to compare"
AUDIT_GRAPH = "the script still holds an autograd graph that is older than the image"
AUDIT_NOT_AGAIN = "the audit ran the script from its start, but the script did not reach the image"
AUDIT_OUTSIDE = (
    "before training, the script does something that must not run twice at the same time ({what}, {where})"
)
AUDIT_CALL = "the script calls os.{name}; the audit cannot block this call in its child process"
AUDIT_FILES = "the run changed files while the audit copied these files"
AUDIT_LATE = "the run changed {path} again before the audit read this file"
AUDIT_LARGE = "{path} was too large to copy when the image was taken"
AUDIT_LONG_AGO = (
    "the audit was too slow: {path} changed after the image was taken, and Stoker has no copy of the old "
    "content"
)
AUDIT_MACHINE = (
    "the machine does not have enough memory, disk space or file descriptors for the audit: {error}"
)

# -- parts of sentences
AUDIT_LOADERS = "{part} of loader {n}"
AUDIT_FILE = "an open file"
AUDIT_PRINTED = "the printed text"
AUDIT_RANDOM = "the state of {name}"

# -- values taken from tensors
BIG_ARRAY = "{what} read an array of {size} MiB from a tensor; Stoker cannot record an array of this size"
EXPORTED = "{what} gave direct access to the memory of a tensor; Stoker cannot record such access"
SPARSE_GRAD = (
    "a gradient is sparse; exact resume supports sparse gradients only in COO layout, and only for "
    "parameters of a module or optimizer"
)
UNKNOWN_OUTPUT = "{what} returned a {type}, which exact resume does not support"

# -- system calls, files and printed text
EARLY_MUCH = (
    "before the import of torch, the script read the clock or the file system too often; Stoker cannot "
    "record this number of reads"
)
EARLY_OTHER = (
    "before the import of torch, the resumed script did something that is not in the recording ({now})"
)
EARLY_LESS = "before the import of torch, the resumed script did less than in the recording"
EARLY_GONE = "the part of the recording from before the import of torch is missing"
OTHER_QUESTION = "the resumed script calls {name} with {now!r} (recorded: {then!r})"
TEMPLATES = (
    "a newer version of Stoker wrote the recording, and this version cannot read a part of the recording "
    "(data form {number})"
)
OTHER_MODULE = (
    "the resumed script calls a different module or optimizer (recorded: object number {then}; "
    "now: object number {now}, {type})"
)
UNDO_TREE = (
    "the script renames {path}, a folder with more than {count} entries; a resume cannot undo this change"
)
UNDO_NAMES = (
    "the script overwrites {path}, which has a second name (a hard link); a resume cannot undo this change"
)
UNDO_CAP = (
    "since the last image, the script overwrote more than {size} MiB of files, which is Stoker's limit for "
    "copies of old content (current file: {path})"
)
UNDO_ROOM = (
    "the script overwrites {path}, but the disk has no space for a copy of the old content ({size} MiB)"
)
UNDO_FAILED = "Stoker could not copy {path} before the script changed this file: {error}"
UNDO_GONE = "this image needs copies of overwritten files, but these copies are missing"
WEIGHTS_IN_MEMORY = (
    "{name} holds weights that the script saved into memory (torch.save into a buffer); a resume cannot "
    "restore these bytes"
)
OTHER_CLOCK = (
    "{name} holds a time ({value}) that Stoker did not record, because the time comes from a clock that "
    "Stoker does not watch"
)
UNDO_LOST = "another program changed {path} after the image was taken, so the old content cannot be restored"
FILE_GONE = "{path} was removed or replaced while the script had this file open for writing"
FILE_NOT_OPEN = "{path} was open when the image was taken, but the resumed script has not opened it"
FILE_OPEN = "the resumed script has opened {path}, which was not open when the image was taken"
FILE_OTHER = "the resumed script has opened a different file (in the image: {then}; now: {now})"
FILE_PLACE = "the position in the open file {path} differs (in the image: {then}; now: {now})"
FILE_SIZE = "the size of {path} differs (in the image: {then} bytes; now: {now} bytes)"
READS_OPEN = (
    "the script reads {path} while the file is open for writing; exact resume does not support such reads"
)
READ_ON = (
    "a call of a model or loader opened {path} and left the file open; a resume skips this call, so a resume "
    "cannot continue to read the file"
)
READ_MUCH = "the script read {path}, and this file is too large for the log of exact resume"
READ_CHANGED = "{path} changed after the script read this file"
READ_BACK = "the script wrote {path}, read this file, and then changed the file again"
OTHER_PRINTS = (
    "the printed text differs from the recording (recorded: {then} characters; now: {now} characters)"
)
WRITER_STUCK = "the thread {name}, which writes a file, did not write all its data in time"
UNKNOWN_WRITER = "{path} is open for writing without a Python file object (os.open, a database, a C library)"
PAST_FILE = "{path} is open as a Python file object, and {name} also writes to the file's descriptor"
OPENED_PAST = "{path} is opened for writing without open(), so a resume cannot block the write"
PRINTS_ELSEWHERE = (
    "the script prints without sys.stdout or sys.stderr (for example to /dev/stdout, or through "
    "faulthandler)"
)
UNKNOWN_MAP = "{path} is a writable memory map, which exact resume does not support"
FOREIGN_TRACE = (
    "a debugger, a profiler or a coverage tool traces this process; exact resume does not support such tools"
)
OTHER_POINT = "the resumed script reached the image at a different {what} (in the image: {then}; now: {now})"

# -- data loaders
LOADER_THREAD = (
    "a background thread of the script reads a DataLoader; exact resume does not support reads in a "
    "background thread"
)
LOADER_ORDER = (
    "a DataLoader returns batches in the order in which workers finish (in_order=False); a resume cannot "
    "repeat this order"
)
LOADER_PIPES = "a DataLoader reads torchdata pipes; exact resume does not support torchdata pipes yet"
LOADER_OWN = "{type} overrides {name} of DataLoader; exact resume does not support this class"
LOADER_OWN_ITERATOR = "a DataLoader returned an iterator of an unknown type ({type})"
LOADER_UNKNOWN = "the script created an iterator over a DataLoader in a way that Stoker cannot see"
LOADER_FAILED = "a DataLoader raised an error ({error})"
LOADER_ITERABLE_PERSISTENT = (
    "persistent workers read an iterable data set for a second epoch; exact resume supports only one epoch "
    "in this case"
)
LOADER_DRAWS = (
    "a sampler or an iterable data set draws too many numbers from a random generator, and the script uses "
    "the same generator"
)
LOADER_CHANGES_ITSELF = (
    "{what} changes while the iterable data set is read, so a resume cannot read the data set again"
)
LOADER_CHANGED = "{what} was changed, but the loader's workers still use the old value"
LOADER_OTHERS = "the resumed script has different DataLoaders than the recording"
LOADER_GONE = (
    "the recording has a DataLoader iterator number {n}, but the resumed script does not have this iterator"
)
LOADER_ENDED = "the resumed script uses a DataLoader iterator that the image does not contain"
LOADER_OTHER_DATA = (
    "a data set, or an object that the data set uses, changed after the loader's workers started"
)
LOADER_OTHER_INDICES = "a DataLoader returns other samples than in the recording"
LOADER_SHORT = "a DataLoader returns fewer batches than in the recording"
LOADER_SEED = "the workers of a DataLoader would get a different seed than in the recording"
WORKER_CHANGED = "in a worker of a DataLoader: {what}"
SAMPLER_UNREADABLE = "a sampler cannot be saved: {what}"
SAMPLER_LOST = "the state of a sampler cannot be restored: {what}"
SAMPLER_OTHER = "the state of a sampler differs from the image"

# -- objects, images, and changes since the recording
NOT_SAVED = "exact resume does not support this object yet: {what}"
GRAPH_ALIVE = (
    "{name} keeps an autograd graph that a call of backward() can still use. To release the graph, use "
    ".item() or .detach()"
)
GRAPH_KEPT = (
    "an autograd graph from before the image still existed when the recording ended; an image contains no "
    "graphs"
)
UNKNOWN_TYPE = "the training may change {name}, but exact resume does not support its type, {type}"
TAKES_BYTES = "{name} has the type {type} and may hold pickled data, so exact resume cannot restore it"
UNSEEN_TENSOR = (
    "a tensor {shape} {dtype} is in use (held by {who}), but Stoker cannot find a variable that holds this "
    "tensor"
)
UNSEEN_ARRAY = (
    "an array {shape} {dtype} is in use (held by {who}), but Stoker cannot find a variable that holds this "
    "array"
)
FROZEN = "the script calls gc.freeze, which hides objects from Stoker"
TOO_MANY_SHIFTS = (
    "a resume skips calls of models and loaders, but these calls change more than {count} variables"
)
SHORT_TAIL = (
    "the run recorded only {count} values after the image; Stoker needs more values to detect a wrong resume"
)
OTHER_STACK = "the script is at a different line (in the image: {then}; now: {now})"
OTHER_STATE = "{name} differs (in the image: {then}; now: {now})"
ALIAS = "the same as "
NOT_BUILT = "a resume cannot recreate {name}"
MAP_REPLACED = "the memory-mapped file {path} was replaced or removed"
ADDRESS = "{name} is the memory address of {what}; this address differs in each process"
NOT_MADE = (
    "a call of a model or a data set creates {name}; a resume skips this call, so a resume cannot create "
    "{name} again"
)
SAME_SCRIPT = (
    "{path} was edited after the recording. To resume, undo the edit; "
    "otherwise the run restarts from scratch"
)
SAME_MODULE = (
    "{path} differs from the code of the recording. To resume, undo the change; "
    "otherwise the run restarts from scratch"
)
NOT_IMPORTED = (
    "a call of a model or loader loaded {path}; a resume skips this call, and a resume cannot import this "
    "file by name"
)
IMPORTED_NOW = "the resumed script imported {path}, which was not imported when the image was taken"
SAME_INPUT = (
    "the input {path} changed after the recording. To resume, undo the change; "
    "otherwise the run restarts from scratch"
)
SAME_ARGV = "command-line arguments changed (recorded: {then}; now: {now})"
SAME_CWD = "the working folder changed (recorded: {then}; now: {now})"
SAME_NAME = "the command starts another script file (recorded: {then}; now: {now})"
SAME_VERSION = "{what} changed (recorded: {then}; now: {now}). To resume, use the recorded version"
SAME_THREADS = (
    "the number of threads changed (recorded: {then}; now: {now}), so sums would round differently. To "
    "resume, set OMP_NUM_THREADS to the recorded number"
)
SAME_MACHINE = "the processor changed (recorded: {then}; now: {now}), so results would round differently"
SAME_GPU = "the GPU or its driver changed (recorded: {then}; now: {now}), so results would round differently"
SAME_VARIABLES = "environment variables that affect numerical results have changed: {names}"
EDITED_MEANWHILE = "{path} was edited while the script was running, so the running code differs from the file"
ENGINE = "the script uses stoker.Engine, which saves and resumes by itself"
DISTRIBUTED = "torch.distributed is in use; runs of several processes cannot be resumed exactly yet"
THREAD = (
    "a thread of the script runs during training ({name}, {where}); exact resume does not support such "
    "threads"
)
SPAWNED = (
    "the script trains in processes that it starts; exact resume supports only a training in the main "
    "process of the script"
)
CHILD = "a process that the script started is still running (name {name}, process id {pid})"
OWN_EXTENSION = (
    "{path} is a C extension that Stoker does not know, so an image may lack a part of the state of {path}"
)
PROCESS = "the script starts another program during training ({what}, {where})"
SOCKET = "the script uses the network during training ({where})"
LIBRARY = "the script loads {name} through ctypes during training"
FUNCTION_IN_C = "the script calls the C function {name} through ctypes ({where})"
DATABASE = "the script writes to the database {path}"
COMPILE = "torch.compile is in use; compiled code cannot be resumed exactly yet"
JIT = "torch.jit is in use; scripted code cannot be resumed exactly yet"
CUDA_GRAPH = "CUDA graphs are in use; runs with CUDA graphs cannot be resumed exactly yet"
C_WRITER = "a C library, not Python, writes {path}, so a resume cannot block the write"
INTERRUPT = "the script was interrupted (KeyboardInterrupt) at a moment that a resume cannot repeat"
SIGNAL = "a signal handler of the script ran (signal {number}) at a moment that a resume cannot repeat"

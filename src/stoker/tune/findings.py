"""What the rules conclude, as plain data: causes, actions, tips, refusals, and the sum they rest on.
No arithmetic here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

RISKS = {
    "A": "the same results, bit for bit",
    "B": "the same formulas, but rounding, the order of operations or random numbers may differ",
    "C": "different arithmetic, used only with --allow precision and after a passed accuracy check",
}
# put in from outside; a change of the script, offered; something about the world around it
CURES = ("setting", "diff", "advice")
KNOBS = (
    "workers",
    "prefetch",
    "persistent_workers",
    "pin_memory",
    "threads",
    "batched",
    "cache",
    "bf16",
    "tf32",
    "channels_last",
    "fused",
    "compile",
    "batch",
)
LOADER_KNOBS = ("workers", "prefetch", "persistent_workers", "pin_memory", "batched", "cache")
NO_GAIN = "no gain"  # what became of an action that was raced and lost
UNCERTAIN = "the gain is too uncertain"  # it was raced, and the interval of its gain holds "no gain" too
TIP_STATES = ("DONE", "HELPS", "NO EFFECT", "UNSAFE", "NOT TESTED")


@dataclass(frozen=True)
class Range:
    """A number with the interval that it lies in, nine times of ten. Shares are of 1, ratios new/old."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Cause:
    """One reason why a step takes as long as it does. share: of the step, by `measured`;
    None where no clock shows it (data, memory)."""

    name: str  # of causes.CAUSES
    text: str  # one sentence with its numbers
    share: Range | None = None
    measured: str = ""  # "differencing", "sampler", "clock", "counted", "read"
    file: str = ""  # of the user's, as the facts name it; "" where no place is known
    line: int = 0


@dataclass(frozen=True)
class Action:
    """One thing that could be done. settings: a fragment of the settings document (contract, section 9), to
    be merged over others."""

    name: str  # of KNOBS for settings; of a diff or an advice the cause's name
    cure: str  # of CURES
    risk: str  # of RISKS
    text: str  # one sentence: what to do
    ratio: Range  # forecast step time new/old; 1 = no gain
    chance: float = 1.0  # probability that it works at all
    cause: str = ""  # which cause it answers
    settings: dict = field(default_factory=dict)  # {} for diffs and advice
    file: str = ""
    line: int = 0
    diff: str = ""  # unified diff, where the change is mechanical; never applied by us
    confirmed: Range | None = None  # step time new/old as measured afterwards
    # what became of it: "", "kept", "no gain", "failed", "needs consent", "not shown safe";
    # a sentence may follow a colon
    state: str = ""

    @property
    def gain(self) -> float:
        """How much of the step's time it takes away, as forecast: 0.3 = 30 % less time."""
        return 1 - self.ratio.value


@dataclass(frozen=True)
class Tip:
    """One of the nine tips of the tutorials. gain:
    more throughput (0.3 = +30 %), as measured or forecast; None where not known."""

    name: str  # of tips.TIPS
    state: str  # of TIP_STATES
    text: str
    gain: float | None = None


@dataclass(frozen=True)
class Refusal:
    """knob: a word of actions, or "all". reason: of refusals.REASONS."""

    knob: str
    reason: str
    text: str
    hint: str


@dataclass(frozen=True)
class Stage:
    """One row of the table: ms a step now and after the settings that are proposed (None: not known)."""

    name: str  # a kind of the clock ("data", "forward", ...), "wait", "copy", "step"
    now_ms: float
    share: float
    after_ms: float | None
    measured: str


@dataclass(frozen=True)
class Curve:
    """Samples a second of the loader that trains, by workers. dots: what was measured; line:
    what the model says."""

    dots: tuple[tuple[int, float], ...] = ()
    line: tuple[tuple[int, float], ...] = ()
    compute: float | None = None  # samples/s of the step with batches from memory
    cores: float | None = None  # that are ours
    now: int = 0
    advised: int | None = None
    breaks_at: int | None = None  # so many workers would run into a limit
    breaks_why: str = ""


@dataclass(frozen=True)
class Findings:
    """Everything that `rules.judge` says about one script on one machine."""

    verdict: str  # one sentence
    step_ms: float | None = None  # T0
    floor_ms: float | None = None  # batches from memory (on the device)
    stall: Range | None = None  # share of the step that waits for input
    copy: Range | None = None
    residual: float | None = None  # |T0 - stall - copy - floor| / T0; None: not measured, or noise is larger
    noise: str = ""  # "" = quiet enough; else who disturbed, in one sentence
    causes: tuple[Cause, ...] = ()  # the first is the largest recoverable one
    actions: tuple[Action, ...] = ()  # the best first
    tips: tuple[Tip, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    stages: tuple[Stage, ...] = ()
    curve: Curve = Curve()
    kept: tuple[str, ...] = ()  # the settings that were kept in the end, in words
    total: Range | None = None  # step time new/old with all of them, as confirmed in fresh processes
    outcome: str = ""  # one sentence on how the search ended
    trials: tuple[dict, ...] = ()  # the log of the search: name, ratio, how it ended

    def refused(self, knob: str) -> Refusal | None:
        """Why this knob must be left alone; None where it may be tried."""
        return next((r for r in self.refusals if r.knob in ("all", knob)), None)

    def to_json(self) -> dict:
        return asdict(self)

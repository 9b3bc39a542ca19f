"""What the name of a printed number says: an axis, a split, a measurement of time or size that is no metric,
a parameter, a metric."""

from __future__ import annotations

import re
from functools import lru_cache

STEP = frozenset(
    (
        "step steps iter iters iteration iterations it its update updates upd timestep timesteps "
        "num_updates global_step "
        "total_timesteps niter n_iter optim_step"
    ).split()
)
EPOCH = frozenset((
    "epoch epochs epoc 轮 轮次").split())
OTHER_AXES = frozenset(
    (
        "episode episodes ep eps_num tick kimg frame frames batch round generation trial game games "
        "minibatch env_steps "
        "tokens_seen examples_seen"
    ).split()
)

SPLITS = {
    "train": "train",
    "training": "train",
    "trn": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "vali": "val",
    "eval": "eval",
    "evaluation": "eval",
    "evaluating": "eval",
    "test": "test",
    "testing": "test",
    "dev": "dev",
    "validating": "val",
    "训练": "train",
    "验证": "val",
    "测试": "test",
}
_ANY_SPLIT = re.compile("|".join(SPLITS), re.IGNORECASE)

_TIMES = frozenset(
    (
        "time times dt ms sec secs second seconds eta elapsed left remaining dur duration took wall clock "
        "runtime latency hours "
        "hour min mins minutes minute timestamp date maintenance days eps/sec used cost_time speed ago now "
        "since train_wall "
        "wall_time"
    ).split()
)
_SIZES = frozenset(
    (
        "mem memory gpumem cpumem vram ram gib gb mb mib kb bytes reserved allocated size sizes bsz "
        "batchsize bs params "
        "parameters shape dim length len width height channels features kernel_size stride padding disk "
        "gpu_mem max_mem storage"
    ).split()
)
_RATES = frozenset((
    "tflops tflop flops tgs fps ips wps ups wpb throughput hz sps tps tok/s it/s qps imgs/s img/s").split())
_COUNTS = frozenset(
    (
        "seed port version pid rank gpu gpus device devices cuda worker workers n num count samples images "
        "instances examples "
        "class classes id idx index v_num line layer layers world_size nodes threads cpus cores level exit "
        "code pictures files "
        "labels total_episodes episodes_total vocab heads fold attempt try retries year nan_count part "
        "data bad_epochs patience "
        "counter n_updates num_samples sentences nsentences ntokens hits target targets seen done "
        "total_steps max_steps "
        "max_epochs num_epochs dataset rows lines"
    ).split()
)
_OLD = re.compile(
    r"(?<![a-z])(best|improve[ds]?|improvement|early.?stop\w*|averaged.stats|previous|prev|patience|highest"
    r"|lowest|record|reached|(?:de|in)creased|did not improve)(?![a-z])"
)
_PARAMETERS = re.compile(
    r"(?:^|[\W_])(lr|learning.?rate|momentum|weight.?decay|wd|dropout|beta\d?|betas|temperature|temp|tau|gamma|alpha"
    r"|lambda|eps|epsilon|.*weight|warmup.*|n_updates|clip.*range|clip_range|hidden.*|.*_size|num_.*|n_.*|max_.*|min_.*"
    r"|scale|learning_rate_?\d*|lr_?\d*|ent_coef|coef|loss_scale|decay|pg\d|.*factor)$"
)
_METRICS = re.compile(
    r"loss|acc|ppl|perplex|reward|return|score|err|(?:^|\W)f1|auc|precision|recall|bleu|rouge"
    r"|(?:^|[\W_])m?ap(?:\d|$|@|\W)|iou|dice|psnr|ssim|(?:^|\W)fid|kld?(?:$|\W)|(?:^|[\W_])lr(?:$|[\W_])|learning.?rate|norm|entropy|mae|mse|rmse|r2"
    r"|top-?\d|prec@|nll|elbo|elo(?:$|\W)|[wc]er(?:$|\W)|xent|(?:^|\W)b?ce(?:$|\W)|bp[bcd]|mfu|grad|epsilon|adv|q_?val|value|policy"
    r"|corr|similar|margin|reg(?:$|\W)|penalty|energy|likelihood|logp|损失|准确率|精度|rmsd|metric|hinge|critic|actor"
    r"|ep_?rew|ep_?len|variance|fraction|d\(|g\(",
    re.IGNORECASE,
)
STOP = frozenset(
    (
        "in|at|of|for|to|from|with|by|and|or|is|was|than|after|per|took|about|on|over|under|within|up|down|the|a|an|has|"
        "have|are|be|as|it|this|that|into|every|each|only|using|use|used|loaded|loading|saved|saving|downloading|found|"
        "epoch's|until|processed|processing|read|reading|wrote|writing|got|plus|minus|around|nearly|almost"
    ).split("|")
)
_PARTS = re.compile(r"[\s/.:|]+")


def tokens(name: str) -> list[str]:
    """The words of a name, in lower case; `val_loss` counts as one word."""
    return [part for part in _PARTS.split(name.lower().strip()) if part]


@lru_cache(maxsize=4096)
def axis(name: str) -> str | None:
    """"epoch", "step", or another counter; None for other names."""
    words = tokens(name)
    if not words:
        return None
    last = words[-1].strip("#([)]")
    bare = last.partition("(")[0]
    if last in EPOCH or bare in EPOCH:
        return "epoch"
    counted = last.endswith(("_step", "_iter", "_steps", "_timesteps")) and not last.startswith(
        ("max", "num_", "n_")
    )
    if last in STEP or bare in STEP or counted:
        return "step"
    return last if last in OTHER_AXES else None


@lru_cache(maxsize=4096)
def refused(name: str) -> bool:
    """True for a time, a size, a rate or a count, which are not metrics."""
    words = tokens(name)
    if not words or name.endswith((".py", ".cpp", ".cu")):
        return True
    if any(word in _TIMES or word in _RATES for word in words):
        return not _METRICS.search(name) or any(
            word in ("time", "eta", "ms", "elapsed", "runtime", "seconds") for word in words
        )
    pieces = [piece for word in words for piece in re.split(r"[_\-]", word) if piece]
    timed = any(
        piece
        in (
            "time",
            "eta",
            "elapsed",
            "runtime",
            "seconds",
            "sec",
            "secs",
            "duration",
            "mem",
            "memory",
            "fps",
            "timestamp",
            "throughput",
            "gb",
            "mb",
            "gib",
            "mib",
            "kb",
        )
        for piece in pieces
    )
    if timed or "per_second" in name.lower() or "per second" in name.lower() or "per_sec" in name.lower():
        return True
    last = words[-1]
    sized = last.endswith(("_size", "size", "_mem")) and len(last) > 4
    return last in _SIZES or last in _COUNTS or sized or words[0] in ("num", "number", "seed")


@lru_cache(maxsize=4096)
def old(text: str) -> bool:
    """True for "best", "improved", "early stopping": a value that was printed before."""
    return bool(_OLD.search(text.lower().replace("_", " ")))


@lru_cache(maxsize=4096)
def parameter(name: str) -> bool:
    """True if the name looks like a setting; it is a metric only if it changes."""
    return bool(_PARAMETERS.search(name.lower().strip()))


@lru_cache(maxsize=4096)
def metric(name: str) -> bool:
    """True if the name looks like a known metric."""
    return bool(_METRICS.search(name))


@lru_cache(maxsize=4096)
def without_split(name: str) -> tuple[str | None, str]:
    """Split off a split that is a separate word: "Train loss" -> ("train", "loss"), "val_loss" -> (None,
    "val_loss")."""
    words = name.split()
    split = None
    kept = []
    for word in words:
        bare = word.strip("()[]:,'\"").lower()
        found = SPLITS.get(bare)
        if found and split is None:
            split = found
        elif not (split and bare == "set"):
            kept.append(word)
    return (split, " ".join(kept)) if split and kept else (None, name)


@lru_cache(maxsize=4096)
def takes_split(name: str) -> bool:
    """Whether the split of a line is added to this name: not for a setting, and not if the name contains a
    split, such as `val_loss`."""
    return not parameter(name) and not any(piece in SPLITS for piece in re.split(r"[\W_]+", name.lower()))


@lru_cache(maxsize=4096)
def split_of(text: str) -> str | None:
    """The last split that a text names in a separate word."""
    found = None
    if not _ANY_SPLIT.search(text):
        return found
    for word in re.findall(r"[^\W\d]\w*", text):
        found = SPLITS.get(word.lower(), found)
    return found


@lru_cache(maxsize=4096)
def key(name: str) -> tuple[str | None, str]:
    """The split of a name, and the rest: `val_loss`, `val/loss` and `Validation loss` are all ("val",
    "loss")."""
    body, _, number = name.partition(" #")
    pieces = [piece for piece in re.split(r"[\s/_\-]+", body.lower()) if piece]
    split = next((SPLITS[piece] for piece in pieces if piece in SPLITS), None)
    rest = [piece for piece in pieces if piece not in SPLITS] or pieces
    return split, "".join(rest) + (f"#{number}" if number else "")


_LOWER = re.compile(
    r"loss|err|ppl|perplex|mae(?:$|\W)|mse|nll|[wc]er(?:$|\W)|xent|fid|bp[bcd]|distance|(?:^|\W)kld?(?:$|\W)"
    r"|(?:^|[\W_])b?ce(?:$|\W)|divergence|regret|损失",
    re.IGNORECASE,
)
_HIGHER = re.compile(
    r"acc|reward|return|f1|auc|bleu|rouge|prec|recall|iou|dice|psnr|ssim|map(?:\d|$|\W)|score|r2|top-?\d|准确率|精度"
    r"|elo",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def better(name: str) -> str | None:
    """"min" or "max": which value is the best. None if not known."""
    if _LOWER.search(name):
        return "min"
    return "max" if _HIGHER.search(name) else None

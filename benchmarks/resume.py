"""Exact resume under kills, counted: `python benchmarks/resume.py [--short] [--only KIND,...] [--jobs 2]
[--json FILE]`; each kind of scripts is also a claim of `make bench` (`benchmarks/run.py --only resume-fuzz`).

Every trial runs a script, kills it at a random moment (a third of them again in the next life), lets it end,
and compares state, text and files with a run that nobody killed. `exact` came back from an image;
`restart` was killed before there was one; `refused` said why and started over, or used an older image;
`wrong` is what must not be. A random script that fails or differs from
itself without Stoker is no trial: it is named.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
HERE = REPO / "tests" / "resume"
sys.path[:0] = [str(REPO), str(HERE)]

import fuzz  # noqa: E402
import takeouts  # noqa: E402
import test_mutation as mutation  # noqa: E402
import test_resume_subjects as subjects  # noqa: E402
from harness import BAD, Kill, Script, Stage, Trial, campaign, one_text, read, vendored  # noqa: E402

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

MNIST = 6_000  # pictures, so that a life takes seconds
KINDS = ("adversaries", "ordinary", "fuzz", "subjects", "mutation")
# a script, in the full form
KILLS = {"adversaries": 1, "ordinary": 4, "fuzz": 1, "subjects": 50, "mutation": 1}
RANDOM = 300  # scripts of the fuzzer, in the full form


class Count:
    """The trials of one kind of scripts."""

    def __init__(self, kind: str):
        self.kind = kind
        self.trials: list[Trial] = []
        self.faults: list[str] = []
        self.skipped: list[str] = []

    def outcomes(self) -> Counter:
        return Counter("wrong" if t.outcome in BAD else t.outcome for t in self.trials)

    def reasons(self) -> Counter:
        """Why scripts were refused: the sentence without its numbers, and by how many scripts."""
        told = {
            (re.sub(r"\d[\d.,]*", "N", t.reason)[:120], t.script)
            for t in self.trials
            if t.outcome == "refused"
        }
        return Counter(reason for reason, _ in told)

    def scripts_refused(self) -> set[str]:
        exact = {t.script for t in self.trials if t.outcome == "exact"}
        return {t.script for t in self.trials if t.outcome == "refused"} - exact

    def resumes(self) -> int:
        return sum(t.resumes for t in self.trials)

    def scripts(self) -> int:
        return len({t.script for t in self.trials})

    def to_json(self) -> dict:
        return {
            "kind": self.kind,
            "outcomes": self.outcomes(),
            "resumes": self.resumes(),
            "scripts": self.scripts(),
            "refused": sorted(self.scripts_refused()),
            "reasons": self.reasons(),
            "faults": self.faults,
            "skipped": self.skipped,
            "trials": [t.to_json() for t in self.trials],
        }


def run_scripts(
    count: Count,
    scripts: list[Script],
    *,
    kills: int,
    base: Path,
    hooks: Path,
    jobs: int,
    every: str,
    seed: int,
) -> None:
    """All scripts, several at a time; each in a folder of its own."""
    def say(line: str) -> None:
        print(line, flush=True)

    def one(script: Script) -> None:
        if missing := script.missing():
            count.skipped.append(f"{script.name}: needs {missing}")
            return
        folder = Path(tempfile.mkdtemp(prefix=f"{count.kind}-{script.name}-", dir=base))
        try:
            trials = campaign(script, folder, kills=kills, seed=seed, every=every, hooks=hooks, say=say)
        except AssertionError as error:
            # no straight run to compare with: some random scripts fail by themselves, no other may
            say(f"{script.name} is no trial: {error}"[:300])
            (count.skipped if count.kind == "fuzz" else count.faults).append(str(error)[:300])
            return
        count.trials += trials
        if all(t.good for t in trials):
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, scripts))


def of_folder(name: str, short: bool) -> list[Script]:
    scripts = [read(p) for p in sorted((HERE / name).glob("*.py"))]
    return [s for s in scripts if s.short] if short else scripts


def measure(
    kind: str,
    base: Path,
    hooks: Path,
    *,
    short: bool,
    jobs: int,
    kills: int,
    scripts: int,
    seed: int,
    most: int | None = None,
) -> Count:
    """One kind of scripts, counted; of a folder at most so many, drawn by `seed`.
    The short form takes adversaries that say so, and no other kind:
    `make test-hooks` kills random scripts and leaves parts out."""
    count = Count(kind)
    common = {"base": base, "hooks": hooks, "seed": seed}
    if short and kind != "adversaries":
        count.skipped.append(f"{kind}: not in the short form")
    elif kind in ("adversaries", "ordinary"):
        every = "150steps" if kind == "adversaries" else "60steps"
        found = of_folder(kind, short)
        found = (
            sorted(random.Random(seed).sample(found, most), key=lambda s: s.name)
            if most and most < len(found)
            else found
        )
        run_scripts(count, found, kills=kills, every=every, jobs=jobs, **common)
    elif kind == "fuzz":
        made = [
            fuzz.write({**fuzz.spec_of(n), "number": n}, base / "fuzz-src")
            for n in range(seed, seed + scripts)
        ]
        run_scripts(count, made, kills=kills, every="80steps", jobs=jobs, **common)
    elif kind == "subjects":
        if not subjects.SUBJECTS.is_dir():
            count.skipped.append("../shared/subjects is not beside this checkout")
            return count
        run_scripts(
            count, [subjects.nanogpt(base / "nanogpt")], kills=kills, every="12steps", jobs=1, **common
        )
        ready = [subjects.mnist(base / f"mnist{workers}", workers, MNIST, batch=64) for workers in (0, 2)]
        run_scripts(count, ready, kills=kills, every="20steps", jobs=jobs, **common)
    else:
        count_mutations(count, base, hooks)
    return count


def count_mutations(count: Count, base: Path, hooks: Path) -> None:
    """Each part of the state left out of the restore, with the tail check and without it."""
    folder = base / "mutation"
    folder.mkdir(parents=True)
    (folder / "mutant.py").write_text(mutation.SCRIPT)
    stage, unchecked = (
        Stage(read(folder / "mutant.py"), folder / "run", hooks=hooks, every="60steps"),
        takeouts.blind(base / "blind"),
    )
    straight = stage.plain()
    stage.fresh()
    first = stage.live(1, Kill("image", 0.6, 2))
    # sockets of the dead
    shutil.copytree(stage.base, folder / "kept", ignore=shutil.ignore_patterns("pymp-*"))
    for part in ("", *mutation.PARTS):
        for tail in (True, False):
            shutil.rmtree(stage.base)
            shutil.copytree(folder / "kept", stage.base)
            again = Stage(
                stage.script, stage.base, hooks=hooks if tail else unchecked, every="60steps", drop=part
            )
            life = again.live(2)
            differs = straight.differs(again.final(life, one_text([first, life])[0]), stage.script)
            tried = life.said.get("tried") or []
            outcome = "WRONG" if differs else "refused" if tried else "exact"
            name = f"without {part or 'nothing'}{'' if tail else ', no tail check'}"
            trial = Trial(name, outcome, str(tried[-1].get("why")) if tried else "", [first, life], differs)
            print(trial.line(), flush=True)
            if tail:
                count.trials.append(trial)
                if part and not tried:
                    count.faults.append(f"{part} was left out and nobody saw it")
            else:
                count.skipped.append(
                    f"{trial.script}: "
                    f"{'noticed' if tried else 'WRONG' if differs else 'not noticed, no harm'}"
                )


def rows(kind: str, ground: Ground, short: bool) -> list[Row]:
    """For the page of all benchmarks: one kind of scripts.
    Of the adversaries also how many end silently wrong without the tail check."""
    base = Path(tempfile.mkdtemp(prefix="st-resume-", dir="/tmp"))
    hooks = vendored(base / "hooks")
    size = {
        "short": short,
        "jobs": 2,
        "kills": 1 if short else KILLS[kind],
        "scripts": 1 if short else RANDOM,
        "seed": 0,
        "most": 1 if short else None,
    }
    count = measure(kind, base, hooks, **size)
    told = [f"{v} {k}" for k, v in sorted(count.outcomes().items())] + [
        f"{count.resumes()} real resumes from an image"
    ]
    if kind == "adversaries":
        blind = {
            t.script
            for t in measure(kind, base, takeouts.blind(base / "blind"), **size).trials
            if t.outcome in BAD
        }
        told.append(
            f"without the tail check {len(blind)} wrong{': ' if blind else ''}{', '.join(sorted(blind))}"
        )
    wrong = count.outcomes()["wrong"] + len(count.faults)
    if not wrong:  # else it is what one looks at
        shutil.rmtree(base, ignore_errors=True)
    if not count.trials:
        return []
    found = [
        Row(
            name=f"resume of {kind} scripts: silently wrong",
            value=wrong,
            target=0,
            unit="trials",
            n=len(count.trials),
            detail=", ".join(told),
        )
    ]
    if kind == "ordinary":
        found.append(
            Row(
                name="ordinary scripts refused",
                value=100 * len(count.scripts_refused()) / count.scripts(),
                target=10,
                unit="%",
                n=count.scripts(),
                detail="; ".join(f"{n} x {r}" for r, n in count.reasons().most_common(5)) or "none",
            )
        )
    return found


CLAIMS: dict[str, Callable[[Ground, bool], list[Row]]] = {
    f"resume-{kind}": partial(rows, kind) for kind in KINDS
}


def table(counts: list[Count]) -> str:
    """What was counted, as text."""
    kinds = ("exact", "restart", "refused", "unhurt", "wrong")
    lines = [f"{'':14s}" + "".join(f"{word:>9s}" for word in ("scripts", "trials", "resumes", *kinds))]
    for c in counts:
        numbers = (c.scripts(), len(c.trials), c.resumes(), *(c.outcomes()[kind] for kind in kinds))
        lines.append(f"{c.kind:14s}" + "".join(f"{n:9d}" for n in numbers))
    for c in counts:
        lines += [f"\n{c.kind}: refused, by reason (scripts)"] * bool(c.reasons())
        lines += [f"  {n:3d}  {reason}" for reason, n in c.reasons().most_common()]
        lines += [f"  only refused: {', '.join(sorted(c.scripts_refused()))}"] * bool(c.scripts_refused())
        lines += [f"  fault: {f}" for f in c.faults] + [f"  {s}" for s in c.skipped]
        lines += [f"  {t.line()}" for t in c.trials if t.outcome in BAD]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--short", action="store_true", help="a sample, one kill a script")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kills", type=int, default=4, help="a script")
    parser.add_argument("--scripts", type=int, default=RANDOM, help="random ones")
    parser.add_argument("--most", type=int, help="scripts of a folder, drawn at random")
    parser.add_argument(
        "--blind", action="store_true", help="without the tail check, to know what stands behind it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    for kind in args.only.split(","):
        if kind not in KINDS:
            parser.error(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    base = args.base or Path(tempfile.mkdtemp(prefix="st-resume-", dir="/tmp"))
    hooks, began, counts = (takeouts.blind if args.blind else vendored)(base / "hooks"), time.monotonic(), []
    size = {
        "short": args.short,
        "jobs": args.jobs,
        "seed": args.seed,
        "most": args.most,
        "kills": 1 if args.short else args.kills,
        "scripts": min(args.scripts, 10) if args.short else args.scripts,
    }
    for kind in args.only.split(","):
        counts.append(measure(kind, base, hooks, **size))
        if args.json:
            body = {"took_s": round(time.monotonic() - began), "counts": [c.to_json() for c in counts]}
            args.json.write_text(json.dumps(body, indent=1) + "\n")
    print("\n" + table(counts))
    wrong = sum(c.outcomes()["wrong"] + len(c.faults) for c in counts)
    if not wrong and args.base is None:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

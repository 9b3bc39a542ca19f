"""What the hooks of a run tell: are they in its processes, could it come back where it was,
and how it did. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stoker.base.units import format_duration, format_size

STATE, AUDITS, PUT_BACK = "resume/state.json", "resume/audits.json", "resume/put_back"
LINES_READ = 1 << 20  # bytes of processes.jsonl
STEPS_TOLD = 4  # the newest audits
OTHER = "ended in a different state than the run"
STANDS = {
    "recording": "recording; no image yet",
    "ended": "finished; nothing to resume",
    "off": "not recorded",
}
NO_IMAGE = "not resumable: no image was taken"  # of a run that ended while it was recorded
UNCHECKED = "image taken, not yet checked"
NOT_TRIED = "no resume has been tested (to test: stoker run --audit, or stoker verify-resume)"
INTERRUPTED = "the script was interrupted (KeyboardInterrupt)"  # so each recording ends by `stoker stop`
DEAR = 0.1  # of the training that coming back saves: what costs more is said


def sentence(state: dict | None, now: float, *, live: bool = True) -> str | None:
    """"resumable (checked); newest image 40 s ago at step 12,310 (every 60 s, 0.4 % overhead);
    audited at step 4,100: bit-exact", or without an audit
    "image taken, not yet checked; newest image 40 s ago at ...", or why not; None for a run that is
    not recorded."""
    if not state:
        return None
    word, reason, image = state.get("state"), state.get("reason"), state.get("image")
    wrong = next((each for each in state.get("audited") or () if each.get("verdict") == "different"), None)
    if wrong is not None and word != "not resumable":  # the run itself has not heard of it yet
        steps = f"{wrong.get('from_step') or 0:,} to {wrong.get('step') or 0:,}"
        word, reason = "not resumable", f"an audit of steps {steps} {OTHER}: {wrong.get('why')}"
    if image is None or word == "not resumable":
        told = NO_IMAGE if word == "recording" and not live else STANDS.get(str(word), str(word))
        audited = audits(state) if word == "ended" else None
        return "; ".join(filter(None, (f"{told}: {reason}" if reason else told, audited)))
    age = format_duration(now - image.get("at", now))
    told = (
        f"{'resumable (checked)' if checked(state) else UNCHECKED}; newest image {age} ago at step "
        f"{image.get('step', 0):,}"
    )
    about = []
    if image.get("every_s") and not reason:
        about.append(f"every {image['every_s']:.3g} s")
    if image.get("every_steps") and not reason:
        about.append(f"every {image['every_steps']:,} steps")
    if image.get("cost") is not None:
        about.append(f"{100 * image['cost']:.2g} % overhead")
    if image.get("bytes"):
        about.append(format_size(image["bytes"]))
    told += f" ({', '.join(about)})" if about else ""
    told = "; ".join((told, audits(state) or NOT_TRIED, *_since(state)))
    if not reason or (reason.startswith(INTERRUPTED) and not live):
        return told
    return f"{told}; recording ended, no more images: {reason}"


def steps_before(state: dict | None, attempt: int) -> int:
    """The steps that were made before an attempt that resumed exactly: its clock counts from there."""
    back = (state or {}).get("resumed") or {}
    return (back.get("step") or 0) + (back.get("lost_steps") or 0) if back.get("attempt") == attempt else 0


def checked(state: dict | None) -> bool:
    """True if an audit has resumed from an image of this run and found no difference."""
    return bool(_good(state or {}))


def _good(state: dict) -> list[dict]:
    """Audits that found no difference, of the recording that the images belong to:
    an attempt that began from the start begins another."""
    begun = max(
        (each.get("attempt") or 1 for each in state.get("lives") or () if not each.get("from")), default=1
    )
    found = state.get("audited") or ()
    return [
        each
        for each in found
        if each.get("verdict") == "bit-exact" and (each.get("attempt") or begun) >= begun
    ]


def word(state: dict) -> str:
    """The state in one word. It is "resumable" only after an audit has checked a resume."""
    known = str(state.get("state"))
    return UNCHECKED if known == "resumable" and not checked(state) else known


def _since(state: dict) -> list[str]:
    """What no audit has seen yet, of a run that was audited."""
    steps = [each.get("step") or 0 for each in _good(state)]
    since = (state.get("image") or {}).get("step", 0) - max(steps, default=0)
    if not steps or since <= 0:
        return []
    return [f"the {since:,} steps after the last audit have not been checked yet"]


def audits(state: dict | None) -> str | None:
    """"audited at steps 4,100 and 8,020: bit-exact", or why there was no audit; None if audits are off or
    nothing is known yet."""
    state = state or {}
    known = state.get("audited")
    if known is None:
        return None
    good = [each for each in known if each.get("verdict") == "bit-exact"]
    last = known[-1] if known else {}
    if not good:
        why = last.get("why") or state.get("not_audited")
        return f"not audited: {why}" if why else "not audited yet"
    steps = [f"{each.get('step') or 0:,}" for each in good][-STEPS_TOLD:]
    listed = f"step{'s' if len(steps) > 1 else ''} " + " and ".join(
        filter(None, (", ".join(steps[:-1]), steps[-1]))
    )
    told = (
        f"audited at {listed}: bit-exact"
        if len(good) <= STEPS_TOLD
        else f"audited {len(good)} times, last at {listed}: bit-exact"
    )
    if last.get("verdict") == "not audited":
        told += f"; last audit failed: {last.get('why')}"
    return told + (
        ""
        if all(each.get("spare_core") for each in known)
        else " (no spare core: audits slowed the training)"
    )


def resumes_at(state: dict | None) -> int | None:
    """The step of the image from which the next attempt resumes. None if it runs the command from its
    beginning."""
    image = (state or {}).get("image")
    return image.get("step", 0) if image and (state or {}).get("state") == "resumable" else None


def way_back(state: dict | None) -> str | None:
    """"8s of setup, then about 12s to step 12,310": the forecast of the hooks, or the measured time of
    an earlier resume from this image."""
    back_s = _way_back_s(state)
    if back_s is None:
        return None
    image = (state or {})["image"]
    setup_s = image.get("setup_s") or 0.0
    told = f"about {format_duration(back_s)}" if back_s >= 1 else "less than 1s"
    setup = f"{format_duration(setup_s)} of setup, then " if setup_s >= 1 else ""
    return f"{setup}{told} to step {image.get('step', 0):,}"


def dear(state: dict | None) -> str | None:
    """A sentence with alternatives if the resume takes more than 10 % of the training time that it saves;
    else None."""
    back_s, trained_s = _way_back_s(state), ((state or {}).get("image") or {}).get("trained_s") or 0.0
    if back_s is None or back_s < 1 or back_s <= DEAR * trained_s:
        return None
    if back_s >= trained_s:
        return (
            f"after the setup, the resume takes {format_duration(back_s)}, but the run trained for only "
            f"{format_duration(trained_s)} before the image, so a new run (`stoker run`) would be faster"
        )
    return (
        f"after the setup, the resume takes {format_duration(back_s)}, which is "
        f"{100 * back_s / trained_s:.0f} % of the {format_duration(trained_s)} of training that the resume "
        "saves. If the script writes checkpoints, a new run from the last checkpoint could be faster"
    )


def _way_back_s(state: dict | None) -> float | None:
    """Seconds from the end of set-up until the newest image is restored;
    None where it is of no use, or nobody can tell."""
    state = state or {}
    image = state.get("image") or {}
    if not image or state.get("state") != "resumable":
        return None
    back = state.get("resumed") or {}
    seconds = back.get("seconds") if back.get("step") == image.get("step") else image.get("back_s")
    return seconds if isinstance(seconds, int | float) else None


def came_back(state: dict | None) -> str | None:
    """"attempt 2 at step 12,310 in 2.1 s; 41 lost steps repeated, 82 values equal to the recording;
    grade: bit-exact"."""
    back = (state or {}).get("resumed")
    if not back:
        return None
    told = f"attempt {back.get('attempt')} at step {back.get('step', 0):,}"
    if back.get("seconds") is not None:
        told += f" in {back['seconds']:.1f} s"
    told += (
        f"; {back.get('lost_steps', 0):,} lost steps repeated, {back.get('values_equal', 0):,} values "
        "equal to the recording"
    )
    if back.get("put_back"):
        names = back["put_back"]
        told += (
            "; restored the effects of skipped calls: "
            f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        )
    return f"{told}; grade: {back.get('grade', 'unknown')}"


def began_anew(state: dict | None) -> str | None:
    """For a later attempt that did not resume: that it restarted from scratch, and which files it found."""
    state = state or {}
    last = (state.get("lives") or [{}])[-1]
    if not last or last.get("from") or (last.get("attempt") or 1) == 1:
        return None
    if (state.get("resumed") or {}).get("attempt") == last["attempt"]:
        return None  # where its output goes on cannot be told on a terminal
    why = "no image was usable" if state.get("tried") else "there was no image"
    returned = {each.get("attempt") for each in state.get("given_back") or ()}
    before = last["attempt"] - 1
    told = f"attempt {last['attempt']} restarted from scratch: {why}. "
    told += "The attempt started with the files from "
    told += f"before the resume in attempt {before}" if before in returned else f"the end of attempt {before}"
    lost = state.get("not_given_back") or {}
    if lost.get("attempt") not in (last["attempt"], *({before} & returned)):
        return told
    return f"{told}. {_not_restored(lost)}"


def given_back(state: dict | None, put_back: bool, attempt: int, ref: str) -> str | None:
    """For a run whose newest attempt ended during a resume: whether the script's files were restored as they
    were before it.
    put_back: whether the file of this name says that they are not restored."""
    if put_back:
        return (
            f"attempt {attempt} ended while it was resuming. The resume replaced files of your folder with "
            "files of an image. Your own files are in resume/undo; to get these files back: "
            f"stoker start {ref} or stoker rm {ref}"
        )
    known = (state or {}).get("given_back") or ()
    of = next((each for each in known if each.get("attempt") == attempt), None)
    if of is None:
        return None
    told = (
        f"attempt {attempt} ended while it was resuming. Stoker undid the attempt's changes to files. "
        f"The changed files, if any, are now in resume/aside/{of.get('aside')}"
    )
    lost = (state or {}).get("not_given_back") or {}
    if lost.get("attempt") != of.get("aside"):
        return told
    return f"{told}. {_not_restored(lost)}"


def _not_restored(lost: dict) -> str:
    return (
        f"Stoker could not restore these files: {', '.join(lost.get('files') or ())}. "
        f"Their content from before the resume is in resume/aside/{lost['attempt']}"
    )


def starts_again(state: dict | None) -> str | None:
    """A sentence about programs that the setup starts without waiting: each attempt starts them again.
    None if there are none, or if there was only one process."""
    state = state or {}
    programs = (
        ()
        if state.get("state") == "ended" and len(state.get("lives") or ()) < 2
        else state.get("again") or ()
    )
    told = dict.fromkeys(f"{each.get('what')} ({each.get('where')})" for each in programs)
    listed = ", ".join(told)
    if not told:
        return None
    return (
        f"the script's setup starts {listed} in each attempt; if such a program appends text to a file, the "
        "text is in the file twice after the second attempt"
    )


def not_taken(state: dict | None) -> list[str]:
    """Images that were refused and points where no image was possible, each with its reason."""
    state = state or {}
    tried = [f"image {each.get('image')}: {each.get('why')}" for each in state.get("tried") or ()]
    passed = [
        f"no image was possible (tried {'once' if count == 1 else f'{count:,} times'}): {reason}"
        for reason, count in (state.get("points_passed") or {}).items()
    ]
    return tried + passed


def hooked(lines: Iterable[dict], command: list[str]) -> dict:
    """Convert lines of processes.jsonl to `{"processes": int, "torch": version or None, "why": str or
    None, "settings"?: {"applied": [str], "left": {knob: why}}}`. `why`: why no process has hooks or
    records; settings: of the process with the most settings."""
    processes, torch, why, other = 0, None, None, None
    settings: dict = {}  # by process, the newest line counts
    for said in lines:
        processes += "role" in said
        torch = said.get("torch") or torch
        why = said.get("why") or why
        other = said.get("other") or other
        if isinstance(said.get("settings"), dict):
            settings[said.get("pid")] = said["settings"]
    told = max(
        settings.values(),
        key=lambda each: (len(each.get("applied") or ()), len(each.get("left") or ())),
        default=None,
    )
    if other and not torch and not why:
        why = (
            f"the script uses {str(other)[:40]}, which Stoker does not measure: Stoker shows only "
            "wall-clock time and machine use"
        )
    return {"processes": processes, "torch": torch, "why": why or (None if processes else _why_not(command)),
            **({"settings": told} if told else {})}


def log_parts(state: dict | None, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """`(attempt, bytes of its out.log)`: the pieces that form one log without gap or repetition. Empty if the
    run never resumed, or if the pieces do not fit.
    `sizes`: attempt -> bytes of its out.log. Each process records the attempt that it resumed from, and
    the length of that attempt's log at the image; a process that started from scratch resumed from none."""
    known: dict[int, list[tuple[int, int]]] = {}
    last: list[tuple[int, int]] = []
    for life in (state or {}).get("lives") or ():
        attempt, source, upto = life.get("attempt"), life.get("from"), life.get("out_bytes")
        before = known.get(source, []) if source else []
        if attempt not in sizes or (
            source and (not before or not isinstance(upto, int) or upto > before[-1][1])
        ):
            return []
        last = known[attempt] = [
            *before[:-1],
            *([(source, upto)] if source else []),
            (attempt, sizes[attempt]),
        ]
    return last if len(last) > 1 else []


def _why_not(command: list[str]) -> str | None:
    words = [os.path.basename(command[0]), *command[1:]] if command else []
    if not words or not words[0].startswith("python"):
        return None
    for word in words[1:]:
        if not word.startswith("-"):
            break
        for flag, means in (
            ("I", "in isolated mode"),
            ("E", "without PYTHON* variables"),
            ("S", "without the module site"),
        ):
            if not word.startswith("--") and flag in word[1:]:
                return f"python {word} starts {means}, so Stoker's hooks cannot load"
    return "no Python process loaded Stoker's hooks; does the command clear PYTHONPATH?"

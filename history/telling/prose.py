"""An explanation as lines of text: what it rests on, what stands out, then a paragraph per step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from history.diagnoses import worst_first
from history.protocols import progress_verbs
from history.render import LOCAL, TimeStyle, duration, plural

from .explain import Explanation
from .story import Advance, EpochStep, NoteStep, TermStep

_WORD = re.compile(r"\w+")

LINES_MAX = 40
"""Maximum number of lines of one kind in one epoch; JSON has them all."""


def explanation_text(explanation: Explanation, style: TimeStyle = LOCAL) -> Iterator[str]:
    """The explanation as lines without line ends."""
    told = [*explanation.said, *_told(explanation, style)]
    yield f"Group {explanation.group_id}"
    for protocol in explanation.protocols:
        yield f"it speaks {protocol}"
    yield f"from {explanation.basis.words()}"
    for note in explanation.notes:
        yield f"note: {note}"
    words = {word for line in told for word in _WORD.findall(line)}
    named = [
        f"{name} is {described}" if described else name
        for name, described in explanation.members.items()
        if name in words
    ]
    yield from _cut_lines(named, "more member")
    yield from told


def _told(explanation: Explanation, style: TimeStyle) -> Iterator[str]:
    yield from _findings_text(explanation, style)
    if not explanation.steps:
        yield ""
        yield "nothing that matches was found in what was read"
    for step in explanation.steps:
        yield ""
        if isinstance(step, EpochStep):
            yield from _epoch_text(step, style)
        else:
            place = "" if step.index is None else f"  index {step.index}"
            yield f"{style.full(step.timestamp_ms)}{place}"
            if isinstance(step, TermStep):
                yield from (f"  finding   {finding}" for finding in step.stands_out)
            yield f"  {step.why if isinstance(step, TermStep) else step.text}{_silence(step)}"


def _findings_text(explanation: Explanation, style: TimeStyle) -> Iterator[str]:
    """The findings, most severe first."""
    if not explanation.findings:
        return
    yield ""
    yield "findings:"
    lines = []
    for one in worst_first(explanation.findings):
        where = f"index {one.from_index}"
        if one.to_index not in (None, one.from_index):
            where += f" to {one.to_index}"
        lines.append(f"{one.severity} {one.kind}  {style.full(one.from_ms)}, {where}: {one.words}")
    for line in _cut_lines(lines, "more finding"):
        yield f"  {line}"


def _silence(step: TermStep | NoteStep) -> str:
    if isinstance(step, TermStep) and step.silent_ms is not None and not step.is_takeover:
        return f"; {duration(step.silent_ms)} after the entry before"
    return ""


def _epoch_text(step: EpochStep, style: TimeStyle) -> Iterator[str]:
    inferred = " (inferred, not recorded)" if step.inferred else ""
    which = f"{step.noun} {step.epoch_before} -> {step.epoch}"
    yield f"{style.full(step.timestamp_ms)}  index {step.index}  {which}"
    for finding in step.stands_out:
        yield f"  finding   {finding}"
    for reason in _cut_lines(step.why, "reason"):
        yield f"  because   {reason}{inferred}"
    for noted in step.evidence:
        yield f"  noted     {noted}"
    if step.target_index is not None:
        yield f"  target    computed after {duration(step.target_after_ms or 0)}, index {step.target_index}"
    for line in _cut_lines([move.words() for move in step.moves], "more move"):
        yield f"  moved     {line}"
    for line in _cut_lines([_progress_text(said, step) for said in step.progress], "more step"):
        yield f"  progress  {line}"
    for line in _cut_lines([wait.words for wait in step.waits], "more wait"):
        yield f"  waited    {line}"
    for line in step.phases:
        yield f"  waited    {line}"
    yield from _end_text(step)
    for said in step.what_if:
        yield f"  what if   {said}"
    owned = [f"{member}: {owned or 'nothing'}" for member, owned in step.owners.items()]
    for line in _cut_lines(owned, "more member"):
        yield f"  owned by  {line}"


def _end_text(step: EpochStep) -> Iterator[str]:
    if step.took_ms is not None:
        when = (
            "at once"
            if step.settled_index == step.index and not step.phases
            else f"after {duration(step.took_ms)}"
        )
        settled = "empty " if step.state == "Empty" else "stable"
        yield f"  {settled}    {when}, index {step.settled_index}"
    elif not step.is_end_known:
        yield f"  not stable when the missing entries begin: {step.state}"
    elif step.overtaken_by is not None:
        yield f"  overtaken by {step.noun} {step.overtaken_by}, while {step.state}"
    else:
        yield f"  not stable at the end of what was read: {step.state}"


def _progress_text(said: Advance, step: EpochStep) -> str:
    parts = []
    told, released, took, reached = progress_verbs(step.protocol)
    if said.told:
        parts.append(f"{told} {said.told}")
    if said.released:
        since = "" if said.since_told_ms is None else f" ({duration(said.since_told_ms)} after it was told)"
        parts.append(f"{released} {said.released}{since}")
    if said.took:
        parts.append(f"{took} {said.took}{_idle_words(said)}")
    if said.reached:
        parts.append(f"{reached} {step.noun} {step.epoch}")
    when = "at once" if said.index == step.index else f"after {duration(said.after_ms)}, index {said.index}"
    return f"{said.member} {', '.join(parts)} {when}"


def _idle_words(said: Advance) -> str:
    if not said.idle_ms:
        return ""
    most = "" if said.idle_ms == said.idle_ms_min else "up to "
    return f" (idle for {most}{duration(said.idle_ms)})"


def _cut_lines(lines: Sequence[str], noun: str) -> Iterator[str]:
    yield from lines[:LINES_MAX]
    if len(lines) > LINES_MAX:
        yield f"… and {plural(len(lines) - LINES_MAX, noun)} (--json has them all)"

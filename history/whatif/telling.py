"""Two courses of a group in words and figures.

The answer includes what it rests on: whether a replay under the recorded settings equals what really
happened, which assumptions about the members were made and how often, and what cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from history.columns import table
from history.render import duration, plural, sentence_list

from .answer import WhatIfAnswer, WhatIfResult
from .measures import Measures
from .verdict import verdict

HEADERS = ("", "really", "what if", "difference")
NAMES = {
    "epochs": "epochs",
    "moved": "partitions moved between members",
    "unowned_ms": "unowned, partition-seconds",
    "revoking_ms": "being given up, partition-seconds",
    "unstable_ms": "not stable",
    "sessions_expired": "sessions expired",
    "fenced_revoking": "fenced for not giving up partitions",
    "spread": "largest difference in partitions between members",
    "spread_at_end": "largest difference in partitions at the end",
}
GROUP_HEADERS = (
    "group",
    "epochs",
    "moved",
    "unowned p-s",
    "giving up p-s",
    "not stable",
    "fences",
    "spread",
    "note",
)
CONSUMER_ONLY = "whatif replays only members of the consumer protocol, as their requests are recorded"
UNFAITHFUL = "the replay with the recorded settings differs from what happened"


def whatif_text(
    answer: WhatIfAnswer, group_id: str | None = None, *, width: int | None = None
) -> Iterator[str]:
    """Lines of text: one group, which was replayed, in full, or a table of all; tables fit the width."""
    if group_id is not None:
        (result,) = answer.results
        yield f"Group {result.group_id}: what if {sentence_list(result.asked)}"
        yield from (f"from {basis.words()}" for basis in answer.basis)
        yield from _one(result, width)
        return
    asked = answer.results[0].asked if answer.results else ()
    yield f"What if {sentence_list(asked)}" if asked else "There are no groups"
    yield from (f"from {basis.words()}" for basis in answer.basis)
    yield from _all(answer.results, width)


def _one(result: WhatIfResult, width: int | None) -> Iterator[str]:
    yield verdict(result).words
    yield ""
    yield from _table(HEADERS, figures(result), width)
    yield ""
    yield from rests_on(result)


def figures(result: WhatIfResult) -> list[tuple[str, str, str, str]]:
    """A row for each measure: its name, both figures, and their difference."""
    assert result.really is not None
    assert result.whatif is not None
    by = result.whatif.minus(result.really)
    return [
        (
            words,
            _figure(name, getattr(result.really, name)),
            _figure(name, getattr(result.whatif, name)),
            _signed(name, by[name]),
        )
        for name, words in NAMES.items()
    ]


def _figure(name: str, value: int) -> str:
    if name == "unstable_ms":
        return duration(value)
    return f"{value / 1000:.1f}" if name.endswith("_ms") else str(value)


def _signed(name: str, value: int) -> str:
    if not value:
        return "="
    return ("+" if value > 0 else "-") + _figure(name, abs(value))


def rests_on(result: WhatIfResult) -> Iterator[str]:
    """The basis of the answer, one sentence per line."""
    yield _faith(result)
    assumed = result.assumed
    assert assumed is not None
    delays = [
        (assumed.as_then, "as measured for the member at that time"),
        (assumed.usual, "as usual for the member"),
        (
            assumed.one_interval,
            f"one interval of {duration(result.interval_ms)}, because none was observed",
        ),
    ]
    said = [f"{count} {words}" for count, words in delays if count]
    if said:
        yield f"assumed delays of members: {sentence_list(said)}"
    if assumed.gaps_placed:
        silences = plural(assumed.gaps_placed, "silence")
        yield (
            f"{silences} longer than the session timeout: only the minute of each was recorded, so the time "
            "within it is assumed"
        )
    unknown = [
        (assumed.unknown_sessions, "the longer session timeout", "expired member"),
        (assumed.unknown_revocations, "more time to give up", "fenced member"),
    ]
    for count, what, who in unknown:
        if count:
            kept = f"{what} would have kept {plural(count, who)}"
            yield f"unknown: whether {kept}; there is no evidence, so they are removed when they really were"
    if assumed.unknown_absences:
        absences = plural(assumed.unknown_absences, "absence")
        yield f"unknown: {absences} of static members took nearly the session timeout, which may have ended"
    if assumed.not_applied:
        yield f"{plural(assumed.not_applied, 'recorded request')} no longer applied and were left out"
    if assumed.refused:
        yield f"{plural(assumed.refused, 'recorded request')} would have been refused"
    if any("session" in words or "rebalance" in words for words in result.asked) and not result.has_evidence:
        yield (
            "there is no evidence file: gaps between heartbeats are unknown, so only the expiries in the log "
            "are considered"
        )
    for note in result.notes:
        yield f"note: {note}"


def _faith(result: WhatIfResult) -> str:
    if result.is_faithful:
        return (
            f"the replay with the recorded settings (assignor {result.assignor}) equals what really happened"
        )
    assert result.really is not None
    assert result.replayed is not None
    by = result.replayed.minus(result.really)
    off = [f"{NAMES[name]} {_signed(name, value)}" for name, value in by.items() if value]
    return (
        f"{UNFAITHFUL} (closest: assignor {result.assignor}; {sentence_list(off)}): ignore differences of "
        "that size"
    )


def _all(results: Sequence[WhatIfResult], width: int | None) -> Iterator[str]:
    rows = [_row(result) for result in results if not result.left_out]
    if rows:
        yield ""
        yield from _table(GROUP_HEADERS, rows, width)
    left_out: dict[str, list[str]] = {}
    for result in results:
        if result.left_out:
            left_out.setdefault(result.left_out, []).append(result.group_id)
    if left_out:
        yield ""
    for why, names in left_out.items():
        shown = ", ".join(names[:LEFT_OUT_NAMED])
        more = f" and {len(names) - LEFT_OUT_NAMED} more" if len(names) > LEFT_OUT_NAMED else ""
        yield f"not replayed: {shown}{more}: {why}"
    if left_out:
        yield CONSUMER_ONLY


LEFT_OUT_NAMED = 5
"""Maximum number of groups named for each reason to leave them out."""


def _row(result: WhatIfResult) -> tuple[str, ...]:
    really, what_if = result.really, result.whatif
    assert really is not None
    assert what_if is not None
    notes = [] if result.is_faithful else [UNFAITHFUL]
    assumed = result.assumed
    unknown = assumed.unknown_sessions + assumed.unknown_revocations if assumed is not None else 0
    notes += [f"{unknown} unknown"] if unknown else []
    return (
        result.group_id,
        _pair("epochs", really.epochs, what_if.epochs),
        _pair("moved", really.moved, what_if.moved),
        _pair("unowned_ms", really.unowned_ms, what_if.unowned_ms),
        _pair("revoking_ms", really.revoking_ms, what_if.revoking_ms),
        _pair("unstable_ms", really.unstable_ms, what_if.unstable_ms),
        _pair("fences", _fences(really), _fences(what_if)),
        _pair("spread", really.spread, what_if.spread),
        ", ".join(notes),
    )


def _fences(measures: Measures) -> int:
    return measures.sessions_expired + measures.fenced_revoking


def _pair(name: str, really: int, what_if: int) -> str:
    before, after = _figure(name, really), _figure(name, what_if)
    return before if before == after else f"{before} -> {after}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Rows as columns; all but the first one and a note are aligned right."""
    numbers = [place for place, name in enumerate(headings) if place and name != "note"]
    return table(headings, rows, width, numbers=numbers)

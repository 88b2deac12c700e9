"""Leaders of a shard: unplanned changes of leader, and leaders that do not last.

They are findings of the shard, derived from its terms alone. Each group of the shard has those of its life.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from history.facts.rows import TermRow
from history.render import duration, plural
from history.words import OUTAGE_MS_MAX

from .case import Case, Found, Threshold, clusters

TRANSFER = "TRANSFER"
LEADS_PAUSE_MS = Threshold(
    600_000,
    "LEADS_PAUSE_MS",
    "Longest time between two unplanned terms of one finding; a rolling restart of a cluster transfers "
    "leadership instead.",
)
LEADS_MIN = Threshold(3, "LEADS_MIN", "One change is an accident, and a second one may repair it.")

_HOW = {"EXPIRY": "it did not respond in time", "RESET": "its connection broke"}


def failover(case: Case) -> Iterator[Found]:
    """The leader of the shard was lost, and another node took over."""
    return failovers(case.facts.terms, "the group's shard")


def leader_flapping(case: Case) -> Iterator[Found]:
    """The leader of the shard changed, or its node restarted, again and again."""
    return flapping(case.facts.terms[1:], "the group's shard")


def failovers(terms: Sequence[TermRow], shard: str) -> Iterator[Found]:
    """The failovers among the terms; ``shard`` names the shard."""
    for term in terms:
        if not term.is_takeover or term.why == TRANSFER:
            continue
        gap = ""
        if term.gap_ms is not None and term.gap_ms <= OUTAGE_MS_MAX:
            gap = f", at most {duration(term.gap_ms)} without a leader"
        yield _found([term], f"{_change(term, shard)}{gap}: every session started again")


def _change(term: TermRow, shard: str) -> str:
    if term.previous_leader == term.node_id:
        return f"node {term.node_id} lost the leadership of {shard} and leads it again"
    before = f"node {term.previous_leader}" if term.previous_leader >= 0 else "the former leader"
    how = _HOW.get(term.why, f"term {term.term}")
    return f"node {term.node_id} took over {shard} from {before}, which failed ({how})"


def flapping(terms: Sequence[TermRow], shard: str) -> Iterator[Found]:
    """The runs of unplanned terms; see `failovers`."""
    unplanned = [term for term in terms if term.why != TRANSFER]
    for run in clusters(unplanned, lambda term: term.timestamp_ms, LEADS_PAUSE_MS, LEADS_MIN):
        if len(run) < LEADS_MIN:
            continue
        nodes = ", ".join(f"{node}" for node in dict.fromkeys(term.node_id for term in run))
        span = duration(run[-1].timestamp_ms - run[0].timestamp_ms)
        said = (
            f"{shard} changed its leader {plural(len(run), 'time')} in {span} (nodes {nodes}): "
            "each time all sessions start again, so no dead member is detected meanwhile"
        )
        yield _found(run, said)


def _found(terms: list[TermRow], words: str) -> Found:
    """A finding without epochs, since a change of leader begins none."""
    first, last = terms[0], terms[-1]
    gap_ms = first.gap_ms if first.gap_ms is not None and first.gap_ms <= OUTAGE_MS_MAX else 0
    return Found(
        epochs=(),
        from_index=first.index,
        from_ms=first.timestamp_ms - gap_ms,
        to_index=last.index,
        to_ms=last.timestamp_ms,
        words=words,
        rests_on=[term.index for term in terms],
    )

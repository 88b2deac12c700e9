"""Transactions with offsets of a group, as notes: those that made readers wait, or that nobody ended.

A program that processes exactly once ends a transaction every few hundred milliseconds, so what went as it
should is not told one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from history.facts.transactions import GroupTransaction, TransactionOutcome
from history.render import duration
from history.words import partitions_words
from records import Trigger

from .story import NoteStep

PENDING_MS = 10_000
"""A transaction with offsets that were pending for that long is told: a consumer that asks for stable offsets
could not begin meanwhile, and gives up after a minute by default."""


def transaction_steps(
    transactions: Iterable[GroupTransaction], last_index: int, last_ms: int
) -> Iterator[NoteStep]:
    """The notes; what is open is told at the last entry."""
    for one in transactions:
        is_long = (last_ms if one.to_ms is None else one.to_ms) - one.from_ms >= PENDING_MS
        if is_long or one.outcome is TransactionOutcome.OPEN or _was_ended_by_another(one):
            index, ms = (last_index, last_ms) if one.to_index is None else (one.to_index, one.to_ms or 0)
            yield NoteStep(index=index, timestamp_ms=ms, text=transaction_words(one, last_ms))


def _was_ended_by_another(one: GroupTransaction) -> bool:
    return one.decision is not None and one.decision.cause.trigger != Trigger.TRANSACTION_ENDED


def transaction_words(one: GroupTransaction, last_ms: int) -> str:
    """One transaction in a sentence without a full stop."""
    what = f"offsets of {partitions_words(one.partitions)} in the transaction of {one.transactional_id}"
    span = duration((last_ms if one.to_ms is None else one.to_ms) - one.from_ms)
    since = f"pending since index {one.from_index}"
    match one.outcome:
        case TransactionOutcome.OPEN:
            return f"{what} were {since}, {span} at the end of what was read: it had not ended"
        case TransactionOutcome.REMOVED:
            return f"{what}, {since}, were removed after {span}, before it ended"
        case TransactionOutcome.COMMITTED:
            return f"{what}, {since}, count after {span}: its producer committed"
        case _:
            return f"{what}, {since}, were dropped after {span}: {_why(one)}"


def _why(one: GroupTransaction) -> str:
    if one.decision is None:
        return "it was aborted"
    value = one.decision.value
    match one.decision.cause.trigger:
        case Trigger.TRANSACTION_TIMED_OUT:
            limit = duration(value.timeout_ms)
            return (
                f"it was not ended within {limit}, and its producer (epoch {one.producer_epoch}) was fenced"
            )
        case Trigger.PRODUCER_INITIALIZED:
            return (
                f"a new producer of {one.transactional_id} fenced the one at epoch {one.producer_epoch}, "
                "which had not ended it"
            )
        case _:
            return "its producer aborted"

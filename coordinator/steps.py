"""Run a decision: drive its generator of steps, apply the records of each step, and build the result.

Both kinds of shard decide in this way. Invariants: a refusal comes before the first record, and nothing is
applied that would not fit into one log entry.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.api import Context, Decision, DecisionBuilder, RequestRefused, Steps
from coordinator.limits import DECISION_BYTES_MAX, RECORD_HEADER_BYTES
from records import RawRecord, Trigger
from wire.errors import ErrorCode

TOO_LARGE = (
    f"The request would write {{}} bytes, more than the {DECISION_BYTES_MAX} bytes of one decision: name "
    "fewer partitions or topics in a request."
)


def size_of(step: list[RawRecord]) -> int:
    """Size of these records in a log entry, in bytes."""
    return sum([RECORD_HEADER_BYTES + len(key) + len(value or b"") for _, _, key, value in step])


def run_steps(
    steps: Steps, apply_all: Callable[[list[RawRecord], int], None], ctx: Context, builder: DecisionBuilder
) -> Decision:
    """Run a decision to its end. `RequestRefused` passes through, because it comes before the first record.

    An exception in a later step ends the decision; the records applied so far stay, and are in the
    `Decision`. A step that would make the entry too large for the log is not applied, because an applied step
    cannot be undone."""
    records: list[RawRecord] = []
    decision = Decision(records=records)
    num_bytes = 0
    try:
        while True:
            step = next(steps)
            num_bytes += size_of(step)
            if num_bytes > DECISION_BYTES_MAX:
                is_commit = builder.trigger in (Trigger.OFFSETS_COMMITTED, Trigger.OFFSETS_PENDING)
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.INVALID_REQUEST
                raise RequestRefused(code, TOO_LARGE.format(num_bytes))
            apply_all(step, ctx.next_index)
            records += step
    except StopIteration as stop:
        decision.reply = stop.value
    except Exception as error:
        if not records:
            raise
        decision.error = error
    if records:
        decision.cause = builder.cause(ctx)
    decision.failure, decision.notice = builder.failure, builder.notice
    decision.has_assignor_failed = builder.has_assignor_failed
    decision.jobs = builder.jobs
    decision.answers = builder.answers
    return decision

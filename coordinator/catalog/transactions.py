"""The coordinator of transactions: what producers ask for, and what happens without them.

Each decision writes the record of one transactional id. A decision to commit or to abort names the groups
whose offsets are pending. Their shards follow it in their own logs (`coordinator.offsets.resolving`), and
once all of them have done so, the transaction is complete. Codes and their order are those of Kafka's
`TransactionCoordinator`, for clients of transaction version 1 (docs/architecture.md).

Invariants: a producer epoch that was given out is never given out again under its producer id; what is
decided is completed, whoever leads; the number of a transaction is never used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.catalog.transactiontimers import CLOCK_LOOK_MS, TransactionTimers
from coordinator.limits import Limits
from coordinator.state.machines import TRANSACTION_TRANSITIONS
from coordinator.steps import size_of
from coordinator.topics import CatalogView
from coordinator.transactions import COMMITS
from records import (
    TRANSACTIONS_SINCE,
    RawRecord,
    Record,
    TransactionGroup,
    TransactionKey,
    TransactionState,
    TransactionTopic,
    TransactionValue,
    Trigger,
    encode_record,
    shard_of,
)
from wire.errors import ErrorCode
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from wire.messages.init_producer_id import NO_PRODUCER, InitProducerIdRequest, InitProducerIdResponse

PRODUCER_ID_MAX: Final = (1 << 63) - 1

EPOCH_LAST: Final = (1 << 15) - 2
"""The last epoch that a producer is given. One more is left for the decision that fences it."""

FENCED_SINCE: Final = 2
INITIALIZED_FENCED_SINCE: Final = 4
"""The versions since which InitProducerId, and the other APIs, know PRODUCER_FENCED."""

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_COMPLETE_OF: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """State shared by all decisions about transactions. `catalog` is live; `timers` are volatile."""

    catalog: CatalogView
    limits: Limits
    num_shards: int
    timers: TransactionTimers

    def written(self, transactional_id: str, value: TransactionValue) -> list[RawRecord]:
        """The record of the id's next state, which must be one of the table's."""
        old = self.catalog.transactions.of(transactional_id)
        before = _EMPTY if old is None else TransactionState(old.state)
        assert (before, value.state) in TRANSACTION_TRANSITIONS, (before, value.state)
        return [encode_record(Record(TransactionKey(transactional_id=transactional_id), value))]


def _refused(code: ErrorCode, message: str) -> RequestRefused:
    return RequestRefused(code, message)


# InitProducerId


def init_producer_id(
    context: TransactionContext,
    request: InitProducerIdRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Give the producer of a transactional id its id and epoch, and fence the one before."""
    transactional_id = request.transactional_id
    if not transactional_id or (request.producer_id == NO_PRODUCER) != (
        request.producer_epoch == NO_PRODUCER
    ):
        raise _refused(ErrorCode.INVALID_REQUEST, "the transactional id is empty, or the producer incomplete")
    _check_bounds(context, transactional_id, request.transaction_timeout_ms)
    builder.trigger, builder.detail = Trigger.PRODUCER_INITIALIZED, transactional_id
    value = context.catalog.transactions.of(transactional_id)
    fenced = ErrorCode.PRODUCER_FENCED
    if version < INITIALIZED_FENCED_SINCE:
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    if value is not None:
        _check_expected(value, request, fenced)
        if value.state == _ONGOING:
            builder.detail = f"{transactional_id}: a new producer ends the transaction of the one before"
            yield from _decide(context, transactional_id, value, ctx, is_commit=False, fences=True)
            return InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NO_PRODUCER
            )
    new = _initialized(value, request, ctx, fenced)
    if new is not None:
        yield context.written(transactional_id, new)
        context.timers.follow(transactional_id, new, ctx)
    now = new or value
    assert now is not None
    return InitProducerIdResponse(producer_id=now.producer_id, producer_epoch=now.producer_epoch)


def _check_bounds(context: TransactionContext, transactional_id: str, timeout_ms: int) -> None:
    limits, transactions = context.limits, context.catalog.transactions
    if not 0 < timeout_ms <= limits.transaction_timeout_max_ms:
        raise _refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"the transaction timeout must be between 1 and {limits.transaction_timeout_max_ms} ms",
        )
    if len(transactional_id.encode()) > limits.transactional_id_bytes_max:
        raise _refused(ErrorCode.INVALID_REQUEST, "the transactional id is too long")
    is_new = transactions.of(transactional_id) is None
    if is_new and len(transactions) >= limits.transactional_ids_max:
        raise _refused(ErrorCode.POLICY_VIOLATION, "the maximum number of transactional ids is in use")
    if context.catalog.format_level < TRANSACTIONS_SINCE:
        raise _refused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"transactions need format level {TRANSACTIONS_SINCE}, which not all nodes can read yet",
        )


def _check_expected(value: TransactionValue, request: InitProducerIdRequest, fenced: ErrorCode) -> None:
    """Check the producer that the request names, if any, against the present one.

    A producer that another one replaced must not end the transaction of that one, which Kafka allows."""
    is_named = request.producer_id != NO_PRODUCER
    is_same = request.producer_id == value.producer_id
    is_before = request.producer_id == value.previous_producer_id and request.producer_epoch >= EPOCH_LAST
    if is_named and not is_same and not is_before:
        raise _refused(fenced, "another producer has the transactional id")
    if value.state in _COMPLETE_OF:
        raise _refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being completed")
    if is_named and value.state == _ONGOING and request.producer_epoch != value.producer_epoch:
        raise _refused(fenced, "another producer has the transactional id")


def _initialized(
    value: TransactionValue | None, request: InitProducerIdRequest, ctx: Context, fenced: ErrorCode
) -> TransactionValue | None:
    """The record of the next producer; None if the request repeats one that was answered (KIP-360).

    A producer that was fenced by a decision alone gets the epoch that the decision took (KIP-588)."""
    new = TransactionValue(
        producer_id=0,
        producer_epoch=0,
        state=_EMPTY,
        timeout_ms=request.transaction_timeout_ms,
        last_update_timestamp_ms=ctx.wall_ms,
    )
    if value is None:
        return replace(new, producer_id=_fresh_producer_id(ctx))
    named_epoch = request.producer_epoch if request.producer_id != NO_PRODUCER else None
    replaced_epoch = NO_PRODUCER if named_epoch is None else value.producer_epoch
    if named_epoch is not None and named_epoch != value.producer_epoch:
        if named_epoch != value.previous_producer_epoch:
            raise _refused(fenced, "another producer has the transactional id")
        if value.producer_epoch <= EPOCH_LAST:
            return None if value.state == _EMPTY else replace(value, state=_EMPTY)
    if value.producer_epoch >= EPOCH_LAST:
        return replace(
            new,
            producer_id=_fresh_producer_id(ctx),
            previous_producer_id=value.producer_id,
            previous_producer_epoch=replaced_epoch,
        )
    return replace(
        new,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch + 1,
        previous_producer_id=value.previous_producer_id,
        previous_producer_epoch=replaced_epoch,
    )


def _fresh_producer_id(ctx: Context) -> int:
    """A random id: with 63 bits, no two producers get the same, and no node need ask another for one."""
    return int.from_bytes(ctx.fresh_uuid()[-8:], "big") & PRODUCER_ID_MAX


# AddPartitionsToTxn, AddOffsetsToTxn


def _producer_in(
    context: TransactionContext, transactional_id: str, producer_id: int, producer_epoch: int, version: int
) -> TransactionValue:
    """The id's record, if this is its present producer; raises `RequestRefused`."""
    if not transactional_id:
        raise _refused(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    error = context.catalog.transactions.producer_error(transactional_id, producer_id, producer_epoch)
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is not ErrorCode.NONE:
        raise _refused(error, f"{transactional_id} has another producer, or is completing a transaction")
    value = context.catalog.transactions.of(transactional_id)
    assert value is not None
    return value


def add_partitions(
    context: TransactionContext,
    request: AddPartitionsToTxnRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Add partitions to the producer's transaction; the first ones begin it."""
    asked = [(topic.name, topic.partitions) for topic in request.v3_and_below_topics]
    if sum(max(1, len(partitions)) for _, partitions in asked) > context.limits.transaction_partitions_max:
        raise _refused(ErrorCode.INVALID_REQUEST, "the request names too many partitions")
    unknown = {
        (name, partition)
        for name, partitions in asked
        for partition in partitions
        if (topic := context.catalog.topic(name)) is None or not 0 <= partition < topic.num_partitions
    }
    if unknown:
        return _answer(
            asked,
            lambda one: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if one in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            ),
        )
    transactional_id = request.v3_and_below_transactional_id
    value = _producer_in(
        context,
        transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        version,
    )
    new = _ongoing(value, ctx)
    added: dict[str, set[int]] = {}
    for name, partitions in asked:
        added.setdefault(name, set()).update(partitions)
    topics = {topic.topic_id: topic for topic in new.topics}
    for name, union in added.items():
        found = context.catalog.topic(name)
        assert found is not None
        if found.topic_id in topics:
            union.update(topics[found.topic_id].partitions)
        topics[found.topic_id] = TransactionTopic(
            name=name, topic_id=found.topic_id, partitions=tuple(sorted(union))
        )
    new = replace(new, topics=tuple(topics[topic_id] for topic_id in sorted(topics)))
    yield from _extend(context, transactional_id, value, new, ctx, builder)
    return _answer(asked, lambda one: ErrorCode.NONE)


def _answer(asked: list[tuple[str, list[int]]], code_of: Any) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=code_of((name, partition))
                    )
                    for partition in partitions
                ],
            )
            for name, partitions in asked
        ]
    )


def add_offsets(
    context: TransactionContext,
    request: AddOffsetsToTxnRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Add a group to the producer's transaction, which may then commit offsets of the group in it."""
    value = _producer_in(
        context, request.transactional_id, request.producer_id, request.producer_epoch, version
    )
    group_id = request.group_id
    if len(group_id.encode()) > context.limits.group_id_bytes_max:
        raise _refused(ErrorCode.INVALID_REQUEST, "the group id is too long")
    new = _ongoing(value, ctx)
    if all(one.group_id != group_id for one in new.groups):
        if len(new.groups) >= context.limits.transaction_groups_max:
            raise _refused(ErrorCode.INVALID_REQUEST, "the transaction has too many groups")
        added = TransactionGroup(group_id=group_id, shard=shard_of(group_id, context.num_shards))
        new = replace(new, groups=(*new.groups, added))
    yield from _extend(context, request.transactional_id, value, new, ctx, builder)
    return AddOffsetsToTxnResponse()


def _ongoing(value: TransactionValue, ctx: Context) -> TransactionValue:
    """The transaction that goes on, or the one that begins."""
    if value.state == _ONGOING:
        return value
    return replace(
        value,
        state=_ONGOING,
        began=ctx.next_index,
        decided=-1,
        start_timestamp_ms=ctx.wall_ms,
        topics=(),
        groups=(),
    )


def _extend(
    context: TransactionContext,
    transactional_id: str,
    value: TransactionValue,
    new: TransactionValue,
    ctx: Context,
    builder: DecisionBuilder,
) -> Iterator[list[RawRecord]]:
    """Write the extended transaction, unless it already has all of it."""
    if new == value:
        return
    builder.trigger, builder.detail = Trigger.TRANSACTION_EXTENDED, transactional_id
    new = replace(new, last_update_timestamp_ms=ctx.wall_ms)
    records = context.written(transactional_id, new)
    if size_of(records) > context.limits.transaction_bytes_max:
        raise _refused(ErrorCode.INVALID_REQUEST, "the transaction has too many partitions and groups")
    yield records
    if value.state != _ONGOING:
        context.timers.follow(transactional_id, new, ctx)


# The end of a transaction


def end_transaction(
    context: TransactionContext, request: EndTxnRequest, version: int, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Decide the producer's transaction. The reply is held until all groups have followed, or for a while."""
    transactional_id, is_commit = request.transactional_id, request.committed
    transactions = context.catalog.transactions
    if not transactional_id:
        raise _refused(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    error = transactions.producer_error(transactional_id, request.producer_id, request.producer_epoch)
    value = transactions.of(transactional_id)
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
        raise _refused(error, f"{transactional_id} has another producer")
    assert value is not None
    if value.state != _ONGOING:
        if value.state == _EMPTY or (value.state in COMMITS) is not is_commit:
            raise _refused(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no such transaction")
        if error is not ErrorCode.NONE:
            raise _refused(error, f"the transaction of {transactional_id} is being completed")
        return EndTxnResponse()  # the request repeats one that was carried out
    builder.trigger = Trigger.TRANSACTION_ENDED
    builder.detail = f"{transactional_id} {'commits' if is_commit else 'aborts'}"
    yield from _decide(context, transactional_id, value, ctx, is_commit=is_commit)
    return EndTxnResponse()


def _decide(
    context: TransactionContext,
    transactional_id: str,
    value: TransactionValue,
    ctx: Context,
    *,
    is_commit: bool,
    fences: bool = False,
) -> Iterator[list[RawRecord]]:
    """Write the decision; one that `fences` takes the next epoch.

    The producer may ask for that epoch if no other one was initialized meanwhile (KIP-588)."""
    new = replace(
        value,
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        decided=ctx.next_index,
        last_update_timestamp_ms=ctx.wall_ms,
    )
    if fences:
        new = replace(
            new, producer_epoch=value.producer_epoch + 1, previous_producer_epoch=value.producer_epoch
        )
    yield context.written(transactional_id, new)
    context.timers.follow(transactional_id, new, ctx)


# Due work


def due_work(
    context: TransactionContext, transactional_id: str, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Complete a transaction that all group shards have followed, end one that timed out, or expire an id."""
    value = context.catalog.transactions.of(transactional_id)
    builder.detail = transactional_id
    if value is None:
        return None
    if value.state in _COMPLETE_OF and context.timers.is_followed(value):
        builder.trigger = Trigger.TRANSACTION_COMPLETED
        new = replace(
            value,
            state=_COMPLETE_OF[TransactionState(value.state)],
            last_update_timestamp_ms=ctx.wall_ms,
            topics=(),
            groups=(),
        )
        yield context.written(transactional_id, new)
        context.timers.follow(transactional_id, new, ctx)
    elif value.state == _ONGOING:
        builder.trigger = Trigger.TRANSACTION_TIMED_OUT
        builder.detail = f"{transactional_id}: not ended within {value.timeout_ms} ms"
        yield from _decide(context, transactional_id, value, ctx, is_commit=False, fences=True)
    elif ctx.past_ms - value.last_update_timestamp_ms >= context.limits.transactional_id_expiration_ms:
        builder.trigger = Trigger.TRANSACTIONAL_ID_EXPIRED
        yield [encode_record(Record(TransactionKey(transactional_id=transactional_id), None))]
    elif value.state not in _COMPLETE_OF:
        context.timers.put_off(transactional_id, CLOCK_LOOK_MS, ctx)
    return None

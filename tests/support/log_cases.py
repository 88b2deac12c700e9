"""Requests to a log of messages, good and bad, each on a topic of its own, for Apache Kafka and for Quorate.

A case returns what a client is answered: error codes, and offsets where they matter.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any, Final

from tests.support.record_batches import batch, offsets, record
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.end_txn import EndTxnRequest
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Ask = Callable[[ApiKey, int, Any], Any]
"""Sends a request of a version and returns the answer."""

HUGE: Final = 1 << 62


class AskedLog:
    """Partition 0 of a topic of one partition, as a client sees it. Kafka keeps old records only for a week,
    so times are relative to `now_ms`."""

    def __init__(self, ask: Ask, topic: str, topic_id: bytes, now_ms: int) -> None:
        self.ask = ask
        self.topic = topic
        self.topic_id = topic_id
        self.now_ms = now_ms
        self.aborted: list[int] = []
        """First offsets of the aborted transactions that the last fetch named."""

    def batch(self, *values: bytes, **fields: Any) -> bytes:
        return batch(*values or (b"a", b"b"), **({"time_ms": self.now_ms} | fields))

    def put(self, *values: bytes, **fields: Any) -> tuple[int, int]:
        return self.produce(self.batch(*values, **fields))

    def produce(
        self, records: bytes | None, version: int = 9, acks: int = -1, **where: Any
    ) -> tuple[int, int]:
        """Return the error code and the base offset."""
        topic = TopicProduceData(
            name=where.get("topic", self.topic),
            topic_id=where.get("topic_id", self.topic_id) if version >= 13 else bytes(16),
            partition_data=[PartitionProduceData(index=where.get("partition", 0), records=records)],
        )
        request = ProduceRequest(
            acks=acks,
            timeout_ms=5_000,
            topic_data=[topic],
            transactional_id=where.get("transactional_id"),
        )
        answer = self.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def fetch(self, offset: int, version: int = 12, **where: Any) -> tuple[int, list[int]]:
        """Return the error code and the offsets of the records."""
        partition = FetchPartition(
            partition=where.get("partition", 0),
            fetch_offset=offset,
            partition_max_bytes=where.get("partition_max_bytes", 1 << 20),
        )
        topic = FetchTopic(
            topic=where.get("topic", self.topic),
            topic_id=where.get("topic_id", self.topic_id) if version >= 13 else bytes(16),
            partitions=[partition],
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=where.get("min_bytes", 1),
            max_bytes=where.get("max_bytes", 1 << 20),
            isolation_level=where.get("isolation_level", 0),
            session_id=where.get("session_id", 0),
            session_epoch=where.get("session_epoch", -1),
            topics=[topic],
        )
        answer = self.ask(ApiKey.FETCH, version, request)
        if answer.error_code:
            return answer.error_code, []
        data = answer.responses[0].partitions[0]
        self.aborted = [one.first_offset for one in data.aborted_transactions or ()]
        return data.error_code, offsets(data.records or b"")

    def offset(self, timestamp: int, version: int = 7, **where: Any) -> tuple[int, int, int]:
        """Return the error code, the timestamp relative to `now_ms` (−1 for none), and the offset."""
        partition = ListOffsetsPartition(partition_index=where.get("partition", 0), timestamp=timestamp)
        topic = ListOffsetsTopic(name=where.get("topic", self.topic), partitions=[partition])
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=where.get("isolation_level", 0), topics=[topic]
        )
        found = self.ask(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]
        time_ms = found.timestamp - self.now_ms if found.timestamp > 0 else found.timestamp
        return found.error_code, time_ms, found.offset

    def delete(self, before: int, **where: Any) -> tuple[int, int]:
        """Return the error code and the low watermark."""
        partition = DeleteRecordsPartition(partition_index=where.get("partition", 0), offset=before)
        topic = DeleteRecordsTopic(name=where.get("topic", self.topic), partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
        found = self.ask(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
        return found.error_code, found.low_watermark


class Transactional:
    """A producer with a transactional id, which begins its transaction with the partition when told."""

    def __init__(self, log: AskedLog, name: str = "") -> None:
        self.log = log
        self.transactional_id = f"{log.topic}{name}"
        self.sequence = 0
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        self._until_done(
            lambda: log.ask(ApiKey.FIND_COORDINATOR, 4, coordinator),
            lambda answer: int(answer.coordinators[0].error_code),
        )
        found = self._until_done(lambda: log.ask(ApiKey.INIT_PRODUCER_ID, 4, request), _own_error)
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch

    def begin(self) -> None:
        topics = [AddPartitionsToTxnTopic(name=self.log.topic, partitions=[0])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        self._until_done(
            lambda: self.log.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request),
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )

    def put(self, *values: bytes, **fields: Any) -> tuple[int, int]:
        """Produce a batch of its transaction."""
        records = self.log.batch(
            *values,
            **{"attributes": 0x10} | _numbered(self.sequence, self.epoch, self.producer_id) | fields,
        )
        for _ in range(ATTEMPTS_MAX):
            code, offset = self.log.produce(records, transactional_id=self.transactional_id)
            if code != ErrorCode.NOT_ENOUGH_REPLICAS:  # the coordinator is busy with the transaction
                break
        if not code:
            self.sequence += len(values)
        return code, offset

    def end(self, *, committed: bool) -> None:
        """End the transaction, and wait until that is in the log."""
        end = self.log.offset(-1)[2]
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        self._until_done(lambda: self.log.ask(ApiKey.END_TXN, 3, request), _own_error)
        for _ in range(ATTEMPTS_MAX):
            if self.log.offset(-1)[2] > end:
                return
        raise TimeoutError("the end of the transaction is not in the log")

    def _until_done(self, ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
        for _ in range(ATTEMPTS_MAX):
            if (code := code_of(answer := ask())) not in AGAIN:
                assert not code, code
                return answer
        raise TimeoutError(code)


ATTEMPTS_MAX: Final = 100_000

AGAIN: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""The coordinator of transactions is about to be there, or busy."""


def _own_error(answer: Any) -> int:
    return int(answer.error_code)


def _committed(log: AskedLog, offset: int = 0) -> list[Any]:
    """Return what a consumer of committed records sees: its end, what it reads, and what is aborted."""
    end, read = log.offset(-1, isolation_level=1)[2], log.fetch(offset, isolation_level=1)
    return [end, read, log.aborted]


def _transaction(*, committed: bool) -> Callable[[AskedLog], Any]:
    def case(log: AskedLog) -> list[Any]:
        producer = Transactional(log)
        producer.begin()
        seen = [log.put(b"x"), producer.put(b"a", b"b"), log.put(b"y"), producer.put(b"c"), _committed(log)]
        producer.end(committed=committed)
        return [*seen, _committed(log), _committed(log, 3), log.fetch(0), log.offset(-1)]

    return case


def _two_transactions(log: AskedLog) -> list[Any]:
    first, second = Transactional(log, "-1"), Transactional(log, "-2")
    first.begin()
    second.begin()
    seen: list[Any] = [first.put(b"a"), second.put(b"b"), first.put(b"c"), _committed(log)]
    first.end(committed=False)
    seen.append(_committed(log))
    first.begin()
    seen += [first.put(b"d"), _committed(log)]
    second.end(committed=True)
    seen.append(_committed(log))
    first.end(committed=False)
    return [*seen, *[_committed(log, offset) for offset in range(9)]]


def _outside_of_a_transaction(log: AskedLog) -> list[Any]:
    producer = Transactional(log)
    seen: list[Any] = [producer.put(b"a")]
    producer.begin()
    seen += [producer.put(b"b"), producer.put(b"c", attributes=0)]
    producer.end(committed=True)
    return [*seen, producer.put(b"d"), producer.put(b"e", attributes=0), _committed(log)]


def _fenced_producer(log: AskedLog) -> list[Any]:
    older = Transactional(log)
    older.begin()
    seen: list[Any] = [older.put(b"a")]
    newer = Transactional(log)
    seen += [older.put(b"b"), newer.epoch - older.epoch, _committed(log)]
    newer.begin()
    seen += [newer.put(b"c"), older.put(b"d")]
    newer.end(committed=True)
    return [*seen, _committed(log)]


def _nothing_written(log: AskedLog) -> list[Any]:
    producer = Transactional(log)
    producer.begin()
    producer.end(committed=False)
    return _committed(log)


def _numbered(sequence: int, epoch: int = 0, producer_id: int = 7) -> dict[str, int]:
    return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}


def _times(log: AskedLog) -> list[tuple[int, int, int]]:
    """Look up times in batches whose records are not in the order of their times."""
    body = b"".join(record(number, b"v", delta) for number, delta in enumerate([0, 50, 30, 90]))
    log.put(*[b"v"] * 4, body=body, max_timestamp=log.now_ms + 90)
    log.put(b"w", time_ms=log.now_ms + 70)
    times = [log.offset(log.now_ms + ahead) for ahead in (-9, 0, 1, 50, 51, 90, 91)]
    return [*times, log.offset(-3)]


def _times_behind_the_start(log: AskedLog) -> list[Any]:
    log.put(b"a", b"b", b"c")
    log.put(b"d", time_ms=log.now_ms + 100)
    log.delete(2)
    return [log.offset(log.now_ms), log.offset(log.now_ms + 2), log.offset(log.now_ms + 3), log.offset(0)]


def _sequence(*steps: dict[str, int]) -> Callable[[AskedLog], Any]:
    return lambda log: [log.put(b"a", **step) for step in steps]


def _after(num_records: int, then: Callable[[AskedLog], Any]) -> Callable[[AskedLog], Any]:
    def case(log: AskedLog) -> Any:
        for _ in range(num_records):
            log.put(b"x")
        return then(log)

    return case


Case = Callable[[AskedLog], Any]

CASES: Final[dict[str, Case]] = {
    # Batches.
    "good": lambda log: [log.put(), log.put(), log.fetch(0), log.offset(-1), log.offset(-2)],
    "no records": lambda log: log.produce(None),
    "empty records": lambda log: log.produce(b""),
    "two batches": lambda log: log.produce(log.batch() * 2),
    "bytes behind the batch": lambda log: log.produce(log.batch() + b"x"),
    "cut in the header": lambda log: log.produce(log.batch()[:40]),
    "cut in the records": lambda log: log.produce(log.batch()[:-3]),
    "cut at 16 bytes": lambda log: log.produce(log.batch()[:16]),
    "cut at 17 bytes": lambda log: log.produce(log.batch()[:17]),
    "wrong CRC": lambda log: log.put(crc=5),
    "magic 0": lambda log: log.put(magic=0),
    "magic 1": lambda log: log.put(magic=1),
    "magic 3": lambda log: log.put(magic=3),
    "length too small": lambda log: log.put(length=40),
    "negative length": lambda log: log.put(length=-1),
    "length too large": lambda log: log.put(length=200),
    "base offset 5": lambda log: log.put(base_offset=5),
    "more records counted": lambda log: log.put(num_records=3),
    "fewer records counted": lambda log: log.put(num_records=1),
    "no records counted": lambda log: log.put(num_records=0, last_offset_delta=-1),
    "negative count": lambda log: log.put(num_records=-1),
    "wrong last offset": lambda log: log.put(last_offset_delta=7),
    "wrong count and last offset": lambda log: log.put(num_records=4, last_offset_delta=3),
    "billions of records": lambda log: log.put(num_records=2**31 - 1, last_offset_delta=2**31 - 2),
    "control batch": lambda log: log.put(attributes=0x20),
    "log append time": lambda log: log.put(attributes=0x08),
    "codec 5": lambda log: log.put(attributes=5),
    "zstd in version 6": lambda log: log.produce(log.batch(attributes=4, body=b"z" * 30), 6),
    "too large": lambda log: log.put(b"x" * 1_100_000),
    "records that do not parse": lambda log: log.put(body=b"\xff" * 40),
    "bytes behind the records": lambda log: log.put(body=record(0, b"a") + record(1, b"b", 1) + b"\x00" * 9),
    "wrong offset deltas": lambda log: log.put(body=record(5, b"a") + record(9, b"b", 1)),
    "gzip": lambda log: [
        log.put(attributes=1, body=gzip.compress(record(0, b"a") + record(1, b"b", 1))),
        log.fetch(0),
    ],
    "gzip of garbage": lambda log: log.put(attributes=1, body=b"not gzip at all"),
    "far in the future": lambda log: log.put(time_ms=log.now_ms + 10**10),
    "no timestamp": lambda log: log.put(b"a", time_ms=-1),
    # Requests.
    "acks 2": lambda log: log.produce(log.batch(), acks=2),
    "acks 1": lambda log: log.produce(log.batch(), acks=1),
    "unknown topic": lambda log: log.produce(log.batch(), topic="never-created"),
    "unknown topic id": lambda log: log.produce(log.batch(), 13, topic_id=b"?" * 16),
    "zero topic id": lambda log: log.produce(log.batch(), 13, topic_id=bytes(16)),
    "by topic id": lambda log: log.produce(log.batch(), 13),
    "partition 1 of 1": lambda log: log.produce(log.batch(), partition=1),
    "partition -1": lambda log: log.produce(log.batch(), partition=-1),
    # Producers with sequence numbers.
    "in sequence": _sequence(_numbered(0), _numbered(1), _numbered(2)),
    "repeated": _sequence(_numbered(0), _numbered(1), _numbered(0), _numbered(1)),
    "repeated, sixth last": _sequence(*[_numbered(number) for number in (*range(6), 0)]),
    "first number is 41": _sequence(_numbered(41), _numbered(42)),
    "a gap": _sequence(_numbered(0), _numbered(2)),
    "older epoch": _sequence(_numbered(0, 3), _numbered(1, 2)),
    "newer epoch from 0": _sequence(_numbered(0, 3), _numbered(0, 4), _numbered(1, 3)),
    "newer epoch from 1": _sequence(_numbered(0, 3), _numbered(1, 4)),
    "after the greatest number": _sequence(_numbered(2**31 - 1), _numbered(0)),
    "after the greatest number, 1": _sequence(_numbered(2**31 - 1), _numbered(1)),
    "no epoch": lambda log: log.put(producer_id=7, base_sequence=0),
    "no sequence": lambda log: log.put(producer_id=7, producer_epoch=0),
    "producer -2": lambda log: log.put(producer_id=-2, producer_epoch=0, base_sequence=0),
    "same number, other count": lambda log: [
        log.put(b"a", b"b", **_numbered(0)),
        log.put(b"a", **_numbered(0)),
        log.put(b"a", **_numbered(1)),
    ],
    # Transactions.
    "transactional, no transactional id": lambda log: log.put(attributes=0x10, **_numbered(0)),
    "transactional, no producer": lambda log: log.produce(log.batch(attributes=0x10), transactional_id="t"),
    "transaction committed": _transaction(committed=True),
    "transaction aborted": _transaction(committed=False),
    "two transactions": _two_transactions,
    "outside of a transaction": _outside_of_a_transaction,
    "fenced producer": _fenced_producer,
    "transaction without records": _nothing_written,
    # Fetch.
    "fetch at the end": _after(3, lambda log: log.fetch(3)),
    "fetch behind the end": _after(3, lambda log: log.fetch(4)),
    "fetch offset -1": _after(3, lambda log: log.fetch(-1)),
    "fetch a huge offset": _after(3, lambda log: log.fetch(HUGE)),
    "fetch before the start": _after(3, lambda log: [log.delete(2), log.fetch(1), log.fetch(2)]),
    "fetch unknown topic": lambda log: log.fetch(0, topic="never-created"),
    "fetch unknown id": lambda log: log.fetch(0, 13, topic_id=b"?" * 16),
    "fetch zero id": lambda log: log.fetch(0, 13, topic_id=bytes(16)),
    "fetch partition 1 of 1": lambda log: log.fetch(0, partition=1),
    "fetch partition 1 of 1 by id": lambda log: log.fetch(0, 13, partition=1),
    "fetch at most 0 bytes": _after(3, lambda log: log.fetch(0, max_bytes=0, partition_max_bytes=0)),
    "fetch in the middle of a batch": lambda log: [log.put(b"a", b"b", b"c"), log.fetch(1)],
    "fetch committed": _after(2, lambda log: log.fetch(0, isolation_level=1)),
    "fetch isolation 2": _after(2, lambda log: log.fetch(0, isolation_level=2)),
    "fetch unknown session": lambda log: log.fetch(0, session_id=5, session_epoch=1),
    # ListOffsets.
    "times": _times,
    "times and deleted records": _times_behind_the_start,
    "newest of equal times": lambda log: [
        log.put(
            *[b"v"] * 3,
            body=b"".join(record(number, b"v", delta) for number, delta in enumerate([0, 5, 5])),
            max_timestamp=log.now_ms + 5,
        ),
        log.offset(-3),
    ],
    "special timestamps, empty": lambda log: [log.offset(special, 9) for special in range(-6, 0)],
    "special timestamps": _after(2, lambda log: [log.offset(special, 9) for special in range(-5, 0)]),
    "timestamp -6": _after(2, lambda log: log.offset(-6, 10)),
    "timestamp -7": lambda log: log.offset(-7, 9),
    "timestamp -3 in version 6": _after(2, lambda log: log.offset(-3, 6)),
    "offset of unknown topic": lambda log: log.offset(-1, topic="never-created"),
    "offset of partition 1 of 1": lambda log: log.offset(-1, partition=1),
    "latest committed": _after(2, lambda log: log.offset(-1, isolation_level=1)),
    "offset isolation 2": _after(2, lambda log: log.offset(-1, isolation_level=2)),
    # DeleteRecords.
    "delete": _after(4, lambda log: [log.delete(2), log.delete(1), log.delete(-1), log.offset(-2)]),
    "delete behind the end": _after(2, lambda log: log.delete(3)),
    "delete before -2": _after(2, lambda log: log.delete(-2)),
    "delete of unknown topic": lambda log: log.delete(0, topic="never-created"),
    "delete of partition 1 of 1": lambda log: log.delete(0, partition=1),
    "delete in the middle of a batch": lambda log: [
        log.put(b"a", b"b", b"c"),
        log.delete(1),
        log.fetch(1),
        log.fetch(0),
    ],
}


def plain(answer: Any) -> Any:
    """Return an answer with lists for tuples."""
    return [plain(one) for one in answer] if isinstance(answer, list | tuple) else answer

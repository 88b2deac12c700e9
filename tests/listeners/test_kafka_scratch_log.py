"""The scratch log on the wire, in virtual time: what clients produce, fetch, look up and delete."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.kafka.appending import log_led_here
from cluster.kafka.reading import ANSWERS_BYTES_MAX, FETCH_BYTES_MAX
from coordinator.topics import CatalogTopic, CatalogView, new_topic_id
from records import METADATA_SHARD, TransactionState, TransactionTopic, TransactionValue
from tests.report import count_fault
from tests.support.listener_rig import CLIENT_ID, PEER, RawClient, Rig, heartbeat, log_lines
from tests.support.record_batches import NOW_MS, batch, headers, offsets
from wire.apis import API_VERSIONS, LOG_APIS, TRANSACTION_APIS, ApiKey
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.protocol import decode_response, encode_request

NEW = CatalogTopic(name="new", topic_id=new_topic_id(b"n" * 16, 4), num_partitions=3)
OLD = CatalogTopic(name="old", topic_id=new_topic_id(b"o" * 16, 1), num_partitions=3)
FIRST_OF_TERM = 4 << 40
NO_TRANSACTIONS = InitProducerIdRequest(transactional_id=None)


def versions_of(api_key: ApiKey) -> list[int]:
    low, high = API_VERSIONS[api_key]
    return list(range(low, high + 1))


class LogRig(Rig):
    """A listener with a scratch log; `new` was created in the current term, `old` before."""

    def __init__(self, clock_step_ms: float = 0.0, **settings: Any) -> None:
        super().__init__(clock_step_ms=clock_step_ms, scratch_log_enable=True, **settings)
        self.node.catalog = CatalogView([NEW, OLD], version=5)
        self.client = self.connect()

    @property
    def context(self) -> Any:
        return self.listener.context

    def produce(
        self,
        records: bytes | None,
        *,
        topic: CatalogTopic = NEW,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Any:
        request = produce_request(records, topic, partition, version, acks)
        request.transactional_id = transactional_id
        answer = self.ask(self.client, ApiKey.PRODUCE, version, request)
        return answer.responses[0].partition_responses[0]

    def fetch(self, offset: int, *, version: int = 12, client: RawClient | None = None, **fields: Any) -> Any:
        request = fetch_request(offset, version=version, **fields)
        answer = self.ask(client or self.client, ApiKey.FETCH, version, request, within_ms=60_000)
        assert (answer.error_code, answer.session_id) == (0, 0)
        return answer.responses[0].partitions[0]

    def list_offset(
        self, timestamp: int, *, topic: CatalogTopic = NEW, version: int = 7, isolation_level: int = 0
    ) -> Any:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic.name,
                    partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
                )
            ],
        )
        return self.ask(self.client, ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]

    def delete(self, offset: int, partition: int = 0, version: int = 2) -> Any:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="new",
                    partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
                )
            ],
            timeout_ms=1_000,
        )
        return self.ask(self.client, ApiKey.DELETE_RECORDS, version, request).topics[0].partitions[0]


def produce_request(
    records: bytes | None,
    topic: CatalogTopic = NEW,
    partition: int = 0,
    version: int = 9,
    acks: int = -1,
) -> ProduceRequest:
    named = TopicProduceData(topic_id=topic.topic_id) if version >= 13 else TopicProduceData(name=topic.name)
    named.partition_data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[named])


def fetch_request(
    offset: int,
    *,
    version: int = 12,
    topic: CatalogTopic = NEW,
    partition: int = 0,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> FetchRequest:
    named = FetchTopic(topic_id=topic.topic_id) if version >= 13 else FetchTopic(topic=topic.name)
    named.partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[named], **fields
    )


# Produce


@pytest.mark.parametrize("version", versions_of(ApiKey.PRODUCE))
def test_what_is_produced_is_fetched(version: int) -> None:
    rig = LogRig()
    first = rig.produce(batch(b"a", b"b"), version=version)
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 0, -1)
    assert rig.produce(batch(b"c"), version=version, acks=1).base_offset == 2
    got = rig.fetch(0)
    assert (got.error_code, got.high_watermark, got.last_stable_offset, got.log_start_offset) == (0, 3, 3, 0)
    assert offsets(got.records) == [0, 1, 2]


@pytest.mark.parametrize("version", versions_of(ApiKey.FETCH))
def test_every_version_of_fetch(version: int) -> None:
    rig = LogRig()
    sent = batch(b"a", b"b")
    rig.produce(sent, topic=OLD)
    got = rig.fetch(FIRST_OF_TERM, topic=OLD, version=version)
    ((header, records),) = headers(got.records)
    assert header.base_offset == FIRST_OF_TERM
    assert records[16:] == sent[16:]
    assert got.aborted_transactions is None
    assert rig.fetch(FIRST_OF_TERM, topic=OLD, version=version, isolation_level=1).aborted_transactions == []


def test_errors_of_produce() -> None:
    rig = LogRig()
    gone = CatalogTopic(name="gone", topic_id=b"?" * 16, num_partitions=1)
    assert rig.produce(batch(b"a"), topic=gone).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.produce(batch(b"a"), topic=gone, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert rig.produce(batch(b"a"), partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.produce(batch(b"a"), partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.produce(batch(b"a"), acks=7).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    wrong = rig.produce(batch(b"a", crc=1))
    assert (wrong.error_code, wrong.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert "CRC" in wrong.error_message
    assert rig.context.counters.errors[ApiKey.PRODUCE, ErrorCode.CORRUPT_MESSAGE] == 1
    assert rig.fetch(0, max_wait_ms=0).records == b""


def test_without_acks_there_is_no_answer() -> None:
    rig = LogRig()
    request = encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, produce_request(batch(b"a"), acks=0))
    rig.client.send(request + heartbeat(2) + request + heartbeat(3))
    rig.run()
    assert rig.client.correlation_ids == [2, 3]
    assert rig.fetch(0).high_watermark == 2


def test_without_acks_an_error_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    rig = LogRig()
    with log_lines(caplog) as lines:
        request = produce_request(batch(b"a", crc=1), acks=0)
        rig.client.send(encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, request))
        rig.run()
        assert rig.client.is_lost
        (line,) = lines()
    assert "a batch with acks=0 was refused: the CRC-32C" in line


def test_one_request_may_be_larger_than_any_other(caplog: pytest.LogCaptureFixture) -> None:
    rig = LogRig(socket_request_max_bytes=2_000, scratch_log_request_max_bytes=5_000)
    assert rig.produce(batch(b"x" * 4_000)).error_code == 0
    with log_lines(caplog) as lines:
        other = rig.connect()
        other.send(heartbeat(1, member="m" * 3_000))
        rig.run()
        assert other.is_lost
        rig.client.send(encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, produce_request(b"x" * 5_000)))
        rig.run()
        assert rig.client.is_lost
        assert [line.split("frame: ")[1] for line in lines()] == [
            "length 3041 is outside 0 to 2000",
            "length 5044 is outside 0 to 5000",
        ]


def test_the_order_of_a_pipelined_producer_is_kept() -> None:
    rig = LogRig()
    frames = b""
    for number in range(300):
        fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        request = produce_request(batch(b"x" * 1_000, **fields))
        frames += encode_request(ApiKey.PRODUCE, 9, number, CLIENT_ID, request)
    rig.client.send(frames)
    rig.run(500)
    answers = [decode_response(ApiKey.PRODUCE, 9, frame)[1] for frame in rig.client.frames]
    assert [one.responses[0].partition_responses[0].base_offset for one in answers] == list(range(300))


def test_damaged_requests_are_answered_or_end_their_connection_and_only_that() -> None:
    rig, rng = LogRig(), random.Random(3)
    bystander = rig.connect()
    whole = encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, produce_request(batch(b"first", b"second")))
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(12, len(damaged))] = rng.choice(
                [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        client = rig.connect()
        client.send(bytes(damaged))
        rig.run(5)
        assert client.is_lost or client.frames, bytes(damaged)
        client.transport.abort()
    count_fault("listeners", "damaged Produce request", 400)
    bystander.send(heartbeat(5))
    rig.run(20)
    assert bystander.correlation_ids == [5]
    log = rig.context.scratch_log
    assert log.num_bytes == sum(one.num_bytes for one in log._logs.values())


# Fetch


def test_a_fetch_waits_for_a_record_and_no_longer() -> None:
    rig, consumer = LogRig(), None
    consumer = rig.connect()
    consumer.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(0, max_wait_ms=10_000)))
    rig.run(2_000)
    assert consumer.frames == []
    assert rig.context.fetches_waiting == 1
    rig.produce(batch(b"elsewhere"), partition=1)
    rig.run(10)
    assert consumer.frames == []
    rig.produce(batch(b"here"))
    rig.run(10)
    (frame,) = consumer.frames
    assert offsets(decode_response(ApiKey.FETCH, 12, frame)[1].responses[0].partitions[0].records) == [0]
    assert rig.context.fetches_waiting == 0
    assert rig.context.scratch_log._waiters == {}


def test_a_fetch_waits_for_its_min_bytes_or_its_time() -> None:
    rig, consumer = LogRig(), None
    consumer = rig.connect()
    size = len(batch(b"x" * 100))
    request = fetch_request(0, max_wait_ms=10_000, min_bytes=3 * size)
    rig.produce(batch(b"x" * 100))
    consumer.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, request))
    rig.run(10)
    rig.produce(batch(b"x" * 100))
    rig.run(10)
    assert consumer.frames == []
    rig.produce(batch(b"x" * 100))
    rig.run(10)
    assert len(consumer.frames) == 1
    start_ms = rig.world.now_ms
    assert offsets(rig.fetch(1, min_bytes=9_999, max_wait_ms=700).records) == [1, 2]
    assert 700 <= rig.world.now_ms - start_ms < 710


def test_other_work_of_the_connection_ends_the_wait() -> None:
    rig = LogRig()
    fetch = encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(0, max_wait_ms=10_000))
    rig.client.send(fetch + heartbeat(2))
    rig.run(10)
    assert rig.client.correlation_ids == [1, 2]
    assert rig.context.scratch_log._waiters == {}


def test_a_lost_connection_leaves_nothing() -> None:
    rig = LogRig()
    rig.client.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(0, max_wait_ms=10_000)))
    rig.run(10)
    rig.client.transport.abort()
    rig.run(10)
    assert (rig.context.fetches_waiting, rig.context.scratch_log._waiters) == (0, {})
    rig.client = rig.connect()
    assert rig.produce(batch(b"x")).error_code == 0


def test_what_a_waiting_fetch_keeps_is_counted_and_bounded() -> None:
    rig = LogRig(fetch_waiting_max=1)
    first, second = rig.connect(), rig.connect()
    request = fetch_request(0, max_wait_ms=10_000)
    request.topics[0].partitions *= 20
    first.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, request))
    rig.run(10)
    assert rig.context.kept_bytes == 21 * 400
    second.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, request))
    rig.run(10)
    assert (first.frames, len(second.frames)) == ([], 1)
    rig.run(10_000)
    assert (len(first.frames), rig.context.kept_bytes) == (1, 0)


def test_sessions_are_refused() -> None:
    rig = LogRig()
    answer = rig.ask(rig.client, ApiKey.FETCH, 12, fetch_request(0, session_id=5, session_epoch=1))
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
def test_an_offset_outside_the_log_is_told_at_once(offset: int) -> None:
    rig = LogRig()
    start_ms = rig.world.now_ms
    assert rig.fetch(offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.world.now_ms - start_ms < 20


def test_unknown_topics_and_partitions() -> None:
    rig = LogRig()
    gone = CatalogTopic(name="gone", topic_id=b"?" * 16, num_partitions=1)
    assert rig.fetch(0, topic=gone).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.fetch(0, topic=gone, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert rig.fetch(0, partition=3, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_answer_has_a_bounded_size() -> None:
    rig = LogRig(connection_buffered_pause_bytes=64 << 20)
    for partition in range(3):
        for _ in range(4):
            rig.produce(batch(b"x" * 900_000), partition=partition)
    request = fetch_request(0, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
    request.topics[0].partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=2**31 - 1) for number in range(3)
    ]
    answer = rig.ask(rig.client, ApiKey.FETCH, 12, request)
    got = [one.records for one in answer.responses[0].partitions]
    assert [len(offsets(records)) for records in got] == [1, 0, 0]
    assert sum(map(len, got)) <= FETCH_BYTES_MAX
    assert [one.high_watermark for one in answer.responses[0].partitions] == [4, 4, 4]
    assert offsets(rig.fetch(2, max_bytes=1, partition_max_bytes=1).records) == [2]


def test_answers_that_are_being_made_have_a_bound_together() -> None:
    rig = LogRig()
    rig.produce(batch(b"x"))
    rig.context.fetched_bytes = ANSWERS_BYTES_MAX
    assert rig.fetch(0).records == b""
    rig.context.fetched_bytes -= 1
    assert offsets(rig.fetch(0).records) == [0]
    assert rig.context.fetched_bytes == ANSWERS_BYTES_MAX - 1


def test_the_answer_to_a_lost_connection_is_not_counted() -> None:
    rig = LogRig(clock_step_ms=3.0)
    for _ in range(3):
        rig.produce(batch(b"x" * 100_000))
    for _ in range(20):
        consumer = rig.connect()
        consumer.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(0)))
        rig.run(5)
        consumer.transport.abort()
    rig.run(1_000)
    assert (rig.context.fetched_bytes, rig.context.kept_bytes) == (0, 0)


# Transactions


class TransactionRig(LogRig):
    """One producer with a transaction that its coordinator has open."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0

    def part(self, *values: bytes) -> Any:
        records = batch(
            *values, attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=self.sequence
        )
        self.sequence += len(values)
        return self.produce(records, transactional_id="t")

    def end(self, *, committed: bool, epoch: int = 0) -> None:
        log = log_led_here(self.context)
        assert log is not None
        log.end_transaction((NEW.topic_id, 0), 7, epoch, 4, committed=committed, now_ms=NOW_MS + 5)


def test_committed_records_are_read_up_to_the_last_stable_offset() -> None:
    rig = TransactionRig()
    rig.produce(batch(b"plain"))
    assert (rig.part(b"a", b"b").base_offset, rig.produce(batch(b"plain")).base_offset) == (1, 3)
    committed = rig.fetch(0, isolation_level=1)
    assert (offsets(committed.records), committed.high_watermark, committed.last_stable_offset) == ([0], 4, 1)
    assert committed.aborted_transactions == []
    everything = rig.fetch(0)
    assert (offsets(everything.records), everything.last_stable_offset) == ([0, 1, 2, 3], 1)
    assert everything.aborted_transactions is None
    assert (rig.list_offset(-1).offset, rig.list_offset(-1, isolation_level=1).offset) == (4, 1)
    assert rig.list_offset(NOW_MS + 1, isolation_level=1).offset == -1
    rig.end(committed=False)
    committed = rig.fetch(0, isolation_level=1)
    assert (offsets(committed.records), committed.last_stable_offset) == ([0, 1, 2, 3, 4], 5)
    assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions] == [(7, 1)]
    assert rig.list_offset(-1, isolation_level=1).offset == 5
    assert rig.fetch(3, isolation_level=1).aborted_transactions[0].first_offset == 1
    assert rig.fetch(5, isolation_level=1).aborted_transactions == []


def test_a_fetch_of_committed_records_waits_for_the_end_of_the_transaction() -> None:
    rig = TransactionRig()
    rig.part(b"a")
    consumer = rig.connect()
    request = fetch_request(0, max_wait_ms=10_000, isolation_level=1)
    consumer.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, request))
    rig.run(100)
    rig.part(b"b")
    rig.produce(batch(b"plain"))
    rig.run(1_000)
    assert consumer.frames == []
    rig.end(committed=True)
    rig.run(10)
    (frame,) = consumer.frames
    data = decode_response(ApiKey.FETCH, 12, frame)[1].responses[0].partitions[0]
    assert (offsets(data.records), data.aborted_transactions) == ([0, 1, 2, 3], [])


def test_no_batch_comes_between_a_decision_and_its_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer's next transaction may be open before the markers of the last one are appended."""
    rig = TransactionRig()
    rig.part(b"a")
    queued: list[Iterator[None]] = []
    monkeypatch.setattr(rig.context.slices, "run", lambda work, *_: queued.append(work))
    value = TransactionValue(
        producer_id=7,
        producer_epoch=0,
        state=TransactionState.PREPARE_ABORT,
        timeout_ms=1_000,
        last_update_timestamp_ms=NOW_MS,
        topics=(TransactionTopic(name="new", topic_id=NEW.topic_id, partitions=(0,)),),
    )
    for _ in range(2):
        rig.listener.transactions_decided([value])
    monkeypatch.undo()
    assert rig.part(b"b").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    deque(queued.pop(0))
    assert rig.part(b"b").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    deque(queued.pop(0))
    assert rig.context.ending_producers == {}
    rig.sequence = 1
    assert rig.part(b"b").base_offset == 3
    data = rig.fetch(0, isolation_level=1)
    assert (offsets(data.records), data.last_stable_offset) == ([0, 1, 2], 3)


@pytest.mark.parametrize(
    ("transaction", "code"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_batch_outside_of_a_transaction_is_refused(transaction: ErrorCode, code: ErrorCode) -> None:
    rig = TransactionRig()
    rig.node.transaction = transaction
    assert rig.part(b"a").error_code == code
    assert rig.list_offset(-1).offset == 0


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    rig = LogRig()
    records = batch(b"a", attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0)
    assert rig.produce(records).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transaction_goes_on_after_a_failover_without_what_is_lost() -> None:
    rig = TransactionRig()
    rig.part(b"lost")
    rig.node.metadata_term, rig.node.term_start = 5, 5
    first = 5 << 40
    assert rig.list_offset(-1, isolation_level=1).offset == first
    assert rig.part(b"kept").base_offset == first
    assert rig.list_offset(-1, isolation_level=1).offset == first
    rig.end(committed=True)
    kept = rig.fetch(1, isolation_level=1)
    assert (offsets(kept.records), kept.last_stable_offset) == ([first, first + 1], first + 2)


# Failover


def test_another_node_answers_that_it_does_not_lead() -> None:
    rig = LogRig()
    rig.produce(batch(b"lost"))
    consumer = rig.connect()
    consumer.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(1, max_wait_ms=400)))
    rig.run(10)
    rig.node.leaders[METADATA_SHARD] = PEER
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.produce(batch(b"a")).error_code == code
    assert rig.fetch(0).error_code == code
    assert rig.list_offset(-1).error_code == code
    assert rig.delete(-1).error_code == code
    assert rig.context.scratch_log.num_bytes == 0
    rig.run(10)
    assert decode_response(ApiKey.FETCH, 12, consumer.frames[0])[1].responses[0].partitions[0].error_code == 6
    assert rig.ask(rig.client, ApiKey.INIT_PRODUCER_ID, 4, NO_TRANSACTIONS).error_code == 0


def test_after_a_failover_a_consumer_reads_on_and_a_producer_goes_on() -> None:
    rig = LogRig()
    for number in range(3):
        rig.produce(batch(b"x", producer_id=5, producer_epoch=0, base_sequence=number))
    rig.node.metadata_term, rig.node.term_start = 5, 5
    first = 5 << 40
    assert (rig.list_offset(-1).offset, rig.list_offset(-2).offset) == (first, first)
    start_ms = rig.world.now_ms
    empty = rig.fetch(3, max_wait_ms=400)
    assert (empty.error_code, empty.high_watermark, offsets(empty.records)) == (0, first, [])
    assert [header.base_offset for header, _ in headers(empty.records)] == [first - 1]
    assert rig.world.now_ms - start_ms >= 400  # clients that take no notice of it must not spin
    got = rig.produce(batch(b"x", producer_id=5, producer_epoch=0, base_sequence=3))
    assert (got.error_code, got.base_offset) == (0, first)
    assert offsets(rig.fetch(3).records) == [first]


def test_during_an_election_requests_wait_for_the_leader() -> None:
    rig = LogRig()
    rig.node.leaders[METADATA_SHARD] = None
    rig.client.send(encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, produce_request(batch(b"a"))))
    rig.run(300)
    assert rig.client.frames == []
    del rig.node.leaders[METADATA_SHARD]
    rig.run(30)
    answer = decode_response(ApiKey.PRODUCE, 9, rig.client.frames[0])[1]
    assert answer.responses[0].partition_responses[0].error_code == 0


# ListOffsets, DeleteRecords, InitProducerId, ApiVersions


@pytest.mark.parametrize("version", versions_of(ApiKey.LIST_OFFSETS))
def test_offsets_by_time(version: int) -> None:
    rig = LogRig()
    for number in range(3):
        rig.produce(batch(b"x", time_ms=NOW_MS + 10 * number))
    rig.delete(1)
    found = {
        time: rig.list_offset(time, version=version) for time in (-1, -2, -3, -4, -5, -6, 0, NOW_MS + 11)
    }
    unknown = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert {time: (one.error_code, one.timestamp, one.offset) for time, one in found.items()} == {
        -1: (0, -1, 3),
        -2: (0, -1, 1),
        -3: (0, NOW_MS + 20, 2) if version >= 7 else unknown,
        -4: (0, -1, 1) if version >= 8 else unknown,
        -5: (0, -1, -1) if version >= 9 else unknown,
        -6: unknown,
        0: (0, NOW_MS + 10, 1),
        NOW_MS + 11: (0, NOW_MS + 20, 2),
    }
    late = rig.list_offset(NOW_MS + 21, version=version)
    assert (late.error_code, late.timestamp, late.offset) == (0, -1, -1)
    assert rig.list_offset(-7, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_RECORDS))
def test_records_are_deleted(version: int) -> None:
    rig = LogRig()
    for _ in range(4):
        rig.produce(batch(b"x"))
    assert rig.delete(2, version=version).low_watermark == 2
    assert rig.delete(1, version=version).low_watermark == 2
    assert rig.fetch(1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.fetch(2).log_start_offset == 2
    beyond = rig.delete(5, version=version)
    assert (beyond.error_code, beyond.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert rig.delete(-2, version=version).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.delete(0, partition=3, version=version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.delete(-1, version=version).low_watermark == 4
    assert rig.delete(-1, partition=1, version=version).low_watermark == 0


@pytest.mark.parametrize("version", versions_of(ApiKey.INIT_PRODUCER_ID))
def test_idempotent_producers_get_ids(version: int) -> None:
    rig = LogRig()
    got = [rig.ask(rig.client, ApiKey.INIT_PRODUCER_ID, version, NO_TRANSACTIONS) for _ in range(50)]
    assert {(one.error_code, one.producer_epoch) for one in got} == {(0, 0)}
    assert len({one.producer_id for one in got}) == 50
    assert all(0 <= one.producer_id < 2**63 for one in got)
    assert not rig.node.asked, "no shard gives such ids"


def test_the_configs_say_that_messages_are_not_durable() -> None:
    rig = LogRig(message_max_bytes=5_000)
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="new"),
        DescribeConfigsResource(
            resource_type=4, resource_name="7", configuration_keys=["scratch.log.enable"]
        ),
    ]
    request = DescribeConfigsRequest(resources=resources, include_documentation=True)
    topic, broker = rig.ask(rig.client, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert {one.name: (one.value, one.config_source) for one in topic.configs} == {
        "max.message.bytes": ("5000", 4),
        "retention.bytes": (str(64 << 20), 5),
    }
    assert [one.value for one in broker.configs] == ["true"]
    assert all("NOT DURABLE" in one.documentation for one in [*topic.configs, *broker.configs])


def test_its_apis_are_advertised_only_with_it() -> None:
    def advertised(rig: Rig) -> set[int]:
        answer = rig.ask(rig.connect(), ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
        return {one.api_key for one in answer.api_keys}

    assert advertised(LogRig()) - advertised(Rig()) == LOG_APIS | TRANSACTION_APIS


def test_the_order_of_a_producer_is_kept_across_an_election() -> None:
    rig = LogRig(connection_buffered_pause_bytes=16 << 20, clock_step_ms=3.0)
    first = produce_request(batch(b"x" * 1_000_000))
    first.topic_data[0].partition_data += [
        PartitionProduceData(index=number, records=batch(b"x" * 1_000_000)) for number in (1, 2)
    ]
    rig.node.leaders[METADATA_SHARD] = None
    rig.client.send(encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, first))
    rig.run(300)
    assert rig.client.frames == []
    del rig.node.leaders[METADATA_SHARD]
    second = produce_request(batch(b"x", b"y"), partition=2)
    rig.client.send(encode_request(ApiKey.PRODUCE, 9, 2, CLIENT_ID, second))
    rig.run(2_000)
    answers = [decode_response(ApiKey.PRODUCE, 9, frame)[1] for frame in rig.client.frames]
    offsets_given = [
        [one.base_offset for one in answer.responses[0].partition_responses] for answer in answers
    ]
    assert offsets_given == [[0, 0, 0], [1]]


def test_a_batch_for_many_waiting_fetches_is_handled_in_slices() -> None:
    rig = LogRig(clock_step_ms=0.1)
    consumers = [rig.connect() for _ in range(300)]
    for consumer in consumers:
        consumer.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(0, max_wait_ms=10_000)))
    rig.run(2_000)
    assert rig.context.fetches_waiting == 300
    ended_in: Counter[int] = Counter()
    fetch_ended = rig.context.fetch_ended

    def count() -> None:
        ended_in[rig.context.slices._turns] += 1
        fetch_ended()

    rig.context.fetch_ended = count
    rig.client.send(encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, produce_request(batch(b"x"))))
    rig.run(5_000)
    assert max(ended_in.values()) <= 100
    assert all(len(consumer.frames) == 1 for consumer in consumers)
    assert (rig.context.fetches_waiting, rig.context.fetched_bytes) == (0, 0)

"""Cost of decoding messages in a consumer: records per CPU-second, beside aiokafka and kafka-python.

Run `python -m benchmarks.decoder_bench`. The clients decode the same responses of 1 MiB, in batches of 16 KiB
as producers send them by default, half of each value random. They take turns in every round, so that other
work on the machine affects all of them. Printed are the median rate, and the median of the ratios to aiokafka
in the same round. Quorate's figure is that of handing out: from a Fetch response to the records of polls of
500, with positions. The others only make their records, 500 at a time, as their fetchers do.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Final

import cramjam
from aiokafka.consumer.fetcher import PartitionRecords as AiokafkaRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaBytes
from aiokafka.structs import TopicPartition as AiokafkaPartition

from client.core.events import FetchResponseEvent
from client.core.fetch.handler import FetchHandler
from client.core.settings import ConsumerSettings
from client.core.types import FetchedData, Position, TopicPartition
from wire.record_batch import GZIP, LZ4, SNAPPY, UNCOMPRESSED, ZSTD

with warnings.catch_warnings():
    # kafka-python reads its message schemas by a call that Python deprecates.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated")
    from kafka.consumer.fetcher import Fetcher
    from kafka.record import MemoryRecords as KafkaPythonBytes
    from kafka.structs import TopicPartition as KafkaPythonPartition

ROUNDS: Final = 9
ROUND_S: Final = 0.1
RESPONSE_BYTES: Final = 1 << 20
BATCH_BYTES: Final = 16_384
POLL_RECORDS: Final = 500
CODECS: Final = {"none": UNCOMPRESSED, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

ORDERS: Final = TopicPartition("orders", 0)


def response(value_bytes: int, codec: int) -> tuple[bytes, int]:
    """Return the batches of a response, and how many records they have."""
    batches = bytearray()
    records = 0
    while len(batches) < RESPONSE_BYTES and records < 4 * RESPONSE_BYTES // value_bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
            base_sequence=-1, batch_size=BATCH_BYTES,
        )  # fmt: skip
        count = 0
        while True:
            value = os.urandom(value_bytes // 2) + bytes(value_bytes - value_bytes // 2)
            if builder.append(count, 1_700_000_000_000 + count, None, value, []) is None:
                break
            count += 1
        built = bytes(builder.build())
        batches += records.to_bytes(8, "big") + built[8:]  # the base offset, which the broker sets
        records += count
    return bytes(batches), records


def quorate(data: bytes) -> int:
    handler = FetchHandler(SETTINGS, lambda event: None)
    handler.begin({ORDERS: Position(0, -1, 1)})
    fetched = FetchedData(ORDERS, Position(0, -1, 1), data, (), 0, 0)
    handler.add(FetchResponseEvent(data=(fetched,)))
    count = 0
    while records := handler.take(POLL_RECORDS):
        count += len(records)
    return count


def aiokafka(data: bytes) -> int:
    fetched = AiokafkaRecords(AiokafkaPartition("orders", 0), AiokafkaBytes(data), [], 0, None, None, True, 0)
    count = 0
    while records := list(islice(fetched, POLL_RECORDS)):
        count += len(records)
        if len(records) < POLL_RECORDS:
            break
    return count


def kafka_python(data: bytes) -> int:
    partition = KafkaPythonPartition("orders", 0)
    fetched = Fetcher.PartitionRecords(0, partition, KafkaPythonBytes(data))
    count = 0
    while fetched:
        count += len(fetched.take(POLL_RECORDS))
    return count


SETTINGS: Final = ConsumerSettings()
CLIENTS: Final[dict[str, Callable[[bytes], int]]] = {
    "quorate": quorate, "aiokafka": aiokafka, "kafka-python": kafka_python,
}  # fmt: skip


def rate_per_s(decode: Callable[[bytes], int], data: bytes) -> float:
    """Records per CPU-second."""
    count = 0
    start = time.process_time()
    while time.process_time() - start < ROUND_S:
        count += decode(data)
    return count / (time.process_time() - start)


def compare(value_bytes: int, codec: str) -> None:
    data, expected = response(value_bytes, CODECS[codec])
    rates: dict[str, list[float]] = {}
    for name, decode in CLIENTS.items():
        try:
            assert decode(data) == expected, name
        except Exception as error:  # its library for the codec is not installed
            print(f"  {name} cannot read {codec}: {error!r}", file=sys.stderr)
        else:
            rates[name] = []
    for number in range(ROUNDS):
        for name in rates if number % 2 else reversed(rates):
            gc.collect()
            rates[name].append(rate_per_s(CLIENTS[name], data))
    row = f"{value_bytes:>6} B, {codec:<7}"
    for name, some in rates.items():
        ratio = statistics.median(one / other for one, other in zip(some, rates["aiokafka"], strict=True))
        row += f" | {name} {statistics.median(some):>9,.0f} ({ratio:.2f})"
    print(row, flush=True)


def main() -> None:
    print(f"records per CPU-s (ratio to aiokafka); cramjam {cramjam.__version__}")
    for value_bytes in (1_000, 100):
        for codec in CODECS:
            compare(value_bytes, codec)


if __name__ == "__main__":
    main()

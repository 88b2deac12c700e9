"""The metadata shard as history, of clusters with many topics."""

from __future__ import annotations

from time import process_time

from history.reading.catalog import CatalogHistory
from records import RawRecord, Record, TopicKey, TopicValue, encode_record

SOME = 2_000


def created(number: int) -> RawRecord:
    topic_id = number.to_bytes(16, "big")
    return encode_record(
        Record(TopicKey(name=f"topic-{number}"), TopicValue(num_partitions=2, topic_id=topic_id))
    )


def seconds(catalog: CatalogHistory, first: int) -> float:
    """CPU seconds to apply that many more topics, one at a time."""
    raws = [(index, created(index)) for index in range(first, first + SOME)]
    begun = process_time()
    for index, raw in raws:
        catalog.apply(index, index, [raw])
    return process_time() - begun


def test_a_topic_takes_as_long_among_many_as_among_few() -> None:
    """Every query and every run of the pipeline reads this shard."""
    catalog = CatalogHistory()
    first = seconds(catalog, 0)
    for number in range(1, 5):
        seconds(catalog, number * SOME)
    assert seconds(catalog, 5 * SOME) < 4 * first + 0.05
    assert len(catalog.changes) == len(catalog.counts()) == 6 * SOME

"""The offsets of an OffsetCommit: which are written, and what each partition is answered."""

from __future__ import annotations

from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import Now
from lineage.rewrite.messages import CommitPartition, CommittedPartition, CommittedTopic, OffsetCommitRequest
from lineage.shard import NO_TOPIC, Topic, Topics, is_another_topic
from records import (
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    RewriteGroupValue,
    RewriteTopic,
    encode_record,
)


def offsets_of(
    request: OffsetCommitRequest,
    value: RewriteGroupValue,
    catalog: Topics,
    metadata_bytes_max: int,
    now: Now,
) -> tuple[list[RawRecord], list[CommittedTopic]]:
    """The records of a commit to the group with this record, and the answer by topic."""
    records, answers = [], []
    shared = {one.name: one for one in value.topics}
    for topic in request.topics:
        partitions = []
        topic_id, count = _topic_of(shared.get(topic.topic), topic.topic, catalog)
        for one in topic.partitions:
            code = _error(one, count, metadata_bytes_max)
            if code is RewriteError.NONE:
                key = OffsetCommitKey(group_id=request.group_id, topic=topic.topic, partition=one.partition)
                offset = OffsetCommitValue(
                    offset=one.offset,
                    commit_timestamp_ms=one.timestamp if one.timestamp >= 0 else now.wall,
                    metadata=one.metadata or "",
                    topic_id=topic_id,
                )
                records.append(encode_record(Record(key, offset)))
            partitions.append(CommittedPartition(partition=one.partition, error_code=code))
        answers.append(CommittedTopic(topic=topic.topic, partitions=partitions))
    return records, answers


def _error(one: CommitPartition, count: int, metadata_bytes_max: int) -> RewriteError:
    if not 0 <= one.partition < count:
        return RewriteError.UNKNOWN_TOPIC_OR_PARTITION
    is_too_large = len((one.metadata or "").encode()) > metadata_bytes_max
    return RewriteError.OFFSET_METADATA_TOO_LARGE if is_too_large else RewriteError.NONE


def _topic_of(shared: RewriteTopic | None, name: str, catalog: Topics) -> Topic:
    """The topic that a consumer's offsets are of: the one shared out, even if it was created again."""
    topic_id, count = catalog.get(name, NO_TOPIC)
    if shared is not None and count and is_another_topic(shared.topic_id, topic_id):
        return shared.topic_id, shared.num_partitions
    return topic_id, count

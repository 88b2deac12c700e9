"""About how many bytes of an entry a request becomes, which is what the coordinator bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lineage.rewrite.messages import OffsetCommitRequest, TopicNumbers
from records import RewritePartitions

NAME_BYTES: Final = 8
"""What a name costs beside its characters."""

COMMIT_BYTES: Final = 64
"""What a committed offset costs beside names and metadata."""


def size_of_wishes(
    topics: Iterable[str], fixed: Iterable[RewritePartitions | TopicNumbers], client_id: str
) -> int:
    """Bytes of what one consumer asks for in JoinGroup, with its client id."""
    return (
        len(client_id.encode())
        + sum(len(topic.encode()) + NAME_BYTES for topic in topics)
        + 8 * sum(len(one.topic.encode()) + len(one.partitions) for one in fixed)
    )


def size_of_commit(request: OffsetCommitRequest) -> tuple[int, int]:
    """Number of partitions, and bytes of their records."""
    group_bytes = len(request.group_id.encode())
    count = size = 0
    for topic in request.topics:
        each_bytes = group_bytes + len(topic.topic.encode()) + COMMIT_BYTES
        count += len(topic.partitions)
        size += each_bytes * len(topic.partitions)
        size += sum(len(one.metadata.encode()) for one in topic.partitions if one.metadata)
    return count, size

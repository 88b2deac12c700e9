"""Messages encoded in pieces: the same bytes and the same errors as at a stroke."""

from __future__ import annotations

import pytest

from cluster.runtime.slices import finished
from wire.apis import API_VERSIONS, ApiKey, message_classes
from wire.encoding import PIECE_BYTES, encoder, piece_encoder
from wire.errors import Unencodable
from wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from wire.messages.list_groups import ListedGroup, ListGroupsResponse
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.protocol import encode_response, encode_response_in_pieces
from wire.schema import Message

PART = Assignment(
    topic_partitions=[
        TopicPartitions(topic_id=bytes([number]) * 16, topic_name=f"topic-{number}", partitions=[1, 2, 3])
        for number in range(50)
    ]
)
LARGE: dict[ApiKey, Message] = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(
                group_id="g",
                members=[
                    Member(
                        member_id=f"member-{number}",
                        subscribed_topic_names=[f"topic-{name}" for name in range(200)],
                        assignment=PART,
                        target_assignment=PART,
                    )
                    for number in range(40)
                ],
            )
        ]
    ),
    ApiKey.LIST_GROUPS: ListGroupsResponse(groups=[ListedGroup(group_id=f"g{n}") for n in range(9_000)]),
    ApiKey.METADATA: MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=f"topic-{number}",
                partitions=[
                    MetadataResponsePartition(partition_index=index, replica_nodes=[1, 2])
                    for index in range(3_000)
                ],
            )
            for number in range(3)
        ]
    ),
    ApiKey.OFFSET_COMMIT: OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="orders",
                topic_id=bytes(15) + b"1",
                partitions=[OffsetCommitResponsePartition(partition_index=n) for n in range(9_000)],
            )
        ]
    ),
}


@pytest.mark.parametrize("api", LARGE, ids=lambda api: api.name)
def test_a_large_message_stops_and_has_the_same_bytes(api: ApiKey) -> None:
    first, last = API_VERSIONS[api]
    for version in range(first, last + 1):
        buffer = bytearray(b"start")
        lengths = [len(buffer)]
        for _ in piece_encoder(type(LARGE[api]), version)(LARGE[api], buffer):
            lengths.append(len(buffer))
        whole = bytearray(b"start")
        encoder(type(LARGE[api]), version)(LARGE[api], whole)
        assert buffer == whole
        steps = [after - before for before, after in zip(lengths, [*lengths[1:], len(buffer)], strict=True)]
        assert len(steps) > 3
        assert max(steps) < 2 * PIECE_BYTES, "an element is small beside a piece"
        frame = finished(encode_response_in_pieces(api, version, 7, LARGE[api]))
        assert frame == encode_response(api, version, 7, LARGE[api])


@pytest.mark.parametrize("api", API_VERSIONS, ids=lambda api: api.name)
def test_every_response_is_the_same_and_a_small_one_does_not_stop(api: ApiKey) -> None:
    _, response = message_classes(api)
    first, last = API_VERSIONS[api]
    for version in range(first, last + 1):
        try:
            whole = encode_response(api, version, 1, response())
        except Unencodable as error:  # a null that has to be filled in
            with pytest.raises(Unencodable, match=str(error).split(":")[0]):
                finished(encode_response_in_pieces(api, version, 1, response()))
        else:
            steps = encode_response_in_pieces(api, version, 1, response())
            with pytest.raises(StopIteration) as end:
                next(steps)
            assert end.value.value == whole


def test_an_error_names_the_field_in_a_later_piece_too() -> None:
    groups = [ListedGroup(group_id=f"g{n}") for n in range(9_000)]
    groups[-1].group_state = None  # type: ignore[assignment]
    with pytest.raises(Unencodable, match="group_state"):
        finished(encode_response_in_pieces(ApiKey.LIST_GROUPS, 5, 1, ListGroupsResponse(groups=groups)))


def test_a_version_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no version 99"):
        piece_encoder(ListGroupsResponse, 99)

"""Every API and version can be refused, and the code is where clients look for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.wire.oracle import Case, Sampler, all_cases, case_id, message_class
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.protocol import decode_response, encode_response
from wire.refusals import refuse
from wire.schema import Message

REQUESTS = [case for case in all_cases() if case[2] == "request"]
TOPIC_ID = bytes(range(16))


def values(message: Message, version: int, wanted: str) -> Iterator[object]:
    """Yield the values of the fields of that name (or a partition's), at any depth, that the version has."""
    for name, wire in message.SCHEMA.fields:
        if version not in wire.versions:
            continue
        value = getattr(message, name)
        if name.removeprefix("partition_") == wanted:
            yield value
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Message):
                yield from values(inner, version, wanted)


def refused(api_key: ApiKey, version: int, request: Message, code: ErrorCode, text: str | None) -> Any:
    """The refusal as a client reads it."""
    response = refuse(api_key, version, request, code, text, throttle=7)
    return decode_response(api_key, version, encode_response(api_key, version, 5, response)[4:])[1]


@pytest.mark.parametrize("case", REQUESTS, ids=case_id)
@pytest.mark.parametrize("style", ["full", "empty", "null"])
def test_every_request_can_be_refused(case: Case, style: str) -> None:
    api_key, version, _ = case
    request = Sampler(version, style).message(message_class(case))
    response = refused(api_key, version, request, ErrorCode.NOT_COORDINATOR, "why")
    codes = list(values(response, version, "error_code"))
    assert set(codes) <= {ErrorCode.NOT_COORDINATOR}
    if style == "full":
        assert codes
    assert set(values(response, version, "error_message")) <= {"why"}
    assert set(values(response, version, "throttle_time_ms")) <= {7}


@pytest.mark.parametrize("case", REQUESTS, ids=case_id)
def test_all_that_was_asked_for_is_answered(case: Case) -> None:
    """Each group, topic and partition is answered: clients wait for an answer to each."""
    api_key, version, _ = case
    request = Sampler(version, "full").message(message_class(case))
    response = refused(api_key, version, request, ErrorCode.REQUEST_TIMED_OUT, None)
    codes = len(list(values(response, version, "error_code")))
    assert codes == EXPECTED_CODES.get((api_key, version), EXPECTED_CODES.get(api_key, 1))


# Samples ask for 2 things with 2 parts each, where there are parts. 1 is a code for the whole answer.
EXPECTED_CODES: dict[ApiKey | tuple[ApiKey, int], int] = {
    ApiKey.OFFSET_COMMIT: 4,
    (ApiKey.OFFSET_FETCH, 1): 4,
    **{(ApiKey.OFFSET_FETCH, version): 2 for version in (8, 9, 10)},
    ApiKey.CONSUMER_GROUP_DESCRIBE: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.METADATA: 2,
    (ApiKey.METADATA, 13): 3,
    **{(ApiKey.FIND_COORDINATOR, version): 2 for version in (4, 5, 6)},
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 2,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 2,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.FETCH: 5,
    **{(ApiKey.FETCH, version): 4 for version in (4, 5, 6)},
    ApiKey.PRODUCE: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.DELETE_RECORDS: 4,
}


@pytest.mark.parametrize("version", range(10, 14))
def test_a_topic_asked_for_by_id_is_answered_by_id(version: int) -> None:
    from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)])
    (topic,) = refused(ApiKey.METADATA, version, request, ErrorCode.UNKNOWN_TOPIC_ID, None).topics
    assert topic.topic_id == TOPIC_ID
    assert topic.name is None if version >= 12 else topic.name == ""


def test_an_unknown_version_of_api_versions_gets_a_version_0_body() -> None:
    response = refuse(ApiKey.API_VERSIONS, 0, None, ErrorCode.UNSUPPORTED_VERSION)
    frame = encode_response(ApiKey.API_VERSIONS, 0, 9, response)
    # length, correlation id, error 35, one API: key 18, versions 0 to 4
    assert frame.hex() == "0000001000000009002300000001001200000004"


@pytest.mark.parametrize("version", range(1, 11))
def test_refused_offsets_are_no_offsets(version: int) -> None:
    from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

    request = OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
    response = refused(ApiKey.OFFSET_FETCH, version, request, ErrorCode.NOT_COORDINATOR, None)
    assert set(values(response, version, "committed_offset")) <= {-1}


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_has_no_generation_and_no_protocol(version: int) -> None:
    from wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

    answer = refused(
        ApiKey.JOIN_GROUP, version, JoinGroupRequest(member_id="m"), ErrorCode.NOT_COORDINATOR, None
    )
    assert answer == JoinGroupResponse(
        throttle_time_ms=7 if version >= 2 else 0,
        error_code=ErrorCode.NOT_COORDINATOR,
        protocol_name=None if version >= 7 else "",
        member_id="m",
    )


@pytest.mark.parametrize("version", range(6))
def test_a_refused_producer_gets_no_id(version: int) -> None:
    from wire.messages.init_producer_id import InitProducerIdRequest

    answer = refused(
        ApiKey.INIT_PRODUCER_ID, version, InitProducerIdRequest(), ErrorCode.NOT_COORDINATOR, None
    )
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_what_has_no_messages_cannot_be_refused() -> None:
    assert ApiKey.DESCRIBE_ACLS not in API_VERSIONS
    with pytest.raises(KeyError, match=r"DESCRIBE_ACLS \(29\) has no messages here"):
        refuse(ApiKey.DESCRIBE_ACLS, 1, None, ErrorCode.UNSUPPORTED_VERSION)

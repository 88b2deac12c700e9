"""Topic ids have one text, groups have one shard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from records import METADATA_SHARD, ZERO_UUID, MalformedId, parse_topic_id, shard_of, topic_id_text


@given(st.binary(min_size=16, max_size=16))
def test_a_topic_id_comes_back_from_its_text(topic_id: bytes) -> None:
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert not set(text) & set("+/=")
    assert parse_topic_id(text) == topic_id


def test_the_text_is_that_of_kafkas_tools() -> None:
    assert topic_id_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert topic_id_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert topic_id_text(b"\xfb" * 16) == "-_v7-_v7-_v7-_v7-_v7-w"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        "A" * 24,
        "A" * 22 + "==",
        "A" * 21 + "B",  # the last character holds bits that no id has
        "+" + "A" * 21,
        "A" * 10 + "\n" + "A" * 12,
        "é" + "A" * 21,
    ],
)
def test_other_texts_are_no_topic_ids(text: str) -> None:
    with pytest.raises(MalformedId, match="22 characters"):
        parse_topic_id(text)


# CRC-32's own check value is 0xCBF43926 for "123456789"; the others pin the function as it is.
@pytest.mark.parametrize(
    ("group_id", "shard"), [("123456789", 0xCBF43926 % 4), ("", 0), ("payments", 2), ("grüße", 1), ("b", 1)]
)
def test_the_shard_of_a_group_never_changes(group_id: str, shard: int) -> None:
    assert shard_of(group_id, 4) == shard


@given(st.text(), st.integers(1, 64))
def test_the_shard_is_one_of_the_group_shards(group_id: str, num_shards: int) -> None:
    assert METADATA_SHARD < shard_of(group_id, num_shards) < num_shards

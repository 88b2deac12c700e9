"""`quorate groups …` against scripted nodes: requests, output, refusals, and requests that are never sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from quorate.app import run
from quorate.endoffsets import KafkaOffsets
from quorate.errors import ExitCode
from tests.quorate.group_views import member, view
from tests.quorate.standins import CLUSTER_ID, HANG_UP, HttpNode, ScriptedNode, metadata
from wire.apis import API_VERSIONS, ApiKey
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    encode,
)
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from wire.messages.describe_groups import DescribedGroup as ClassicGroup
from wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsResponse
from wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from wire.messages.list_groups import ListedGroup, ListGroupsResponse
from wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

Capture = pytest.CaptureFixture[str]
NOBODY = "http://127.0.0.1:1"
"""A URL without a server."""


def group_of(*members: Member, state: str = "Stable") -> ConsumerGroupDescribeResponse:
    group = DescribedGroup(group_id="g", group_state=state, group_epoch=7, assignment_epoch=7)
    group.members = list(members)
    return ConsumerGroupDescribeResponse(groups=[group])


def one(member_id: str, instance_id: str | None = None) -> Member:
    owned = Assignment(topic_partitions=[TopicPartitions(topic_name="orders", partitions=[0, 1])])
    return Member(
        member_id=member_id, instance_id=instance_id, member_epoch=7, client_id="app", assignment=owned
    )


def offsets(**by_topic: dict[int, int]) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=number, committed_offset=offset)
                for number, offset in by.items()
            ],
        )
        for name, by in by_topic.items()
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


@pytest.fixture
def described(node: ScriptedNode) -> ScriptedNode:
    """Group g without members, with offsets of orders 0 and 1; topics orders and payments."""
    node.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, group_of(state="Empty"))
    node.answer(ApiKey.OFFSET_FETCH, offsets(orders={0: 5, 1: 90}))
    node.answer(ApiKey.METADATA, metadata(node, orders=3, payments=2))
    return node


def refused(arguments: list[str], code: ExitCode, capsys: Capture) -> str:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


# Lists


def test_a_list_is_filtered_by_the_cluster(node: ScriptedNode, capsys: Capture) -> None:
    listed = ListedGroup(group_id="g", group_state="Stable", group_type="consumer")
    node.answer(ApiKey.LIST_GROUPS, ListGroupsResponse(groups=[listed]))
    assert run(["groups", "list", "--state", "stable,EMPTY", "--type", "Consumer", "-b", node.address]) == 0
    (asked,) = [body for api, body in node.asked if api == ApiKey.LIST_GROUPS]
    assert (asked.states_filter, asked.types_filter) == (["Stable", "Empty"], ["consumer"])
    assert "g      Stable  consumer" in capsys.readouterr().out


@pytest.mark.parametrize(("option", "value"), [("--state", "stabel"), ("--type", "simple")])
def test_a_filter_that_is_unknown_is_a_usage_error(option: str, value: str, capsys: Capture) -> None:
    assert value in refused(["groups", "list", option, value], ExitCode.USAGE, capsys)


# Describe


def http_of(node: HttpNode, cluster_id: str, shown: dict[str, Any]) -> None:
    node.of_cluster(cluster_id)
    node.script["/v1/groups/g?consistent=1"] = [(200, {"at_ms": 100_000, "group": shown})]


def test_a_node_of_another_cluster_is_not_asked_for_the_group(
    described: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture
) -> None:
    http, stranger = start(), start()
    http_of(http, CLUSTER_ID, view(group_id="g"))
    http_of(stranger, "another", view(group_id="g"))
    http.script["/v1/groups/g?consistent=1"] = [(503, {"message": "busy"})]
    arguments = ["groups", "describe", "g", "--json", "-b", described.address, "--timeout", "0.3"]
    assert run([*arguments, "--url", f"{http.url},{stranger.url}"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["live"] is None
    assert document["live_missing"].startswith(f"{http.url} cannot answer (busy); ")
    assert not stranger.asked


def test_describe_takes_what_the_leader_tells_over_http(
    described: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture
) -> None:
    http, gone = start(), start()
    waits = [{"topic": "orders", "partition": 3, "owner": "m1", "told_ms_ago": 1_200.0, "left_ms": 58_800.0}]
    shown = view(member("m1"), member("m2", waits_for=waits, target={"orders": [3]}), group_id="g")
    http_of(http, CLUSTER_ID, shown)
    no_leader = {"error": "NO_LEADER", "message": "no leader", "hint": "ask again"}
    http.script["/v1/groups/g?consistent=1"].insert(0, (503, no_leader))
    gone.close()
    urls = f"{gone.url},{http.url}"
    assert run(["groups", "describe", "g", "-b", described.address, "--url", urls]) == 0
    out = capsys.readouterr().out
    assert "assignor uniform, coordinator node 1" in out.splitlines()[0]
    assert (
        "m2 waits for orders-3, held by m1, which was told to revoke it 1.2 s ago and has 58.8 s left" in out
    )
    arguments = ["groups", "describe", "g", "--json", "-b", described.address, "--url", http.url]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["live"]["group"] == shown
    assert document["offsets"] == {"orders": {"0": 5, "1": 90}}
    assert (document["live_missing"], document["end_offsets"]) == (None, None)
    assert document["coordinator"] == 1


def test_a_group_of_an_older_protocol_is_called_by_its_name(
    described: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture
) -> None:
    """Kafka's description calls it classic, and has neither its generation nor the states of its members."""
    unknown = DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="no")
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=[unknown]))
    members = [DescribedGroupMember(member_id="m1", client_id="app", client_host="/10.0.0.7")]
    group = ClassicGroup(group_id="g", group_state="Stable", members=members)
    described.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[group]))
    for told, first in (
        (
            {"type": "rewrite", "epoch": 7},
            "group g: Stable, of type rewrite, generation 7, coordinator node 1",
        ),
        ({"type": "push", "epoch": 0}, "group g: Stable, of type push, coordinator node 1"),
    ):
        http = start()
        http_of(http, CLUSTER_ID, view(member("m1", state="STARTED"), group_id="g", state="Stable", **told))
        assert run(["groups", "describe", "g", "-b", described.address, "--url", http.url]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[0] == first
        assert "STARTED" in "".join(out)


@pytest.mark.parametrize("other", ["nobody", "another cluster"])
def test_describe_without_http_says_in_one_line_what_is_missing(
    described: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture, other: str
) -> None:
    url = NOBODY
    if other != "nobody":
        http = start()
        http_of(http, "another", view(group_id="g"))
        url = http.url
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, group_of(one("m1")))
    assert run(["groups", "describe", "g", "-b", described.address, "--url", url]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "Stable, group epoch 7" in out[0]
    assert "orders:0-1" in "".join(out)
    assert sum("are unknown" in line for line in out) == 1
    assert url in out[-1]
    assert "--url" in out[-1]


def test_a_group_that_is_only_offsets_is_described_too(described: ScriptedNode, capsys: Capture) -> None:
    unknown = DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="no")
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=[unknown]))
    simple = ClassicGroup(group_id="g", group_state="Empty")
    described.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[simple]))
    arguments = ["groups", "describe", "g", "-b", described.address, "--url", NOBODY]
    assert run(arguments) == 0
    assert "group g: Empty, of type classic, coordinator node 1" in capsys.readouterr().out
    dead = ClassicGroup(group_id="g", group_state="Dead")
    described.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[dead]))
    assert "GROUP_ID_NOT_FOUND (69)" in refused(arguments, ExitCode.REFUSED, capsys)


def test_a_classic_group_shows_who_owns_what(
    described: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture
) -> None:
    """The leader's own view has no classic members, so Kafka's description is shown although it is known."""
    unknown = DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="no")
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=[unknown]))
    orders = TopicPartitionsByName(topic="orders", partitions=[0, 1])
    members = [
        DescribedGroupMember(
            member_id="c-1",
            client_id="c",
            client_host="/10.0.0.7",
            member_metadata=encode(ConsumerProtocolSubscription(topics=["orders"]), 1),
            member_assignment=encode(ConsumerProtocolAssignment(assigned_partitions=[orders]), 1),
        ),
        DescribedGroupMember(member_id="odd", client_id="d", client_host="/10.0.0.8", member_metadata=b"?"),
    ]
    group = ClassicGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=members
    )
    described.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[group]))
    http = start()
    http_of(http, CLUSTER_ID, view(group_id="g"))
    assert run(["groups", "describe", "g", "-b", described.address, "--url", http.url]) == 0
    assert capsys.readouterr().out == CLASSIC


CLASSIC = """\
group g: Stable, of type classic, coordinator node 1

MEMBER  CLIENT  HOST
c-1     c       10.0.0.7
odd     d       10.0.0.8

MEMBER  OWNS
c-1     orders:0-1
odd     -

TOPIC   PARTITION  OFFSET  OWNER
orders          0       5  c-1
orders          1      90  c-1
"""


def test_watching_goes_on_when_the_cluster_is_away_and_ends_with_130(
    described: ScriptedNode, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The cluster is reachable, away, and reachable again; then comes Ctrl-C."""
    looks = 0

    def sleep(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt
        away = looks == 1
        described.answer(ApiKey.FIND_COORDINATOR, *([HANG_UP] if away else [found]))

    found = described._script[ApiKey.FIND_COORDINATOR][0]
    monkeypatch.setattr(import_module("quorate.commands.groups.describe"), "pause", sleep)
    arguments = ["groups", "describe", "g", "--watch", "-b", described.address, "--url", NOBODY]
    assert run([*arguments, "--timeout", "0.3"]) == ExitCode.INTERRUPTED
    out = capsys.readouterr().out
    assert out.count("---- ") == 3
    assert out.count("group g: Empty") == 2
    assert "trying again" in out.split("---- ")[2]
    assert "\x1b" not in out


def test_watching_a_group_that_is_not_there_ends_at_once(described: ScriptedNode, capsys: Capture) -> None:
    unknown = DescribedGroup(group_id="g", error_code=ErrorCode.INVALID_GROUP_ID)
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=[unknown]))
    arguments = ["groups", "describe", "g", "--watch", "-b", described.address, "--url", NOBODY]
    assert "INVALID_GROUP_ID" in refused(arguments, ExitCode.REFUSED, capsys)


# Ends of a real Kafka cluster


def listed(**by_topic: dict[int, int]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=number, offset=offset)
                    for number, offset in by.items()
                ],
            )
            for name, by in by_topic.items()
        ]
    )


def test_offsets_are_asked_of_each_partitions_leader(node: ScriptedNode) -> None:
    topics = metadata(node, orders=3)
    topics.topics[0].partitions[2].leader_id = -1
    led = metadata(node, orders=3)
    for row in led.topics[0].partitions:
        row.leader_id = 1
    node.answer(ApiKey.METADATA, topics, led)
    gone = ListOffsetsPartitionResponse(partition_index=2, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    since = listed(orders={0: 40, 1: -1})
    since.topics[0].partitions.append(gone)
    moved = listed(orders={0: 1, 1: 1})
    moved.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.answer(ApiKey.LIST_OFFSETS, moved, since, listed(orders={1: 77}))
    source = KafkaOffsets(node.address, 5.0)
    wanted = [("orders", 0), ("orders", 1), ("orders", 2), ("nothing", 0)]
    assert source.at(wanted, 1_000) == {("orders", 0): 40, ("orders", 1): 77}
    asked = [body for api, body in node.asked if api == ApiKey.LIST_OFFSETS]
    assert [{row.timestamp for row in body.topics[0].partitions} for body in asked] == [
        {1_000},
        {1_000},
        {-1},
    ]


def test_the_coordinator_itself_and_a_cluster_that_is_away_are_no_source_of_ends(
    described: ScriptedNode, capsys: Capture
) -> None:
    arguments = ["groups", "describe", "g", "-b", described.address, "--timeout", "0.3", "--end-offsets-from"]
    assert "keeps no records" in refused([*arguments, described.address], ExitCode.USAGE, capsys)
    nobody = NOBODY.removeprefix("http://")
    assert "cannot ask the Kafka cluster" in refused([*arguments, nobody], ExitCode.UNREACHABLE, capsys)


class Ends:
    """A cluster with records, as far as the commands need it."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None: ...

    def check_has_records(self, cluster_id: str | None) -> None: ...

    def lost_before(self, partitions: Any) -> dict[tuple[str, int], int]:
        return {}

    def earliest(self, partitions: Any) -> dict[tuple[str, int], int]:
        return {partition: 10 for partition in partitions if partition != ("orders", 2)}

    def latest(self, partitions: Any) -> dict[tuple[str, int], int]:
        return {partition: 100 for partition in partitions if partition != ("orders", 2)}

    def at(self, partitions: Any, timestamp_ms: int) -> dict[tuple[str, int], int]:
        return {("orders", 0): timestamp_ms}


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("quorate.endoffsets.KafkaOffsets", Ends)
    return "kafka:9092"


def test_lag_where_the_ends_are_known(described: ScriptedNode, ends: str, capsys: Capture) -> None:
    arguments = ["groups", "describe", "g", "-b", described.address, "--url", NOBODY]
    assert run([*arguments, "--end-offsets-from", ends]) == 0
    assert "total lag 105" in capsys.readouterr().out
    assert run([*arguments, "--end-offsets-from", ends, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["end_offsets"] == {"orders": {"0": 100, "1": 100}}


def test_lag_in_the_coordinators_own_scratch_log(described: ScriptedNode, capsys: Capture) -> None:
    """After a failover offsets go on far beyond: nobody lags behind what is lost."""
    served = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in API_VERSIONS.items()
        ]
    )
    described.answer(ApiKey.API_VERSIONS, served)
    described.answer(ApiKey.METADATA, metadata(described, orders=3))
    for row in described._script[ApiKey.METADATA][0].topics[0].partitions:
        row.leader_id = 1
    begin = 3 << 40
    described.answer(
        ApiKey.LIST_OFFSETS,
        listed(orders={0: begin + 5, 1: begin}),
        listed(orders={0: begin, 1: begin}),
    )
    assert run(["groups", "describe", "g", "-b", described.address, "--url", NOBODY]) == 0
    assert "total lag 5" in capsys.readouterr().out


# Configs


def test_configs_are_what_the_leader_tells_members_with_bounds_and_origin(
    node: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture
) -> None:
    """Kafka's APIs return what is set; only the leader knows an interval that it chose by its load."""
    http = start()
    http.of_cluster()
    rows = [
        {"name": "consumer.session.timeout.ms", "value": 6_000, "origin": "group", "set_to": 900},
        {"name": "consumer.heartbeat.interval.ms", "value": 500, "origin": "adaptive", "set_to": None},
        {"name": "consumer.assignment.interval.ms", "value": 0, "origin": "broker", "set_to": 0},
    ]
    configs = [{**row, "low": 0, "high": 15_000} for row in rows]
    http.script["/v1/groups/g/configs?consistent=1"] = [(200, {"group_id": "g", "configs": configs})]
    topics = DescribeConfigsResourceResult(
        name="push.topics", value="orders,refunds", read_only=False, config_source=8
    )
    result = DescribeConfigsResult(resource_type=32, resource_name="g", error_message="", configs=[topics])
    node.answer(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsResponse(results=[result]))
    command = ["groups", "config", "g", "-b", node.address, "--url", http.url]
    assert run(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        "CONFIG                           VALUE           BOUNDS      WHOSE",
        "consumer.assignment.interval.ms  0               0 to 15000  the nodes' setting",
        "consumer.heartbeat.interval.ms   500             0 to 15000  chosen by its node's load",
        "consumer.session.timeout.ms      6000            0 to 15000  the group's own, set to 900",
        "push.topics                      orders,refunds  -           the group's own",
    ]
    assert run([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["configs"][:3], document["live_missing"]) == (configs[::-1], None)
    assert document["configs"][3]["value"] == "orders,refunds"


def test_configs_without_http_are_what_is_set_and_say_so(node: ScriptedNode, capsys: Capture) -> None:
    config = DescribeConfigsResourceResult(
        name="consumer.session.timeout.ms", value="9000", read_only=False, config_source=8
    )
    result = DescribeConfigsResult(resource_type=32, resource_name="g", error_message="", configs=[config])
    node.answer(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsResponse(results=[result]))
    assert run(["groups", "config", "g", "-b", node.address, "--url", NOBODY]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split(maxsplit=3) == ["consumer.session.timeout.ms", "9000", "-", "the group's own"]
    assert "only configs that were set are shown" in out[2]
    assert "--url" in out[2]


# Reset


def reset(node: ScriptedNode, *arguments: object) -> list[str]:
    return ["groups", "reset-offsets", "g", "-b", node.address, *map(str, arguments)]


def plan_of(node: ScriptedNode, capsys: Capture, *arguments: object) -> dict[tuple[str, int], int | None]:
    assert run([*reset(node, *arguments), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["executed"] is False
    return {(step["topic"], step["partition"]): step["new"] for step in shown["plan"]}


def test_a_plan_is_shown_and_nothing_is_sent(described: ScriptedNode, capsys: Capture) -> None:
    assert run(reset(described, "--topic", "orders:0-1", "--to-offset", 7)) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["orders", "0", "5", "7"] in lines
    assert ["orders", "1", "90", "7"] in lines
    assert lines[-1][:6] == ["nothing", "was", "changed;", "add", "--execute", "(it"]
    assert described.count(ApiKey.OFFSET_COMMIT) == 0


def test_execute_commits_what_was_shown(described: ScriptedNode, capsys: Capture) -> None:
    rows = [OffsetCommitResponsePartition(partition_index=0)]
    done = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=rows)])
    described.answer(ApiKey.OFFSET_COMMIT, done)
    assert run(reset(described, "--topic", "orders:0,1", "--to-offset", 5, "--execute")) == 0
    assert "1 offset of group g changed" in capsys.readouterr().out
    (asked,) = [body for api, body in described.asked if api == ApiKey.OFFSET_COMMIT]
    assert (asked.group_id, asked.member_id, asked.generation_id_or_member_epoch) == ("g", "", -1)
    sent = [(t.name, p.partition_index, p.committed_offset) for t in asked.topics for p in t.partitions]
    assert sent == [("orders", 1, 5)], "the other one already exists"


def test_where_offsets_may_go(described: ScriptedNode, ends: str, capsys: Capture, tmp_path: Path) -> None:
    a, b, c = ("orders", 0), ("orders", 1), ("orders", 2)
    known = ("--end-offsets-from", ends)
    assert plan_of(described, capsys, "--topic", "orders", "--to-earliest") == {a: 0, b: 0, c: 0}
    assert plan_of(described, capsys, "--topic", "orders", "--to-earliest", *known) == {a: 10, b: 10, c: None}
    assert plan_of(described, capsys, "--all-topics", "--to-latest", *known) == {a: 100, b: 100}
    assert plan_of(described, capsys, "--all-topics", "--shift-by", "-9") == {a: 0, b: 81}
    assert plan_of(described, capsys, "--all-topics", "--shift-by", "20", *known) == {a: 25, b: 100}
    since = plan_of(described, capsys, "--all-topics", "--to-datetime", "50", *known)
    assert since == {a: 50, b: None}
    file = tmp_path / "plan.csv"
    assert run(reset(described, "--all-topics", "--to-current", "--export", file)) == 0
    assert file.read_text() == "orders,0,5\norders,1,90\n"
    file.write_text("orders,2,33\n")
    capsys.readouterr()
    assert plan_of(described, capsys, "--from-file", file) == {c: 33}
    assert run(reset(described, "--all-topics", "--to-offset", 4, "--export", "-")) == 0
    assert capsys.readouterr().out == "orders,0,4\norders,1,4\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--to-offset", "1"], ExitCode.USAGE, "error: no partitions are given; give one of --topic,"),
        (["--topic", "orders"], ExitCode.USAGE, "error: no new offset is given; give one of --to-offset,"),
        (["--topic", "orders", "--to-offset", "1", "--to-latest"], ExitCode.USAGE, "exclude each other"),
        (["--topic", "orders", "--all-topics", "--to-offset", "1"], ExitCode.USAGE, "exclude each other"),
        (["--topic", "orders", "--to-latest"], ExitCode.USAGE, "--end-offsets-from"),
        (["--topic", "orders", "--to-datetime", "2026-01-01T00:00"], ExitCode.USAGE, "keeps no records"),
        (["--topic", "orders", "--to-datetime", "soon"], ExitCode.USAGE, "'soon' is not a time"),
        (["--topic", "orders:1-", "--to-offset", "1"], ExitCode.USAGE, "orders:0,4-7"),
        (["--topic", "orders:0-9999999999", "--to-offset", "1"], ExitCode.USAGE, "orders:0,4-7"),
        (["--from-file", "/nowhere/plan.csv"], ExitCode.USAGE, "/nowhere/plan.csv"),
        (["--topic", "nothing", "--to-offset", "1"], ExitCode.REFUSED, "topics list"),
        (["--topic", "orders:3", "--to-offset", "1"], ExitCode.REFUSED, "from 0 to 2"),
        (["--topic", "orders:2", "--shift-by", "1"], ExitCode.REFUSED, "orders-2 has no committed offset"),
    ],
)
def test_a_reset_that_cannot_be_meant_is_refused(
    described: ScriptedNode, arguments: list[str], code: ExitCode, says: str, capsys: Capture
) -> None:
    assert says in refused(reset(described, *arguments), code, capsys)
    assert described.count(ApiKey.OFFSET_COMMIT) == 0


def test_a_group_with_members_is_not_reset(described: ScriptedNode, capsys: Capture) -> None:
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, group_of(one("m1"), one("m2")))
    error = refused(reset(described, "--all-topics", "--to-offset", 1, "--execute"), ExitCode.REFUSED, capsys)
    assert "NON_EMPTY_GROUP (68): it has 2 members and is Stable" in error
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, group_of(state="Empty"))
    rows = [OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
    joined = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=rows)])
    described.answer(ApiKey.OFFSET_COMMIT, joined)
    arguments = reset(described, "--all-topics", "--to-offset", 1, "--execute")
    assert "NON_EMPTY_GROUP" in refused(arguments, ExitCode.REFUSED, capsys), "somebody joined meanwhile"


# Members and offsets that go


def test_members_are_removed_by_member_id_or_instance_id(described: ScriptedNode, capsys: Capture) -> None:
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, group_of(one("m1"), one("m2", "web-1")))
    gone = MemberResponse(member_id="m1", error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    described.answer(ApiKey.LEAVE_GROUP, HANG_UP, LeaveGroupResponse(members=[gone]))
    assert run(["groups", "remove-member", "g", "m1", "web-1", "-b", described.address]) == 0
    out = capsys.readouterr().out
    assert "removed member m1 (client app) from group g" in out
    assert "removed member m2 (instance web-1, client app) from group g" in out
    asked = [body for api, body in described.asked if api == ApiKey.LEAVE_GROUP][-1]
    assert [(m.member_id, m.group_instance_id) for m in asked.members] == [("m1", None), ("m2", "web-1")]
    described.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse(members=[gone]))
    error = refused(["groups", "remove-member", "g", "m1", "-b", described.address], ExitCode.REFUSED, capsys)
    assert "UNKNOWN_MEMBER_ID" in error
    error = refused(
        ["groups", "remove-member", "g", "web", "-b", described.address], ExitCode.REFUSED, capsys
    )
    assert "has no member 'web'" in error


def test_a_member_is_removed_by_its_name(
    described: ScriptedNode, start: Callable[[], HttpNode], capsys: Capture
) -> None:
    described.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, group_of(one("id-a"), one("id-b")))
    described.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse(members=[MemberResponse(member_id="id-b")]))
    http = start()
    http_of(http, CLUSTER_ID, view(member("id-a", number=1), member("id-b", number=4)))
    arguments = ["groups", "remove-member", "g", "-b", described.address, "--url"]
    assert run([*arguments, http.url, "m4"]) == 0
    assert "removed member id-b" in capsys.readouterr().out
    assert "has no member 'm2'" in refused([*arguments, http.url, "m2"], ExitCode.REFUSED, capsys)
    assert "give the member id" in refused([*arguments, NOBODY, "m4"], ExitCode.UNREACHABLE, capsys)


def test_offsets_are_deleted_by_topic_or_partition(described: ScriptedNode, capsys: Capture) -> None:
    def answered(error: ErrorCode) -> OffsetDeleteResponse:
        row = OffsetDeleteResponsePartition(partition_index=0, error_code=error)
        return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name="orders", partitions=[row])])

    described.answer(ApiKey.OFFSET_DELETE, answered(ErrorCode.NONE))
    arguments = ["groups", "delete-offsets", "g", "-b", described.address]
    assert run([*arguments, "orders"]) == 0
    assert capsys.readouterr().out == "deleted the offsets of orders:0-1 in group g\n"
    (asked,) = [body for api, body in described.asked if api == ApiKey.OFFSET_DELETE]
    assert [part.partition_index for part in asked.topics[0].partitions] == [0, 1]
    described.answer(ApiKey.OFFSET_DELETE, answered(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
    error = refused([*arguments, "orders:0"], ExitCode.REFUSED, capsys)
    assert "GROUP_SUBSCRIBED_TO_TOPIC (86)" in error
    assert "no member is subscribed" in error
    assert "no committed offset" in refused([*arguments, "orders:2"], ExitCode.REFUSED, capsys)

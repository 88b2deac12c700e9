"""Kafka's console tools on messages, and on a group of each kind: what its administrators type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.java.consumers import Fleet
from tests.java.toolbox import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    CONSUMER_PERFORMANCE,
    DELETE_RECORDS,
    GROUPS,
    OFFSETS,
    PRODUCER_PERFORMANCE,
    Tools,
    rows,
)

PARTITIONS = 2
LINES = [f"key-{number}:value {number}" for number in range(20)]
CONSUME_MS = "20000"


def produced(tools: Tools, topic: str) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.run(CONSOLE_PRODUCER, "--topic", topic, *keyed, reads="\n".join(LINES))


def offsets(tools: Tools, topic: str, time: str) -> int:
    """Return the sum over the partitions."""
    printed = tools.run(OFFSETS, "--topic", topic, "--time", time)
    return sum(int(line.split(":")[2]) for line in printed.splitlines() if line.startswith(topic))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_the_console_producer_sends_the_console_consumer_prints(
    protocol: str, tools: Tools, made: str, group: str
) -> None:
    produced(tools, made)
    printed = tools.run(
        CONSOLE_CONSUMER, "--topic", made, "--group", group, "--from-beginning",
        "--max-messages", str(len(LINES)), "--timeout-ms", CONSUME_MS,
        "--command-property", f"group.protocol={protocol}",
        "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:",
    )  # fmt: skip
    assert sorted(line for line in printed.splitlines() if line.startswith("key-")) == sorted(LINES)
    described = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--offsets"))
    assert {row["LAG"] for row in described} == {"0"}
    assert sum(int(row["CURRENT-OFFSET"]) for row in described) == len(LINES)


def test_the_performance_tools_count_what_they_sent(tools: Tools, made: str, group: str) -> None:
    size = ("--num-records", "20000", "--record-size", "1000", "--throughput", "-1")
    assert "20000 records sent" in tools.run(PRODUCER_PERFORMANCE, "--topic", made, *size)
    printed = tools.run(CONSUMER_PERFORMANCE, "--topic", made, "--group", group, "--num-records", "20000")
    names, found = (line.split(", ") for line in printed.splitlines() if ", " in line)
    assert dict(zip(names, found, strict=True))["data.consumed.in.nMsg"] == "20000"


def test_offsets_are_shown_by_time_and_messages_deleted(tools: Tools, made: str, tmp_path: Path) -> None:
    produced(tools, made)
    assert offsets(tools, made, "earliest") == 0
    assert offsets(tools, made, "latest") == len(LINES)
    assert offsets(tools, made, "0") == 0
    assert f"{made}:" in tools.run(OFFSETS, "--topic", made, "--time", "max-timestamp")

    wanted = {"partitions": [{"topic": made, "partition": number, "offset": -1} for number in (0, 1)]}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(wanted | {"version": 1}))
    assert "low_watermark" in tools.run(DELETE_RECORDS, "--offset-json-file", str(file))
    assert offsets(tools, made, "earliest") == len(LINES)


@pytest.mark.parametrize(
    ("protocols", "kind", "strategy"),
    [
        (("classic", "classic"), "Classic", "range"),
        (("consumer", "consumer"), "Consumer", "uniform"),
        (("classic", "consumer"), "Consumer", "uniform"),
    ],
    ids=["classic", "consumer", "mixed"],
)
def test_a_group_is_listed_with_its_type_and_described(
    protocols: tuple[str, str], kind: str, strategy: str, tools: Tools, fleet: Fleet, group: str
) -> None:
    for protocol in protocols:
        fleet.start(1, protocol=protocol)
    fleet.await_assigned(PARTITIONS)
    check_described(tools, group, kind, strategy)


def check_described(tools: Tools, group: str, kind: str, strategy: str) -> None:
    """Check what every listing and description says of a stable group of two members."""
    listed = rows(tools.run(CONSUMER_GROUPS, "--list", "--type"))
    assert [row["TYPE"] for row in listed if row["GROUP"] == group] == [kind]
    listed = rows(tools.run(CONSUMER_GROUPS, "--list", "--type", kind.lower(), "--state", "Stable"))
    assert [row["STATE"] for row in listed if row["GROUP"] == group] == ["Stable"]
    listed = rows(tools.run(GROUPS, "--list", "--group-type", kind.lower()))
    assert [(row["TYPE"], row["PROTOCOL"]) for row in listed if row["GROUP"] == group] == [(kind, "consumer")]

    (state,) = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--state"))
    assert (state["STATE"], state["#MEMBERS"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "2", strategy)
    members = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--members"))
    assert [row["#PARTITIONS"] for row in members] == ["1", "1"]
    described = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--offsets"))
    assert sorted(row["PARTITION"] for row in described) == ["0", "1"]
    _, printed = tools.attempt(CONSUMER_GROUPS, "--delete", "--group", group)
    assert "GroupNotEmptyException" in printed

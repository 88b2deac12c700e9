"""`quorate groups` and `topics` on three nodes with stock consumers, as an operator uses them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
from confluent_kafka import Consumer, TopicPartition

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, NodeProcess
from quorate.app import run
from quorate.client import Client
from quorate.errors import ExitCode
from tests.clients.conftest import SETTINGS as NODE_SETTINGS
from tests.report import count_fault
from tests.support.polled_consumers import WAIT_S, Crowd, PolledConsumer

NUM_PARTITIONS = 6
Run = Callable[..., str]


SETTINGS = {**NODE_SETTINGS, "group.consumer.session.timeout.ms": "45000"}


@pytest.fixture
def bootstrap(cluster: ClusterProcess) -> str:
    return cluster.bootstrap


@pytest.fixture
def urls(cluster: ClusterProcess) -> str:
    return ",".join(f"http://{node.host}:{node.http_port}" for node in cluster.nodes)


@pytest.fixture
def said(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must succeed and return its output."""

    def run_command(*arguments: object) -> str:
        code = run([*map(str, arguments), "-b", bootstrap])
        captured = capsys.readouterr()
        assert (code, captured.err) == (0, "")
        return captured.out

    return run_command


class Holder(PolledConsumer):
    """A consumer whose revocation callback blocks until the test releases it."""

    def __init__(self, crowd: Crowd, config: dict[str, Any], topic: str) -> None:
        self.release = threading.Event()
        super().__init__(crowd, config, topic)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.release.wait(WAIT_S)
        super()._revoked(consumer, partitions)


def test_a_member_that_holds_a_revocation_back_is_named(
    crowd: Crowd, group: str, urls: str, said: Run
) -> None:
    holder = Holder(crowd, {**crowd._config, "client.id": "holder"}, crowd.topic)
    crowd.members.append(holder)
    crowd.wait_balanced(NUM_PARTITIONS)
    crowd.join(**{"client.id": "waiter"})
    try:
        sentence = re.compile(
            rf"m\d waits for {crowd.topic}:\d-\d, held by m\d, which was told to revoke them "
            r"[\d.]+ m?s ago and has \d+ min \d+ s left"
        )
        text = ""

        def is_told() -> bool:
            nonlocal text
            text = said("groups", "describe", group, "--url", urls)
            return bool(sentence.search(text))

        crowd.wait("the sentence", is_told)
        table = [line.split() for line in text.splitlines()]
        (row,) = [line for line in table if line[1:2] == [f"{crowd.topic}:0-5"]]
        assert row[2] != row[1], "what it owns and should own stand side by side"
    finally:
        holder.release.set()
    crowd.wait_balanced(NUM_PARTITIONS)


def test_a_removed_member_comes_back_and_its_refusal_is_shown(
    crowd: Crowd, group: str, urls: str, said: Run, client: Client
) -> None:
    crowd.join(**{"client.id": "app"})
    crowd.wait_balanced(NUM_PARTITIONS)
    (member,) = client.describe_group(group).members
    removed = said("groups", "remove-member", group, member.member_id)
    assert removed == f"removed member {member.member_id} (client app) from group {group}\n"

    def refusals() -> list[Any]:
        live = json.loads(said("groups", "describe", group, "--url", urls, "--json"))["live"]
        found = [one["last_refused"] for one in live["group"]["members"] if one["last_refused"]]
        return found + live["group"]["refused_strangers"]

    crowd.wait("the refused heartbeat", lambda: bool(refusals()))
    (refusal,) = refusals()
    assert (refusal["api"], refusal["error"]) == ("CONSUMER_GROUP_HEARTBEAT (68)", "UNKNOWN_MEMBER_ID")
    assert "ConsumerGroupHeartbeat" in said("groups", "describe", group, "--url", urls)
    crowd.wait("the return", lambda: len(client.describe_group(group).members) == 1)


def test_offsets_are_reset_by_a_plan_once_the_members_are_gone(
    crowd: Crowd, group: str, said: Run, bootstrap: str, capsys: pytest.CaptureFixture[str], client: Client,
    tmp_path: Path,
) -> None:  # fmt: skip
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    member.commit({0: 5, 1: 90})
    arguments = ["groups", "reset-offsets", group, "--topic", f"{crowd.topic}:0,1", "--shift-by", "-10"]
    assert run([*arguments, "--execute", "-b", bootstrap]) == ExitCode.REFUSED
    assert "NON_EMPTY_GROUP (68): it has 1 member" in capsys.readouterr().err
    member.close()
    crowd.wait("an empty group", lambda: client.describe_group(group).state == "Empty")
    backup = tmp_path / "backup.csv"
    assert "nothing was changed" in said(
        "groups", "reset-offsets", group, "--all-topics", "--to-current", "--export", backup
    )
    assert "nothing was changed; add --execute (it changes 2 offsets)" in said(*arguments)
    assert client.offsets(group) == {crowd.topic: {0: 5, 1: 90}}
    assert f"2 offsets of group {group} changed" in said(*arguments, "--execute")
    assert client.offsets(group) == {crowd.topic: {0: 0, 1: 80}}
    said("groups", "reset-offsets", group, "--from-file", backup, "--execute")
    assert client.offsets(group) == {crowd.topic: {0: 5, 1: 90}}
    said("groups", "delete-offsets", group, f"{crowd.topic}:0")
    assert client.offsets(group) == {crowd.topic: {1: 90}}
    assert group in said("groups", "list", "--state", "empty", "--type", "consumer")
    assert group not in said("groups", "list", "--state", "stable")


def test_a_topic_is_made_again_under_a_running_group(
    crowd: Crowd, group: str, said: Run, client: Client
) -> None:
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    member.commit({0: 5})
    before = client.topic(crowd.topic)
    said("topics", "recreate", f"{crowd.topic}:{NUM_PARTITIONS + 3}")
    after = client.topic(crowd.topic)
    assert before is not None
    assert after is not None
    assert after.topic_id != before.topic_id
    assert f"{NUM_PARTITIONS + 3} partitions" in said("topics", "describe", crowd.topic)
    crowd.wait_balanced(NUM_PARTITIONS + 3)
    crowd.wait("the end of its offsets", lambda: client.offsets(group) == {})


def test_watching_goes_on_when_the_leader_is_killed(
    crowd: Crowd, group: str, urls: str, cluster: ClusterProcess, bootstrap: str
) -> None:
    crowd.join(**{"client.id": "app"})
    crowd.wait_balanced(NUM_PARTITIONS)
    command = [sys.executable, "-P", "-m", "quorate", "groups", "describe", group, "--watch", "--json"]
    command += ["--interval", "0.2", "-b", bootstrap, "--url", urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = _live_since(0, watching.stdout)
        leader = _leader(cluster, group)
        leader.kill()
        count_fault("clients", "kill -9 of the leader while its group is watched")
        again = _live_since(int(time.time() * 1000), watching.stdout)
        assert [one["member_id"] for one in again["members"]] == [
            one["member_id"] for one in first["members"]
        ]
        assert again["epoch"] == first["epoch"]
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=WAIT_S)
    assert (watching.returncode, errors) == (ExitCode.INTERRUPTED, "")
    leader.start()


def _live_since(wall_ms: int, output: TextIO) -> Any:
    """Return the first live view that the leader answered after `wall_ms`; views without one are JSON too."""
    deadline_s = time.monotonic() + WAIT_S
    for line in output:
        sight = json.loads(line)
        if sight.get("live") and sight["live"]["at_ms"] > wall_ms:
            return sight["live"]["group"]
        assert time.monotonic() < deadline_s, sight
    raise AssertionError("it ended by itself")


def _leader(cluster: ClusterProcess, group: str) -> NodeProcess:
    asked = RawGroup([(node.host, node.port) for node in cluster.nodes], group)
    try:
        address = asked.find()
    finally:
        asked.close()
    return next(node for node in cluster.nodes if (node.host, node.port) == address)

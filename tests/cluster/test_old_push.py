"""Groups of the push protocol (seed 004) on three nodes in virtual time."""

from __future__ import annotations

import pytest

from cluster.lineage.connections import FramedConnection
from lineage.push.decisions import Event, OffsetsOffered, PushDecision
from lineage.push.machines import ConsumerState
from lineage.push.messages import decode_command
from lineage.push.protocol import PushGroup
from records import PushState
from tests.cluster.old_protocols import PING_MS, PUSH_PORT, RETRIES, OldNodes
from tests.report import count_fault
from tests.support.admin_requests import DELETE, SET

PATIENCE_MS = PING_MS * (RETRIES + 1)


@pytest.fixture
def nodes() -> OldNodes:
    return OldNodes()


def test_consumers_share_out_the_topics_of_their_group_and_their_pings_commit(nodes: OldNodes) -> None:
    for name in ("a", "b", "c"):
        nodes.push(name)
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    record = nodes.push_record
    assert record is not None
    assert [one.consumer_id for one in record.consumers] == ["a", "b", "c"]
    assert {one.state for one in record.consumers} <= {PushState.STARTING, PushState.STARTED}
    for part in nodes.pushed["a"].positions:
        nodes.pushed["a"].positions[part] = 42
    nodes.wait(lambda: nodes.committed(0) == 42, within_ms=3 * PING_MS)


def test_a_consumer_that_quits_leaves_and_one_that_dies_is_missed(nodes: OldNodes) -> None:
    for name in ("a", "b", "c"):
        nodes.push(name)
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    nodes.pushed.pop("a").quit()
    nodes.wait(lambda: nodes.is_shared({"b", "c"}), within_ms=PING_MS)
    nodes.kill_client("b")
    nodes.wait(lambda: nodes.is_shared({"c"}), within_ms=2 * PATIENCE_MS)


def test_a_killed_coordinator_stops_no_consumer_with_failover_from_the_log(nodes: OldNodes) -> None:
    for name in ("a", "b", "c"):
        nodes.push(name)
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    before = nodes.owners()
    for client in nodes.pushed.values():
        client.positions.update(dict.fromkeys(client.positions, 5))
    leader = nodes.leader
    nodes.cluster[leader].kill()
    count_fault("cluster", "push coordinator killed")
    nodes.cluster.wait_for_leader(nodes.shard, other_than=leader)

    def are_back() -> bool:
        return {one.core.state for one in nodes.pushed.values()} == {ConsumerState.CONSUMING}

    nodes.wait(are_back, within_ms=PATIENCE_MS)
    nodes.world.run_for(3 * PATIENCE_MS)
    assert nodes.owners() == before
    assert {at for one in nodes.pushed.values() for at in one.positions.values()} == {5}


def test_a_killed_coordinator_starts_all_anew_with_failover_by_waiting(nodes: OldNodes) -> None:
    nodes.configure(("push.failover", SET, "wait"), ("push.reregister.wait.ms", SET, "1500"))
    for name in ("a", "b", "c"):
        nodes.push(name)
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    leader = nodes.leader
    nodes.cluster[leader].kill()
    count_fault("cluster", "push coordinator killed")
    nodes.wait(lambda: not nodes.owners(), within_ms=5_000)
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}), within_ms=5_000)


def test_topics_are_a_config_that_may_change_and_grow(nodes: OldNodes) -> None:
    nodes.push("a")
    nodes.push("b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    nodes.grow("orders", 14)
    nodes.wait(lambda: nodes.is_shared({"a", "b"}, 14))
    nodes.create("refunds", 3)
    nodes.configure(("push.topics", SET, "orders, refunds"))
    nodes.wait(lambda: len(nodes.owners()) == 17)
    assert {topic for topic, _ in nodes.owners()} == {"orders", "refunds"}


def test_a_group_without_topics_is_found_nowhere_until_it_has_some(nodes: OldNodes) -> None:
    nodes.configure(("push.topics", DELETE, None))
    nodes.push("a")
    nodes.world.run_for(3_000)
    assert not nodes.owners()
    assert nodes.pushed["a"].core.state is ConsumerState.LOOKING_UP
    nodes.configure(("push.topics", SET, "orders"))
    nodes.wait(lambda: nodes.is_shared({"a"}), within_ms=2_000)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("push.topics", "a,,b", "it must be 1 to 100 names of topics"),
        ("push.topics", "x" * 250, "it must be 1 to 100 names of topics"),
        ("push.failover", "never", "it must be log or wait"),
        ("push.offset.commit", "perhaps", "it must be true or false"),
        ("push.reregister.wait.ms", "99", "it must be a number of ms from 100 to 600000"),
        ("push.reregister.wait.ms", "soon", "it must be a number of ms from 100 to 600000"),
        ("push.color", "red", "is not a group config"),
    ],
)
def test_configs_of_push_groups_are_checked(nodes: OldNodes, name: str, value: str, why: str) -> None:
    (answer,) = nodes.configure((name, SET, value))
    assert answer.error_code
    assert why in answer.error_message


def test_without_auto_commit_offsets_are_committed_by_offset_commit(nodes: OldNodes) -> None:
    client = nodes.push("a", auto_commit=False)
    nodes.wait(lambda: nodes.is_shared({"a"}))
    codes: list[int | None] = []
    offsets = dict.fromkeys(client.positions, 7)
    assert client.commit(offsets, codes.append)
    nodes.wait(lambda: codes == [0])
    assert nodes.committed(11) == 7
    nodes.configure(("push.offset.commit", SET, "false"))
    client.commit(offsets, codes.append)
    nodes.wait(lambda: len(codes) == 2)
    assert codes[1] == 42  # INVALID_REQUEST


def test_commits_follow_the_consumer_to_its_next_coordinator(nodes: OldNodes) -> None:
    """One that is sent while the consumer looks for it opens a connection to the old coordinator."""
    client = nodes.push("a", auto_commit=False)
    nodes.wait(lambda: nodes.is_shared({"a"}))
    offsets = dict.fromkeys(client.positions, 7)
    codes: list[int | None] = []
    leader = nodes.cluster[nodes.leader]
    leader.host.call_soon(leader.node.transfer, nodes.shard, None, lambda why: None)
    nodes.wait(lambda: client.core.state is ConsumerState.LOOKING_UP)
    assert client.commit(offsets, codes.append)
    nodes.wait(lambda: len(codes) == 1 and client.core.state is ConsumerState.CONSUMING)
    assert codes[0] != 0
    client.commit(offsets, codes.append)
    nodes.wait(lambda: len(codes) == 2)
    assert codes[1] == 0


def test_a_deposed_leader_pings_no_consumer_and_no_work_is_done_twice(nodes: OldNodes) -> None:
    """The old leader is cut off from the other nodes, not from the consumers."""
    for name in ("a", "b"):
        nodes.push(name)
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    leader = nodes.leader
    nodes.cluster.isolate(leader)
    count_fault("cluster", "push coordinator cut off")
    doubled: list[object] = []
    for _ in range(100):
        nodes.world.run_for(100)
        doubled += [part for part, names in nodes.owners().items() if len(names) > 1]
    assert not doubled
    assert nodes.is_shared({"a", "b"})
    addresses = {one._coordinator for one in nodes.pushed.values()}
    assert (nodes.cluster[leader].address, PUSH_PORT) not in addresses


def test_a_consumer_whose_program_is_slow_waits_with_stop_and_sleeps_meanwhile(nodes: OldNodes) -> None:
    heard: list[str] = []
    client = nodes.push("a", waits_for_polls=True, tap=lambda message: heard.append(type(message).__name__))
    for command in ("StopRequest", "StartRequest"):
        nodes.wait(lambda command=command: command in heard)
        client.poll()
    nodes.wait(lambda: "PingRequest" in heard)
    assert nodes.is_shared({"a"}), "Ping does not wait for the program"
    nodes.world.run_for(PING_MS // 2 - 100)
    nodes.push("b")
    nodes.wait(lambda: heard[-1] == "StopRequest")
    timers: list[float] = []
    call_later = client._host.call_later
    client._host.call_later = lambda delay_ms, *call: timers.append(delay_ms) or call_later(delay_ms, *call)
    nodes.world.run_for(PING_MS - 100)  # longer than until it would miss the next Ping
    assert heard[-1] == "StopRequest"
    assert timers == []
    client.poll()
    nodes.wait(lambda: heard[-1] == "StartRequest")
    client.poll()
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))


def test_a_second_registration_of_a_consumer_ends_the_first(nodes: OldNodes) -> None:
    first = nodes.push("a")
    nodes.wait(lambda: nodes.is_shared({"a"}))
    ended: list[bool] = []
    closed = first._closed
    first._line._lost = lambda: (ended.append(True), closed())
    other = nodes.push("a", machine="another")
    nodes.wait(lambda: bool(ended))
    first.quit()
    nodes.wait(lambda: len(other.positions) == 12)
    assert nodes.push_record is not None
    assert [one.consumer_id for one in nodes.push_record.consumers] == ["a"]


def test_a_group_whose_decision_failed_is_loaded_once_and_loses_no_consumer(
    nodes: OldNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumers register again before the pause is over, and the first of them has the group loaded."""
    nodes.push("a")
    nodes.push("b", auto_commit=False)
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    decide, failures = PushGroup.on, []

    def fails_once(group: PushGroup, event: Event, now_ms: int, wall_ms: int) -> PushDecision:
        if isinstance(event, OffsetsOffered) and not failures:
            failures.append(event)
            raise RuntimeError("as if it had a bug")
        return decide(group, event, now_ms, wall_ms)

    monkeypatch.setattr(PushGroup, "on", fails_once)
    owners, answers = nodes.owners(), []
    assert nodes.pushed["b"].commit(dict.fromkeys(nodes.pushed["b"].positions, 7), answers.append)
    nodes.world.run_for(PING_MS / 2)
    assert failures
    assert answers == [None], "the connection was closed: the outcome is unknown"
    nodes.world.run_for(3 * PATIENCE_MS)
    assert nodes.owners() == owners
    record = nodes.push_record
    assert record is not None
    assert {one.state for one in record.consumers} == {PushState.STARTED}
    assert record.round == 2, "no round began"


def test_a_consumer_that_is_put_out_is_cut_off_before_its_partitions_start_elsewhere(
    nodes: OldNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.push("a")
    nodes.push("b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    done: list[str] = []
    close, send = FramedConnection.close, FramedConnection.send

    def closes(self: FramedConnection, why: str, **how: bool) -> None:
        done.append(f"close {why}")
        close(self, why, **how)

    def sends(self: FramedConnection, data: bytes) -> None:
        done.append(type(decode_command(data[4:])).__name__)
        send(self, data)

    monkeypatch.setattr(FramedConnection, "close", closes)
    monkeypatch.setattr(FramedConnection, "send", sends)
    nodes.hosts["b"].pause()
    count_fault("cluster", "push consumer stopped")
    nodes.wait(lambda: len(nodes.pushed["a"].positions) == 12)
    ended = done.index("close removed")
    assert "StopRequest" in done[ended:]
    assert "StartRequest" in done[ended:]
    assert not {"StopRequest", "StartRequest"} & {*done[:ended]}


def test_below_the_format_level_a_lookup_names_no_coordinator_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = OldNodes(is_upgraded=False)
    nodes.push("a")
    nodes.rewrite("b")
    nodes.world.run_for(2_000)
    assert not nodes.owners()
    assert nodes.pushed["a"].core.state is ConsumerState.LOOKING_UP
    assert "groups of older protocols need format level 5, and the cluster is at 1" in caplog.text
    nodes.upgrade()
    nodes.rewriting.pop("b").quit()
    nodes.wait(lambda: nodes.is_shared({"a"}))

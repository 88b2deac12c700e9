"""The older protocols meet the rest of a node: failures, disks, format level, clocks, catalog."""

from __future__ import annotations

from typing import Any

import pytest

from lineage.push.messages import LookupRequest, decode_lookup_response, frame
from records import shard_of
from tests.cluster.old_protocols import PING_MS, PUSH_PORT, SESSION_MS, OldNodes
from tests.cluster.old_strangers import Stranger, listeners, register
from tests.report import count_fault
from tests.support.three_nodes import GROUP


def are_shared(nodes: OldNodes, *names: str) -> bool:
    """Whether all partitions of `orders` are consumed by each of these, which are groups of one."""
    owners = nodes.owners()
    return len(owners) == 12 and all(sorted(each) == [*names] for each in owners.values())


def test_what_ended_before_it_was_decided_was_never_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OldNodes, "upgrade", lambda self: None)
    nodes = OldNodes()
    strangers = [Stranger(nodes, PUSH_PORT) for _ in range(6)]
    for number, one in enumerate(strangers):
        one.send(frame(register(f"stranger-{number}")))
    nodes.world.run_for(100)
    for one in strangers[::2]:
        one.leave()
    nodes.world.run_for(100)
    monkeypatch.undo()
    nodes.upgrade()
    nodes.wait(lambda: nodes.push_record is not None and len(nodes.push_record.consumers) > 2)
    assert nodes.push_record is not None
    named = [one.consumer_id for one in nodes.push_record.consumers]
    assert named == ["stranger-1", "stranger-3", "stranger-5"]


@pytest.mark.parametrize("ahead_ms", [SESSION_MS // 2, 100 * SESSION_MS])
def test_when_an_operator_advances_the_clock_groups_are_whole_again(ahead_ms: int) -> None:
    nodes = OldNodes()
    nodes.push("a")
    nodes.rewrite("b", group_id="others")
    nodes.wait(lambda: are_shared(nodes, "a", "b"))
    for machine in nodes.cluster.machines.values():
        machine.node.advance(ahead_ms)
    count_fault("cluster", "clock of old groups advanced", 3)
    nodes.world.run_for(2 * SESSION_MS)
    nodes.wait(lambda: are_shared(nodes, "a", "b"))
    nodes.world.run_for(3 * SESSION_MS)
    assert are_shared(nodes, "a", "b")


def test_a_topic_that_is_deleted_and_created_again_is_shared_out_again() -> None:
    nodes = OldNodes()
    nodes.push("a")
    nodes.rewrite("b", group_id="others")
    nodes.wait(lambda: are_shared(nodes, "a", "b"))
    assert nodes.delete("orders") == 0
    nodes.wait(lambda: not nodes.owners())
    nodes.world.run_for(5_000)  # until every node knows of it, the name is not given again
    nodes.wait(lambda: nodes.create("orders", 12) == 0)
    nodes.wait(lambda: are_shared(nodes, "a", "b"))


def test_a_failure_in_one_group_reloads_that_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = OldNodes()
    second = next(f"g{number}" for number in range(99) if shard_of(f"g{number}", 4) == nodes.shard)
    nodes.configure(("push.topics", 0, "orders"), group_id=second)
    nodes.push("a")
    other = nodes.push("b", group_id=second)
    nodes.wait(
        lambda: (
            all(sorted(names) == ["a", "b"] for names in nodes.owners().values())
            and len(nodes.owners()) == 12
        )
    )
    line = other._line
    one = listeners(nodes)[nodes.leader - 1]._push
    assert one is not None
    broken = one._shards[nodes.shard]._groups[GROUP]

    def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(broken, "on", fail)
    nodes.world.run_for(3 * PING_MS)
    assert one._shards[nodes.shard]._groups[GROUP] is not broken
    assert other._line is line, "the other group's consumer keeps its connection"
    nodes.wait(lambda: all(sorted(names) == ["a", "b"] for names in nodes.owners().values()))


def test_a_failure_in_a_shard_of_seed_000_reloads_that_shard_only(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = OldNodes()
    second = next(f"g{number}" for number in range(99) if shard_of(f"g{number}", 4) != nodes.shard)
    nodes.rewrite("a")
    other = nodes.rewrite("b", group_id=second)
    nodes.wait(
        lambda: len(nodes.owners()) == 12 and all(len(names) == 2 for names in nodes.owners().values())
    )
    before, line = nodes.rewrite_record, other._line
    one = listeners(nodes)[nodes.leader - 1]._rewrite
    assert one is not None
    coordinator = one._shards[nodes.shard]._coordinator
    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "handle", lambda *_: 1 // 0)
        nodes.world.run_for(SESSION_MS / 2)
    nodes.world.run_for(2 * SESSION_MS)
    assert nodes.rewrite_record == before
    assert other._line is line
    assert all(len(names) == 2 for names in nodes.owners().values())


def test_below_the_format_level_consumers_wait_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OldNodes, "upgrade", lambda self: None)
    nodes = OldNodes()
    nodes.push("a", auto_commit=False)
    nodes.rewrite("b", group_id="others")
    nodes.world.run_for(3 * SESSION_MS)
    assert not nodes.owners()
    assert nodes.push_record is None
    monkeypatch.undo()
    nodes.upgrade()
    nodes.wait(
        lambda: (
            all(sorted(names) == ["a", "b"] for names in nodes.owners().values())
            and len(nodes.owners()) == 12
        )
    )


def test_a_node_whose_listeners_are_off_leads_and_the_next_leader_serves() -> None:
    nodes = OldNodes()
    nodes.push("a")
    nodes.rewrite("b", group_id=GROUP + "-x")
    machine = nodes.cluster[nodes.leader]
    machine.kill()
    machine.settings = type(machine.settings)(
        **{
            name: getattr(machine.settings, name)
            for name in machine.settings.__dataclass_fields__
            if name not in ("lineage_push_port", "lineage_rewrite_port")
        }
    )
    machine.boot()
    nodes.cluster.settle()

    def hand_over(to: int) -> None:
        node = nodes.cluster[nodes.leader].node
        node.host.call_soon(node.transfer, nodes.shard, to, lambda said: None)
        nodes.wait(lambda: nodes.cluster.leader_of(nodes.shard) == to)

    hand_over(machine.node_id)
    nodes.world.run_for(5_000)
    asker = Stranger(nodes, PUSH_PORT, next(one for one in (1, 2, 3) if one != machine.node_id))
    asker.send(frame(LookupRequest(group_id=GROUP)))
    nodes.wait(lambda: bool(asker.frames))
    assert decode_lookup_response(asker.frames[0]).error_code
    hand_over(next(one for one in (1, 2, 3) if one != machine.node_id))
    nodes.wait(lambda: "a" in nodes.owners().get(("orders", 0), []))


@pytest.mark.parametrize("variant", ["design", "thread"])
def test_while_all_disks_are_full_no_consumer_is_found_dead(variant: str) -> None:
    nodes = OldNodes(settings={"lineage_rewrite_variant": variant})
    for name in ("a", "b"):
        nodes.rewrite(name, variant=variant)
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    before = nodes.rewrite_record
    for machine in nodes.cluster.machines.values():
        machine.disk.free = 1
    count_fault("cluster", "full disks under an old group", 3)
    nodes.world.run_for(4 * SESSION_MS)
    for machine in nodes.cluster.machines.values():
        machine.disk.free = 1 << 40
    nodes.world.run_for(4 * SESSION_MS)
    assert nodes.is_shared({"a", "b"})
    assert nodes.rewrite_record == before

"""Members of the client's core with the real coordinator: rebalances, faults of the network, fencing."""

from __future__ import annotations

import pytest

from tests.client.member_world import Faults, WorldLink

FAULTS = Faults(lost=0.05, unanswered=0.1, late=0.05, doubled=0.05)


def settled(link: WorldLink, ms: float = 60_000) -> bool:
    """Let time pass until everything is settled, at most `ms`."""
    for _ in range(int(ms / 500)):
        if link.is_settled():
            return True
        link.run(500)
    return link.is_settled()


def test_a_group_of_three_shares_the_partitions() -> None:
    link = WorldLink()
    link.create_topic("orders", 6)
    for name in "abc":
        link.member(name).subscribe("orders")
        link.members[-1].poll_every(1_000)
        link.run(3_000)
    assert settled(link)
    assert [len(host.application.has) for host in link.members] == [2, 2, 2]
    assert link.members[0].positions.fetched == link.members[0].application.has
    link.members[0].leave()
    link.run(1_000)
    assert link.members[0].states[-3:] == ["PREPARE_LEAVING", "LEAVING", "UNSUBSCRIBED"]
    assert link.members[0].application.has == set()
    link.members[0].is_stopped = True
    assert settled(link)


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_has_two_owners_when_replies_are_lost_late_or_doubled(seed: int) -> None:
    link = WorldLink(seed, FAULTS)
    link.create_topic("orders", 8)
    link.create_topic("bills", 3)
    rng = link.rng
    for name in "abc":
        host = link.member(name)
        host.application.callback_ms = lambda: rng.random() * 4_000
        host.subscribe("orders", "bills")
        host.poll_every(500)
    for step in range(6):
        link.run(rng.random() * 8_000)
        host = rng.choice(link.members)
        match rng.randrange(4):
            case 0:
                host.subscribe(*rng.sample(["orders", "bills"], rng.randint(1, 2)))
            case 1:
                host.leave()
            case 2:
                link.world.failover()
            case 3:
                link.member(f"late-{step}").subscribe("orders", "bills")
                link.members[-1].poll_every(500)
    for host in link.members:
        host.subscribe("orders", "bills")
    assert settled(link, 120_000), [(host.state, str(host.member.explain())) for host in link.members]

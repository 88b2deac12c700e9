"""Members of the client's core with the real coordinator: rebalances, faults of the network, fencing."""

from __future__ import annotations

import pytest

from tests.client.member_host import MemberHost
from tests.client.member_world import NO_FAULTS, Faults, WorldLink

STORM = Faults(lost=0.3, unanswered=0.3, late=0.1, doubled=0.1)
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


class Story:
    """One random run: members come, go, stop, stop polling and change topics, and the coordinator moves."""

    def __init__(self, seed: int) -> None:
        self.link = WorldLink(seed, FAULTS)
        self.rng = self.link.rng
        self.link.create_topic("orders", 8)
        self.link.create_topic("bills", 3)
        self.callback_ms_max = self.rng.choice([10, 4_000, 20_000])
        for number in range(3):
            self.start(f"m{number}", "static" if number == 2 else None)

    def start(self, member_id: str, instance_id: str | None = None) -> None:
        host = self.link.member(member_id, group_instance_id=instance_id, max_poll_interval_ms=15_000)
        host.application.callback_ms = lambda: self.rng.random() * self.callback_ms_max
        host.subscribe("orders", "bills")
        host.poll_every(500)
        self.supervise(host)

    def supervise(self, host: MemberHost) -> None:
        """Start a consumer again that ended with a fatal error, as whatever runs it in production does."""
        if host.state == "FATAL" and not host.is_stopped:
            host.is_stopped = True
            self.start(f"{host.membership.member_id}+", host.settings.group_instance_id)
        elif not host.is_stopped:
            self.link.agenda.after(5_000, lambda: self.supervise(host))

    def step(self, number: int) -> None:
        host = self.rng.choice(self.link.living())
        instance_id = host.settings.group_instance_id
        match self.rng.randrange(8):
            case 0:
                host.subscribe(*self.rng.sample(["orders", "bills"], self.rng.randint(1, 2)))
            case 1 if host.state not in ("PREPARE_LEAVING", "LEAVING"):
                host.leave(closes=self.rng.random() < 0.5, timeout_ms=self.rng.choice([0, 100, 30_000]))
            case 2:
                self.link.world.failover()
            case 3:
                self.start(f"late-{number}")
            case 4 if len(self.link.living()) > 1:
                host.is_stopped = True
                if instance_id is not None:
                    self.start(f"{host.membership.member_id}-{number}", instance_id)
            case 5:
                host.polls = False
            case 6:
                self.link.known_late(5_000)
                self.link.world.grow_topic("orders", self.link.partitions("orders") + 1)
            case 7:
                self.link.world.sleep(0)
                self.link.agenda.run(0)
                self.link.faults = self.rng.choice([FAULTS, NO_FAULTS, STORM])

    def run(self) -> None:
        for number in range(12):
            self.link.run(self.rng.random() * 10_000)
            self.step(number)
        self.link.faults = FAULTS
        self.callback_ms_max = 10
        for host in self.link.living():
            host.polls = True
            host.subscribe("orders", "bills")


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_has_two_owners_when_replies_are_lost_late_or_doubled(seed: int) -> None:
    story = Story(seed)
    story.run()
    assert settled(story.link, 180_000), [str(host.member.explain()) for host in story.link.living()]

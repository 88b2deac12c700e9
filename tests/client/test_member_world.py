"""Members of the client's core with the real coordinator: their leases, whatever the network does."""

from __future__ import annotations

from collections import Counter

import pytest

from client.core.types import TopicPartition
from records import LEASES_SINCE
from tests.client.member_host import MemberHost
from tests.client.member_world import NO_FAULTS, Faults, WorldLink
from tests.report import count_fault

STORM = Faults(lost=0.3, unanswered=0.3, late=0.1, doubled=0.1)
FAULTS = Faults(lost=0.05, unanswered=0.1, late=0.05, doubled=0.05)


def settled(link: WorldLink, ms: float = 60_000) -> bool:
    """Let time pass until everything is settled, at most `ms`."""
    for _ in range(int(ms / 500)):
        if link.is_settled():
            return True
        link.run(500)
    return link.is_settled()


class Story:
    """One random run: members come, go, stop, stop polling and change topics, and the coordinator moves."""

    def __init__(self, seed: int) -> None:
        self.link = WorldLink(seed, FAULTS)
        self.link.world.catalog.view.format_level = LEASES_SINCE
        self.rng = self.link.rng
        self.link.create_topic("orders", 8)
        self.link.create_topic("bills", 3)
        self.callback_ms_max = self.rng.choice([10, 4_000, 20_000])
        for number in range(3):
            self.start(f"m{number}", "static" if number == 2 else None)

    def start(self, member_id: str, instance_id: str | None = None) -> None:
        host = self.link.member(member_id, group_instance_id=instance_id, max_poll_interval_ms=15_000)
        host.application.callback_ms = lambda: self.rng.random() * self.callback_ms_max
        host.subscribe("orders", "bills", leases=True)
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
                topics = self.rng.sample(["orders", "bills"], self.rng.randint(1, 2))
                host.subscribe(*topics, leases=True)
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
            host.subscribe("orders", "bills", leases=True)


def play(seed: int) -> WorldLink:
    """Play a story to its end, at which everything must come to rest."""
    story = Story(seed)
    story.run()
    assert settled(story.link, 180_000), [str(host.member.explain()) for host in story.link.living()]
    check_tokens_at_rest(story.link)
    return story.link


def check_tokens_at_rest(link: WorldLink) -> None:
    """Every application has the tokens that the coordinator has noted for its member."""
    for host in link.living():
        noted = {
            TopicPartition(link.names[topic_id], number): token
            for topic_id, of_topic in link.world.group().members[host.membership.member_id].tokens.items()
            for number, token in of_topic.items()
        }
        assert {part: host.application.tokens[part] for part in host.application.has} == noted


def play_many(seeds: range) -> Counter[str]:
    """Play stories; return the faults and errors that members met."""
    return sum((play(seed).met for seed in seeds), Counter())


def test_tokens_only_rise_when_replies_are_lost_late_or_doubled() -> None:
    """A lease has one token from its beginning to its end, and two never overlap."""
    met = play_many(range(20))
    for kind in ("lost", "unanswered", "late", "doubled"):
        count_fault("client", f"{kind} heartbeat", met[kind])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 500) for first in range(1_000, 6_000, 500)], ids=str)
def test_tokens_only_rise_in_thousands_of_stories(seeds: range) -> None:
    play_many(seeds)


# Single situations.


@pytest.fixture
def pair() -> WorldLink:
    """Two members that share four partitions."""
    link = WorldLink()
    link.create_topic("orders", 4)
    for name in "ab":
        host = link.member(name, max_poll_interval_ms=10_000)
        host.subscribe("orders")
        host.poll_every(500)
    assert settled(link)
    return link


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_forms_in_each_version_of_the_heartbeat(version: int) -> None:
    link = WorldLink(version=version)
    link.create_topic("orders", 4)
    for name in "ab":
        link.member(name).subscribe("orders")
    assert settled(link)
    ids = {host.membership.member_id for host in link.members}
    assert (ids == {"a", "b"}) is (version == 1), "in version 0 the coordinator chooses"


def test_a_callback_that_takes_too_long_costs_the_partitions_and_nothing_else(pair: WorldLink) -> None:
    """The coordinator removes a member that does not acknowledge within its rebalance timeout."""
    for host in pair.members:
        host.application.callback_ms = lambda: 30_000
    pair.member("c", max_poll_interval_ms=10_000).subscribe("orders")
    pair.members[-1].poll_every(500)
    pair.run(5_000)
    (first,) = (host for host in pair.members[:2] if host.state == "RECONCILING")
    pair.run(10_000)
    assert first.state == "STALE", "its own poll interval is as long, and began earlier"
    first.application.callback_ms = lambda: 0
    assert settled(pair)
    assert [told.split()[0] for told in first.application.told[-4:]] == [
        "revoking",
        "revoked",
        "lost",
        "assigned",
    ]


def test_a_group_that_was_deleted_is_joined_again(pair: WorldLink) -> None:
    for host in pair.members:
        host.leave()
    pair.run(2_000)
    assert not pair.world.group().members
    for host in pair.members:
        host.subscribe("orders")
    assert settled(pair)

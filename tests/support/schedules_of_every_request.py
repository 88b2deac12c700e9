"""A random schedule of every request, by dynamic and static members, by expressions, by client assignors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from cluster.runtime.slices import finished
from coordinator.api import JobKind
from coordinator.limits import GroupSettings, Limits
from coordinator.views import group_view, list_groups
from records import LEASES_SINCE
from tests.support.admin_requests import by_instance, remove, set_config
from tests.support.admin_requests import delete as delete_offsets
from tests.support.computing_client import ComputingClient, dealt_round, offer, part
from tests.support.group_client import Client
from tests.support.schedules import GROUPS, STATIC, TOPICS, Schedules, Twin
from tests.support.world import CHILDREN, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest

DAY_MS = 86_400_000
COMPUTING = ("e", "f")
EVERYBODY = ("a", "b", *STATIC, *COMPUTING)
REGEXES = ("", "o.*", "events|late", ".*", "[", "nothing")
CONFIGS = {
    "consumer.session.timeout.ms": ("9000", "20000"),
    "consumer.heartbeat.interval.ms": ("500", "3000"),
    "consumer.assignment.interval.ms": ("0", "2000"),
}
SETTLE_ROUNDS = 24
"""Rounds of a second each, in all longer than the longest session."""
ALWAYS_JOBS = Limits(assign_inline_cost_max=0, resolve_inline_cost_max=0)
groups = st.sampled_from(GROUPS)
somebody = st.sampled_from(EVERYBODY)


class EveryRequest(Schedules):
    def __init__(self, limits: Limits = ALWAYS_JOBS) -> None:
        super().__init__()
        self.world = World(GroupSettings(session_timeout_ms=10_000), limits)
        self.world.after_entry.append(Twin(1))
        self.world.catalog.view.format_level = LEASES_SINCE
        self.clients = {}
        for group in GROUPS:
            for name in EVERYBODY:
                kind = ComputingClient if name in COMPUTING else Client
                client = kind(self.world, name, group_id=group, rebalance_timeout_ms=4_000)
                client.instance_id = name if name in STATIC else None
                if isinstance(client, ComputingClient):
                    client.asks_tokens = name == COMPUTING[0]
                self.clients[group, name] = client

    # Members of every kind.

    @rule(group=groups, name=st.sampled_from(EVERYBODY), regex=st.sampled_from(REGEXES))
    def subscribe_by_expression(self, group: str, name: str, regex: str) -> None:
        client = self.client(group, name)
        client.subscribe(client.topics if regex in ("", "nothing") else (), regex)

    @rule(group=groups, name=st.sampled_from(COMPUTING), ack=st.booleans(), lost=st.booleans())
    def compute(self, group: str, name: str, ack: bool, lost: bool) -> None:
        client = self.client(group, name)
        assert isinstance(client, ComputingClient)
        client.beat(acknowledge=ack, lose_reply=lost)
        if client.epoch and client.must_compute:
            code = client.compute()
            assert code in (0, 25, 69, 113, ErrorCode.INVALID_ASSIGNMENT), code

    @rule(group=groups, name=st.sampled_from(COMPUTING), stale=st.integers(0, 3), twice=st.booleans())
    def install_nonsense(self, group: str, name: str, stale: int, twice: bool) -> None:
        client = self.client(group, name)
        assert isinstance(client, ComputingClient)
        shown = client.prepare()
        parts = dealt_round(shown) if shown.error_code == 0 else []
        parts = [*parts, *parts] if twice else [*parts, part("nobody")]
        before = len(self.world.log)
        answer = client.install(shown.group_epoch - stale, parts)
        if not answer.error_code and parts:  # as one that is installed, by the members that are there
            assert not twice
            assert len(self.world.log) == before

    @rule(group=groups, name=st.sampled_from(COMPUTING), cold=st.booleans())
    def offer_others(self, group: str, name: str, cold: bool) -> None:
        client = self.client(group, name)
        assert isinstance(client, ComputingClient)
        client.offers = [offer("cold")] if cold else [offer("warm", 0, 1), offer("cold")]
        client.forget()

    @rule(group=groups, name=somebody, epoch=st.integers(-3, 9), version=st.integers(0, 1))
    def a_request_that_no_client_would_send(self, group: str, name: str, epoch: int, version: int) -> None:
        client = self.client(group, name)
        before = len(self.world.log)
        answer = self.world.heartbeat(
            client.member_id, epoch, group_id=group, version=version, instance_id="a" if epoch % 2 else None
        )
        if answer.error_code:
            assert len(self.world.log) == before
        else:
            client.epoch = max(0, answer.member_epoch)
            client.forget()

    # Child processes.

    @rule(late=st.booleans())
    def children_answer_late(self, late: bool) -> None:
        self.world.holds_jobs = late
        if not late:
            self.world.end_jobs()  # none is left that would end in the middle of somebody's request

    @rule(which=st.integers(0, 3), fate=st.sampled_from(["answers", "fails", "raves", "answers"]))
    def a_child_ends(self, which: int, fate: str) -> None:
        if not self.world.jobs:
            return
        job = self.world.jobs[which % len(self.world.jobs)]
        if fate == "answers":
            self.world.end_job(job, CHILDREN[job.kind](job.request))
        elif fate == "fails":
            self.world.end_job(job, error="exited with 1")
        else:
            self.world.end_job(
                job, {"members": [["nobody", [], 7]]} if job.kind is JobKind.ASSIGN else [1, "x"]
            )

    # Operators.

    @rule(group=groups, name=somebody, by_id=st.booleans())
    def remove_a_member(self, group: str, name: str, by_id: bool) -> None:
        client = self.client(group, name)
        member = by_instance(name) if name in STATIC and not by_id else client.member_id
        assert {one.error_code for one in remove(self.world, member, group_id=group).members} <= {0, 25}

    @rule(group=groups, topic=st.sampled_from(sorted(TOPICS)), partition=st.integers(0, 3))
    def delete_an_offset(self, group: str, topic: str, partition: int) -> None:
        answer = delete_offsets(self.world, {topic: [partition]}, group)
        done = answer.error_code == 0 and answer.topics[0].partitions[0].error_code == 0
        projected = self.world.shard.projection.groups.get(group)
        if done:
            assert projected is None or topic not in projected.subscriptions
            self.committed.pop((group, topic, partition), None)

    @rule(group=groups)
    def delete_the_group(self, group: str) -> None:
        answer = self.world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group]))
        code = answer.results[0].error_code
        assert code in (0, 68, 69)
        if code == 0:
            assert group not in list_groups(self.world.shard)
            self.committed = {key: offset for key, offset in self.committed.items() if key[0] != group}

    @rule(group=groups, topic=st.sampled_from(sorted(TOPICS)), offset=st.integers(0, 99))
    def alter_an_offset(self, group: str, topic: str, offset: int) -> None:
        projected = self.world.shard.projection.groups.get(group)
        is_empty = projected is None or not projected.num_members
        code = self.world.commit({(topic, 0): offset}, group_id=group)[topic, 0]
        assert code == 0 or not is_empty or self.world.catalog.view.topic(topic) is None
        if code == 0:
            assert is_empty
            self.committed[group, topic, 0] = offset

    @rule(group=groups, name=st.sampled_from(sorted(CONFIGS)), which=st.integers(0, 1))
    def set_a_config(self, group: str, name: str, which: int) -> None:
        set_config(self.world, name, CONFIGS[name][which], group)

    @rule()
    def look(self) -> None:
        handle, ids = self.world.handle, list(GROUPS)
        described = handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=ids))
        for answer in described.groups:
            projected = self.world.shard.projection.groups.get(answer.group_id)
            if projected is not None and projected.is_consumer:
                assert len(answer.members) == projected.num_members
                assert answer.group_state == projected.state.value
            else:
                assert answer.error_code == 69
        handle(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=ids))
        listed = handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        assert [one.group_id for one in listed.groups] != [] or not list_groups(self.world.shard)

    @rule(days=st.integers(1, 9))
    def days_pass(self, days: int) -> None:
        """Let days pass: silent members lose their sessions, and at last groups their offsets."""
        self.world.sleep(days * DAY_MS)
        if not self.world.holds_jobs and days > 8:
            assert not any(self.world.fetch(group) for group in GROUPS)
        held = {group: self.world.fetch(group) for group in GROUPS}
        self.committed = {
            (group, topic, partition): offset
            for (group, topic, partition), offset in self.committed.items()
            if (topic, partition) in held[group]
        }

    @invariant()
    def views_are_json(self) -> None:
        for group in GROUPS:
            view = finished(group_view(self.world.shard, group, self.world.now_ms, self.world.settings))
            json.dumps(view)

    # The end.

    def teardown(self) -> None:
        self.world.turn = 0
        self.world.holds_jobs = False
        self.world.end_jobs()
        for client in self.clients.values():
            if isinstance(client, ComputingClient):
                client.offers = [offer("warm")]
            if client.regex == "[":
                client.subscribe(("orders",), "")
        for (_, name), client in self.clients.items():
            if name in STATIC and not client.epoch:
                client.beat()  # its place is kept for it until it comes, or its session ends
        for _ in range(SETTLE_ROUNDS):
            for client in self.clients.values():
                if client.epoch:
                    client.beat()
                    if isinstance(client, ComputingClient):
                        client.compute()
            self.world.sleep(1_000)
        alive = [client for client in self.clients.values() if client.epoch]
        for group_id, group in self.world.shard.projection.groups.items():
            members = [client for client in alive if client.group_id == group_id]
            assert set(group.members) == {client.member_id for client in members}, (
                "sessions of others are over"
            )
            if group.is_consumer:
                assert group.state.value in ("Stable", "Empty")
                self._all_are_owned(group_id, members)

    def _all_are_owned(self, group_id: str, members: list[Client]) -> None:
        owned = [(t, p) for client in members for t, numbers in client.owned.items() for p in numbers]
        assert len(owned) == len(set(owned)), "clients themselves never share a partition"
        subscribed = self.world.shard.projection.groups[group_id].subscriptions
        topics = [topic for topic in self.world.catalog.view.topics() if topic.name in subscribed]
        assert set(owned) == {(t.topic_id, p) for t in topics for p in range(t.num_partitions)}


def steps(machine: EveryRequest, rng: random.Random) -> list[Callable[[], object]]:
    """Return each step with random arguments; heartbeats are the most frequent."""

    def group() -> str:
        return rng.choice(GROUPS)

    def name() -> str:
        return rng.choice(EVERYBODY)

    def topic() -> str:
        return rng.choice(sorted(TOPICS))

    def some_topics() -> list[str]:
        return rng.sample(sorted(TOPICS), rng.randint(1, 3))

    def maybe(share: float) -> bool:
        return rng.random() < share

    often: list[Callable[[], object]] = [
        lambda: machine.heartbeat(group(), name(), maybe(0.7), maybe(0.2)),
        lambda: machine.everybody(group()),
        lambda: machine.compute(group(), rng.choice(COMPUTING), maybe(0.8), maybe(0.1)),
        lambda: machine.join(group(), name(), some_topics()),
        lambda: machine.a_child_ends(rng.randrange(4), rng.choice(["answers", "answers", "fails", "raves"])),
    ]
    seldom: list[Callable[[], object]] = [
        lambda: machine.rejoin(group(), name()),
        lambda: machine.subscribe(group(), name(), some_topics()),
        lambda: machine.subscribe_by_expression(group(), name(), rng.choice(REGEXES)),
        lambda: machine.vote(group(), name(), rng.choice(["range", "uniform"])),
        lambda: machine.leave(group(), name()),
        lambda: machine.go_away(group(), rng.choice(STATIC)),
        lambda: machine.come_back(group(), rng.choice(STATIC), maybe(0.7), maybe(0.2)),
        lambda: machine.install_nonsense(group(), rng.choice(COMPUTING), rng.randrange(4), maybe(0.5)),
        lambda: machine.offer_others(group(), rng.choice(COMPUTING), maybe(0.5)),
        lambda: machine.a_request_that_no_client_would_send(
            group(), name(), rng.randint(-3, 9), rng.randint(0, 1)
        ),
        lambda: machine.children_answer_late(maybe(0.5)),
        lambda: machine.remove_a_member(group(), name(), maybe(0.5)),
        lambda: machine.delete_an_offset(group(), topic(), rng.randrange(4)),
        lambda: machine.delete_the_group(group()),
        lambda: machine.alter_an_offset(group(), topic(), rng.randrange(100)),
        lambda: machine.set_a_config(group(), rng.choice(sorted(CONFIGS)), rng.randrange(2)),
        lambda: machine.commit(group(), name(), rng.randrange(100)),
        lambda: machine.time_passes(rng.choice([1, 500, 3_000, 6_000, 11_000])),
        lambda: machine.another_turn(rng.choice([0, 0, 1, 2])),
        lambda: machine.create_or_grow(topic()),
        lambda: machine.create_or_grow(topic()),
        lambda: machine.delete(topic(), maybe(0.5)),
        lambda: machine.days_pass(rng.randint(1, 9)) if maybe(0.2) else None,
        machine.due_work,
        machine.look,
        machine.failover,
        machine.the_node_stands_still,
    ]
    return often * 4 + seldom

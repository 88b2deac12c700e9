"""F. Assignors that run beside the node: users' own always, ours where the group is large.

The group goes on while a target is computed; what comes of it never costs a member its place (C.11, A.14-6,
KAFKA-20292)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from coordinator.api import JobKind
from coordinator.assignors import BUILT_IN, AssignmentSpec, GroupAssignment, MemberAssignment, UniformAssignor
from coordinator.limits import GroupSettings, Limits
from records import ReasonKind, Trigger
from tests.support import world as world_module
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup


class Theirs:
    """A user's assignor: `uniform`, unless the test sets another answer."""

    name = "theirs"
    instead: object = None

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        if isinstance(self.instead, BaseException):
            raise self.instead
        if self.instead is not None:
            return self.instead  # type: ignore[return-value]
        return UniformAssignor().assign(spec)


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Theirs:
    assignor = Theirs()
    monkeypatch.setitem(world_module.INSTALLED, "theirs", assignor)
    return assignor


@pytest.fixture
def world(theirs: Theirs) -> Iterator[World]:
    """A world whose group uses the user's assignor; child processes end when the test says."""
    world = World(GroupSettings(assignors=("theirs", "uniform")))
    world.create_topic("orders", 6)
    world.holds_jobs = True
    yield world
    assert len([job for job in world.shard.groups.jobs.values() if job.group_id == "g"]) <= 1


def describe(world: World) -> DescribedGroup:
    group: DescribedGroup = world.handle(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"])
    ).groups[0]
    return group


def stable(world: World, *clients: Client) -> None:
    world.holds_jobs = False
    world.end_jobs()
    settle(clients)
    assert world.group().state.value == "Stable"
    world.holds_jobs = True


def test_a_first_target_is_empty_until_the_assignor_answers(world: World) -> None:
    """The member is in at once, with an epoch to heartbeat with; its partitions come with the answer."""
    a = Client(world, "a")
    answer = a.beat()
    assert (answer.error_code, answer.member_epoch, a.owned) == (0, 1, {})
    assert world.log[-1].types == [5, 4, 3, 6, 3, 8]
    assert a.beat().error_code == 0
    assert len(world.jobs) == 1
    world.end_jobs()
    entry = world.log[-1]
    assert (entry.cause.trigger, entry.types) == (Trigger.TARGET_COMPUTED, [7, 6])
    assert entry.cause.refs[0].index == 1, "the entry that asked for this target"
    a.beat()
    assert (a.epoch, a.partitions(FIRST_TOPIC)) == (2, [0, 1, 2, 3, 4, 5])


def test_the_group_goes_on_while_the_assignor_works(world: World) -> None:
    """At most one in flight; heartbeats, joins and leaves are decided on the target that there is."""
    a, b, c = Client(world, "a"), Client(world, "b"), Client(world, "c")
    a.beat()
    stable(world, a)
    b.beat()
    assert b.epoch == 2, "in, at the epoch of the target that there is"
    c.beat()
    assert a.beat().error_code == b.beat().error_code == 0
    assert len(a.partitions(FIRST_TOPIC)) == 6
    assert len(world.jobs) == 1
    c.leave()
    assert set(world.group().members) == {"a", "b"}
    assert len(world.jobs) == 1


def test_an_answer_is_installed_though_the_group_has_moved_on(world: World) -> None:
    """Installed for epoch X while the group is at X+1, and computed again right away (seed 1's rule)."""
    a, b, c = Client(world, "a"), Client(world, "b"), Client(world, "c")
    a.beat()
    stable(world, a)
    b.beat()
    asked_at = world.group().epoch
    c.beat()
    (job,) = world.jobs
    world.end_job(job, world_module.CHILDREN[JobKind.ASSIGN](job.request))
    assert world.group().assignment_epoch == asked_at < world.group().epoch
    assert len(world.group().target_of("b")[FIRST_TOPIC]) == 3
    assert world.group().target_of("c") == {}
    (again,) = world.jobs
    assert again.context.epoch == world.group().epoch  # type: ignore[attr-defined]
    stable(world, a, b, c)
    assert [len(client.partitions(FIRST_TOPIC)) for client in (a, b, c)] == [2, 2, 2]


def test_who_left_meanwhile_gets_nothing(world: World) -> None:
    """KAFKA-20292: members leave while the assignor runs; the records are built against the group of now."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    stable(world, a)
    b.beat()
    b.leave()
    world.holds_jobs = False
    world.end_jobs()
    assert "b" not in world.group().target
    stable(world, a)
    assert len(a.partitions(FIRST_TOPIC)) == 6


NONSENSE = [
    (RuntimeError("no idea"), "RuntimeError: no idea, in "),
    ([], "instead of a GroupAssignment"),
    (GroupAssignment({"a": {}}), "instead of a MemberAssignment"),  # type: ignore[dict-item]
    (GroupAssignment({"nobody": MemberAssignment({FIRST_TOPIC: (0,)})}), "which is not a member"),
    (GroupAssignment({"a": MemberAssignment({b"?" * 16: (0,)})}), "not subscribed"),
    (GroupAssignment({"a": MemberAssignment({FIRST_TOPIC: (0, 0)})}), "to two members"),
    (GroupAssignment({"a": MemberAssignment({FIRST_TOPIC: (6,)})}), "does not have"),
    (GroupAssignment({"a": MemberAssignment({FIRST_TOPIC: (-1,)})}), "does not have"),
    (GroupAssignment({"a": MemberAssignment({FIRST_TOPIC: (1.5,)})}), "not integers"),  # type: ignore[dict-item]
    (GroupAssignment({"a": MemberAssignment({FIRST_TOPIC: 7})}), "not iterable"),  # type: ignore[dict-item]
    (SystemExit(0), "SystemExit: 0"),
]


@pytest.mark.parametrize(("instead", "complaint"), NONSENSE, ids=[complaint for _, complaint in NONSENSE])
def test_no_answer_of_an_assignor_keeps_a_member_out(
    world: World, theirs: Theirs, instead: object, complaint: str
) -> None:
    """The member is admitted, the old target stays, the error is in describe; asked again after a pause."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    stable(world, a)
    theirs.instead = instead
    entries = len(world.log)
    b.beat()
    world.holds_jobs = False
    world.end_jobs()
    assert complaint in (describe(world).error_message or "")
    assert len(world.log) == entries + 1, "the join, and nothing of the target"
    assert {member.member_id for member in describe(world).members} == {"a", "b"}
    assert len(a.partitions(FIRST_TOPIC)) == 6
    assert a.beat().error_code == b.beat().error_code == 0
    theirs.instead = None
    world.sleep(1_000)
    stable(world, a, b)
    assert describe(world).error_message is None
    assert len(b.partitions(FIRST_TOPIC)) == 3


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {},
        {"owners": []},
        {"owners": [b""]},
        {"owners": ["text"]},
        {"owners": [b"\x01\0\0\0" * 6]},
        {"owners": [b"\xfe\xff\xff\xff" * 6]},
        {"owners": [bytes(28)]},
    ],
    ids=str,
)
def test_an_answer_of_another_form_is_a_failure(world: World, result: object) -> None:
    """The process is not trusted to have run our code to its end."""
    a = Client(world, "a")
    a.beat()
    (job,) = world.jobs
    world.end_job(job, result)
    assert describe(world).error_message
    assert world.group().target == {}
    world.sleep(1_000)
    stable(world, a)


def test_an_answer_with_a_topic_not_subscribed_to_is_a_failure(world: World) -> None:
    world.create_topic("more", 1)
    a, b = Client(world, "a"), Client(world, "b", topics=("more",))
    a.beat()
    stable(world, a)
    b.beat()
    (job,) = world.jobs
    counts = [count for _, _, count, _ in job.request["topics"]]  # type: ignore[index]
    world.end_job(job, {"owners": [b"\x01\0\0\0" * count for count in counts]})
    assert "not subscribed" in (describe(world).error_message or "")


def test_failures_are_retried_ever_more_slowly(world: World) -> None:
    """1, 2, 4 … s, once a minute at last; heartbeats and joins meanwhile ask nobody."""
    a = Client(world, "a")
    a.beat()
    times: list[float] = []
    for _ in range(9):
        (job,) = world.jobs
        times.append(world.now_ms)
        assert job.is_retry == (len(times) > 1)
        world.end_job(job, error="took over 10000 ms\nand more")
        assert "took over 10000 ms | and more" in (describe(world).error_message or ""), "one line of a log"
        a.beat()
        assert world.jobs == []
        while not world.jobs:
            world.sleep(500)
            a.beat()
    gaps = [later - former for former, later in pairwise(times)]
    assert gaps == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_another_assignor_need_not_wait_for_one_that_hangs(world: World) -> None:
    """Majority flip: the epoch is bumped, the new assignor computes at once, the old answer is dropped."""
    a, b = Client(world, "a"), Client(world, "b", assignor="uniform")
    a.beat()
    (job,) = world.jobs
    b.beat()
    assert [reason.kind for reason in world.log[-1].cause.reasons] == [
        ReasonKind.MEMBER_JOINED,
        ReasonKind.ASSIGNOR_CHANGED,
    ]
    assert world.group().assignment_epoch == world.group().epoch, "ours, in the very decision"
    before = len(world.log)
    world.end_job(job, error="took over 10000 ms")
    assert len(world.log) == before
    assert describe(world).error_message is None


def test_another_assignor_need_not_wait_for_failures_of_the_former(world: World) -> None:
    a, b = Client(world, "a"), Client(world, "b", assignor="uniform")
    a.beat()
    world.end_job(world.jobs[0], error="it broke")
    b.beat()
    assert world.group().assignment_epoch == world.group().epoch


def test_a_new_leader_ignores_the_old_ones_job_and_computes(world: World) -> None:
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    stable(world, a)
    b.beat()
    (job,) = world.jobs
    world.failover()
    assert world.shard.job_ended(job, {"owners": []}, None, world.ctx()) is None
    world.work()
    assert len(world.jobs) == 1
    stable(world, a, b)


def test_a_group_that_went_and_came_is_another_one(world: World) -> None:
    """An answer for the deleted group must not reach the new one, whose epochs start again."""
    a = Client(world, "a")
    a.beat()
    (job,) = world.jobs
    a.leave()
    assert world.group().state.value == "Empty"
    b = Client(world, "b")
    b.beat()
    assert world.jobs[-1] is not job, "nobody waits for the former one"
    before = len(world.log)
    world.end_job(job, world_module.CHILDREN[JobKind.ASSIGN](job.request))
    assert len(world.log) == before
    stable(world, b)


def test_a_large_target_is_computed_beside_and_installed_in_parts() -> None:
    """No decision writes more than `install_records_max` of it; record 6 closes it."""
    world = World(limits=Limits(assign_inline_cost_max=200, install_records_max=7))
    world.create_topic("orders", 100)
    clients = [Client(world, f"m{number:02}") for number in range(30)]
    world.turn = 1
    world.holds_jobs = True
    for client in clients:
        client.beat()
    world.turn = 2
    world.work()
    (job,) = world.jobs
    before = len(world.log)
    world.end_job(job, world_module.CHILDREN[JobKind.ASSIGN](job.request))
    assert world.group().assignment_epoch < world.group().epoch
    clients[3].beat()  # in the middle of it
    clients[4].leave()
    world.turn = 3
    world.work()
    written = [entry.types for entry in world.log[before:]]
    assert max(types.count(7) for types in written) == 7
    assert [types.count(6) for types in written].index(1) >= 4
    world.turn = 0
    world.holds_jobs = False
    world.sleep(2_000)
    del clients[4]
    settle(clients, rounds=4)
    assert world.group().state.value == "Stable"
    assert sorted({len(client.partitions(FIRST_TOPIC)) for client in clients}) == [3, 4]


def test_a_leader_that_finds_a_target_half_written_computes_another() -> None:
    world = World(limits=Limits(assign_inline_cost_max=0, install_records_max=2))
    world.create_topic("orders", 12)
    clients = [Client(world, f"m{number}") for number in range(6)]
    world.turn = 1
    for client in clients:
        client.beat()
    world.turn = 2
    decision = world.shard.next_work(world.ctx())
    assert decision is not None
    world.holds_jobs = True
    world._append(decision)
    (job,) = world.jobs
    world.end_job(job, world_module.CHILDREN[JobKind.ASSIGN](job.request))
    decision = world.shard.next_work(world.ctx())
    assert decision is not None
    world._append(decision)
    assert world.log[-1].types == [7, 7]
    world.turn = 0
    world.holds_jobs = False
    world.failover()
    world.work()
    settle(clients, rounds=4)
    assert world.group().state.value == "Stable"
    assert [len(client.partitions(FIRST_TOPIC)) for client in clients] == [2] * 6


def installing() -> tuple[World, list[Client]]:
    """A group of four members whose target is installed in parts, the first of them written."""
    world = World(limits=Limits(assign_inline_cost_max=0, install_records_max=1))
    world.create_topic("orders", 12)
    clients = [Client(world, f"m{number}") for number in range(4)]
    for client in clients[:3]:
        client.beat()
    world.sleep(5_000)
    clients[3].beat()
    assert world.work_once()
    assert world.shard.groups.installs
    return world, clients


def test_who_leads_again_goes_on_with_nothing_that_it_had_begun() -> None:
    """Another leader may have written parts of another target meanwhile."""
    world, clients = installing()
    world.lead_again()
    assert not world.shard.groups.installs
    world.sleep(5_000)
    settle(clients, 4)
    assert [len(client.partitions(FIRST_TOPIC)) for client in clients] == [3] * 4


def test_an_installation_ends_with_the_last_member() -> None:
    """Targets of members that left must not hold up the first target of the next member."""
    world, clients = installing()
    for client in clients:
        client.leave()
    assert not world.shard.groups.installs
    world.holds_jobs = True
    clients[0].beat()
    world.sleep(1_000)
    assert len(world.jobs) == 1


def test_what_is_half_written_is_shown_to_an_assignor_with_each_partition_once(theirs: Theirs) -> None:
    """The new target's first part and the rest of the old one may name a partition twice.

    An assignor that relies on each partition having one owner would fail for ever, so the partition is shown
    with its current owner only."""
    world = World(GroupSettings(assignors=("theirs", "uniform")), Limits(install_records_max=1), BUILT_IN)
    world.create_topic("orders", 6)
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b], 4)
    world.work()
    halves = {name: world.group().target_of(name) for name in ("a", "b")}
    theirs.instead = GroupAssignment({"a": MemberAssignment(halves["b"]), "b": MemberAssignment(halves["a"])})
    settle([a, b], 4)
    world.grow_topic("orders", 7)
    world.work_once()
    world.end_jobs()
    while world.log[-1].types != [7]:
        assert world.work_once()
    assert world.group().target_of("a") == world.group().target_of("b")
    seen: list[AssignmentSpec] = []

    class Sticky(Theirs):
        def assign(self, spec: AssignmentSpec) -> GroupAssignment:
            seen.append(spec)
            return UniformAssignor().assign(spec)

    world_module.INSTALLED["theirs"] = Sticky()
    world.failover()
    world.sleep(2_000)
    shown = {name: part.target_partitions for name, part in seen[0].members.items()}
    assert shown == {"a": {}, "b": halves["b"]}


def test_a_vote_that_flips_does_not_start_child_after_child() -> None:
    """Asking another assignor gives up the former's child process and costs the loop, so it is paced."""
    world = World(limits=Limits(assign_inline_cost_max=0))
    world.create_topic("orders", 6)
    a = Client(world, "a", assignor="range")
    stable(world, a)
    cost_ms = iter(range(0, 10**9, 5))
    world.stopwatch = lambda: float(next(cost_ms))
    for number in range(20):
        a.assignor = ("uniform", "range")[number % 2]
        a.beat()
        world.work()
    assert len(world.jobs) == 1
    world.sleep(1_000)
    assert len(world.jobs) == 2, "the last one's turn comes"
    world.holds_jobs = False
    world.end_jobs()
    world.sleep(1_000)
    a.beat()
    assert world.group().state.value == "Stable"


def test_ties_between_assignors_go_to_the_one_configured_first(theirs: Theirs) -> None:
    """Most votes; ties by configured order, whoever came first."""
    for order in (("uniform", "range"), ("range", "uniform")):
        world = World(GroupSettings(assignors=("range", "uniform")))
        world.create_topic("orders", 6)
        for number, name in enumerate(order):
            world.join(f"m{number}", server_assignor=name)
        assert describe(world).assignor_name == "range"


def test_an_assignor_that_is_not_configured_is_refused_with_those_that_are(world: World) -> None:
    """UNSUPPORTED_ASSIGNOR 112, listing the supported; nothing changes."""
    answer = world.join("a", server_assignor="range")
    assert answer.error_code == 112
    assert "Supported assignors: theirs, uniform." in (answer.error_message or "")
    assert world.log == []

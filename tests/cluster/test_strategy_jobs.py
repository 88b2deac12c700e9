"""Users' strategies of seed 000 are assignors in child processes, and the node's settings name them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.children.assign import run
from cluster.host.host_asyncio import AsyncioHost
from cluster.lineage import strategy_jobs
from cluster.lineage.rewrite_settings import rewrite_settings
from cluster.lineage.strategy_jobs import StrategyJobs
from cluster.runtime.job_slots import JobSlots
from cluster.settings import Settings, SettingsError
from cluster.settings.table import REWRITE_STRATEGIES
from coordinator.assignors.assigning import spec_of
from coordinator.state.projection import Projection
from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.coordinator import RewriteCoordinator
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import Now, RewriteOrigin, RewriteResult
from lineage.rewrite.messages import JoinGroupRequest
from lineage.rewrite.strategies import STRATEGIES, Assignment, StrategyConsumer, StrategyJob
from records import RewriteGroupKey
from tests.report import count_fault
from tests.support.rewrite_playing import VARIANTS, PlayTopics
from tests.support.users_assignors import install
from tests.support.waiting import until
from wire.protocol import RequestHeader

MODULE = """
from coordinator.assignors import GroupAssignment, MemberAssignment

class Keeping:
    "Each keeps what it has; the last member gets the rest."
    name = "keeping"

    def assign(self, spec):
        parts = {m: {t: list(n) for t, n in one.target_partitions.items()} for m, one in spec.members.items()}
        for topic_id, topic in spec.topics.items():
            owned = {n for part in parts.values() for n in part.get(topic_id, ())}
            last = max(m for m, one in spec.members.items() if topic_id in one.subscribed_topics)
            free = [n for n in range(topic.num_partitions) if n not in owned]
            parts[last].setdefault(topic_id, []).extend(free)
        return GroupAssignment({m: MemberAssignment(part) for m, part in parts.items()})

class Hanging(Keeping):
    name = "hanging"

    def assign(self, spec):
        while True:
            pass
"""
both = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path of this process and of its children, with a package of two assignors."""
    install(tmp_path, "ours", MODULE, {"keeping": "ours:Keeping", "hanging": "ours:Hanging"})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\0")


class ServedGroup:
    """A coordinator whose jobs are real ones."""

    def __init__(self, host: AsyncioHost, variant: str, settings: Settings) -> None:
        self.projection, self.entries = Projection(), 0
        self.counts, self.ids = {"t": 4}, 0
        self.answers: dict[object, Any] = {}
        self.failures: list[str] = []
        self.jobs = StrategyJobs(JobSlots(host), settings, topic_id, self.ended)
        self.coordinator: RewriteCoordinator = VARIANTS[variant][0](
            self.projection.old_groups,
            PlayTopics(self.counts),
            self.fresh_id,
            lambda _: None,
            rewrite_settings(settings),
        )
        self.coordinator.elected()
        self.coordinator.loaded(self.now)

    now = Now(0, 1_000_000)

    def fresh_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def join(
        self, name: str, consumer_id: str = "", strategy: str = "keeping", timeout_ms: int = 30_000
    ) -> None:
        request = JoinGroupRequest(
            group_id="g",
            consumer_id=consumer_id,
            topics=["t", "later"],
            session_timeout=timeout_ms,
            partition_assignment_strategy=strategy,
        )
        origin = RewriteOrigin(name, RequestHeader(11, 0, 7, "c", 0))
        self.take(self.coordinator.handle(request, origin, self.now))

    def ended(self, job: StrategyJob, answer: Assignment | None, error: str | None) -> None:
        self.take(self.coordinator.strategy_ended(job.group_id, job.number, answer, error, self.now))

    def take(self, results: list[RewriteResult]) -> None:
        for result in results:
            if result.cause is not None:
                self.entries += 1
                self.projection.apply_all(list(result.records), self.entries)
            for origin, answer in result.answers:
                self.answers[origin.connection] = answer
            if result.job is not None:
                self.jobs.start(result.job)
            self.failures += [result.failure] if result.failure else []

    def owned(self, name: str) -> dict[str, list[int]]:
        return {one.topic: one.partitions for one in self.answers[name].partitions_to_own}


@pytest.fixture
async def host() -> AsyncIterator[AsyncioHost]:
    host = AsyncioHost(asyncio.get_running_loop())
    yield host
    host.close()


STRATEGY_NAMES = {
    "lineage_rewrite_partition_assignment_strategies": ("range", "keeping", "hanging", "uniform")
}


@both
@pytest.mark.parametrize("strategy", ["keeping", "uniform"])
async def test_an_assignor_in_a_child_process_shares_out_the_partitions(
    host: AsyncioHost, site: Path, variant: str, strategy: str
) -> None:
    """It is told what the consumers had, so a newcomer gets only what is new, or what balance demands."""
    served = ServedGroup(host, variant, Settings(**STRATEGY_NAMES))
    served.join("a", strategy=strategy)
    assert served.answers == {}
    await until(lambda: "a" in served.answers, 30)
    assert served.owned("a") == {"t": [0, 1, 2, 3]}
    served.counts["t"] = 6
    served.take(served.coordinator.topics_changed(served.now))
    served.join("b", strategy=strategy)
    served.join("a2", "g-1", strategy)
    await until(lambda: {"a2", "b"} <= served.answers.keys(), 30)
    if strategy == "keeping":
        assert (served.owned("a2"), served.owned("b")) == ({"t": [0, 1, 2, 3]}, {"t": [4, 5]})
    else:
        assert len(served.owned("a2")["t"]) == len(served.owned("b")["t"]) == 3
        assert {*served.owned("a2")["t"]} < {0, 1, 2, 3}
    assert served.projection.old_groups[RewriteGroupKey(group_id="g")].strategy == strategy


@both
async def test_a_strategy_that_hangs_is_stopped_within_the_shortest_session(
    host: AsyncioHost, site: Path, variant: str
) -> None:
    count_fault("cluster", "strategy of seed 000 that hangs")
    served = ServedGroup(host, variant, Settings(**STRATEGY_NAMES))
    served.join("a", strategy="hanging", timeout_ms=500)
    await until(lambda: "a" in served.answers, 30)
    assert served.answers["a"].error_code == RewriteError.UNKNOWN
    assert "Strategy hanging failed for group g: " in served.failures[0]
    assert "took over 500 ms" in served.failures[0]
    assert served.entries == 0


async def test_a_cancelled_job_tells_nothing(host: AsyncioHost, site: Path) -> None:
    """Another node leads; the process is killed, and its slot is free again."""
    told: list[object] = []
    slots = JobSlots(host)
    jobs = StrategyJobs(slots, Settings(), topic_id, lambda *ended: told.append(ended))
    jobs.start(job("hanging", 1))
    assert slots.num_running == 1
    jobs.cancel()
    await until(lambda: not slots.num_running, 30)
    assert told == []


def job(strategy: str, number: int, group_id: str = "g") -> StrategyJob:
    consumers = {
        "g-1": StrategyConsumer(("t", "u"), {"t": (0, 1), "gone": (5,)}),
        "g-2": StrategyConsumer(("u",), {}),
        "g-3": StrategyConsumer((), {"u": (0,)}),
    }
    return StrategyJob(group_id, number, strategy, {"t": 2, "u": 1}, consumers, 45_000)


class ByHand:
    """A host whose children end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.deadlines: list[int] = []
        self.done: list[Any] = []
        self.cancelled = 0

    def spawn_job(
        self, module: str, request: Any, done: Any, *, low_priority: bool, deadline_ms: int
    ) -> ByHand:
        assert (module, low_priority) == ("cluster.children.assign", True)
        self.asked.append(request)
        self.deadlines.append(deadline_ms)
        self.done.append(done)
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_the_child_is_asked_what_an_assignor_knows() -> None:
    """Topics that consumers had and that are not shared out any more are left out."""
    host, told = ByHand(), []
    settings = Settings(group_consumer_assignor_memory_max_bytes=300 << 20)
    jobs = StrategyJobs(JobSlots(host), settings, topic_id, lambda *ended: told.append(ended))
    jobs.start(job("range", 1))
    assert (host.deadlines, host.asked[0]["memory_bytes_max"]) == ([10_000], 300 << 20)
    spec = spec_of(host.asked[0])
    assert {topic.topic_name: topic.num_partitions for topic in spec.topics.values()} == {"t": 2, "u": 1}
    t, u = topic_id("t"), topic_id("u")
    assert [(one.subscribed_topics, one.target_partitions) for one in spec.members.values()] == [
        ({t, u}, {t: (0, 1)}),
        ({u}, {}),
        (set(), {u: (0,)}),
    ]
    host.done[0](run(host.asked[0], None), None)
    ((of, answer, error),) = told
    assert (of.number, error) == (1, None)
    assert answer == {"g-1": [("t", 0), ("t", 1), ("u", 0)], "g-2": [], "g-3": []}


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [
        (None, RuntimeError("one\ntwo"), "one | two"),
        ({"error": "KeyError: 'x'"}, None, "KeyError: 'x'"),
        ([1], None, "invalid result of type list"),
        ({"owners": []}, None, "did not return a result for every topic"),
        ({"owners": [b"\1\0\0\0" * 2, b"\0\0\0\0"]}, None, "not subscribed"),
    ],
)
def test_a_job_that_fails_says_how_and_the_next_one_is_a_retry(
    result: object, error: Exception | None, says: str
) -> None:
    """Groups whose last job failed share one of the two slots of a strategy."""
    host, told = ByHand(), []
    jobs = StrategyJobs(JobSlots(host), Settings(), topic_id, lambda *ended: told.append(ended))
    for number, group_id in enumerate("gh"):
        jobs.start(job("mine", number, group_id))
        host.done[number](result, error)
        assert (told[number][0].number, told[number][1]) == (number, None)
        assert says in told[number][2]
    jobs.start(job("mine", 2, "g"))
    jobs.start(job("mine", 3, "h"))
    assert len(host.done) == 3
    host.done[2](run(host.asked[2] | {"assignor": "range"}, None), None)
    assert (told[2][0].number, told[2][2], len(host.done)) == (2, None, 4)
    jobs.start(job("mine", 4, "g"))
    assert len(host.done) == 5


def test_failed_groups_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy_jobs, "FAILED_GROUPS_MAX", 2)
    host = ByHand()
    jobs = StrategyJobs(JobSlots(host), Settings(), topic_id, lambda *ended: None)
    for number, group_id in enumerate("abc"):
        jobs.start(job("mine", number, group_id))
        host.done[number](None, RuntimeError("no"))
    assert [*jobs._failed] == ["b", "c"]


def test_the_job_of_a_group_that_was_made_anew_replaces_the_old_one() -> None:
    host, told = ByHand(), []
    jobs = StrategyJobs(JobSlots(host), Settings(), topic_id, lambda *ended: told.append(ended))
    jobs.start(job("range", 1))
    jobs.start(job("range", 2))
    assert host.cancelled == 1
    host.done[0](None, RuntimeError("cancelled"))
    host.done[1](run(host.asked[1], None), None)
    assert [of.number for of, _, _ in told] == [2]


def test_the_settings_are_the_coordinators() -> None:
    assert tuple(STRATEGIES) == REWRITE_STRATEGIES
    assert rewrite_settings(Settings()) == RewriteSettings()
    given = Settings(
        lineage_rewrite_max_session_timeout_ms=9_000,
        lineage_rewrite_partition_assignment_strategies=("uniform", "range"),
    )
    assert rewrite_settings(given) == RewriteSettings(
        max_session_timeout_ms=9_000, strategies=frozenset({"uniform", "range"})
    )


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), r"= \[\] must contain at least one strategy and no duplicates"),
        (("range", "range"), "no duplicates"),
        (("mine",), r"contains 'mine', .* range, roundrobin, uniform\. .* Installed: hanging, keeping"),
    ],
)
def test_a_strategy_that_is_not_installed_is_refused(site: Path, names: tuple[str, ...], says: str) -> None:
    with pytest.raises(SettingsError, match=rf"lineage\.rewrite\.partition\.assignment\.strategies.* {says}"):
        Settings(lineage_rewrite_partition_assignment_strategies=names)
    Settings(lineage_rewrite_partition_assignment_strategies=("keeping", "roundrobin"))

"""Child processes for groups: how many run at once, and what happens to a result that comes too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.runtime.job_slots import JOBS_AT_ONCE, JobSlots
from coordinator import shard as shard_module
from coordinator.api import Context, DecisionBuilder, Failure, Job, JobKind, Steps
from coordinator.group_context import GroupContext
from raftlog.env.host import Done
from raftlog.storage.evidence import read_evidence
from records import Trigger
from tests.cluster.fakes import Bench
from tests.support.requests import join_request


class Child:
    """A child process that ends when the test says."""

    def __init__(self, request: object, done: Done, deadline_ms: int) -> None:
        self.request, self.done, self.deadline_ms = request, done, deadline_ms
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Children:
    """Stands in for the Host where only children are needed."""

    def __init__(self) -> None:
        self.started: list[Child] = []

    def spawn_job(
        self, module: str, request: object, done: Done, *, low_priority: bool, deadline_ms: int
    ) -> Child:
        assert low_priority
        self.started.append(Child(request, done, deadline_ms))
        return self.started[-1]


def submit(slots: JobSlots, number: int, ended: list[tuple[int, object, object]]) -> Any:
    def done(result: object | None, error: BaseException | None) -> None:
        ended.append((number, result, error))

    return slots.submit("module", number, done, deadline_ms=100 * number)


def test_what_is_cancelled_while_it_waits_is_let_go_of_at_once() -> None:
    """The request may be large, and many may be cancelled while all slots are taken."""
    children = Children()
    slots = JobSlots(children)  # type: ignore[arg-type]  # no more of a Host is asked for
    ended: list[tuple[int, object, object]] = []
    for number in range(JOBS_AT_ONCE):
        submit(slots, number, ended)
    for number in range(100):
        submit(slots, number, ended).cancel()
    (lane,) = slots._lanes.values()
    assert not lane.waiting
    for child in children.started:
        child.done(None, None)
    assert len(children.started) == JOBS_AT_ONCE


def test_a_few_run_and_the_rest_waits_its_turn() -> None:
    children = Children()
    slots = JobSlots(children)  # type: ignore[arg-type]  # no more of a Host is asked for
    ended: list[tuple[int, object, object]] = []
    for number in range(JOBS_AT_ONCE + 2):
        submit(slots, number, ended)
    assert [child.request for child in children.started] == list(range(JOBS_AT_ONCE))
    assert slots.num_waiting == 2
    failure = OSError("no more processes")
    children.started[1].done(None, failure)
    assert children.started[-1].request == JOBS_AT_ONCE  # first come, first served
    children.started[0].done("result", None)
    assert ended == [(1, None, failure), (0, "result", None)]
    assert (slots.num_running, slots.num_waiting) == (JOBS_AT_ONCE, 0)


def test_lanes_do_not_wait_for_each_other() -> None:
    """An assignor that hangs in a hundred groups delays neither expressions nor other assignors."""
    children = Children()
    slots = JobSlots(children)  # type: ignore[arg-type]  # as above
    for number in range(100):
        slots.submit("module", number, lambda _result, _error: None, deadline_ms=1, lane="assign hangs")
    slots.submit("module", "other", lambda _result, _error: None, deadline_ms=1, lane="assign other")
    assert [child.request for child in children.started] == [0, 1, "other"]
    assert (slots.num_running, slots.num_waiting) == (3, 98)


def test_groups_whose_last_job_failed_leave_a_slot_to_the_others() -> None:
    children = Children()
    slots = JobSlots(children)  # type: ignore[arg-type]  # as above
    for number in range(3):
        slots.submit("module", number, lambda _result, _error: None, deadline_ms=1, is_retry=True)
    assert [child.request for child in children.started] == [0]
    fresh = [
        slots.submit("module", name, lambda _result, _error: None, deadline_ms=1) for name in ("a", "b", "c")
    ]
    assert [child.request for child in children.started] == [0, "a"]
    children.started[0].done(None, RuntimeError("hangs"))
    assert [child.request for child in children.started] == [0, "a", "b"], "whoever did not fail goes first"
    fresh[2].cancel()
    children.started[1].done("result", None)
    children.started[2].done("result", None)
    assert [child.request for child in children.started] == [0, "a", "b", 1]
    children.started[3].done(None, RuntimeError("hangs"))
    assert [child.request for child in children.started][4:] == [2]


def test_a_cancelled_job_is_never_heard_of_again() -> None:
    children = Children()
    slots = JobSlots(children)  # type: ignore[arg-type]  # as above
    ended: list[tuple[int, object, object]] = []
    jobs = [submit(slots, number, ended) for number in range(JOBS_AT_ONCE + 2)]
    jobs[0].cancel()
    jobs[JOBS_AT_ONCE].cancel()  # has not begun
    assert children.started[0].is_cancelled
    assert slots.num_running == JOBS_AT_ONCE, "its process may still run"
    children.started[0].done(None, RuntimeError("cancelled"))
    assert [child.request for child in children.started] == [0, 1, JOBS_AT_ONCE + 1]
    assert ended == []


Ended = list[tuple[object, str | None]]


class Worked:
    """A runtime whose group gets a job at every heartbeat of `working`; the results are collected."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.children = Children()
        self.ended: Ended = []
        monkeypatch.setattr(bench.host, "spawn_job", self.children.spawn_job)
        monkeypatch.setitem(shard_module._JOB_ENDS, JobKind.ASSIGN, self._job_ended)
        bench.log(bench.metadata).lead()
        bench.log(bench.groups).lead()
        bench.heartbeat(join_request("billing", "one", "orders"))
        bench.log(bench.groups).commit()

    def _job_ended(
        self,
        groups: GroupContext,
        job: Job,
        result: object,
        error: str | None,
        ctx: Context,
        builder: DecisionBuilder,
    ) -> Steps:
        self.ended.append((result, error))
        builder.trigger = Trigger.TARGET_COMPUTED
        if error is not None:
            builder.failure = Failure("billing", error, job.kind)
        if result == "raise":
            raise RuntimeError("nonsense")
        yield from ()
        return None

    def start(self, kind: JobKind = JobKind.ASSIGN, group_id: str = "billing") -> Child:
        """Commit a decision that starts a job, and return the child that was started last."""
        runtime = self.bench.groups
        builder = DecisionBuilder()
        job = Job(kind=kind, group_id=group_id, request=[kind, group_id], deadline_ms=1_000)
        runtime.machine.groups.start_job(job, builder)
        decision = runtime.machine._run(_nothing(), runtime.requests.context(0.0), builder)
        runtime.duties._jobs.start(decision.jobs)
        return self.children.started[-1]

    def is_working(self) -> bool:
        return self.bench.groups.machine.groups.is_working(JobKind.ASSIGN, "billing")


def _nothing() -> Steps:
    yield from ()
    return None


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Worked:
    return Worked(Bench(monkeypatch), monkeypatch)


def test_assignors_that_hang_delay_no_regular_expression(worked: Worked) -> None:
    for number in range(JOBS_AT_ONCE + 1):
        worked.start(group_id=f"group-{number}")
    assert len(worked.children.started) == JOBS_AT_ONCE
    assert worked.start(JobKind.RESOLVE, "group-0").request == [JobKind.RESOLVE, "group-0"]


def test_a_result_is_decided_on_once(worked: Worked) -> None:
    child = worked.start()
    assert worked.is_working()
    child.done({"a": 1}, None)
    assert worked.ended == [({"a": 1}, None)]
    assert not worked.is_working()
    worked.start().done(None, RuntimeError("took over 1000 ms"))
    assert worked.ended[1:] == [(None, "took over 1000 ms")]
    worked.bench.groups.node.evidence.flush()
    notes = read_evidence(worked.bench.host.files, "/data")
    assert [(note["kind"], note["said"]) for note in notes] == [("trouble", "took over 1000 ms")]


def _lose(worked: Worked) -> None:
    worked.bench.log(worked.bench.groups).lose()


def _lose_and_lead_again(worked: Worked) -> None:
    _lose(worked)
    worked.bench.log(worked.bench.groups).lead()
    worked.bench.later(100)


def _rebuild(worked: Worked) -> None:
    log = worked.bench.log(worked.bench.groups)
    log.lose()
    log.rebuild([])
    log.lead()
    worked.bench.later(100)


@pytest.mark.parametrize("happens", [_lose, _lose_and_lead_again, _rebuild])
def test_a_result_for_a_lead_that_is_over_is_dropped(
    worked: Worked, happens: Callable[[Worked], None]
) -> None:
    child = worked.start()
    happens(worked)
    assert child.is_cancelled
    assert not worked.is_working()
    child.done("late", None)
    assert worked.ended == []


def test_a_result_waits_while_the_log_has_no_room(worked: Worked) -> None:
    child = worked.start()
    worked.bench.log(worked.bench.groups).can_append = False
    child.done("result", None)
    worked.bench.later(200)
    assert worked.ended == []
    worked.bench.log(worked.bench.groups).can_append = True
    worked.bench.later(200)
    assert worked.ended == [("result", None)]


def test_a_result_that_cannot_be_taken_leaves_no_job_behind(worked: Worked) -> None:
    failures = worked.bench.groups.counters.failures
    worked.start().done("raise", None)
    assert worked.bench.groups.counters.failures == failures + 1
    assert not worked.is_working()
    assert not worked.start().is_cancelled

"""A coordinator with a crowd of clients in virtual time; its log and evidence come out as a node keeps them.

The decisions are real (`World`: the group shard and the catalog, every append checked), the evidence file is
written by the node's own code, and the log is read back through the `Reader` that history reads files by. So
a run of minutes takes milliseconds, and what `explain` is given is what a node would have written.
"""

from __future__ import annotations

import heapq
import itertools
import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cluster.runtime.heartbeat_gaps import HeartbeatGaps
from cluster.runtime.refusal_notes import NOTED_APIS, ORDINARY, first_error, owned_partitions
from coordinator.api import Decision, Job, JobKind
from coordinator.assignors import BUILT_IN
from coordinator.assignors.assigning import answer
from coordinator.limits import GroupSettings, Limits
from coordinator.regex.regexrounds import answer_round
from history.facts.rows import TopicPartition
from history.reading.node import NodeLog
from raftlog.env.files import OsFiles, join
from raftlog.env.simulated_files import SimFiles
from raftlog.storage.directory import TERM_FILE, TERM_KIND, NodeIdentity, format_node, shard_name
from raftlog.storage.evidence import FILES, Evidence, read_evidence
from raftlog.storage.frames import Frame, encode_frame
from raftlog.storage.metafile import write_meta
from raftlog.storage.segments import log_name
from records import Cause, Record, TermStartKey, TermStartValue, TermWhy, Trigger, encode_entry, encode_record
from records.ids import METADATA_SHARD
from tests.support.incidents.process import Process
from tests.support.memory_log import MemoryReader
from tests.support.world import WALL_START_MS, Entry, World, unpacked
from wire.apis import ApiKey
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

GROUP = "payments"
SHARD = 0
EVIDENCE_HOME = "/node"
SETTLE_MS_MAX = 180_000
POLL_MS = 250


class _Host:
    """The part of a `Host` that evidence and heartbeat gaps need."""

    def __init__(self, world: IncidentWorld) -> None:
        self._world = world
        self.files = SimFiles()
        self.files.mkdir(EVIDENCE_HOME)

    def monotonic_ms(self) -> float:
        return self._world.now_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self._world.now_ms)

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        fn(*args)

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> Any:
        return self._world.at(self._world.now_ms + delay_ms, lambda: fn(*args))


class Call:
    """A scheduled call; `cancel` has no effect after it."""

    def __init__(self, what: Callable[[], object]) -> None:
        self.what: Callable[[], object] | None = what

    def cancel(self) -> None:
        self.what = None


class IncidentWorld(World):
    """One group shard that a node leads, its clients, and the node's files, all from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        assignors: tuple[str, ...] = ("uniform", "range"),
        limits: Limits | None = None,
        **settings: Any,
    ) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.speaking: Process | None = None
        self.is_down = False
        self.processes: list[Process] = []
        self.catalog_log: list[Entry] = []
        self.term_starts: list[tuple[int, int]] = []
        self.term, self.leader = 0, 1
        self.answers: Callable[[Job], tuple[float, object, str | None]] = _prompt_answer
        self._due: list[tuple[float, int, Call]] = []
        self._numbers = itertools.count()
        settings.setdefault("heartbeat_interval_ms", self.rng.choice((1_000, 3_000, 5_000)))
        super().__init__(GroupSettings(assignors=assignors, **settings), limits)
        self.host = _Host(self)
        self.evidence = Evidence(self.host, EVIDENCE_HOME, 1 << 20)  # type: ignore[arg-type]
        self.heartbeat_gaps = HeartbeatGaps(self.host, self.evidence, SHARD)  # type: ignore[arg-type]
        self.heartbeat_gaps.start()
        self.holds_jobs = True
        self.catalog_index = 1
        self.catalog_log.append(self._term_entry(1, TermWhy.START, -1))
        self._open_term(TermWhy.START, -1)

    # Time

    def at(self, when_ms: float, what: Callable[[], object]) -> Call:
        """Schedule `what` for a moment of the monotonic clock."""
        call = Call(what)
        heapq.heappush(self._due, (when_ms, next(self._numbers), call))
        return call

    def live(self, span_ms: float) -> None:
        """Let time pass: clients send heartbeats, deadlines run, child processes answer."""
        end_ms = self.now_ms + span_ms
        while self._due and self._due[0][0] <= end_ms:
            at_ms, _, call = heapq.heappop(self._due)
            self._pass(at_ms - self.now_ms)
            if call.what is not None:
                what, call.what = call.what, None
                what()
        self._pass(end_ms - self.now_ms)

    def _pass(self, span_ms: float) -> None:
        if self.is_down:  # nobody leads: no deadline runs
            self.now_ms += max(span_ms, 0.0)
        else:
            self.sleep(max(span_ms, 0.0))

    def live_until(self, condition: Callable[[], object], within_ms: float = SETTLE_MS_MAX) -> None:
        """Let time pass until a condition holds; raise `AssertionError` if it never does."""
        until_ms = self.now_ms + within_ms
        while not condition():
            assert self.now_ms < until_ms, f"not so after {within_ms} ms: {self.describe()}"
            self.live(POLL_MS)

    def settle(self) -> None:
        """Let time pass until the group is stable (or empty), and a little longer."""
        self.live_until(lambda: self.state in ("Stable", "Empty", "Dead"))
        self.live(self.rng.uniform(1_000, 8_000))

    @property
    def state(self) -> str:
        group = self.shard.projection.groups.get(GROUP)
        return "Dead" if group is None else group.state.value

    def has_expired(self, member_id: str) -> bool:
        """Whether the member has ever expired; it may have joined again."""
        return any(expiry.member_id == member_id for entry in self.log for expiry in entry.cause.expiries)

    def describe(self) -> str:
        return f"group {self.state}, {[p.describe() for p in self.processes]}"

    @property
    def wall_now_ms(self) -> int:
        return WALL_START_MS + int(self.now_ms)

    # Processes.

    def start(self, topics: tuple[str, ...] = ("orders",), *, after_ms: float = 0.0, **how: Any) -> Process:
        """Start a client process, which joins after a delay if one is given."""
        process = Process(self, f"app-{len(self.processes) + 1}", topics, **how)
        self.processes.append(process)
        self.at(self.now_ms + after_ms, process.begin)
        if not after_ms:
            self.live(0.0)
        return process

    def crowd(self, size: int, topics: tuple[str, ...] = ("orders",), **how: Any) -> list[Process]:
        """Start that many processes one after another; return when the group is stable."""
        crowd = [self.start(topics, after_ms=self.rng.uniform(0, 4_000), **how) for _ in range(size)]
        self.live(4_000)
        self.settle()
        return crowd

    def new_member_id(self) -> str:
        return urlsafe_b64encode(self.rng.randbytes(16)).rstrip(b"=").decode()

    # Overrides of `World`

    def ctx(self, **changes: Any) -> Any:
        speaking = self.speaking
        surroundings: dict[str, Any] = {"principal": "ann"}
        if speaking is not None:
            surroundings |= {"client_id": speaking.client_id, "client_host": speaking.client_host}
        return super().ctx(**(surroundings | changes))

    def handle(self, api_key: ApiKey, version: int, request: Any, **changes: Any) -> Any:
        reply = super().handle(api_key, version, request, **changes)
        error = first_error(reply) if api_key in NOTED_APIS else None
        if error is not None and error[0] not in ORDINARY:
            speaking = self.speaking
            self.evidence.refused(
                api=api_key,
                error=error[0],
                reason=error[1],
                group_id=getattr(request, "group_id", ""),
                member_id=getattr(request, "member_id", ""),
                client="" if speaking is None else f"{speaking.client_id}{speaking.client_host}",
                owned=owned_partitions(request),
            )
        return reply

    def _append(self, decision: Decision) -> None:
        super()._append(decision)
        if decision.failure is not None:
            told = decision.failure
            self.evidence.trouble(told.group_id, told.words, work=told.work, member_id=told.member_id)
        for job in decision.jobs:
            delay_ms, result, error = self.answers(job)
            self.at(self.now_ms + delay_ms, lambda job=job, r=result, e=error: self._job_over(job, r, e))

    def _job_over(self, job: Job, result: object, error: str | None) -> None:
        if job in self.jobs:
            self.end_job(job, result, error)

    def admin(self, api_key: ApiKey, version: int, request: object) -> Any:
        self.catalog_index += 1
        decision = self.catalog.handle(api_key, version, request, self.ctx(next_index=self.catalog_index))
        assert decision.records
        assert decision.cause is not None
        self.catalog_log.append(
            Entry(self.catalog_index, self.wall_now_ms, decision.cause, tuple(decision.records))
        )
        return decision.reply

    def remove(self, *processes: Process) -> None:
        """Remove members as an operator does."""
        request = LeaveGroupRequest(
            group_id=GROUP, members=[MemberIdentity(member_id=one.member_id) for one in processes]
        )
        self.handle(ApiKey.LEAVE_GROUP, 5, request, principal="ann", client_host="/10.0.0.9")

    # Leaders.

    def lose_leader(self, gap_ms: float, why: TermWhy = TermWhy.EXPIRY) -> None:
        """Let another node lead after a gap; `why` is TRANSFER for a hand-over, START for a restart."""
        self.is_down = True
        for _ in self.shard.on_deposed():
            pass
        self.live(gap_ms)
        self.is_down = False
        previous = self.leader
        if why is not TermWhy.START:
            self.leader = previous % 3 + 1
        self.heartbeat_gaps.forget_all()
        self._fast.clear()
        self._open_term(why, -1 if why is TermWhy.START else previous)
        self.failover()

    def _open_term(self, why: TermWhy, previous: int) -> None:
        self.term += 1
        index = self.next_index
        entry = self._term_entry(index, why, previous)
        self.term_starts.append((index, self.term))
        self.log.append(entry)
        for raw in entry.records:
            self.shard.apply(raw, index)

    def _term_entry(self, index: int, why: TermWhy, previous: int) -> Entry:
        value = TermStartValue(
            term=max(self.term, 1),
            node_id=self.leader,
            why=why,
            previous_leader=previous,
            incarnation=f"disk-{self.leader}",
            boot_id=f"boot-{self.term}",
        )
        raw = encode_record(Record(TermStartKey(), value))
        return Entry(index, self.wall_now_ms, Cause(trigger=Trigger.TERM_OPENED), (raw,))

    # Questions about the group

    def named(self, topic_id: bytes) -> str:
        for entry in self.catalog_log:
            for record in entry.typed():
                if getattr(record.value, "topic_id", None) == topic_id:
                    return str(record.key.name)
        raise KeyError(topic_id)

    def partitions(self, owned: dict[bytes, Any]) -> set[TopicPartition]:
        return {
            TopicPartition(topic=self.named(topic_id), partition=number)
            for topic_id, numbers in owned.items()
            for number in numbers
        }

    def all_partitions(self, topic: str) -> set[TopicPartition]:
        found = self.catalog.view.topic(topic)
        assert found is not None
        return {TopicPartition(topic=topic, partition=number) for number in range(found.num_partitions)}

    def owned_by(self, process: Process) -> set[TopicPartition]:
        """Return the partitions that a process owns according to the log, pending revocation included."""
        member = self.group(GROUP).members[process.member_id]
        parts = {topic_id: set(epochs) for topic_id, epochs in member.current.assigned.items()}
        for topic_id, epochs in member.current.pending.items():
            parts.setdefault(topic_id, set()).update(epochs)
        return self.partitions(parts)

    def target_of(self, process: Process) -> set[TopicPartition]:
        return self.partitions(self.group(GROUP).target_of(process.member_id))

    def to_give_up(self, process: Process) -> set[TopicPartition]:
        return self.owned_by(process) - self.target_of(process)

    # The node's files

    def node(self, *, with_evidence: bool = True) -> NodeLog:
        """Return the log as history opens it."""
        self.evidence.close()
        notes = read_evidence(self.host.files, EVIDENCE_HOME) if with_evidence else []  # type: ignore[arg-type]
        readers = {
            METADATA_SHARD: MemoryReader(list(_frames(self.catalog_log, [(1, 1)]))),
            SHARD: MemoryReader(list(_frames(self.log, self.term_starts)), notes=notes),
        }
        return NodeLog("node-1", readers, 1)

    def save(self, path: str) -> None:
        """Save the log as a node's directory."""
        files = OsFiles()
        identity = NodeIdentity(cluster_id="test", node_id=1, incarnation="disk-1", num_shards=1)
        format_node(files, path, identity)
        for shard, frames in (
            (METADATA_SHARD, list(_frames(self.catalog_log, [(1, 1)]))),
            (SHARD, list(_frames(self.log, self.term_starts))),
        ):
            with Path(path, shard_name(shard), log_name(1)).open("ab") as file:
                for frame in frames:
                    file.write(
                        encode_frame(
                            frame.index,
                            frame.term,
                            frame.commit_index,
                            frame.timestamp_ms,
                            frame.record_count,
                            bytes(frame.body),
                        )
                    )
            home = str(Path(path, shard_name(shard)))
            write_meta(files, join(home, TERM_FILE), TERM_KIND, frames[-1].term, None)
        self.evidence.close()
        for name in FILES:
            if self.host.files.exists(f"{EVIDENCE_HOME}/{name}"):
                Path(path, name).write_bytes(self.host.files.read(f"{EVIDENCE_HOME}/{name}"))


def _frames(entries: list[Entry], term_starts: list[tuple[int, int]]) -> Iterator[Frame]:
    starts = dict(term_starts)
    term = 0
    for entry in entries:
        term = starts.get(entry.index, term)
        yield Frame(
            index=entry.index,
            term=term,
            commit_index=entry.index - 1,
            timestamp_ms=entry.timestamp_ms,
            record_count=len(entry.records),
            body=encode_entry(entry.cause, entry.records),
            file=log_name(1),
            offset=entry.index * 100,
            decided=True,
        )


def _prompt_answer(job: Job) -> tuple[float, object, str | None]:
    """Return the delay (ms), result and error of a child process that works correctly."""
    if job.kind is JobKind.RESOLVE:
        return 200.0, answer_round(job.request, lambda: 0.0), None
    uniform = BUILT_IN[0]
    return 200.0, unpacked(answer(unpacked(job.request), lambda _: uniform)), None

"""Seed 000 on a port: a coordinator of `lineage.rewrite` for each shard, over its log and the catalog.

Requests of a connection are served one at a time, as the design demands of a broker. Their answers wait until
their entry is committed, or, if there is none, until this node was proven to lead. If the outcome is unknown,
because the lead was lost, the connection is closed, and its consumer looks for the coordinator.

Invariants: a coordinator is Ready only while its shard is; no answer leaves before what it says is committed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cluster.lineage.connections import FramedConnection, FramedListener
from cluster.lineage.rewrite_settings import rewrite_settings
from cluster.lineage.shard_door import ShardDoor
from cluster.lineage.strategy_jobs import StrategyJobs
from cluster.node_info import NodeInfo
from cluster.runtime.answers import Unavailable
from cluster.runtime.job_slots import JobSlots
from cluster.runtime.requests import NO_ROOM_PAUSE_MS
from cluster.runtime.slices import OWN, Slices
from cluster.settings import Settings
from coordinator.oldgroups import TopicsByName
from lineage.rewrite.coordinator import RewriteCoordinator
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import NEVER, Now, RewriteOrigin, RewriteResult
from lineage.rewrite.machines import RewriteState
from lineage.rewrite.messages import (
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    RewriteBroker,
    decode_request,
    encode_response,
)
from lineage.rewrite.strategies import Assignment, StrategyJob
from lineage.rewrite.variants import DesignCoordinator, ThreadCoordinator
from raftlog.env.host import Host, Timer
from records import RewriteGroupKey, shard_of
from wire.schema import Message

LOG = logging.getLogger("quorate.lineage")

RELOAD_MS: Final = 1_000.0
"""Pause before a coordinator whose decision failed begins anew with the log."""

Locate = Callable[[str], NodeInfo | None]


class _Records(Mapping[Any, Any]):
    """The groups of a shard as its newest projection has them."""

    def __init__(self, door: ShardDoor) -> None:
        self._door = door

    def __getitem__(self, key: Any) -> Any:
        return self._door.projection.old_groups[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._door.projection.old_groups)

    def __len__(self) -> int:
        return len(self._door.projection.old_groups)


class RewriteService:
    """The protocol on one node (`connections.FrameService`); `locate` names the node that leads a group."""

    name = "the rewrite protocol"

    def __init__(
        self,
        host: Host,
        settings: Settings,
        doors: list[ShardDoor],
        locate: Locate,
        slots: JobSlots,
        slices: Slices,
    ) -> None:
        self.frame_bytes_max = settings.socket_request_max_bytes
        self._locate = locate
        self._shards = [_RewriteShard(host, settings, door, self, slots, slices) for door in doors]
        self.listener: FramedListener

    def serve(self, connection: FramedConnection, payload: bytes) -> None:
        header, request = decode_request(payload)
        origin = RewriteOrigin(connection, header, connection.client_host)
        if isinstance(request, ConsumerMetadataRequest):
            connection.send(encode_response(header, self._where(request.group_id)))
            return
        group_id: str = getattr(request, "group_id", "")
        shard = shard_of(group_id, len(self._shards))
        connection.shards_used |= 1 << shard
        connection.is_busy = True
        self._shards[shard].decide(request, origin)

    def _where(self, group_id: str) -> ConsumerMetadataResponse:
        node = self._locate(group_id)
        if node is None or not node.rewrite_port:
            return ConsumerMetadataResponse(error_code=RewriteError.COORDINATOR_NOT_AVAILABLE)
        broker = RewriteBroker(node_id=node.node_id, host=node.kafka_host, port=node.rewrite_port)
        return ConsumerMetadataResponse(coordinator=broker)

    def lost(self, connection: FramedConnection) -> None:
        """Do nothing: a consumer is found dead by its silence, as the design has it."""

    def moved(self, shard: int) -> None:
        """Follow the state of a shard on this node."""
        self._shards[shard].follow()

    def topics_changed(self) -> None:
        for shard in self._shards:
            shard.topics_changed()

    def resumed(self) -> None:
        """Look at the deadlines again, which have moved."""
        for shard in self._shards:
            shard.arm()


class _RewriteShard:
    """The coordinator of one shard."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        door: ShardDoor,
        service: RewriteService,
        slots: JobSlots,
        slices: Slices,
    ) -> None:
        self._host = host
        self._door = door
        self._service = service
        variant = DesignCoordinator if settings.lineage_rewrite_variant == "design" else ThreadCoordinator
        self._coordinator: RewriteCoordinator = variant(
            _Records(door),
            TopicsByName(lambda: door.catalog),
            host.fresh_id,
            lambda group_id: None,
            rewrite_settings(settings),
            door.ids_for(RewriteGroupKey),
        )
        self._strategies = StrategyJobs(slots, settings, self._topic_id, self._strategy_ended)
        self._slices = slices
        self._loading: Iterator[None] | None = None
        self._term = 0
        self._retry: Timer | None = None
        self._timer: Timer | None = None
        self._due_ms = 0.0
        self._has_news = False
        """Whether topics changed while no decision could be taken."""

    # The state of the shard.

    def follow(self) -> None:
        """Bring the coordinator into the state that its shard has on this node."""
        coordinator, door = self._coordinator, self._door
        is_over = not door.is_ready or door.term != self._term
        if coordinator.state is RewriteState.READY and is_over:
            self._step_down()
        is_stale = self._loading is not None and is_over
        if coordinator.state is RewriteState.CATCH_UP and (
            is_stale or not (door.is_ready or door.is_loading)
        ):
            self._step_down()
        if coordinator.state is RewriteState.DOWN and (door.is_ready or door.is_loading):
            coordinator.elected()
        if coordinator.state is RewriteState.CATCH_UP and door.is_ready:
            self._load()

    def _step_down(self) -> None:
        self._loading = None
        self._coordinator.demoted()
        self._strategies.cancel()
        self._service.listener.close_users_of(self._door.shard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _follow_in(self, delay_ms: float) -> None:
        if self._retry is None:
            self._retry = self._host.call_later(delay_ms, self._follow_again)

    def _follow_again(self) -> None:
        self._retry = None
        self.follow()

    def _load(self) -> None:
        """Load the groups in the node's slices; requests are answered as while loading until all are."""
        if self._loading is not None:
            return
        if self._door.enter() is None:
            self._follow_in(NO_ROOM_PAUSE_MS)
            return
        self._term, self._has_news = self._door.term, False
        self._loading = steps = self._load_all()
        self._slices.run(steps, lambda: steps is self._loading, OWN)

    def _load_all(self) -> Iterator[None]:
        try:
            yield from self._coordinator.loading(self._now)
        except Exception:
            LOG.exception("shard %d: %s cannot load its groups", self._door.shard, self._service.name)
            self._step_down()
            self._follow_in(RELOAD_MS)
            return
        self._loading = None
        self._work()

    def _now(self) -> Now:
        now_ms = self._host.monotonic_ms()
        return Now(self._door.clock_ms(now_ms), self._door.wall_ms(now_ms))

    # Decisions.

    def decide(self, request: Message, origin: RewriteOrigin) -> None:
        """Decide on a request, and answer when that is committed."""
        if self._coordinator.state is not RewriteState.READY:
            (refused,) = self._coordinator.handle(request, origin, NEVER)
            self._told(refused, None)
        elif (now_ms := self._door.enter()) is None:
            self._told(self._coordinator.put_off(request, origin), None)
        else:
            self._run(now_ms, functools.partial(self._coordinator.handle, request, origin))

    def topics_changed(self) -> None:
        """Compare the groups with the catalog; later if no decision may be taken now, or while loading."""
        self._has_news = True
        self._work()

    def _topic_id(self, name: str) -> bytes:
        topic = self._door.catalog.topic(name)
        assert topic is not None, "a strategy shares out what is in the catalog"
        return topic.topic_id

    def _strategy_ended(self, job: StrategyJob, answer: Assignment | None, error: str | None) -> None:
        """Decide on a strategy's answer; it waits while no decision may be taken."""
        if self._coordinator.state is not RewriteState.READY:
            return
        now_ms = self._door.enter()
        if now_ms is None:
            self._host.call_later(NO_ROOM_PAUSE_MS, self._strategy_ended, job, answer, error)
            return
        ended = self._coordinator.strategy_ended
        self._run(now_ms, functools.partial(ended, job.group_id, job.number, answer, error))

    def _work(self) -> None:
        """Do what is due: topics that changed, consumers that are silent."""
        if self._coordinator.state is not RewriteState.READY:
            return
        now_ms = self._door.enter()
        if now_ms is None:
            self._arm_in(NO_ROOM_PAUSE_MS)
            return
        if self._has_news:
            self._has_news = False
            self._run(now_ms, self._coordinator.topics_changed)
        deadline_ms = self._coordinator.next_deadline_ms
        if deadline_ms is not None and not self._door.delay_ms(deadline_ms):
            self._run(now_ms, self._coordinator.tick)
        self.arm()

    def _run(self, now_ms: float, decide: Callable[[Now], list[RewriteResult]]) -> None:
        """Take decisions, write their entries, and hold their answers."""
        door = self._door
        try:
            results = decide(Now(door.clock_ms(now_ms), door.wall_ms(now_ms)))
        except Exception:  # what is in memory may be half changed: the log is not
            LOG.exception("shard %d: a decision of %s failed", door.shard, self._service.name)
            self._step_down()
            self._follow_in(RELOAD_MS)
            return
        for result in results:  # all, before an answer lets the next request in
            if result.cause is not None:
                door.write(now_ms, result.group_id, result.cause, list(result.records))
        for result in results:
            for connection in result.closes:
                assert isinstance(connection, FramedConnection)
                connection.close("given up")
            if result.answers:
                told = functools.partial(self._told, result)
                door.hold(now_ms, told, has_written=result.cause is not None)
            if result.job is not None:
                self._strategies.start(result.job)
            if result.failure:
                door.strategy_failed(result.group_id, result.failure)
        self.arm()

    def _told(self, result: RewriteResult, why: Unavailable | None) -> None:
        """Send the answers of a result that is committed; else end their connections."""
        for origin, response in result.answers:
            connection = origin.connection
            assert isinstance(connection, FramedConnection)
            if why is None:
                connection.send(encode_response(origin.header, response))
                connection.go_on_serving()
            else:
                connection.close("unknown outcome")

    # The timer.

    def arm(self) -> None:
        """Make sure that `_work` runs when the next deadline has come."""
        deadline_ms = self._coordinator.next_deadline_ms
        if deadline_ms is not None and self._coordinator.state is RewriteState.READY:
            self._arm_in(self._door.delay_ms(deadline_ms))

    def _arm_in(self, delay_ms: float) -> None:
        due_ms = self._host.monotonic_ms() + delay_ms
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return  # it looks again then
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._host.call_later(max(delay_ms, 1.0), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._work()

"""Builds a holder of leases from its settings: a member that fetches nothing and has no offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from client.core.background import Background, EventHandler
from client.core.coordinator import CoordinatorManager
from client.core.env import ConnectionBackend, Environment
from client.core.events import ApplicationEvent, ApplicationEventType, BackgroundEvent
from client.core.leases import HeldLeases
from client.core.member.member import ConsumerMember, MemberExplanation
from client.core.member.membership import MembershipManager
from client.core.metadata import MetadataManager
from client.core.network.delegate import NetworkDelegate
from client.core.requests import NOTHING, PollResult
from client.core.settings import ConsumerSettings
from client.core.types import TopicPartition


class LeaseAssembly(NamedTuple):
    """The parts that a flavour needs."""

    holder: HeldLeases
    background: Background
    delegate: NetworkDelegate
    explain: Callable[[], MemberExplanation]


def assemble_leases(
    settings: ConsumerSettings, env: Environment, backend: ConnectionBackend, wake: Callable[[], None]
) -> LeaseAssembly:
    """Build a holder of leases. `wake` asks the backend for a pass of the background side."""
    events: deque[BackgroundEvent] = deque()
    delegate = NetworkDelegate(settings, env, backend, events.append)
    metadata = MetadataManager(settings, env, delegate, events.append)
    coordinator = CoordinatorManager(settings, env, delegate, events.append)
    member = ConsumerMember(settings, env, events.append, metadata, coordinator, _NothingFetched())

    handlers: dict[ApplicationEventType, EventHandler] = {
        **member.handlers,
        ApplicationEventType.UPDATE_METADATA: metadata.update_metadata,
    }
    managers = [_AlwaysPolled(member.membership), *member.managers, metadata, coordinator]
    background = Background(managers, handlers, delegate, events)

    def send(event: ApplicationEvent) -> None:
        background.add(event)
        wake()

    return LeaseAssembly(HeldLeases(env, events, send), background, delegate, member.explain)


class _NothingFetched:
    """The partitions that a lease fetches: none."""

    def begin(self, partitions: Mapping[TopicPartition, int | None], version: int) -> None:
        """Fetch nothing."""

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch nothing any more."""


class _AlwaysPolled:
    """Polls for a member without messages: its application is alive as long as its background side is."""

    def __init__(self, membership: MembershipManager) -> None:
        self._membership = membership

    def poll(self, now_ms: float) -> PollResult:
        """Note that the application is alive."""
        self._membership.polled_ms = now_ms
        return NOTHING

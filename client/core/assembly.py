"""Builds both sides of a consumer from its settings.

The application side and the background side get the two queues and nothing else of each other, except for
`explain`, which reads the member's state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from client.core.application import Application
from client.core.background import Background, EventHandler
from client.core.commits import CommitManager
from client.core.committed import CommittedManager
from client.core.coordinator import CoordinatorManager
from client.core.env import ConnectionBackend, Environment
from client.core.events import ApplicationEvent, ApplicationEventType, BackgroundEvent, ErrorEvent
from client.core.fetch.handler import FetchHandler
from client.core.fetch.sender import FetchSender
from client.core.list_offsets import ListOffsetsManager
from client.core.member.member import ConsumerMember, MemberExplanation
from client.core.metadata import MetadataManager
from client.core.network.delegate import NetworkDelegate
from client.core.positions import FetchPositions, PositionManager
from client.core.requests import RequestManager
from client.core.settings import ConsumerSettings
from client.core.unraised import log_unraised

EVENTS_MAX: Final = 1_000
"""Limit on the events that wait for the application side, beyond which errors go to the log, and nothing is
fetched, which bounds data and positions. A member has one round at a time."""


class ConsumerAssembly(NamedTuple):
    """The parts that a flavour needs."""

    application: Application
    background: Background
    delegate: NetworkDelegate
    explain: Callable[[], MemberExplanation]


def assemble(
    settings: ConsumerSettings, env: Environment, backend: ConnectionBackend, wake: Callable[[], None]
) -> ConsumerAssembly:
    """Build a consumer. `wake` asks the backend for a pass of the background side."""
    events: deque[BackgroundEvent] = deque()

    def has_backlog() -> bool:
        return len(events) >= EVENTS_MAX

    def emit(event: BackgroundEvent) -> None:
        if isinstance(event, ErrorEvent) and not event.is_fatal and has_backlog():
            log_unraised(event.error)
        else:
            events.append(event)

    delegate = NetworkDelegate(settings, env, backend, emit)
    member, managers, handlers = _background_parts(settings, env, delegate, emit, has_backlog)
    background = Background(managers, handlers, delegate, events)

    def send(event: ApplicationEvent) -> None:
        background.add(event)
        wake()

    application = Application(settings, env, FetchHandler(settings, send), events, send)
    return ConsumerAssembly(application, background, delegate, member.explain)


def _background_parts(
    settings: ConsumerSettings,
    env: Environment,
    delegate: NetworkDelegate,
    emit: Callable[[BackgroundEvent], None],
    has_backlog: Callable[[], bool],
) -> tuple[ConsumerMember, list[RequestManager], dict[ApplicationEventType, EventHandler]]:
    """Return the member, the managers in the order of a pass, and what handles each event."""
    metadata = MetadataManager(settings, env, delegate, emit)
    coordinator = CoordinatorManager(settings, env, delegate, emit)
    positions = FetchPositions(settings, env, emit, metadata.want_topics)
    member = ConsumerMember(settings, env, emit, metadata, coordinator, positions)
    identity = member.membership if settings.group_id is not None else None
    committed = CommittedManager(settings, env, identity, coordinator, metadata)
    commits = CommitManager(settings, env, identity, coordinator, metadata)
    offsets = ListOffsetsManager(settings, env, metadata)
    beginnings = PositionManager(
        settings, env, positions, committed if identity is not None else None, offsets, emit
    )
    sender = FetchSender(settings, env, metadata, positions, emit, has_backlog)

    kind = ApplicationEventType
    handlers: dict[ApplicationEventType, EventHandler] = {
        kind.UPDATE_METADATA: metadata.update_metadata,
        **member.handlers,
        kind.COMMIT: commits.commit,
        kind.FETCH_COMMITTED: committed.fetch_committed,
        kind.LIST_OFFSETS: offsets.list_offsets,
        kind.ASSIGN: positions.assign,
        kind.SEEK: positions.seek,
        kind.PAUSE: positions.pause,
        kind.FETCH_CONSUMED: sender.consumed,
    }
    managers: list[RequestManager] = [
        *member.managers,  # an assignment is fetched in the pass that acknowledges it
        beginnings,
        committed,
        commits,
        offsets,
        sender,
        metadata,
        coordinator,
    ]
    return member, managers, handlers

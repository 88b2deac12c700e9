"""The subscription of a consumer: its topics, and the events that tell the member of them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from client.core.assignors import AssignorOffer, offer
from client.core.errors import IllegalState
from client.core.events import ApplicationEvent, SubscribeEvent
from client.core.settings import ConsumerSettings


class Subscription:
    """The topics of one consumer."""

    def __init__(self, settings: ConsumerSettings, send: Callable[[ApplicationEvent], None]) -> None:
        self.topics: frozenset[str] = frozenset()
        self.regex: str | None = None
        self._settings = settings
        self._send = send
        self._offered: tuple[AssignorOffer, ...] = ()

    @property
    def is_on(self) -> bool:
        return bool(self.topics or self.regex)

    def begin(self, topics: Collection[str], regex: str | None) -> None:
        """Subscribe to these topics, in place of others."""
        self.topics, self.regex = frozenset(topics), regex
        self._tell(self._offers())

    def offer_assignors(self) -> None:
        """Offer the client-side assignors again if an assignment has changed their metadata."""
        offers = self._offers()
        if self.is_on and offers != self._offered:
            self._tell(offers)

    def end(self) -> None:
        """Subscribe to nothing; the member is told otherwise."""
        self.topics, self.regex = frozenset(), None

    def _offers(self) -> tuple[AssignorOffer, ...]:
        return tuple(map(offer, self._settings.group_local_assignors))

    def _tell(self, offers: tuple[AssignorOffer, ...]) -> None:
        self._offered = offers
        self._send(SubscribeEvent(topics=self.topics, regex=self.regex, assignors=offers))


def check_topics(topics: Collection[str]) -> None:
    """Raise IllegalState for what is not a collection of names."""
    if isinstance(topics, str):
        raise IllegalState(f"topics are a list: [{topics!r}]")
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise IllegalState(f"{topic!r} is not the name of a topic")

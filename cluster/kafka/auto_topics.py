"""Topics that are created because a client asks for them by name (`auto.create.topics.enable`), as in Kafka.

Only where the node keeps a scratch log: elsewhere a topic without messages would hide a wrong name. The
answer waits until the topic exists, so that its client need not ask again. If it cannot be created, the
answer is that it does not exist, and clients ask again.

Invariants: only names that Kafka allows and that are not Kafka's own are created, a bounded number for each
request; a question by id, for all topics or without `allow_auto_topic_creation` creates none.
"""

from __future__ import annotations

from typing import Final

from cluster.kafka.cluster_apis import is_legal_topic, metadata_answer, with_leader
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange
from cluster.kafka.forwarding import submit_to_controller
from wire.apis import API_VERSIONS, ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.metadata import MetadataRequest

TOPICS_AT_ONCE: Final = 1_000
"""Topics that one request creates; its client asks again for the others."""

ALLOWS_SINCE: Final = 4
"""First version of Metadata that has `allow_auto_topic_creation`; earlier ones allow it."""

INTERNAL: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Topics that Kafka keeps for itself; they do not exist here."""

DEFAULT: Final = -1


def metadata(context: ListenerContext, exchange: Exchange, request: MetadataRequest) -> None:
    """Answer Metadata 0–13, once the topics that it names and that did not exist have been created."""

    def answer(_: object = None) -> None:
        exchange.reply_in_slices(metadata_answer(context.node, exchange.api_version, request))

    def create() -> None:
        names = _absent(context, exchange.api_version, request)
        if not names or context.node.controller is None:
            answer()
            return
        topics = [
            CreatableTopic(name=name, num_partitions=DEFAULT, replication_factor=DEFAULT) for name in names
        ]
        api = ApiKey.CREATE_TOPICS, API_VERSIONS[ApiKey.CREATE_TOPICS][1]
        submit_to_controller(context, api, CreateTopicsRequest(topics=topics), exchange.client, answer)

    with_leader(context, exchange, len(request.topics or ()), create)


def _absent(context: ListenerContext, version: int, request: MetadataRequest) -> list[str]:
    """Return the names of topics to create."""
    if not context.settings.auto_create_topics_enable:
        return []
    if version >= ALLOWS_SINCE and not request.allow_auto_topic_creation:
        return []
    catalog = context.node.catalog
    names = dict.fromkeys(topic.name for topic in request.topics or () if topic.name is not None)
    absent = [
        name
        for name in names
        if catalog.topic(name) is None and name not in INTERNAL and is_legal_topic(name)
    ]
    return absent[:TOPICS_AT_ONCE]

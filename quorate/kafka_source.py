"""A Kafka cluster through confluent-kafka's AdminClient: the queries of a topic mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from quorate.client import Racks
from quorate.errors import CommandError, ExitCode
from quorate.mirror import SourceAway, SourceTopic

TOPICS_PER_REQUEST: Final = 1_000
"""At most this many topics per request, so that an answer stays below a few megabytes."""

UNKNOWN_TOPIC: Final = 3


def chosen_by(regex: str) -> Callable[[str], bool]:
    """A predicate for topics whose whole name matches an RE2 expression; raises `CommandError` (usage)."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        raise CommandError(
            f"--topics {regex!r} is not a regular expression of RE2: {error}", code=ExitCode.USAGE
        ) from error
    return lambda name: compiled.fullmatch(name) is not None


class KafkaSource:
    """The cluster at `bootstrap`; each query takes at most `timeout_s`."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        try:
            from confluent_kafka import KafkaException, TopicCollection
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise CommandError(
                "mirroring needs the package confluent-kafka",
                hint="in Quorate's checkout: pip install -e '.[demo]'",
                code=ExitCode.INSTALLATION,
            ) from error
        self._failures: tuple[type[Exception], ...] = (KafkaException, TimeoutError)
        self._collection: Any = TopicCollection
        self._timeout_s = timeout_s
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def cluster_id(self) -> str:
        try:
            found = self._admin.list_topics(timeout=self._timeout_s)
        except self._failures as error:
            raise SourceAway(_words(error)) from error
        return str(found.cluster_id)

    def topics(self) -> dict[str, SourceTopic]:
        try:
            names = sorted(self._admin.list_topics(timeout=self._timeout_s).topics)
            topics: dict[str, SourceTopic] = {}
            for first in range(0, len(names), TOPICS_PER_REQUEST):
                topics |= self._described(names[first : first + TOPICS_PER_REQUEST])
        except self._failures as error:
            raise SourceAway(_words(error)) from error
        return topics

    def _described(self, names: list[str]) -> dict[str, SourceTopic]:
        answers = self._admin.describe_topics(self._collection(names), request_timeout=self._timeout_s)
        found = {}
        for name, answer in answers.items():
            try:
                topic = answer.result(self._timeout_s)
            except self._failures as error:
                if getattr(error.args[0], "code", lambda: None)() == UNKNOWN_TOPIC:
                    continue  # deleted between the two requests
                raise
            if not topic.is_internal:
                rows = sorted(topic.partitions, key=lambda row: row.id)
                found[name] = SourceTopic(str(topic.topic_id), len(rows), racks_of(rows))
        return found


def racks_of(partitions: list[Any]) -> Racks:
    """Racks by partition, each once and sorted; () if the brokers have none."""
    racks = [tuple(sorted({node.rack for node in row.replicas if node.rack})) for row in partitions]
    while racks and not racks[-1]:
        racks.pop()
    return tuple(racks)


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    words = getattr(reason, "str", None)
    return str(words() if callable(words) else reason)

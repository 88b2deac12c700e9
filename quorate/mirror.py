"""Mirrors the topics of a Kafka cluster: creates, grows, deletes and recreates them in this catalog.

A round reads both sides, plans, and executes the plan, printing a line for each step. The plan is a pure
function, and a round may be interrupted anywhere: the next one completes the rest.

Invariants:
- Only topics that the mirror created are ever deleted. Their names and source ids are kept in a small file
  that is replaced atomically; it names the source cluster, and any other is refused.
- A topic is deleted only if it was missing at the source in two rounds, since a broker that has just started
  may not know all topics yet.
- Partitions never decrease: a topic that is smaller at the source is reported once.
- Racks are copied last, so that they never refer to partitions that do not exist here.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from history.render import plural
from quorate.client import Client, Racks
from quorate.errors import CommandError, ExitCode
from quorate.output import unwritten_file
from quorate.retrying_client import ClusterRefused
from raftlog.env.files import OsFiles, replace
from wire.errors import ErrorCode

Say = Callable[[str], None]

FORMAT = 1
"""Version of the state file."""

SIDES = ("source", "here")
"""Subjects of messages besides topics; an error about one of them means that it is unreachable."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source: its id as text, its number of partitions, the racks of their replicas."""

    topic_id: str
    num_partitions: int
    racks: Racks = ()


class MirrorSource:
    """The cluster that is mirrored; both queries raise `CommandError` if it does not answer."""

    def __init__(self, client: Client, regex: str) -> None:
        self._client = client
        self._takes = _matcher(regex)

    def cluster_id(self) -> str:
        return self._client.cluster_id() or ""

    def topics(self) -> dict[str, SourceTopic]:
        """Every topic that is not internal and whose whole name matches."""
        return {
            topic.name: SourceTopic(_id_text(topic.topic_id), topic.num_partitions, topic.racks)
            for topic in self._client.topics()
            if not topic.is_internal and self._takes(topic.name)
        }


def _id_text(topic_id: bytes) -> str:
    """A topic's id as the state file has it since its first version: base64 without padding."""
    return b64encode(topic_id).rstrip(b"=").decode("ascii")


def _matcher(regex: str) -> Callable[[str], bool]:
    """A test of whole names by an RE2 expression; raises `CommandError` (usage) for a wrong one."""
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


@dataclass(slots=True)
class MirrorState:
    """The state that the mirror keeps between runs."""

    cluster_id: str = ""
    made: dict[str, str] = field(default_factory=dict)
    """Topics that the mirror created here: name → id at the source."""

    @staticmethod
    def load(path: Path) -> MirrorState:
        """An empty state if there is no file; raises `CommandError` for a file that is not a mirror's."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return MirrorState()
        except (OSError, ValueError) as error:
            raise _bad_state(path, str(error)) from error
        match found:
            case {"format": 1, "source": str(cluster_id), "topics": dict(made)} if all(
                isinstance(topic_id, str) for topic_id in made.values()
            ):
                return MirrorState(cluster_id, made)
        raise _bad_state(path, "it was not written by `quorate topics mirror`")

    def save(self, path: Path) -> None:
        """Replace the file atomically."""
        document = {"format": FORMAT, "source": self.cluster_id, "topics": self.made}
        try:
            replace(OsFiles(), str(path), json.dumps(document, indent=1, sort_keys=True).encode())
        except OSError as error:
            raise unwritten_file(path, error) from error


def _bad_state(path: Path, why: str) -> CommandError:
    return CommandError(
        f"cannot use the state in {path}: {why}", hint="give another --state", code=ExitCode.USAGE
    )


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The actions of one round; values are numbers of partitions."""

    create: dict[str, int] = field(default_factory=dict)
    grow: dict[str, int] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    """Topics to delete and recreate: the source has another topic of the same name."""
    delete: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    """Topics missing from the source in this round; deleted if the next one agrees."""
    larger_here: dict[str, int] = field(default_factory=dict)


def plan(
    source: Mapping[str, SourceTopic],
    here: Mapping[str, int],
    made: Mapping[str, str],
    missed: frozenset[str],
    *,
    deletes: bool,
) -> MirrorPlan:
    """The plan for one round.

    `here` maps our topics to partitions, `made` are the topics that the mirror created, and `missed` those
    missing at the source in the last round.
    """
    create, grow, again, larger = {}, {}, {}, {}
    for name, topic in sorted(source.items()):
        ours = here.get(name)
        if ours is None:
            create[name] = topic.num_partitions
        elif made.get(name, topic.topic_id) != topic.topic_id:
            again[name] = topic.num_partitions
        elif ours < topic.num_partitions:
            grow[name] = topic.num_partitions
        elif ours > topic.num_partitions:
            larger[name] = topic.num_partitions
    missing = (
        frozenset(name for name in made if name not in source and name in here) if deletes else frozenset()
    )
    return MirrorPlan(create, grow, again, tuple(sorted(missing & missed)), missing - missed, larger)


class Mirror:
    """Mirrors `source` into the cluster of `client`."""

    def __init__(
        self, source: MirrorSource, client: Client, state_file: Path, say: Say, *, deletes: bool = True
    ) -> None:
        self._source = source
        self._client = client
        self._state_file = state_file
        self._state = MirrorState.load(state_file)
        self._say = say
        self._deletes = deletes
        self._missed: frozenset[str] = frozenset()
        self._said: dict[str, str] = {}
        self._num_topics = 0

    def run(self, interval_s: float, stopping: threading.Event) -> None:
        """Run rounds until `stopping`; an unreachable cluster is retried in the next one."""
        self._say(f"looking at the source every {interval_s:g} s, until Ctrl-C")
        has_agreed = False
        while not stopping.is_set():
            if self.round() and not has_agreed:
                has_agreed = True
                self._say_agreed()
            stopping.wait(interval_s)

    def once(self, pause_s: float) -> None:
        """Run until both sides agree; raises `CommandError` for anything that could not be done."""
        if not self.round() and self._missed:
            threading.Event().wait(pause_s)  # a topic is deleted after two misses
            self.round()
        if self._said:
            is_away = not self._said.keys().isdisjoint(SIDES)
            raise CommandError(
                f"some topics could not be mirrored: {'; '.join(self._said.values())}",
                code=ExitCode.UNREACHABLE if is_away else ExitCode.REFUSED,
            )
        self._say_agreed()

    def _say_agreed(self) -> None:
        self._say(f"all of the source's topics are here: {plural(self._num_topics, 'topic')}")

    def round(self) -> bool:
        """Read both sides and execute the plan; returns whether nothing is left to do."""
        try:
            self._check_source(self._source.cluster_id())
            source = self._source.topics()
        except CommandError as error:
            if error.code == ExitCode.USAGE:
                raise
            self._say_once(SIDES[0], f"the source does not respond: {error.message}")
            return False
        self._is_well(SIDES[0], "the source responds again")
        try:
            here = {topic.name: topic.num_partitions for topic in self._client.topics()}
        except CommandError as error:
            self._say_once(SIDES[1], str(error))
            return False
        self._is_well(SIDES[1], "the cluster responds again")
        self._num_topics = len(source)
        todo = plan(source, here, self._state.made, self._missed, deletes=self._deletes)
        self._missed = todo.missing
        self._forget_what_is_gone(source, here)
        self._carry_out(todo, source)
        self._take_over_racks(source)
        return not self._missed and not self._said

    def _check_source(self, cluster_id: str) -> None:
        if self._state.cluster_id in ("", cluster_id):
            self._state.cluster_id = cluster_id
            return
        raise CommandError(
            f"{self._state_file} belongs to a mirror of cluster {self._state.cluster_id}, but the source is "
            f"{cluster_id}",
            hint="give another --state",
            code=ExitCode.USAGE,
        )

    def _forget_what_is_gone(self, source: Mapping[str, SourceTopic], here: Mapping[str, int]) -> None:
        gone = [name for name in self._state.made if name not in source and name not in here]
        for name in gone:
            del self._state.made[name]
        if gone:
            self._state.save(self._state_file)

    def _carry_out(self, todo: MirrorPlan, source: Mapping[str, SourceTopic]) -> None:
        for name, count in todo.create.items():
            self._step(
                name,
                f"created {name} with {plural(count, 'partition')}",
                partial(self._make, name, source[name]),
            )
        for name, count in todo.again.items():
            what = (
                f"created {name} again with {plural(count, 'partition')}: the source has a new topic of "
                "that name"
            )
            self._step(name, what, partial(self._make_again, name, source[name]))
        for name, count in todo.grow.items():
            what = f"grew {name} to {plural(count, 'partition')}"
            self._step(name, what, partial(self._client.grow_topic, name, count))
        for name in todo.delete:
            self._step(name, f"deleted {name}", partial(self._unmake, name))
        for name, count in todo.larger_here.items():
            self._say_once(
                f"larger {name}",
                f"{name} has only {plural(count, 'partition')} at the source; partitions are never removed",
            )
        for about in [key for key in self._said if key.startswith("larger ")]:
            if about.removeprefix("larger ") not in todo.larger_here:
                del self._said[about]

    def _take_over_racks(self, source: Mapping[str, SourceTopic]) -> None:
        """Copy the racks of replicas for all topics that exist here by now."""
        try:
            here = self._client.topic_racks(source)
        except CommandError as error:
            self._say_once(SIDES[1], str(error))
            return
        for name, racks in here.items():
            if racks == source[name].racks:
                continue
            try:
                self._client.set_topic_racks(name, source[name].racks)
            except ClusterRefused as refused:
                self._say_once("racks", str(refused))
                if refused.error_code == ErrorCode.UNSUPPORTED_VERSION:
                    return  # it would be refused for every topic
            except CommandError as error:
                self._say_once("racks", str(error))
            else:
                self._say(f"copied the racks of {name}")
                self._said.pop("racks", None)
        if all(racks == source[name].racks for name, racks in here.items()):
            self._said.pop("racks", None)

    def _step(self, name: str, what: str, do: Callable[[], None]) -> None:
        try:
            do()
        except CommandError as error:
            self._say_once(f"topic {name}", str(error))
            return
        self._said.pop(f"topic {name}", None)
        self._say(what)

    def _make(self, name: str, topic: SourceTopic) -> None:
        self._remember(name, topic.topic_id)  # first: a topic created but not recorded would never be deleted
        self._client.create_topic(name, topic.num_partitions)

    def _make_again(self, name: str, topic: SourceTopic) -> None:
        self._client.delete_topic(name)
        self._make(name, topic)

    def _unmake(self, name: str) -> None:
        self._client.delete_topic(name)
        del self._state.made[name]
        self._state.save(self._state_file)

    def _remember(self, name: str, topic_id: str) -> None:
        self._state.made[name] = topic_id
        self._state.save(self._state_file)

    def _say_once(self, about: str, text: str) -> None:
        """Print a message unless it is the last one about the same subject."""
        if self._said.get(about) != text:
            self._said[about] = text
            self._say(text)

    def _is_well(self, about: str, text: str) -> None:
        if self._said.pop(about, None) is not None:
            self._say(text)

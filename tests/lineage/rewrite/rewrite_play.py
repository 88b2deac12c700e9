"""Stories of seed 000's protocol: a log in memory, random schedules, and what must hold after every event."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from coordinator.state.projection import Projection
from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.consumer import RewriteConsumerCore, RewriteConsumerSettings
from lineage.rewrite.machines import RewriteState
from lineage.rewrite.strategies import STRATEGIES, Assignment, StrategyJob
from records import Cause, RawRecord, ReasonKind, RewriteGroupKey, RewriteGroupValue, Stamped, decode_record
from tests.support.rewrite_playing import Play
from wire.schema import Message

GROUP = "g"
SESSION_MS = 3_000
SETTINGS = RewriteConsumerSettings(group_id=GROUP, session_timeout_ms=SESSION_MS)
COMMITTING = RewriteConsumerSettings(group_id=GROUP, session_timeout_ms=SESSION_MS, commit_interval_ms=700)
FINDING_MS = 300
"""Until a consumer has found a coordinator that serves: two backoffs, and messages."""
KEY = RewriteGroupKey(group_id=GROUP)
ENDS = {"right": 8, "error": 1, "twice": 1, "left out": 1, "unknown": 1, "not asked for": 1}
"""The ends of a user's strategy, and the frequency of each."""


class UsersStrategy:
    """A strategy of the user's: right or wrong by chance, quick or slow, until it `is_mended`."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self.is_mended = False
        self.ends: Counter[str] = Counter()

    def __call__(self, job: StrategyJob) -> tuple[float, Assignment | None, str | None]:
        """The time that the job takes in ms, and its answer or error."""
        took_ms = self._random.choice(
            [self._random.uniform(1, 100), self._random.uniform(100, 1.2 * SESSION_MS)]
        )
        end = "right"
        if not self.is_mended:
            end = self._random.choices([*ENDS], [*ENDS.values()])[0]
        took_ms = min(took_ms, 500.0) if self.is_mended else took_ms
        self.ends[end if took_ms <= job.deadline_ms else "too late"] += 1
        answer = STRATEGIES["roundrobin"]({id_: one.topics for id_, one in job.consumers.items()}, job.counts)
        owner, part = next((id_, part) for id_, part in sorted(answer.items()) if part)
        if end == "error":
            return took_ms, None, "out of luck"
        if end == "twice":
            answer[owner] = [*part, part[0]]
        elif end == "left out":
            answer[owner] = part[1:]
        elif end == "unknown":
            answer["nobody"] = answer.pop(owner)
        elif end == "not asked for":
            answer[owner] = [*part, ("secret", 0)]
        return took_ms, answer, None


class RewriteLog:
    """Entries, and the projection that they were applied to, with its hash after each."""

    def __init__(self) -> None:
        self.projection = Projection()
        self.groups = self.projection.old_groups
        self.entries: list[tuple[Cause, tuple[RawRecord, ...]]] = []
        self.hashes: list[int] = []

    def append(self, cause: Cause, records: tuple[RawRecord, ...]) -> None:
        self.entries.append((cause, records))
        for one in records:
            self.projection.apply(one, len(self.entries))
        self.hashes.append(self.projection.state_hash)

    @property
    def stamped(self) -> list[Stamped]:
        return [
            Stamped(index, index, one)
            for index, (_, records) in enumerate(self.entries, 1)
            for one in records
        ]

    @property
    def value(self) -> RewriteGroupValue:
        return self.groups[KEY]

    @property
    def generations(self) -> list[Cause]:
        return [cause for cause, records in self.entries if records[0].type == 1010]


class RewriteStory:
    """A play with a log, whose consumers commit and are watched."""

    def __init__(
        self, variant: str, seed: int = 1, counts: dict[str, int] | None = None, **others: Any
    ) -> None:
        self.random = random.Random(seed)
        self.log = RewriteLog()
        self.variant = variant
        self.recorded: list[str] = []
        """Messages and their bytes, entries, and states of the coordinator, in order, with ms."""
        self.messages: Counter[type[Message]] = Counter()
        self._noted: tuple[RewriteState, int] = (RewriteState.READY, 0)
        self.play = Play(
            variant, self.log, self.random, counts or {"t": 6}, watch=self._watch, tap=self._sent, **others
        )
        self.users: UsersStrategy | None = None
        self.silent_until_ms = 0.0
        self.taken: Counter[Any] = Counter()
        self.was_double = False

    def join(
        self, name: str, topics: tuple[str, ...] = ("t",), settings: RewriteConsumerSettings = SETTINGS
    ) -> RewriteConsumerCore:
        positions = {("t", number): number for number in range(6)}
        return self.play.join(name, settings, topics, positions=lambda: positions)

    def silence(self, for_ms: float) -> None:
        """Consumers may be silent for so long: others may own their partitions meanwhile."""
        self.silent_until_ms = max(self.silent_until_ms, self.play.now_ms + for_ms)

    def kill(self, down_ms: float = 500.0, loading_ms: float = 50.0) -> None:
        """Kill the coordinator: who was silent hears from the next one that others own its partitions."""
        if self.play.now_ms < self.silent_until_ms:
            self.silent_until_ms += down_ms + loading_ms + FINDING_MS
        self.play.kill(down_ms=down_ms, loading_ms=loading_ms)

    def run_until_asked(self) -> None:
        """Let time pass until a user's strategy is asked, at most a session."""
        for _ in range(SESSION_MS // 5):
            group = self.play.coordinator._groups.get(GROUP)
            if group is not None and group.asked is not None:
                return
            self.play.run(5)

    def settle(self) -> None:
        self.play.run(4 * SESSION_MS)

    def owners(self) -> dict[int, str]:
        return {number: names[0] for (_, number), names in self.play.owners().items()}

    def _sent(self, name: str, message: Message, frame: bytes) -> None:
        self._note()
        arrow = "<-" if type(message).__name__.endswith("Response") else "->"
        self.messages[type(message)] += 1
        self.recorded += [f"{self.play.now_ms:9.1f} {name} {arrow} {message}", f"{'':12}{frame.hex()}"]

    def _note(self) -> None:
        """Record a new state of the coordinator, and new entries."""
        state, num_entries = self._noted
        if self.play.coordinator.state is not state:
            self.recorded.append(f"{self.play.now_ms:9.1f} coordinator: {self.play.coordinator.state.value}")
        for cause, records in self.log.entries[num_entries:]:
            value = decode_record(records[0]).value
            written = f"{len(records)} offsets"
            if isinstance(value, RewriteGroupValue):
                reasons = ", ".join(ReasonKind(one.kind).name for one in cause.reasons)
                written = f"generation {value.generation}: {reasons}"
            self.recorded.append(f"{self.play.now_ms:9.1f} entry: {written}")
        self._noted = (self.play.coordinator.state, len(self.log.entries))

    def _watch(self) -> None:
        self._note()
        double = {one: names for one, names in self.play.owners().items() if len(names) > 1}
        self.was_double |= bool(double)
        assert not double or self.play.now_ms < self.silent_until_ms, (self.play.now_ms, double)


def _cut(play: Play, name: str, chance: random.Random) -> None:
    """Close a consumer's connection; its list of topics may have changed before it joins again."""
    if chance.random() < 0.5:
        play.processes[name].consumer.subscribe(chance.choice([("t",), ("u", "t")]))
    play.cut(name)


def play_schedule(variant: str, seed: int, strategy: str = "range") -> RewriteStory:
    """Joins, ends, pauses, kills, lost answers and connections, growing topics and changed lists, then rest.

    The strategy `mine` is a user's: it is asked for a while, and fails now and then until the rest begins."""
    users = UsersStrategy(random.Random(f"{seed}/strategy"))
    settings = RewriteSettings(strategies=frozenset({"range", "mine"}))
    story = RewriteStory(variant, seed, {"t": 6, "u": 3}, settings=settings, ask=users)
    story.users = users
    both = tuple(replace(one, strategy=strategy) for one in (SETTINGS, COMMITTING))
    play, chance = story.play, story.random
    consumers: list[RewriteConsumerCore] = []
    for step in range(25):
        names = list(play.processes)
        what = chance.choices(
            [
                *("join", "leave", "pause", "blink", "kill", "grow", "subscribe", "drop", "cut", "asked"),
                "recreate",
            ],
            [6, 2, 2, 2, 2, 1, 2, 1, 1, 3, 1],
        )[0]
        if what == "join" or not names:
            topics = chance.choice([("t",), ("t", "u"), ("t", "later")])
            consumers.append(story.join(f"c{step}", topics, both[step % 2]))
        elif what == "leave":
            play.leave(chance.choice(names))
        elif what == "pause":
            length_ms = chance.uniform(100, 2.5 * SESSION_MS)
            story.silence(length_ms + SESSION_MS)
            play.pause(chance.choice(names), length_ms)
        elif what == "blink":
            length_ms = chance.uniform(0.6, 1.2) * SESSION_MS
            story.silence(length_ms + SESSION_MS)
            play.pause(chance.choice(names), length_ms)
            play.run(length_ms)
        elif what == "kill":
            down_ms = chance.uniform(10, SESSION_MS / 2)
            story.kill(down_ms, chance.uniform(1, 300))
        elif what == "grow":
            topic = chance.choice(["t", "u", "later"])
            play.grow(topic, play.counts.get(topic, 0) + chance.randint(1, 3))
        elif what == "recreate":
            topic = chance.choice(["t", "u"])
            play.recreate(topic, play.counts[topic])
        elif what == "subscribe":
            play.processes[chance.choice(names)].consumer.subscribe(chance.choice([("t",), ("u", "t")]))
            if chance.random() < 0.5:
                play.run(SESSION_MS / 3 + chance.uniform(0, 30))
                story.kill(10, 1)
        elif what == "asked":
            story.run_until_asked()
            if chance.random() < 0.2:
                play.grow("t", play.counts["t"] + 1)
            else:
                _cut(play, chance.choice(names), chance)
        elif what == "cut":
            _cut(play, chance.choice(names), chance)
        else:
            play.deaf.update(names)
            play.run(chance.uniform(10, 500))
            story.kill()
        play.run(chance.choice([5, 50, 500, SESSION_MS, 3 * SESSION_MS]))
    if not play.processes:
        consumers.append(story.join("last", settings=both[0]))
    users.is_mended = True
    play.run(20 * SESSION_MS)
    for one in consumers:
        story.taken.update(one.taken)
    return story

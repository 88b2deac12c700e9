"""Generates scripts of groups with members of both protocols: upgrades, downgrades, and all in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.differential.script import Step

CLASSIC: Final = "abc"
CONSUMERS: Final = "de"
INSTANCES: Final = {"a": "i-1", "b": "i-2", "c": "i-3", "d": "i-1", "e": "i-5"}
"""The instance ids of static members: a process of either protocol may take the place of one of the other."""
TOPICS: Final = ("t3", "t4", "t7")
PROTOCOLS: Final = (
    ("range:@",),
    ("range:@", "roundrobin:@"),
    ("cooperative-sticky:&",),
    ("cooperative-sticky:&", "range:&"),
)


class MixedDisorder:
    """Classic members `a` to `c` and consumers `d` and `e` of one group: each comes, goes and errs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._version = rng.choice(("9", "9", "9", "8", "7", "5", "3"))
        self._protocols = rng.choice(PROTOCOLS)
        self._topics = rng.sample(TOPICS, rng.randint(1, 2))
        self._is_static = int(self._version) >= 5 and rng.random() < 0.8
        self._in: list[str] = []
        self._wants: dict[str, str] = {}

    def steps(self) -> Iterator[Step]:
        rng = self._rng
        for who in rng.sample(CLASSIC, rng.randint(0, 3)):
            yield from self._classic_join(who)
        if rng.random() < 0.8:
            yield from self._round()
        for _ in range(rng.randint(8, 22)):
            yield from rng.choices(
                (
                    self._join, self._round, self._step_of_one, self._leave, self._again, self._mistake,
                    self._offsets, self._look,
                ),
                (14, 22, 24, 12, 8, 8, 6, 8),
            )[0]()  # fmt: skip
        yield Step("describe")

    def _subscribed(self, who: str) -> str:
        """The topics that a member wants, which change now and then."""
        if who not in self._wants or self._rng.random() < 0.1:
            topics = self._topics if self._rng.random() < 0.8 else self._rng.sample(self._topics, 1)
            self._wants[who] = "|".join(sorted(topics))
        return self._wants[who]

    def _classic_join(self, who: str, **other: str) -> Iterator[Step]:
        topics = self._wants[who] if other.get("id") == "none" else self._subscribed(who)
        args = {
            "version": self._version,
            "protocols": ",".join(f"{protocol}{topics}" for protocol in self._protocols),
        }
        if self._is_static:
            args["instance"] = INSTANCES[who]
        if who not in self._in:
            self._in.append(who)
        step = Step("cjoin", who, {**args, **other})
        yield step
        if int(self._version) >= 4 and "instance" not in args and other.get("id") != "own":
            yield Step("cjoin", who, args)  # with the id that it was given

    def _join(self) -> Iterator[Step]:
        absent = [who for who in CLASSIC + CONSUMERS if who not in self._in]
        if not absent:
            return
        who = self._rng.choice(absent)
        if who in CLASSIC:
            yield from self._classic_join(who)
            return
        self._in.append(who)
        args = {"topics": self._subscribed(who).replace("|", ","), "assignor": "range"}
        if self._is_static:
            args["instance"] = INSTANCES[who]
        yield Step("join", who, args)

    def _round(self) -> Iterator[Step]:
        """Everybody does once or twice what its client does next."""
        for _ in range(self._rng.randint(1, 2)):
            for who in self._rng.sample(self._in, len(self._in)):
                if who in CONSUMERS:
                    yield Step("beat", who, {"owned": "told"})
                    continue
                yield Step("cbeat", who)
                yield from self._classic_join(who, id="own")
            for who in self._in:
                if who in CLASSIC:
                    yield Step("csync", who, {"assign": "range"})

    def _step_of_one(self) -> Iterator[Step]:
        if not self._in:
            return
        who = self._rng.choice(self._in)
        if who in CONSUMERS:
            yield Step("beat", who, {"owned": self._rng.choice(("told", "told", "kept", "null"))})
            return
        match self._rng.randrange(4):
            case 0:
                yield Step("cbeat", who)
            case 1:
                yield Step("csync", who, {"assign": "range", "version": self._rng.choice("5543")})
            case _:
                yield from self._classic_join(who, id="own")

    def _leave(self) -> Iterator[Step]:
        rng = self._rng
        if not self._in:
            return
        who = rng.choice(self._in)
        self._in.remove(who)
        if who in CLASSIC:
            yield Step("cleave", who, {"version": rng.choice("543")})
        elif self._is_static and rng.random() < 0.5:
            yield Step("leave", who, {"epoch": "-2"})
        else:
            yield Step("leave", who, {"epoch": "-1"})
        if rng.random() < 0.8:
            yield from self._round()

    def _again(self) -> Iterator[Step]:
        """A static member's next process, or a member with another subscription."""
        if not self._in:
            return
        who = self._rng.choice(self._in)
        if who in CONSUMERS:
            topics = self._subscribed(who).replace("|", ",")
            yield Step("resubscribe", who, {"topics": topics, "owned": "told"})
        elif self._is_static:
            yield from self._classic_join(who, id="none")
        else:
            yield from self._classic_join(who, id="own")
            yield Step("csync", who, {"assign": "range"})

    def _mistake(self) -> Iterator[Step]:
        rng = self._rng
        who = rng.choice(CLASSIC)
        match rng.randrange(6):
            case 0:
                yield Step("cbeat", who, {"generation": rng.choice(("above", "before"))})
            case 1:
                yield Step("csync", who, {"assign": "range", "protocol": "sticky"})
            case 2:
                yield Step("cjoin", "f", {"version": "9", "protocols": rng.choice(("other:@t3", ""))})
            case 3:
                yield Step("cbeat", who, {"id": "stranger"})
            case 4:
                yield Step("csync", who, {"generation": "above"})
            case _:
                yield Step("cleave", "-", {"members": rng.choice(("stranger", "@i-x", "@i-1"))})

    def _offsets(self) -> Iterator[Step]:
        rng = self._rng
        args = {"topic": self._topics[0], "partition": "0", "offset": str(rng.randrange(100))}
        who = rng.choice(self._in or ["a"])
        if who in CONSUMERS:
            yield Step("commit", who, {**args, "epoch": rng.choice(("same", "same", "before", "above"))})
        else:
            generation = rng.choice(("same", "same", "before", "above"))
            yield Step("ccommit", who, {**args, "generation": generation, "version": rng.choice("987")})
        if rng.random() < 0.4:
            yield Step("fetch", "-", {"topic": self._topics[0]})

    def _look(self) -> Iterator[Step]:
        match self._rng.randrange(3):
            case 0:
                kinds = self._rng.choice(("", "classic", "consumer"))
                yield Step("list", "-", {"types": kinds, "states": ""})
            case 1:
                yield Step("classic")
            case _:
                yield Step("describe")


def mixed_disorder(rng: random.Random) -> Iterator[Step]:
    yield from MixedDisorder(rng).steps()

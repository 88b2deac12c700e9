"""Generates scripts of classic members."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.differential.script import MEMBERS, Step

PROTOCOLS: Final = (
    "range:x",
    "range:x",
    "range:y",
    "range:x,roundrobin:x",
    "range:y,roundrobin:y",
    "roundrobin:x,range:x",
    "roundrobin:x",
    "sticky:x,range:x",
    "range:@t3",
    "range:@t4",
    "range:@t3,roundrobin:@t3",
)
INSTANCES: Final = {"a": "i-a", "b": "i-b", "c": "i-c"}
TOPIC: Final = "t3"
STRANGE_GENERATIONS: Final = ("above", "before", "none")


class ClassicDisorder:
    """Members that join, sync, leave and make every mistake, in any order."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._version = rng.choice(("9", "9", "9", "8", "7", "6", "5", "4", "3", "2"))
        self._protocols = rng.sample(PROTOCOLS, rng.randint(1, 4))
        self._is_static = {who: rng.random() < 0.45 for who in INSTANCES}
        self._ever: list[str] = []
        self._told: dict[str, dict[str, str]] = {}
        self._has_rounds = rng.random() < 0.75

    def steps(self) -> Iterator[Step]:
        rng = self._rng
        if rng.random() < 0.1:
            yield from self._consumer()
        for _ in range(rng.randint(3, 9)):
            absent = [who for who in MEMBERS if who not in self._ever]
            if not self._ever or (absent and rng.random() < 0.4):
                self._ever.append(rng.choice(absent))
                yield from self._join(self._ever[-1])
            else:
                yield from rng.choices(
                    (self._rejoin, self._restart, self._leave, self._mistake, self._offsets, self._admin),
                    (22, 18, 15, 25, 15, 8),
                )[0]()
            if self._has_rounds and rng.random() < 0.8:
                yield from self._round()
        if rng.random() < 0.2:
            yield from self._ending()

    def _consumer(self) -> Iterator[Step]:
        """A consumer member that leaves an empty group, or stays."""
        yield Step("join", "e", {"topics": TOPIC, "assignor": "range"})
        if self._rng.random() < 0.8:
            yield Step("leave", "e", {"epoch": "-1"})

    def _join(self, who: str, **other: str) -> Iterator[Step]:
        args = {"version": self._version, "protocols": self._rng.choice(self._protocols)}
        if self._is_static.get(who) and int(self._version) >= 5:
            args["instance"] = INSTANCES[who]
        if self._rng.random() < 0.1:
            args["reason"] = "because"
        self._told[who] = args
        step = Step("cjoin", who, {**args, **other})
        yield step
        if int(self._version) >= 4 and "instance" not in args and self._rng.random() < 0.95:
            yield Step("cjoin", who, args)

    def _again(self, who: str) -> Step:
        return Step("cjoin", who, self._told[who])

    def _round(self) -> Iterator[Step]:
        """Everybody joins again and syncs."""
        rng = self._rng
        if rng.random() < 0.7:
            for who in rng.sample(self._ever, len(self._ever)):
                if rng.random() < 0.9:
                    yield self._again(who)
        for who in rng.sample(self._ever, len(self._ever)):
            if rng.random() < 0.92:
                yield Step("csync", who, self._synced())

    def _synced(self) -> dict[str, str]:
        args = {"version": self._rng.choice("5543210")}
        if self._rng.random() < 0.15:
            args["assign"] = self._rng.choice(("none", "q"))
        return args

    def _rejoin(self) -> Iterator[Step]:
        who = self._rng.choice(self._ever)
        if self._rng.random() < 0.5:
            self._told[who] = {**self._told[who], "protocols": self._rng.choice(self._protocols)}
        step = self._again(who)
        if self._rng.random() < 0.15:
            step = Step(step.verb, who, {**step.args, self._rng.choice(("again", "lost")): "1"})
        yield step

    def _restart(self) -> Iterator[Step]:
        """A new process of a member, without its member id."""
        static = [who for who in self._ever if "instance" in self._told[who]]
        who = self._rng.choice(static or self._ever)
        yield from self._join(who, id="none")
        if self._rng.random() < 0.5:
            yield Step("cbeat", who)

    def _leave(self) -> Iterator[Step]:
        rng = self._rng
        who = rng.choice(self._ever)
        if rng.random() < 0.6:
            yield Step("cleave", who, {"version": rng.choice("543210")})
            return
        choices = [*self._ever, "stranger", *(f"@{one}" for one in INSTANCES.values()), f"{who}@i-a", "@i-x"]
        members = ",".join(rng.sample(choices, rng.randint(1, 3)))
        yield Step("cleave", "-", {"members": members, "version": rng.choice("543")})

    def _mistake(self) -> Iterator[Step]:
        rng = self._rng
        who = rng.choice(self._ever)
        args: dict[str, str] = {}
        match rng.randrange(4):
            case 0:
                args["generation"] = rng.choice(STRANGE_GENERATIONS)
            case 1:
                args["id"] = rng.choice(("stranger", "none", *self._ever))
            case 2:
                args["instance"] = rng.choice(("i-a", "i-b", "i-x", "none"))
            case _:
                pass
        match rng.randrange(5):
            case 0 | 1:
                yield Step("cbeat", who, {**args, "version": rng.choice("443210")})
            case 2:
                if not args:
                    args = rng.choice(({"type": "connect"}, {"protocol": "sticky"}, {"type": "none"}))
                yield Step("csync", who, {**args, "version": rng.choice("5543")})
            case 3:
                yield Step("ccommit", who, {**args, "offset": str(rng.randrange(100))})
            case _:
                yield self._bad_join()

    def _bad_join(self) -> Step:
        rng = self._rng
        who = rng.choice(self._ever)
        bad = rng.choice(
            (
                {"session": "500"},
                {"session": "70000"},
                {"protocols": ""},
                {"type": "none"},
                {"type": "connect"},
                {"id": "stranger"},
                {"group": "none"},
                {"protocols": "other:x"},
                {"id": rng.choice(self._ever)},
            )
        )
        if "id" in bad:
            return Step("cjoin", who, {**self._told[who], **bad})
        return Step("cjoin", "f", {"version": "9", **bad})

    def _offsets(self) -> Iterator[Step]:
        rng = self._rng
        who = rng.choice(self._ever)
        args = {"topic": rng.choice((TOPIC, TOPIC, "t4", "nowhere")), "offset": str(rng.randrange(100))}
        args["partition"] = str(rng.randrange(4))
        yield Step("ccommit", who, {**args, "version": rng.choice("98765432")})
        if rng.random() < 0.3:
            yield Step("ccommit", "-", {**args, "generation": "none"})
        if rng.random() < 0.5:
            yield Step("fetch", "-", {"version": rng.choice(("8", "9"))})
        if rng.random() < 0.2:
            yield Step("forget", "-", {"topic": TOPIC, "partition": "0"})

    def _admin(self) -> Iterator[Step]:
        states = self._rng.choice(
            ("", "", "Stable", "PreparingRebalance,CompletingRebalance", "Empty", "empty")
        )
        match self._rng.randrange(4):
            case 0:
                yield Step("delete")
            case 1:
                yield Step("describe")
            case 2:
                yield Step("configs")
            case _:
                kinds = self._rng.choice(("", "", "classic", "consumer", "Classic"))
                yield Step("list", "-", {"states": states, "types": kinds})

    def _ending(self) -> Iterator[Step]:
        """All leave; the group is deleted, or the other protocol takes it over."""
        rng = self._rng
        for who in self._ever:
            if rng.random() < 0.9:
                yield Step("cleave", who)
        match rng.randrange(3):
            case 0:
                yield Step("delete")
                yield Step("cjoin", "a", {"version": "3"})
            case 1:
                yield Step("join", "d", {"topics": TOPIC, "assignor": "range"})
                yield Step("describe")
                yield Step("cbeat", rng.choice(self._ever))
                yield Step("fetch")
            case _:
                yield Step("ccommit", "-", {"generation": "none"})
                yield Step("fetch")


def classic_disorder(rng: random.Random) -> Iterator[Step]:
    yield from ClassicDisorder(rng).steps()

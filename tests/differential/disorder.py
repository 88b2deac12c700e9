"""Scripts with range and every kind of disorder."""

from __future__ import annotations

import random
from typing import Final

from tests.differential.script import MEMBERS, RANGE_TOPICS, Step

ONE_TOO_MANY: Final = "f"

STEPS_MIN, STEPS_MAX = 15, 45

NEVER_TAGGED: Final = frozenset({"create", "grow", "drop", "config", "forget"})
"""Steps sent by barriers, or in a version without tagged fields."""

CONFIG_VALUES: Final = {
    "heartbeat": ("1500", "2000", "100", "90000", "", "x", "-1"),
    "session": ("30000", "50000", "999", "60001", "", "1e3", "2147483648"),
    "interval": ("15000", "15001", "-1", "", " 0 "),
    "unknown": ("1", ""),
}

STRAYS: Final = (
    "stranger", "stranger-leaves", "no-group", "no-member", "no-timeout", "owning-join", "no-topics",
    "low-epoch", "assignor", "no-instance", "blank-rack",
    "bad-regex", "lookaround",
)  # fmt: skip
"""Invalid heartbeats (`heartbeats.py` builds each)."""


class Disorder:
    """Range: members come and go, acknowledge or not, lose replies, send wrong epochs; topics change."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._topics = list(rng.sample(RANGE_TOPICS, rng.randint(1, 3)))
        self._has_own = rng.random() < 0.35
        self._own: dict[str, int] = {}
        if self._has_own:
            self._topics.append("own1")
        self._joined: list[str] = []
        self._regex = self._expression() if not self._has_own and rng.random() < 0.25 else ""
        """One expression for the whole script: Kafka resolves a group's next one only ten seconds later."""
        self._static = (
            rng.sample(MEMBERS, rng.randint(1, 3)) if not self._regex and rng.random() < 0.4 else []
        )

    def steps(self) -> list[Step]:
        rng = self._rng
        steps: list[Step] = []
        if self._has_own and rng.random() < 0.7:
            steps += self._change_topics()
        steps += self._join()
        for _ in range(rng.randint(STEPS_MIN, STEPS_MAX)):
            steps += self._next()
        return [self._tagged(step) for step in steps]

    def _tagged(self, step: Step) -> Step:
        """Occasionally add a field that only a later release knows."""
        is_flexible = step.verb not in NEVER_TAGGED and step.get("version") in ("", "1", "10")
        if is_flexible and self._rng.random() < 0.02:
            return Step(step.verb, step.who, {**step.args, "tagged": "1"})
        return step

    def _next(self) -> list[Step]:
        rng = self._rng
        choices = {
            self._join: 12 if len(self._joined) < rng.randint(2, 5) else 2,
            self._beat: 60,
            self._round: 12,
            self._resubscribe: 4,
            self._full: 4,
            self._leave: 5,
            self._commit: 12,
            self._fetch: 5,
            self._forget: 2,
            self._look: 8,
            self._stray: 3,
            self._twin: 2 if self._static else 0,
            self._ghost: 2 if self._static else 0,
            self._too_many: 1,
            self._change_topics: 5 if self._has_own else 0,
            self._config: 2,
        }
        return rng.choices(list(choices), list(choices.values()))[0]()

    def _member(self) -> str:
        return self._rng.choice(self._joined) if self._joined else "a"

    def _some_topics(self) -> str:
        return ",".join(sorted(self._rng.sample(self._topics, self._rng.randint(1, len(self._topics)))))

    def _expression(self) -> str:
        return "|".join(self._rng.sample(RANGE_TOPICS, self._rng.randint(1, 3)))

    def _join(self) -> list[Step]:
        rng = self._rng
        absent = [member for member in MEMBERS if member not in self._joined]
        who = rng.choice(absent) if absent and rng.random() < 0.9 else self._member()
        if who in self._static and who in self._joined and rng.random() < 0.5:
            return []
        args = {"topics": self._some_topics(), "assignor": "range"}
        if self._regex and rng.random() < 0.6:
            args["regex"] = self._regex
            if rng.random() < 0.5:
                args["topics"] = ""
        elif rng.random() < 0.1:
            args["version"] = "0"
        if rng.random() < 0.1:
            args["lost"] = "1"
        if rng.random() < 0.1:
            args["rack"] = "r1"
        if who in self._static:
            args["instance"] = f"i-{who}"
        if who not in self._joined:
            self._joined.append(who)
        return [Step("join", who, args)]

    def _beat(self) -> list[Step]:
        rng = self._rng
        owned = rng.choices(["told", "kept", "null", "none"], [60, 12, 25, 3])[0]
        epoch = rng.choices(["same", "before", "above"], [94, 4, 2])[0]
        args = {"owned": owned}
        if epoch != "same":
            args["epoch"] = epoch
        if rng.random() < 0.06:
            args["lost"] = "1"
        if rng.random() < 0.1:
            args["terse"] = "1"
        return [Step("beat", self._member(), args)]

    def _round(self) -> list[Step]:
        """Every joined member heartbeats one to three times, so that the group makes progress."""
        rng = self._rng
        order = rng.sample(self._joined, len(self._joined)) * rng.randint(1, 3)
        return [Step("beat", who, {"owned": "told"}) for who in order]

    def _resubscribe(self) -> list[Step]:
        args = {"topics": self._some_topics(), "owned": "told"}
        if self._regex:
            args["regex"] = self._rng.choice([self._regex, ""])
        return [Step("resubscribe", self._member(), args)]

    def _full(self) -> list[Step]:
        return [Step("full", self._member(), {"owned": self._rng.choice(["told", "kept"])})]

    def _leave(self) -> list[Step]:
        if not self._joined:
            return []
        who = self._member()
        self._joined.remove(who)
        if who in self._static and self._rng.random() < 0.6:
            return [Step("leave", who, {"epoch": "-2"})]
        return [Step("leave", who, {"epoch": "-1"}), *self._somebody_beats()]

    def _twin(self) -> list[Step]:
        """A member joins with the instance id of another."""
        who, other = self._rng.sample(MEMBERS, 2)
        if who in self._joined and self._rng.random() < 0.5:
            return []
        args = {"topics": self._some_topics(), "assignor": "range", "instance": f"i-{other}"}
        return [Step("join", who, args)]

    def _ghost(self) -> list[Step]:
        """A replaced process of a static member sends a heartbeat or leaves."""
        return [
            Step("ghost", self._rng.choice(self._static), {"epoch": self._rng.choice(["same", "-1", "-2"])})
        ]

    def _somebody_beats(self) -> list[Step]:
        """Send a heartbeat: Kafka acts on a leave or a changed topic only then, and we at once."""
        return [Step("beat", self._member(), {"owned": "null"})] if self._joined else []

    def _commit(self) -> list[Step]:
        rng = self._rng
        topic = rng.choice(self._topics)
        args = {
            "topic": topic,
            "partition": str(rng.randrange(6)),
            "epoch": rng.choices(["same", "before", "above", "none"], [60, 20, 10, 10])[0],
            "offset": str(rng.randrange(1000)),
        }
        if rng.random() < 0.1:
            args["metadata"] = str(rng.choice([0, 7, 4_096, 4_097]))
        if rng.random() < 0.1:
            args["version"] = rng.choice(["8", "10"])
        if rng.random() < 0.3:
            args["held"] = str(rng.randrange(3))
        who = "-" if rng.random() < 0.15 else self._member()
        return [Step("commit", who, args)]

    def _fetch(self) -> list[Step]:
        rng = self._rng
        args = {"topic": rng.choice(self._topics)} if rng.random() < 0.7 else {}
        if rng.random() < 0.2:
            args["version"] = rng.choice(["8", "10"])
        if rng.random() < 0.4:
            return [Step("fetch", "-", args)]
        args["epoch"] = rng.choices(["same", "before", "above"], [70, 20, 10])[0]
        return [Step("fetch", self._member(), args)]

    def _forget(self) -> list[Step]:
        args = {"topic": self._rng.choice(self._topics), "partition": str(self._rng.randrange(6))}
        return [Step("forget", "-", args)]

    def _look(self) -> list[Step]:
        rng = self._rng
        verb = rng.choices(["describe", "list", "classic", "delete"], [60, 12, 8, 20])[0]
        if verb == "list":
            states = rng.choice(["", "Stable", "stable,empty", "Reconciling", "Assigning", "nonsense"])
            types = rng.choice(["", "consumer", "Classic", "consumer,classic"])
            return [Step("list", "-", {"states": states, "types": types})]
        return [Step(verb)]

    def _stray(self) -> list[Step]:
        """An invalid heartbeat: from a stranger, or with a wrong field."""
        rng = self._rng
        what = rng.choice(STRAYS)
        return [Step("stray", "-", {"what": what})]

    def _too_many(self) -> list[Step]:
        if len(self._joined) < len(MEMBERS):
            return []
        args = {"topics": self._some_topics(), "assignor": "range"}
        return [Step("join", ONE_TOO_MANY, args)]

    def _change_topics(self) -> list[Step]:
        rng = self._rng
        partitions = self._own.get("own1")
        if partitions is None:
            partitions = self._own["own1"] = rng.randint(1, 6)
            return [
                Step("create", "-", {"topic": "own1", "partitions": str(partitions)}),
                *self._somebody_beats(),
            ]
        if rng.random() < 0.6:
            self._own["own1"] += rng.randint(1, 3)
            step = Step("grow", "-", {"topic": "own1", "partitions": str(self._own["own1"])})
            return [step, *self._somebody_beats()]
        del self._own["own1"]
        dropped = Step("drop", "-", {"topic": "own1"})
        if rng.random() < 0.5:
            self._own["own1"] = rng.randint(1, 6)
            created = Step("create", "-", {"topic": "own1", "partitions": str(self._own["own1"])})
            return [dropped, created, *self._somebody_beats()]
        return [dropped, *self._somebody_beats()]

    def _config(self) -> list[Step]:
        rng = self._rng
        name = rng.choice(["heartbeat", "heartbeat", "session", "interval", "unknown"])
        value = rng.choice(CONFIG_VALUES[name])
        return [
            Step("config", "-", {name: value}),
            *self._somebody_beats(),
            Step("configs", "-", {"synonyms": "1"} if rng.random() < 0.5 else {}),
        ]

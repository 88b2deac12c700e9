"""Generates the script of a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.differential.classic_generating import classic_disorder
from tests.differential.disorder import Disorder
from tests.differential.mixed_generating import mixed_disorder
from tests.differential.script import MEMBERS, RANGE_TOPICS, SETTLE, UNIFORM_TOPIC, Script, Step
from tests.differential.transactions import transactions


def generate_each(seed: int) -> list[Script]:
    """Return a script of each kind."""
    return [generate(seed), generate_classic(seed), generate_mixed(seed), generate_transactional(seed)]


def generate(seed: int) -> Script:
    """Return the script of a seed: two thirds use range and every kind of disorder, one third uniform."""
    rng = random.Random(seed)
    (make,) = rng.choices([_disorder, _uniform, _settling], [68, 16, 16])
    steps = make(rng)
    return Script(f"seed {seed}", tuple(steps))


def generate_classic(seed: int) -> Script:
    """Return the script of a seed with classic members."""
    return Script(f"classic seed {seed}", tuple(classic_disorder(random.Random(seed))))


def generate_mixed(seed: int) -> Script:
    """Return the script of a seed with members of both protocols."""
    return Script(f"mixed seed {seed}", tuple(mixed_disorder(random.Random(seed))))


def generate_transactional(seed: int) -> Script:
    """Return the script of a seed with transactional producers."""
    return Script(f"transactional seed {seed}", tuple(transactions(random.Random(seed))))


def _disorder(rng: random.Random) -> Iterator[Step]:
    yield from Disorder(rng).steps()


def _uniform(rng: random.Random) -> Iterator[Step]:
    """Uniform: one change at a time, then rounds until the group is settled, then a check of every member."""
    joined: list[str] = []
    for _ in range(rng.randint(3, 8)):
        absent = [member for member in MEMBERS if member not in joined]
        if not joined or (absent and rng.random() < 0.65):
            who = rng.choice(absent)
            args = {"topics": UNIFORM_TOPIC}
            if rng.random() < 0.3:
                args["version"] = "0"
            if rng.random() < 0.15:
                args["lost"] = "1"
            joined.append(who)
            yield Step("join", who, args)
        elif len(joined) > 1:
            who = rng.choice(joined)
            joined.remove(who)
            yield Step("leave", who, {"epoch": "-1"})
        for _ in range(4):
            for who in rng.sample(joined, len(joined)):
                yield Step("beat", who, {"owned": "told"})
                if rng.random() < 0.15:
                    args = {"topic": UNIFORM_TOPIC, "held": str(rng.randrange(12)), "partition": "0"}
                    yield Step("commit", who, {**args, "epoch": "same", "offset": "5"})
        yield Step("describe", "-", {"settled": "1"})


def _settling(rng: random.Random) -> Iterator[Step]:
    """Uniform, with partition counts that do not divide evenly and, half of the time, different
    subscriptions: one change at a time, then as many rounds as it takes to settle."""
    is_mixed = rng.random() < 0.5
    pool = rng.sample([*RANGE_TOPICS, UNIFORM_TOPIC], rng.randint(1, 4))
    joined: list[str] = []

    def some() -> str:
        return ",".join(rng.sample(pool, rng.randint(1, len(pool))) if is_mixed else pool)

    for _ in range(rng.randint(3, 9)):
        absent = [member for member in MEMBERS if member not in joined]
        if not joined or (absent and rng.random() < 0.55):
            who = rng.choice(absent)
            joined.append(who)
            yield Step("join", who, {"topics": some()})
        elif is_mixed and rng.random() < 0.4:
            yield Step("resubscribe", rng.choice(joined), {"topics": some(), "owned": "told"})
        elif len(joined) > 1:
            who = rng.choice(joined)
            joined.remove(who)
            yield Step("leave", who, {"epoch": "-1"})
        yield Step(SETTLE)

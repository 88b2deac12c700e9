"""Single rules on rows made by hand, for what logs of a coordinator rarely show."""

from __future__ import annotations

from dataclasses import replace

from history.diagnoses.findings import findings_of
from history.facts.rows import GroupFinding, MemberSession, SessionEnd

from .random_facts import SECOND, START_MS, RandomFacts

ROWS = RandomFacts(1, steps=60).rows()
EPOCH, SESSION = ROWS.epochs[0], ROWS.sessions[0]
BLANK = replace(ROWS, epochs=(), spans=(), sessions=(), terms=())


def of_epochs(*places: tuple[int, int, int | None, int | None], last_s: int) -> list[GroupFinding]:
    """The NO_TARGET findings of epochs; each begins at an index and a second, gets its target, and ends."""
    rows = []
    for number, (index, begin_s, target_s, end_s) in enumerate(places, 1):
        target = (None, None) if target_s is None else (index + 1, START_MS + target_s * SECOND)
        end = (None, None) if end_s is None else (index + 2, START_MS + end_s * SECOND)
        row = replace(EPOCH, epoch=number, index=index, timestamp_ms=START_MS + begin_s * SECOND, moves=())
        row = replace(row, target_index=target[0], target_ms=target[1], end_index=end[0], end_ms=end[1])
        rows.append(replace(row, protocol="consumer", waits=()))
    facts = replace(BLANK, epochs=tuple(rows), last_ms=START_MS + last_s * SECOND)
    return [one for one in findings_of(facts, None) if one.kind == "NO_TARGET"]


def when(found: list[GroupFinding]) -> list[tuple[int, int]]:
    """Begin and end of each, in seconds."""
    return [((one.from_ms - START_MS) // SECOND, ((one.to_ms or 0) - START_MS) // SECOND) for one in found]


def test_a_period_without_a_target_ends_with_its_group() -> None:
    """The group is deleted after 60 s. Its next one, 100 s later, gets its target 20 s after its begin."""
    found = of_epochs((1, 0, None, 60), (10, 160, 180, None), last_s=300)
    assert when(found) == [(0, 60), (160, 180)]
    assert found[0].to_index == 3
    assert found[0].epochs == (1,)


def test_a_period_without_a_target_is_told_of_a_group_that_never_came_back() -> None:
    assert when(of_epochs((1, 0, None, 60), last_s=300)) == [(0, 60)]


def stay(number: int, from_s: int, to_s: int) -> MemberSession:
    """A member of the client app-1 that joins and leaves; entries have a second's number as index."""
    return replace(
        SESSION,
        member_id=f"m{number}",
        instance_id=None,
        client_id="app-1",
        rejoined=(),
        aways=(),
        from_index=from_s,
        from_ms=START_MS + from_s * SECOND,
        to_index=to_s,
        to_ms=START_MS + to_s * SECOND,
        end=SessionEnd.LEFT,
    )


def flapping_of(*sessions: MemberSession) -> list[GroupFinding]:
    facts = replace(BLANK, sessions=sessions, last_ms=START_MS + 100_000 * SECOND)
    return [one for one in findings_of(facts, None) if one.kind == "FLAPPING_MEMBER"]


def test_one_overlap_hides_no_flapping_of_the_rest_of_a_processs_life() -> None:
    """A process returned five times. A day later two members of its client id were there at the same time."""
    flapping = [stay(n, 30 * n, 30 * n + 20) for n in range(6)]
    pair = [stay(n, 86_400 + n, 86_500 + n) for n in (10, 11)]
    (alone,) = flapping_of(*flapping)
    assert flapping_of(*flapping, *pair) == [alone]


def test_members_that_are_there_together_are_no_flapping_process() -> None:
    assert not flapping_of(*(stay(n, n, 1_000 + n) for n in range(6)))

"""Stories of whole consumers with the real coordinator: 300 with each run, 10,000 with `make chaos`."""

from __future__ import annotations

import pytest

from tests.client.model_cluster import KINDS
from tests.client.stories import play_many
from tests.report import count_fault


@pytest.mark.parametrize(
    "seeds",
    [range(100), *(pytest.param(range(n, n + 100), marks=pytest.mark.thorough) for n in (100, 200))],
    ids=str,
)
def test_no_partition_is_shared_and_no_commit_goes_back_under_faults(seeds: range) -> None:
    met = play_many(seeds)
    for kind in KINDS:
        count_fault("client", f"{kind} request", met[kind])
        assert met[kind]
    for error in ("UserError", "TimedOut", "a callback that never returns"):
        assert met[error], f"no user met {error}"
    assert met["FENCED_MEMBER_EPOCH"] + met["UNKNOWN_MEMBER_ID"]


def test_the_same_holds_for_members_that_compute_their_groups_assignment() -> None:
    """Some are late, and some assign a partition twice, which the coordinator refuses."""
    met = play_many(range(300, 340), has_assignors=True)
    for code in ("NONE", "INVALID_ASSIGNMENT"):
        assert met[f"install: {code}"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1_000, 11_000, 1_000))
def test_no_partition_is_shared_and_no_commit_goes_back_in_thousands_of_stories(first: int) -> None:
    play_many(range(first, first + 1_000))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", [20_000, 21_000])
def test_members_that_compute_share_nothing_in_thousands_of_stories(first: int) -> None:
    play_many(range(first, first + 1_000), has_assignors=True)

"""Golden stories: each `*.txt` beside this file is a script for a whole simulated node, or for three of them
(`> given nodes=3`), and what came of it.

A line that begins with `> ` is a command (`stage.py` lists them), the lines under it are what was seen. The
test runs the commands and compares; `--rewrite-scenarios` writes what was seen into the file, for a person to
read in the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.cluster_stage import ClusterStage
from tests.scenarios.stage import Stage, perform

ON_A_CLUSTER = "> given nodes=3"

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


def performed(script: str) -> str:
    """On the stage that the story asks for."""
    return perform(script, ClusterStage() if ON_A_CLUSTER in script else Stage())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_story(story: Path, request: pytest.FixtureRequest) -> None:
    told = story.read_text()
    happened = performed(told)
    if request.config.getoption("--rewrite-scenarios"):
        story.write_text(happened)
    else:
        assert happened == told


def test_a_story_is_the_same_each_time_it_is_performed() -> None:
    for story in STORIES:
        assert performed(story.read_text()) == performed(story.read_text())


def test_a_story_that_differs_is_noticed() -> None:
    script = "> create orders 4\norders has 5 partitions\n"
    assert performed(script) == "> create orders 4\norders has 4 partitions\n"


def test_stories_are_there() -> None:
    assert len(STORIES) >= 9

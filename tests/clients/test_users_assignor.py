"""A user's assignor, installed as a package, on a real node: consumers see it work, fail, recover."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from cluster.launching.launcher import NodeProcess, launch_node
from tests.clients.conftest import SETTINGS
from tests.report import count_fault
from tests.support.polled_consumers import Crowd
from tests.support.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "assignor"
NUM_PARTITIONS = 12

WRAPPER = """
import os, time
from quorate_rendezvous import Rendezvous

class Moody(Rendezvous):
    name = "moody"

    def assign(self, spec):
        mood = open(os.path.join(os.path.dirname(__file__), "mood")).read()
        if mood == "dead":
            os._exit(0)
        if mood == "stuck":
            time.sleep(600)
        return super().assign(spec)
"""


class Installed:
    """A directory on the node's path with two assignors; the file `mood` controls one of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copy(EXAMPLE / "quorate_rendezvous.py", directory)
        (directory / "moody.py").write_text(WRAPPER)
        self.mood("fine")
        info = directory / "theirs-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[quorate.assignors]\nrendezvous = quorate_rendezvous:Rendezvous\nmoody = moody:Moody\n"
        )

    def mood(self, mood: str) -> None:
        (self.directory / "mood.new").write_text(mood)
        (self.directory / "mood.new").replace(self.directory / "mood")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def node(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    path = os.pathsep.join([str(installed.directory), os.environ.get("PYTHONPATH", "")])
    settings = SETTINGS | {
        "group.consumer.assignors": "uniform,rendezvous,moody",
        "group.consumer.assignor.timeout.ms": "3000",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.syspath_prepend(str(installed.directory))  # the launcher looks at settings first
        process = launch_node(tmp_path_factory.mktemp("assignors") / "node", settings=settings)
    yield process
    log = (Path(process.data) / "node.log").read_text(encoding="utf-8")
    assert process.stop() == 0, log
    assert "Assignor moody failed for group" in log
    assert "Traceback" not in log


def is_shared_out(crowd: Crowd) -> bool:
    owned = [partition for member in crowd.members for partition in member.owned]
    return sorted(owned) == list(range(NUM_PARTITIONS))


def test_partitions_go_where_the_users_assignor_says(crowd: Crowd) -> None:
    for _ in range(3):
        crowd.join(**{"group.remote.assignor": "rendezvous"})
    wait_for(lambda: is_shared_out(crowd), "all partitions are owned", 20)
    crowd.members[1].close()
    wait_for(lambda: is_shared_out(crowd), "those of the one that left are owned again", 20)


@pytest.mark.parametrize("mood", ["dead", "stuck"])
def test_one_that_fails_costs_no_consumer_its_place(
    crowd: Crowd, node: NodeProcess, group: str, installed: Installed, mood: str
) -> None:
    """The first consumer keeps its partitions, the second is a member; both share after the recovery."""
    installed.mood("fine")
    first = crowd.join(**{"group.remote.assignor": "moody"})
    wait_for(lambda: len(first.owned) == NUM_PARTITIONS, "the first has all", 20)
    installed.mood(mood)
    count_fault("clients", "assignor that fails")
    crowd.join(**{"group.remote.assignor": "moody"})

    def described() -> str:
        with urllib.request.urlopen(f"{node.url}/v1/groups/{group}") as answer:
            return str(answer.read(), "utf-8")

    wait_for(lambda: "Assignor moody failed" in described(), "describe shows the error", 20)
    assert len(first.owned) == NUM_PARTITIONS
    assert not first.lost
    installed.mood("fine")
    wait_for(lambda: is_shared_out(crowd) and len(first.owned) < NUM_PARTITIONS, "they share", 20)
    assert "moody failed" not in described()


def test_a_vote_for_what_is_not_configured_is_refused(bootstrap: str, group: str, topic: str) -> None:
    """Stock consumers get UNSUPPORTED_ASSIGNOR as a fatal error, with the configured names."""
    errors: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "group.remote.assignor": "sticky",
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    consumer.subscribe([topic])

    def refused() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append(str(message.error()))
        return any("UNSUPPORTED_ASSIGNOR" in error or "not supported" in error for error in errors)

    wait_for(refused, f"refused: {errors}", 20)
    consumer.close()

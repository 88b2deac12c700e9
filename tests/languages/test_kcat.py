"""kcat, a client for the shell: what its users type."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="no kcat: install it (the package kcat of Debian and others)"
)

PARTITIONS = 2
LINES = [f"key-{number}:value {number}" for number in range(20)]


def kcat(cluster: ClusterProcess, *words: str, reads: str = "") -> str:
    ran = subprocess.run(
        ["kcat", "-b", cluster.bootstrap, *words],
        input=reads,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def topic(new_topic: Callable[[int], str]) -> str:
    return new_topic(PARTITIONS)


def test_topics_are_listed(cluster: ClusterProcess, topic: str) -> None:
    listed = json.loads(kcat(cluster, "-L", "-J"))
    (found,) = (one for one in listed["topics"] if one["topic"] == topic)
    assert [one["partition"] for one in found["partitions"]] == [0, 1]
    assert len(listed["brokers"]) == 3


def test_a_group_consumes_what_is_produced_once(cluster: ClusterProcess, topic: str, group: str) -> None:
    consume = ("-G", group, "-X", "auto.offset.reset=earliest", "-f", "%k:%s\n", "-e", "-q", topic)
    kcat(cluster, "-P", "-t", topic, "-K", ":", reads="\n".join(LINES))
    assert sorted(kcat(cluster, *consume).splitlines()) == sorted(LINES)
    with Client(cluster.bootstrap) as client:
        (offsets,) = client.offsets(group).values()
    assert sum(offsets.values()) == len(LINES)
    kcat(cluster, "-P", "-t", topic, "-K", ":", reads="key-0:once more")
    assert kcat(cluster, *consume).splitlines() == ["key-0:once more"]


def test_offsets_are_found_by_time(cluster: ClusterProcess, topic: str) -> None:
    kcat(cluster, "-P", "-t", topic, "-p", "0", reads="a\nb")
    found = {time: kcat(cluster, "-Q", "-t", f"{topic}:0:{time}").split()[-1] for time in ("-2", "-1", "0")}
    assert found == {"-2": "0", "-1": "2", "0": "0"}

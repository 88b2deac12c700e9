"""kcat, a client for the shell: what its users type."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from cluster.launching.launcher import ClusterProcess
from tests.languages.asking import new_topic, stored

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
def topic(one_node: ClusterProcess) -> str:
    return new_topic(one_node, PARTITIONS)


def test_topics_are_listed(one_node: ClusterProcess, topic: str) -> None:
    listed = json.loads(kcat(one_node, "-L", "-J"))
    (found,) = (one for one in listed["topics"] if one["topic"] == topic)
    assert [one["partition"] for one in found["partitions"]] == [0, 1]
    assert len(listed["brokers"]) == 1


def test_a_group_consumes_what_is_produced_once(one_node: ClusterProcess, topic: str, group: str) -> None:
    consume = ("-G", group, "-X", "auto.offset.reset=earliest", "-f", "%k:%s\n", "-e", "-q", topic)
    kcat(one_node, "-P", "-t", topic, "-K", ":", reads="\n".join(LINES))
    assert sorted(kcat(one_node, *consume).splitlines()) == sorted(LINES)
    assert sum(stored(one_node, group).values()) == len(LINES)
    kcat(one_node, "-P", "-t", topic, "-K", ":", reads="key-0:once more")
    assert kcat(one_node, *consume).splitlines() == ["key-0:once more"]


def test_offsets_are_found_by_time(one_node: ClusterProcess, topic: str) -> None:
    kcat(one_node, "-P", "-t", topic, "-p", "0", reads="a\nb")
    found = {time: kcat(one_node, "-Q", "-t", f"{topic}:0:{time}").split()[-1] for time in ("-2", "-1", "0")}
    assert found == {"-2": "0", "-1": "2", "0": "0"}

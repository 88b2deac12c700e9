"""Users' assignors in real child processes: each ends with an answer or an error, in time."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.children.assign import find
from cluster.host.host_asyncio import AsyncioHost
from cluster.settings import Settings, SettingsError
from coordinator.assignors import AssignmentMemberSpec, AssignmentSpec, AssignmentTopicMetadata
from coordinator.assignors.assigning import parts_of, question
from tests.report import count_fault
from tests.support.users_assignors import install
from tests.support.waiting import until

TOPIC = bytes(15) + b"1"
SPEC = AssignmentSpec(
    {member_id: AssignmentMemberSpec(frozenset([TOPIC])) for member_id in "ab"},
    {TOPIC: AssignmentTopicMetadata("orders", 4)},
)
HALVES = {"a": {TOPIC: (0, 1)}, "b": {TOPIC: (2, 3)}}

MODULE = """
import itertools, os, signal, sys, threading, time
from coordinator.assignors import GroupAssignment, MemberAssignment, RangeAssignor

class Honest:
    name = "honest"

    def act(self, spec):
        pass

    def assign(self, spec):
        return self.act(spec) or RangeAssignor().assign(spec)

def makes(name):
    def decorate(act):
        return type(name, (Honest,), {"name": name, "act": lambda self, spec: act(spec)})
    return decorate

@makes("talkative")
def talkative(spec):
    print("hello")
    os.write(1, b"and more")
    sys.stdout.flush()

@makes("flooding")
def flooding(spec):
    while True:
        print("x" * 1_000_000)

@makes("asking")
def asking(spec):
    input("who am I? ")

@makes("leaving")
def leaving(spec):
    os._exit(0)

@makes("exiting")
def exiting(spec):
    sys.exit(3)

@makes("suicidal")
def suicidal(spec):
    os.kill(os.getpid(), signal.SIGKILL)

@makes("hanging")
def hanging(spec):
    while True:
        pass

@makes("hungry")
def hungry(spec):
    eaten = []
    while True:
        eaten.append(bytearray(1 << 22))

@makes("endless")
def endless(spec):
    return GroupAssignment({"a": MemberAssignment({next(iter(spec.topics)): itertools.count()})})

@makes("parental")
def parental(spec):
    if not os.fork():
        time.sleep(600)

@makes("threaded")
def threaded(spec):
    threading.Thread(target=time.sleep, args=(600,)).start()

@makes("failing")
def failing(spec):
    raise KeyError("rack-7")

@makes("racked")
def racked(spec):
    (topic_id, topic), = spec.topics.items()
    home = {member.rack_id: member_id for member_id, member in spec.members.items()}
    given = {}
    for partition, racks in topic.partition_racks.items():
        given.setdefault(home[racks[0]], []).append(partition)
    return GroupAssignment({m: MemberAssignment({topic_id: tuple(p)}) for m, p in given.items()})

@makes("named otherwise")
def misnamed(spec):
    pass
"""
NAMES = re.findall(r"^def (\w+)\(spec\):", MODULE, re.MULTILINE)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path of this process and of its children."""
    install(
        tmp_path,
        "theirs",
        MODULE,
        {"honest": "theirs:Honest", "ready": "theirs:no_such", **{name: f"theirs:{name}" for name in NAMES}},
        ["racked"],
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


@pytest.fixture
async def host() -> AsyncIterator[AsyncioHost]:
    host = AsyncioHost(asyncio.get_running_loop())
    yield host
    host.close()


async def ask(
    host: AsyncioHost, name: str, *, deadline_ms: int = 20_000, spec: AssignmentSpec = SPEC
) -> object:
    """Return the assignor's answer, or raise the job's error."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_done(result: object | None, error: BaseException | None) -> None:
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    asked = question(spec, name) | {"memory_bytes_max": 256 << 20}
    host.spawn_job("cluster.children.assign", asked, on_done, low_priority=True, deadline_ms=deadline_ms)
    return await done


@pytest.mark.parametrize("name", ["range", "honest", "talkative", "threaded"])
async def test_an_assignor_that_answers(host: AsyncioHost, site: Path, name: str) -> None:
    """Printed output must not mix with the answer, and a thread left behind must not delay it."""
    answer = parts_of(SPEC, await ask(host, name))
    assert {member_id: part.target_partitions for member_id, part in answer.items()} == HALVES


async def test_an_assignor_that_asks_for_racks_is_told_them(host: AsyncioHost, site: Path) -> None:
    """Its package's metadata says so, so the node need not import it."""
    settings = Settings(group_consumer_assignors=("honest", "racked", "uniform")).group_settings()
    assert settings.rack_assignors == {"racked"}
    racks = {0: ("east", "west"), 1: ("west",), 2: ("east",), 3: ("west", "east")}
    spec = AssignmentSpec(
        {
            member_id: AssignmentMemberSpec(frozenset([TOPIC]), rack_id=rack)
            for member_id, rack in (("a", "east"), ("b", "west"))
        },
        {TOPIC: AssignmentTopicMetadata("orders", 4, racks)},
    )
    answer = parts_of(spec, await ask(host, "racked", spec=spec))
    assert answer["a"].target_partitions == {TOPIC: (0, 2)}
    assert answer["b"].target_partitions == {TOPIC: (1, 3)}


FAILURES = {
    "failing": "KeyError: 'rack-7', in .*theirs.py, line ",
    "exiting": "SystemExit: 3",
    "asking": "EOFError",
    "flooding": "File too large",
    "hungry": "MemoryError",
    "endless": "MemoryError",
    "ready": "no attribute 'no_such'",
    "misnamed": "installed as misnamed calls itself named otherwise",
    "nowhere": "'nowhere' is not installed either",
}


@pytest.mark.parametrize("name", FAILURES)
async def test_an_assignor_that_fails_says_how(host: AsyncioHost, site: Path, name: str) -> None:
    count_fault("cluster", "assignor that fails")
    with pytest.raises(Exception, match=FAILURES[name]):
        parts_of(SPEC, await ask(host, name))


@pytest.mark.parametrize(
    ("name", "complaint"), [("leaving", "without a result"), ("suicidal", "killed by signal 9")]
)
async def test_an_assignor_that_ends_its_process(
    host: AsyncioHost, site: Path, name: str, complaint: str
) -> None:
    count_fault("cluster", "assignor that ends its process")
    with pytest.raises(Exception, match=complaint):
        await ask(host, name)


@pytest.mark.parametrize("name", ["hanging", "parental"])
async def test_an_assignor_that_hangs_is_stopped_with_all_that_it_started(
    host: AsyncioHost, site: Path, name: str
) -> None:
    """A process that it left behind, which holds the answer's pipe open, is killed too."""
    count_fault("cluster", "assignor that hangs")
    started_s = time.monotonic()
    with pytest.raises(Exception, match="took over 1000 ms"):
        await ask(host, name, deadline_ms=1_000)
    assert time.monotonic() - started_s < 10
    await until(lambda: not any("theirs" in name or "children.assign" in name for name in _commands()), 10)


def _commands() -> list[str]:
    """Return the command lines of all processes that have this test's own environment."""
    mine = os.environ["PYTHONPATH"].encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mine in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return found


def test_names_of_installed_assignors_may_be_configured(site: Path) -> None:
    """The node never imports an assignor; only the child finds out that it cannot be imported."""
    assert Settings(group_consumer_assignors=("honest", "uniform")).group_settings().assignors == (
        "honest",
        "uniform",
    )
    Settings(group_consumer_assignors=("ready",))


def test_a_name_that_is_not_installed_is_refused_with_those_that_are(site: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"contains 'sticky', .* uniform, range\. .* Installed: asking, endless"
    ):
        Settings(group_consumer_assignors=("uniform", "sticky"))


def test_two_packages_under_one_name_are_refused(site: Path) -> None:
    install(site, "others", "", {"honest": "others:Honest"})
    with pytest.raises(
        SettingsError, match="'honest' is installed more than once, by others:Honest and theirs:Honest"
    ):
        Settings(group_consumer_assignors=("honest",))


def test_ours_cannot_be_taken_by_name(site: Path) -> None:
    install(site, "others", "class Theirs:\n    name = 'range'\n", {"range": "others:Theirs"})
    assert type(find("range")).__module__ == "coordinator.assignors.range"

"""Logs in an object store read like the directories that were copied there."""

from __future__ import annotations

from collections.abc import Iterator
from json import loads

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from raftlog.env import object_stores
from tests.support.long_story import GROUP, long_story
from tests.support.object_stores import environment_of, error_answer, hostile_server, moto_server, upload
from tests.support.recorded_incident import INCIDENT


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def incident(bucket: str) -> tuple[str, str]:
    """The folder of a cluster, and the same in a store."""
    upload(INCIDENT, f"{bucket}/incident")
    return str(INCIDENT), f"{bucket}/incident"


@pytest.fixture(scope="module")
def node(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The directory of a node with archived segments, and the same in a store."""
    home = str(tmp_path_factory.mktemp("node"))
    long_story(home)
    upload(home, f"{bucket}/a/b")
    return home, f"{bucket}/a/b"


def _told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    "question",
    [
        ("dump", "--json"),
        ("findings",),
        ("stats",),
        ("terms",),
        ("verify",),
    ],
)
def test_a_cluster_in_a_store_answers_like_its_folder(
    question: tuple[str, ...], incident: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = question
    folder, url = incident
    if command == "verify":
        folder, url = f"{folder}/node-1", f"{url}/node-1"
    here = _told(capsys, "log", command, folder, *rest)
    there = _told(capsys, "log", command, url, *rest)
    assert here[1].count("\n") > 3
    assert (there[0], there[1].replace(url, folder), there[2].replace(url, folder)) == here


@pytest.mark.parametrize("question", [("dump", "--json"), ("explain", GROUP), ("verify",)])
def test_a_node_with_an_archive_answers_from_a_store_like_its_directory(
    question: tuple[str, ...], node: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = question
    folder, url = node
    here = _told(capsys, "log", command, folder, *rest)
    there = _told(capsys, "log", command, url, *rest)
    assert here[1].count("\n") > 3
    assert (there[0], there[1].replace(url, folder), there[2]) == here


def test_compare_takes_the_nodes_of_a_store(
    incident: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, url = incident
    here, there = _told(capsys, "log", "compare", folder), _told(capsys, "log", "compare", url)
    assert here[0] == ExitCode.OK
    assert (there[0], there[1].replace(url, folder)) == here[:2]
    code, _, error = _told(capsys, "log", "compare", f"{url}/node-1", f"{url}/node-1/")
    assert code == ExitCode.UNREADABLE
    assert "is given twice" in error


def test_an_empty_place_is_refused(incident: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = _told(capsys, "log", "dump", f"{incident[1]}-nowhere")
    assert code == ExitCode.UNREADABLE
    assert f"{incident[1]}-nowhere does not exist, or its bucket does not" in error
    code, _, error = _told(capsys, "log", "dump", "ftp://somewhere/a")
    assert code == ExitCode.UNREADABLE
    assert "ftp:// is not supported" in error


def test_following_a_store_is_refused(incident: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = _told(capsys, "log", "dump", f"{incident[1]}/node-1", "--follow")
    assert code == ExitCode.UNREADABLE
    assert "cannot be followed" in error


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error_answer(403, "AccessDenied"), "refused the credentials"),
        (error_answer(503, "SlowDown"), "overloaded or out of order"),
        (None, "did not answer within"),
    ],
)
def test_a_store_that_refuses_or_hangs_costs_one_line(
    answer: bytes | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(object_stores, "ATTEMPTS_MAX", 1)
    monkeypatch.setattr(object_stores, "REQUEST_SECONDS", 0.5)
    with hostile_server(answer) as endpoint:
        for name, value in environment_of(endpoint).items():
            monkeypatch.setenv(name, value)
        code, out, error = _told(capsys, "log", "dump", "s3://bucket/cluster")
    assert (code, out) == (ExitCode.UNREADABLE, "")
    assert words in error
    assert error.count("\n") == 1


def test_an_archive_that_was_shipped_reads_like_the_node_up_to_its_last_sealed_entry(
    node: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    home, url = node[0], f"{node[1].rsplit('/', 2)[0]}/shipped"
    code, shown, _ = _told(capsys, "log", "archive", home, "--json")
    assert code == ExitCode.OK
    last = {one["shard"]: one["last_index"] for one in loads(shown)["shards"]}
    assert last["shard-0"] > 100
    code, told, _ = _told(capsys, "log", "archive", home, "--to", url)
    assert code == ExitCode.OK
    assert "nothing is left" in told
    code, told, _ = _told(capsys, "log", "archive", home, "--to", url, "--json")
    assert loads(told)["segments_shipped"] == 0
    window = ("dump", "--json", "--shard", "0", "--until", str(last["shard-0"]))
    here = _told(capsys, "log", window[0], home, *window[1:])
    there = _told(capsys, "log", window[0], f"{url}/node-1", *window[1:])
    entries = [loads(line) for line in here[1].splitlines()]
    assert len(entries) == last["shard-0"]
    assert _without_files(there[1]) == _without_files(here[1])
    of_cluster = _told(capsys, "log", window[0], url, *window[1:])
    assert of_cluster[1].count("\n") >= last["shard-0"]


def _without_files(lines: str) -> list[dict[str, object]]:
    rows = [loads(line) for line in lines.splitlines()]
    entries = [row for row in rows if "index" in row]
    return [{name: value for name, value in row.items() if name != "file"} for row in entries]


def test_shipping_to_a_store_that_refuses_costs_one_line(
    node: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = _told(capsys, "log", "archive", node[0], "--to", "s3://no-such-bucket/a")
    assert code == ExitCode.UNREADABLE
    assert "no such bucket" in error
    code, _, error = _told(capsys, "log", "archive", node[0], "--to", "ftp://a")
    assert code == ExitCode.USAGE


def test_the_folder_of_a_cluster_is_asked_for_one_of_its_nodes(
    incident: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for place in incident:
        code, _, error = _told(capsys, "log", "archive", place)
        assert code == ExitCode.UNREADABLE
        assert f"give the data directory of one node, such as {place}/node-1" in error

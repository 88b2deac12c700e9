"""The commands that README and manuals show for a running cluster, run on one, in the order of the pages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster.settings import load_settings
from quorate.app import run
from quorate.errors import ExitCode
from raftlog.replica.balancing import preferred_node
from records.ids import shard_of
from tests.support.documented import Shown, commands_of
from tests.support.launched import up
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/operations.md",
    "docs/testing-clients.md",
    "docs/generations.md",
    "docs/pipeline.md",
)
GROUP = "billing"
ELSEWHERE = {
    "up": "tests/clients/test_up.py",
    "node": "tests/clients/test_up.py",
    "groups describe billing --watch": "tests/quorate/test_group_commands.py",
    "groups config billing --set push.topics": "tests/cluster/test_old_seams.py",
    "generations": "tests/quorate/test_generations.py",
    "pipeline": "tests/pipeline/test_pipeline_commands.py",
}
"""Commands, by how they begin, that other tests run; docs/history.md has a test of its own."""
DEGRADED_TOO = ("cluster status",)
"""Commands whose exit code tells what they found."""


def shown_commands() -> list[Shown]:
    return [shown for page in PAGES for shown in commands_of(ROOT / page, "quorate")]


def is_elsewhere(shown: Shown) -> bool:
    words = " ".join(shown.arguments)
    return any(words == begin or words.startswith((f"{begin} ", f"{begin}=")) for begin in ELSEWHERE)


@contextmanager
def consumers(bootstrap: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Run examples/consumer.py; all members have partitions before this returns."""
    command = [sys.executable, "-P", str(ROOT / "examples" / "consumer.py"), bootstrap]
    with ExitStack() as stack:
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        for one in running:
            stack.callback(one.communicate, timeout=60)
            stack.callback(one.terminate)
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline().startswith("mine now")
        yield running


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_what_the_manuals_type_works_on_a_running_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    with up(Path("quorate-data"), "--nodes", "3", "--topic", "orders:12") as announced:
        monkeypatch.setenv("QUORATE_BOOTSTRAP", announced["bootstrap"])
        urls = [f"http://{node['host']}:{node['http_port']}" for node in announced["nodes"]]
        monkeypatch.setenv("QUORATE_URL", ",".join(urls))
        with consumers(announced["bootstrap"], 2):
            wait_for(lambda: run(["cluster", "status"]) == ExitCode.OK, "all nodes are in contact")
            for shown in shown_commands():
                if is_elsewhere(shown):
                    continue
                capfd.readouterr()
                code = run(list(shown.arguments))
                good = {ExitCode.OK}
                if " ".join(shown.arguments) in DEGRADED_TOO:
                    good.add(ExitCode.DEGRADED)
                assert code in good, f"{shown}: {code}\n{capfd.readouterr()}"
    assert Path("billing.html").stat().st_size > 10_000


def test_readme_kills_the_leader_of_its_groups_shard() -> None:
    (killed,) = (shown.arguments[2:] for shown in shown_commands() if is_kill(shown))
    shard = shard_of(GROUP, load_settings(None, {}, {}).cluster_shards)
    assert killed == (str(preferred_node((1, 2, 3), shard)),)


def is_kill(shown: Shown) -> bool:
    return shown.place.startswith("README.md") and shown.arguments[:2] == ("cluster", "kill")


def test_every_test_that_runs_the_other_commands_exists() -> None:
    assert [file for file in ELSEWHERE.values() if not (ROOT / file).exists()] == []
    used = {
        begin for begin in ELSEWHERE if any(" ".join(s.arguments).startswith(begin) for s in shown_commands())
    }
    assert used == set(ELSEWHERE)

"""Every command of `quorate log` on directories in which something is wrong: an answer that says what it
rests on and what is missing, or one clear line; never a traceback.

The commands are those that are registered, so one that is added is in the table by itself; what it needs
beside its words stands in `NEEDS`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from quorate.app import run
from quorate.commands import log
from quorate.errors import ExitCode
from raftlog.env.files import OsFiles
from raftlog.env.settings import LogSettings
from tests.report import count_fault
from tests.support.disk_node import DiskNode

GROUP, TOPIC = "billing", "orders"
SHARD = "shard-0"

NEEDS: dict[str, list[str]] = {
    "owner": ["--at", "end"],
    "diff": ["--since", "start", "--until", "end"],
    "export": ["--format", "jsonl", "--output", "{tmp}/tables", "--force"],
    "whatif": ["--assignor", "range"],
}
"""Options that a command requires."""

COMMANDS = sorted(str(one.name) for one in log.app.registered_commands)

SAYS_BASIS = {"dump", "explain", "replay", "terms", "timeline"}
"""Commands whose text must say what is missing."""


def words_of(name: str, path: Path, tmp_path: Path) -> list[str]:
    """Return a command line: the directory, then the arguments that the command's help names after it."""
    from typer.main import get_command

    command = get_command(log.app).commands[name]  # type: ignore[attr-defined]
    metavar = next((str(one.metavar) for one in command.params if one.param_type_name == "argument"), "")
    given = {"[DIR]": str(path), "[DIR]...": str(path), "GROUP": GROUP, "TOPIC-PARTITION": f"{TOPIC}-0"}
    words = [given[word] for word in metavar.split() if word in given]
    if name == "compare":
        words = [str(path), str(path.parent / "copy")]
    extra = [text.format(tmp=tmp_path) for text in NEEDS.get(name, [])]
    return ["log", name, *words, *extra]


# The directories


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's directory with archived, sealed and active segments, and a group that rebalanced."""
    path = tmp_path_factory.mktemp("sound") / "node-1"
    settings = LogSettings(segment_bytes=4_000, snapshot_tail_records=150)
    node = DiskNode(str(path), num_shards=1, log=settings)
    node.create_topic(TOPIC, 4)
    first = node.member(GROUP, "app-1", TOPIC).join()
    second = node.member(GROUP, "app-2", TOPIC).join()
    for offset in range(120):
        for partition in range(4):
            first.commit({partition: offset})
        node.pass_ms(100, first, second)
        if offset == 40:
            second.leave()
            second = node.member(GROUP, "app-3", TOPIC).join()
    node.stop()
    segments = sorted((path / SHARD).glob("*.log"))
    archived = sorted((path / SHARD / "archive").glob("*.log"))
    assert len(archived) >= 3
    assert len(segments) >= 2
    return path


def copied(sound: Path, path: Path, name: str) -> None:
    """Copy the sound directory for a command, and a second time for `compare`."""
    shutil.copytree(sound, path)
    if name == "compare":
        shutil.copytree(sound, path.parent / "copy")


def archived(path: Path) -> Path:
    return sorted((path / SHARD / "archive").glob("*.log"))[1]


def newest(path: Path) -> Path:
    return max((path / SHARD).glob("*.log"))


def flip(file: Path, at: float = 0.5) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    file.write_bytes(data)


def flip_everything(path: Path) -> None:
    for file in [*(path / SHARD).rglob("*"), *(path / "metadata").rglob("*")]:
        if file.is_file():
            flip(file)


def cut(file: Path, num_bytes: int) -> None:
    os.truncate(file, file.stat().st_size - num_bytes)


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def remove_snapshots(path: Path) -> None:
    for file in [path / SHARD / "snapshot", *(path / SHARD / "archive").glob("snapshot-*")]:
        file.unlink(missing_ok=True)


def both(*harms: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: [harm(path) for harm in harms]


NOTHING_TO_SAY = ""
IS_MISSING = (
    "cannot be read|replaces them|missing|not kept|no longer kept|no complete frame|does not match|damaged|"
    "is not a sealed"
)
NOT_HERE = "not here|is missing|metadata"
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing wrong": (lambda path: None, "nothing missing|entries|ENTRIES|#1"),
    "torn tail": (lambda path: cut(newest(path), 3), NOTHING_TO_SAY),
    "garbage behind the tail": (
        lambda path: newest(path).write_bytes(newest(path).read_bytes() + b"QFR1 something"),
        NOTHING_TO_SAY,
    ),
    "damaged archived segment": (lambda path: flip(archived(path)), IS_MISSING),
    "damaged archived segment, no snapshot": (
        both(lambda path: flip(archived(path)), remove_snapshots),
        IS_MISSING,
    ),
    "damaged header of a segment": (lambda path: flip(archived(path), 0.0), IS_MISSING),
    "damaged active segment": (lambda path: flip(newest(path), 0.3), NOTHING_TO_SAY),
    "empty segment": (lambda path: archived(path).write_bytes(b""), IS_MISSING),
    "missing segment": (lambda path: archived(path).unlink(), IS_MISSING),
    "missing first segment": (
        lambda path: min((path / SHARD / "archive").glob("*.log")).unlink(),
        IS_MISSING,
    ),
    "missing active segment": (lambda path: newest(path).unlink(), NOTHING_TO_SAY),
    "folder for a segment": (lambda path: replace_by_folder(archived(path)), IS_MISSING),
    "damaged index": (lambda path: flip(min((path / SHARD / "archive").glob("*.index"))), NOTHING_TO_SAY),
    "damaged snapshot": (lambda path: flip(path / SHARD / "snapshot"), NOTHING_TO_SAY),
    "missing snapshot": (remove_snapshots, NOTHING_TO_SAY),
    "damaged manifest": (lambda path: flip(path / SHARD / "archive" / "manifest"), NOTHING_TO_SAY),
    "missing manifest": (lambda path: (path / SHARD / "archive" / "manifest").unlink(), NOTHING_TO_SAY),
    "missing archive": (lambda path: shutil.rmtree(path / SHARD / "archive"), IS_MISSING),
    "damaged identity": (lambda path: flip(path / "node"), "node"),
    "missing identity": (lambda path: (path / "node").unlink(), "no file node|entries|#"),
    "missing evidence": (lambda path: [file.unlink() for file in path.glob("evidence.*")], NOTHING_TO_SAY),
    "damaged evidence": (lambda path: [flip(file, 0.1) for file in path.glob("evidence.*")], NOTHING_TO_SAY),
    "metadata shard not copied": (lambda path: shutil.rmtree(path / "metadata"), NOT_HERE),
    "group's shard not copied": (lambda path: shutil.rmtree(path / SHARD), NOT_HERE),
    "shard's folder is empty": (
        lambda path: [shutil.rmtree(path / SHARD), (path / SHARD).mkdir()],
        "no entries|metadata|no epoch",
    ),
    "copied in part": (
        lambda path: [file.unlink() for file in sorted((path / SHARD).rglob("*"))[1::2] if file.is_file()],
        NOTHING_TO_SAY,
    ),
    "all files damaged": (flip_everything, NOTHING_TO_SAY),
    "empty directory": (lambda path: [shutil.rmtree(path), path.mkdir()], "expected the data directory"),
    "no directory": (shutil.rmtree, "is not a directory|expected"),
    "a file": (lambda path: [shutil.rmtree(path), path.write_text("x")], "is not a directory|expected"),
}


def pairs() -> list[ParameterSet]:
    """Each fault with each command. The third that is not marked slow has every fault and every command."""
    every = [(fault, name) for fault in FAULTS for name in COMMANDS]
    shift = {fault: place for place, fault in enumerate(FAULTS)}
    return [
        pytest.param(fault, name, marks=() if (place + shift[fault]) % 3 == 0 else pytest.mark.slow)
        for place, (fault, name) in enumerate(every)
    ]


@pytest.mark.parametrize(("fault", "name"), pairs())
def test_each_command_answers_or_says_why_not(
    name: str, fault: str, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "node-1"
    copied(sound, path, name)
    harm, says = FAULTS[fault]
    harm(path)
    count_fault("history", "harmed directory")
    for extra in ([], ["--json"]) if len(fault) % 3 == 0 else ([],):  # --json for a third of the faults only
        code = run([*words_of(name, path, tmp_path), *extra])
        out, err = capsys.readouterr()
        check(code, out, err, is_json=bool(extra))
        if not extra and says and name in SAYS_BASIS:
            assert re.search(says, out + err), (out + err)[:2_000]


def check(code: int, out: str, err: str, *, is_json: bool) -> None:
    """Check that the output is an answer, or one clear line with one of the promised exit codes."""
    assert "Traceback" not in out + err
    assert code in (ExitCode.OK, ExitCode.FAILED, ExitCode.UNREADABLE), err
    if code == ExitCode.OK:
        assert err == ""
        assert out.strip()
    if code == ExitCode.UNREADABLE:
        assert len(err.splitlines()) == 1
        assert len(err) > 40
    if is_json:
        for line in (out + err).splitlines():
            json.loads(line)


# Faults that a damaged copy cannot show: no permission, and files that disappear during a read


@pytest.fixture
def at_call(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[str], None]], None]:
    """Run an action at the n-th call of a method of the files; it is given the path."""

    def install(number: int, act: Callable[[str], None]) -> None:
        asked = [0]
        for method in ("read", "open", "listdir"):
            real = getattr(OsFiles, method)

            def instead(self: OsFiles, path: str, *more: Any, real: Any = real) -> Any:
                asked[0] += 1
                if asked[0] >= number:
                    act(path)
                return real(self, path, *more)

            monkeypatch.setattr(OsFiles, method, instead)

    return install


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("number", [1, 5, 34])
@pytest.mark.parametrize("what", ["gone", "forbidden"])
def test_files_that_cannot_be_had_are_one_clear_line(
    name: str,
    number: int,
    what: str,
    sound: Path,
    tmp_path: Path,
    at_call: Callable[[int, Callable[[str], None]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "node-1"
    copied(sound, path, name)

    def act(asked: str) -> None:
        if what == "gone":
            shutil.rmtree(path, ignore_errors=True)
        else:
            raise PermissionError(13, "Permission denied", asked)

    at_call(number, act)
    count_fault("history", f"files {what}")
    code = run(words_of(name, path, tmp_path))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert code in (ExitCode.OK, ExitCode.FAILED, ExitCode.UNREADABLE), err
    assert len(err.splitlines()) == (code == ExitCode.UNREADABLE)

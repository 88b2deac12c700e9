"""The readers on directories that real replicas wrote with real decisions: scripted and seeded incidents."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from history.checking.commits import commits, missing_commits
from history.checking.verify import report_text, verify
from history.reading.opening import open_node
from history.reading.source import LogGap, NothingToRead, Walk
from history.render import UTC_STYLE
from history.state.replay import ShardReplay, replay, replay_all
from history.telling.dump import dump, dump_json
from history.telling.explain import explain
from history.telling.prose import explanation_text
from history.telling.story import EpochStep, NoteStep, TermStep
from history.telling.timeline import timeline
from raftlog.offline.reader import Damaged
from raftlog.storage.sync_mark import SYNCED_FILE
from records.ids import METADATA_SHARD
from tests.support.disk_node import DiskNode, GroupMember
from tests.support.long_story import GROUP, long_story, settle
from wire.errors import ErrorCode


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "node-1")


def fingerprint(path: str) -> dict[str, str]:
    """Every file's content; what a reader must leave as it is."""
    return {
        os.path.join(directory, name): hashlib.sha256(Path(directory, name).read_bytes()).hexdigest()
        for directory, _, names in os.walk(path)
        for name in names
    }


def short_story(node: DiskNode) -> tuple[GroupMember, GroupMember]:
    """Two members over six partitions, some commits, one growth."""
    node.create_topic("orders", 6)
    ann = node.member(GROUP, "app-1", "orders").join()
    bob = node.member(GROUP, "app-2", "orders").join()
    settle(node, ann, bob)
    assert ann.commit({p: 10 + p for p in next(iter(ann.owned.values()))}) == [0, 0, 0]
    node.grow_topic("orders", 8)
    settle(node, ann, bob)
    return ann, bob


# -- incidents: the right cause, member and partitions -----------------------------------------------------


def test_a_commit_with_an_old_epoch_is_refused_and_explained(home: str) -> None:
    node = DiskNode(home)
    ann, bob = short_story(node)
    assert ann.commit({0: 99}, epoch=99) == [ErrorCode.STALE_MEMBER_EPOCH]
    node.stop()
    told = explain(home, GROUP, style=UTC_STYLE)
    (note,) = (step for step in told.steps if isinstance(step, NoteStep))
    assert "OffsetCommit, STALE_MEMBER_EPOCH: commit with member epoch 99" in note.text
    assert "(client app-1, 127.0.0.1)" in note.text
    assert bob.member_id in {text.split()[0] for text in told.members.values()}
    assert missing_commits(home, [((GROUP, "orders", 0), 99)]) == [((GROUP, "orders", 0), 99)]


def test_growth_is_followed_to_the_metadata_shard(home: str) -> None:
    node = DiskNode(home)
    ann, bob = short_story(node)
    node.stop()
    grown = explain(home, GROUP).epochs[-1]
    assert grown.why == ("topic orders grew from 6 to 8 partitions (metadata index 3)",)
    assert {(move.source, move.partitions) for move in grown.moves} == {(None, (6,)), (None, (7,))}
    assert grown.settled_index is not None
    owned = sorted(p for member in (ann, bob) for parts in member.owned.values() for p in parts)
    assert owned == list(range(8))


def test_a_restart_moves_nothing_and_stands_between_the_epochs(home: str) -> None:
    node = DiskNode(home)
    ann, bob = short_story(node)
    node.crash()
    node.start()
    settle(node, ann, bob)
    node.stop()
    told = explain(home, GROUP)
    terms = [step for step in told.steps if isinstance(step, TermStep)]
    assert [term.term for term in terms] == [1, 2]
    assert told.steps[-1] is terms[-1]
    assert terms[-1].why == "node 1 leads from term 2 on: the node started"


@dataclass
class Script:
    """A seeded run of incidents, and what explain must say of each: why, who, and what was freed."""

    node: DiskNode
    rng: random.Random
    alive: list[GroupMember] = field(default_factory=list)
    partitions: int = 6
    joined: int = 0
    expected: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def join(self) -> None:
        self.joined += 1
        member = self.node.member(GROUP, f"app-{self.joined}", "orders").join()
        self.alive.append(member)
        self.expected.append(("joined", (member.member_id,)))

    def leave(self) -> None:
        member = self.alive.pop(self.rng.randrange(len(self.alive)))
        member.leave()
        self.expected.append(("left", (member.member_id,)))

    def expire(self) -> None:
        member = self.alive.pop(self.rng.randrange(len(self.alive)))
        self.node.pass_ms(4_000, *self.alive)
        self.expected.append(("expired: no heartbeat for 3.0 s of 3.0 s", (member.member_id,)))

    def grow(self) -> None:
        before, self.partitions = self.partitions, self.partitions + self.rng.randint(1, 3)
        self.node.grow_topic("orders", self.partitions)
        self.expected.append((f"orders grew from {before} to {self.partitions} partitions (metadata", ()))

    def restart(self) -> None:
        self.node.crash()
        self.node.start()

    def run(self, incidents: int) -> None:
        self.node.create_topic("orders", self.partitions)
        for _ in range(incidents):
            choices = [self.join] if len(self.alive) < 2 else [self.join, self.leave, self.expire, self.grow]
            self.rng.choice([*choices, self.restart])()
            settle(self.node, *self.alive)


@pytest.mark.parametrize("seed", range(6))
def test_seeded_incidents_are_explained_in_order(home: str, seed: int) -> None:
    script = Script(DiskNode(home, seed=seed), random.Random(seed))
    script.run(14)
    script.node.stop()
    told = explain(home, GROUP, style=UTC_STYLE)
    assert [step.epoch for step in told.epochs] == list(range(1, len(script.expected) + 1))
    for step, (words, members) in zip(told.epochs, script.expected, strict=True):
        assert len(step.why) == 1
        assert words in step.why[0]
        assert step.members == members
    assert all(step.settled_index is not None for step in told.epochs)
    owners = _owners(told.epochs[-1])
    names = {member.member_id: member for member in script.alive}
    for name, owned in owners.items():
        member = names[told.members[name].split()[0]]
        assert owned == sorted(p for parts in member.owned.values() for p in parts)
    assert verify(home).ok
    assert len(timeline(told)) == len(told.steps)


def _owners(step: EpochStep) -> dict[str, list[int]]:
    found = {}
    for name, text in step.owners.items():
        numbers: list[int] = []
        for part in text.removeprefix("orders ").split(",") if text else ():
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
        found[name] = numbers
    return found


# -- replay -----------------------------------------------------------------------------------------------


def test_the_replay_at_every_index_is_the_live_state_of_that_moment(home: str) -> None:
    node = DiskNode(home)
    hashes: dict[int, dict[int, int]] = {number: {} for number in node.machines}

    def note() -> None:
        for number, machine in node.machines.items():
            hashes[number][machine.shard.applied_index] = machine.shard.state_hash

    script = Script(node, random.Random(7))
    node.create_topic("orders", 6)
    for step in (
        script.join,
        script.join,
        script.grow,
        script.expire,
        script.join,
        script.restart,
        script.leave,
    ):
        step()
        note()
        for _ in range(5):
            node.pass_ms(500, *script.alive)
            note()
    node.stop()
    assert len(hashes[0]) > 10
    for number, by_index in hashes.items():
        for index, state_hash in by_index.items():
            assert replay(home, shard=number, at_index=index).state_hash == state_hash


def test_the_replay_at_a_moment_holds_what_was_so_then(home: str) -> None:
    node = DiskNode(home)
    node.create_topic("orders", 6)
    ann = node.member(GROUP, "app-1", "orders").join()
    ann.commit({0: 5})
    settle(node, ann)
    then_ms = node.host.wall_ms()
    node.pass_ms(1_000, ann)
    ann.commit({0: 6})
    node.grow_topic("orders", 12)
    node.stop()
    before, now = replay(home, group=GROUP, at_ms=then_ms), replay(home, group=GROUP)
    assert [one.offset for one in before.groups[0].offsets] == [5]
    assert [one.offset for one in now.groups[0].offsets] == [6]
    assert before.groups[0].members[0].assigned == {"orders": tuple(range(6))}
    catalog = {state.shard: state.topics for state in replay_all(home, at_ms=then_ms)}[METADATA_SHARD]
    assert [(topic.name, topic.num_partitions) for topic in catalog] == [("orders", 6)]


def test_an_index_beyond_the_log_is_an_error_that_says_how_far_it_goes(home: str) -> None:
    node = DiskNode(home)
    short_story(node)
    node.stop()
    with pytest.raises(NothingToRead, match=r"cannot be replayed to index 999, only to \d+"):
        replay(home, group=GROUP, at_index=999)
    with pytest.raises(NothingToRead, match="no group 'nobody'"):
        replay(home, shard=0, group="nobody")


# -- snapshots, archive, damage ---------------------------------------------------------------------------


def test_a_look_into_the_past_starts_at_the_snapshot_before_it(home: str) -> None:
    node, _ = long_story(home, 1_000)
    node.stop()
    reader = open_node(home).reader(0)
    kept = [header.last_index for header in reader.snapshots()]
    assert len(kept) > 2
    for index in (kept[0] - 1, kept[0], kept[1] + 1, kept[-1] + 1):
        state = replay(home, shard=0, at_index=index)
        assert state.basis.snapshot_index == max((one for one in kept if one <= index), default=None)
        whole = ShardReplay(0).run(Walk(0, reader, to_index=index))
        assert state.state_hash == whole.state_hash


def test_a_gap_is_bridged_by_the_first_snapshot_behind_it(home: str) -> None:
    node, _ = long_story(home, 1_000)
    node.stop()
    kept = [header.last_index for header in open_node(home).reader(0).snapshots()]
    first = segments(home, "archive")[0]
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    walk = Walk(0, open_node(home).reader(0))
    gaps = [item for item in walk if isinstance(item, LogGap)]
    assert [gap.bridged_by for gap in gaps] == [kept[0]]


def segments(home: str, where: str = "") -> list[Path]:
    return sorted(Path(home, "shard-0", where).glob("*.log"))


def test_snapshot_and_archive_are_verified_against_the_whole_log(home: str) -> None:
    node, last = long_story(home)
    node.stop()
    assert segments(home, "archive")
    report = verify(home)
    assert report.ok, list(report_text(report))
    passed = next(shard for shard in report.shards if shard.shard == 0).passed
    assert any(said.startswith("the live state at index") for said in passed)
    assert "snapshot + tail equals the replay of the whole log" in passed
    state = replay(home, group=GROUP)
    assert state.basis.snapshot_index is not None
    assert {one.partition: one.offset for one in state.groups[0].offsets} == last
    early = replay(home, group=GROUP, at_index=20)
    assert early.basis.snapshot_index is None
    assert [commit.offset for commit in commits(home)[GROUP, "orders", 0]] == list(range(0, 300, 4))


def test_a_damaged_archive_leaves_the_state_and_bridges_the_story(home: str) -> None:
    node, last = long_story(home)
    node.stop()
    victim = segments(home, "archive")[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0x40
    victim.write_bytes(data)
    report = verify(home)
    assert not report.ok
    damage = [p for shard in report.shards for p in shard.problems if p.file == str(victim)]
    assert any(p.index is not None for p in damage)
    assert {one.partition: one.offset for one in replay(home, group=GROUP).groups[0].offsets} == last
    told = explain(home, GROUP)
    assert told.basis.gaps[0].bridged_by is not None
    assert "replaces them" in told.basis.words()
    found = commits(home)[GROUP, "orders", 0]
    assert found[-1].offset == last[0]
    assert 1 <= 75 - len(found) <= 2  # one entry is lost, and nothing but that


def test_damage_above_the_snapshot_ends_the_answer_there(home: str) -> None:
    node, _ = long_story(home)
    node.stop()
    victim = segments(home)[-1]
    data = bytearray(victim.read_bytes())
    data[-40] ^= 0x01
    data[len(data) // 3] ^= 0x01
    victim.write_bytes(data)
    state = replay(home, group=GROUP)
    assert state.basis.gaps
    assert "nothing after them is used" in state.basis.words()
    assert state.index == state.basis.gaps[0].after_index


def test_a_torn_tail_is_told_and_is_no_damage(home: str) -> None:
    node = DiskNode(home, num_shards=1)
    short_story(node)
    node.crash()
    victim = segments(home)[-1]
    victim.write_bytes(victim.read_bytes()[:-3])
    assert not verify(home).ok, "it was synced once"
    Path(home, "shard-0", "synced").unlink()  # a power loss may take that knowledge along
    report = verify(home)
    shard = next(shard for shard in report.shards if shard.shard == 0)
    assert [problem.severity for problem in shard.problems] == ["torn"]
    assert report.ok
    assert any("intact, except for a write that a crash interrupted" in line for line in report_text(report))


def test_no_reader_writes_and_a_running_node_does_not_mind(home: str) -> None:
    node = DiskNode(home, num_shards=1)
    ann, bob = short_story(node)
    before = fingerprint(home)
    assert verify(home).ok
    assert explain(home, GROUP).epochs
    assert replay_all(home)
    assert list(dump_json(dump(home)))
    assert commits(home)
    assert fingerprint(home) == before
    settle(node, ann, bob)
    assert ann.commit({0: 77}) == [0]
    assert missing_commits(home, [((GROUP, "orders", 0), 77)]) == []
    node.stop()


# -- copies -----------------------------------------------------------------------------------------------


def test_a_copy_of_one_shard_still_explains(home: str, tmp_path: Path) -> None:
    node = DiskNode(home, num_shards=1)
    short_story(node)
    node.stop()
    copy = tmp_path / "copy"
    shutil.copytree(Path(home, "shard-0"), copy / "shard-0")
    told = explain(str(copy), GROUP)
    assert told.epochs[-1].why == ("topic orders grew from 6 to 8 partitions (metadata index 3)",)
    assert any("metadata shard is not in this directory" in note for note in told.notes)
    report = verify(str(copy))
    assert report.ok, list(report_text(report))
    assert any("treated as a copy" in note for note in report.notes)


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_what_is_not_a_nodes_directory_is_told_what_is_expected(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "there"
    if kind == "file":
        path.write_text("hello")
    elif kind == "empty":
        path.mkdir()
    for read in (verify, replay_all, lambda p: list(dump(p)), lambda p: explain(p, GROUP), commits):
        with pytest.raises(NothingToRead, match="expected the data directory of one node"):
            read(str(path))


def test_a_missing_shard_is_named(home: str) -> None:
    node = DiskNode(home, num_shards=2)
    short_story(node)
    node.stop()
    shutil.rmtree(Path(home, "shard-1"))
    assert any(note.startswith("shard-1 not here") for note in verify(home).notes)
    with pytest.raises(NothingToRead, match="does not hold shard-1: it has metadata, shard-0"):
        replay(home, shard=1)


def test_a_defect_of_the_projection_is_found(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = DiskNode(home, num_shards=1)
    short_story(node)
    node.stop()
    sound = ShardReplay.take

    def skewed(self: ShardReplay, index: int, term: int, raws: object) -> None:
        sound(self, index, term, raws)  # type: ignore[arg-type]
        if self.shard == 0 and (group := self.projection.groups.get(GROUP)):  # type: ignore[union-attr]
            group.subscriptions["bills"] = 3

    monkeypatch.setattr(ShardReplay, "take", skewed)
    shard = next(shard for shard in verify(home).shards if shard.shard == 0)
    assert any("the index of subscriptions is" in problem.what for problem in shard.problems)


# -- every byte -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("end", ["stopped", "crashed"])
def test_every_flipped_byte_is_reported_or_changes_nothing(home: str, end: str, step: int) -> None:
    """Flip a bit of every byte, or of every third, which still are all eight bits."""
    node = DiskNode(home, num_shards=1)
    node.create_topic("orders", 2)
    ann = node.member("g", "a", "orders").join()
    ann.commit({0: 1})
    ann.leave()
    node.stop() if end == "stopped" else node.crash()
    assert verify(home).findings == 0
    truth = list(dump_json(dump(home)))
    tried = silent = 0
    for file in sorted(path for path in Path(home).rglob("*") if path.is_file()):
        sound = file.read_bytes()
        stride = 16 * step if file.name == SYNCED_FILE else step  # 4 KiB of padding
        for place in range(0, len(sound), stride):
            flipped = bytearray(sound)
            flipped[place] ^= 1 << place % 8
            file.write_bytes(flipped)
            tried += 1
            if verify(home).findings == 0:
                silent += 1
                assert list(dump_json(dump(home))) == truth, f"{file} byte {place}"
        file.write_bytes(sound)
    print(f"{tried} bytes flipped, {tried - silent} reported, {silent} without effect")
    assert tried * step > 1_000
    assert silent < tried // 20


def test_the_text_of_a_report_names_file_offset_and_what_to_do(home: str) -> None:
    node = DiskNode(home, num_shards=1)
    short_story(node)
    node.stop()
    victim = segments(home)[-1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0x40
    victim.write_bytes(data)
    lines = list(report_text(verify(home)))
    broken = next(line for line in lines if "BROKEN" in line)
    assert str(victim) in broken
    assert "at byte" in broken
    assert "index" in broken
    assert any(line.strip().startswith("to do:") for line in lines)
    assert lines[-1] == "not verified: 1 finding"
    assert any("cannot be read" in line for line in explanation_text(explain(home, GROUP)))


HARMLESS = ("lock", "evidence.0", "evidence.1", "clean", "boot")
"""Files whose loss takes nothing from history; verify may still name them."""


HARM: dict[str, Callable[[Path, bytes], object]] = {
    "gone": lambda file, sound: None,
    "emptied": lambda file, sound: file.write_bytes(b""),
    "halved": lambda file, sound: file.write_bytes(sound[: len(sound) // 2]),
    "garbage": lambda file, sound: file.write_bytes(random.Random(len(sound)).randbytes(len(sound))),
    "endless": lambda file, sound: file.symlink_to("/dev/zero"),
    "pipe": lambda file, sound: os.mkfifo(file),
    "folder": lambda file, sound: file.mkdir(),
    "enormous": lambda file, sound: (file.touch(), os.truncate(file, 1 << 40)),
}
NO_FILE = ("endless", "pipe", "folder", "enormous")


@pytest.mark.parametrize("harm", HARM)
def test_any_file_harmed_is_reported_and_no_reader_breaks(home: str, harm: str) -> None:
    node, _ = long_story(home)
    node.stop()
    for file in sorted(path for path in Path(home).rglob("*") if path.is_file()):
        sound = file.read_bytes()
        file.unlink()
        HARM[harm](file, sound)
        report = verify(home)
        if harm in NO_FILE and file.name != "lock":
            found = [*report.problems, *(one for shard in report.shards for one in shard.problems)]
            assert str(file) in {one.file for one in found}, f"{file} {harm}"
        if file.name not in HARMLESS and (file.name, harm) != ("synced", "gone"):  # older releases have none
            assert report.findings or report.notes, f"{file} {harm}"
        assert list(report_text(report))
        for read in (
            lambda: list(dump_json(dump(home))),
            lambda: commits(home),
            lambda: list(explanation_text(explain(home, GROUP))),
            lambda: replay(home, group=GROUP),
            lambda: replay_all(home),
        ):
            with contextlib.suppress(NothingToRead, Damaged):
                read()
        if file.exists():
            file.rmdir() if file.is_dir() else file.unlink()
        file.write_bytes(sound)
    assert verify(home).ok


def test_links_to_files_are_followed(home: str, tmp_path: Path) -> None:
    """As of an archive that was moved to a larger disk."""
    node, _ = long_story(home)
    node.stop()
    truth = list(dump_json(dump(home)))
    for number, file in enumerate(path for path in list(Path(home).rglob("*")) if path.is_file()):
        elsewhere = tmp_path / str(number)
        file.rename(elsewhere)
        file.symlink_to(elsewhere)
    assert verify(home).ok
    assert list(dump_json(dump(home))) == truth

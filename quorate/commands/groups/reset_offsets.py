"""`quorate groups reset-offsets`: moves the committed offsets of a group.

The plan (from `quorate/resetting.py`) is shown first; nothing changes without `--execute`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quorate.addresses import place_of_cluster
from quorate.commands.groups.delete_offsets import by_topic
from quorate.commands.options import (
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    EndOffsetsFrom,
    Group,
    GroupNamed,
    Json,
    Timeout,
    Url,
    connect,
    flag,
    kafka_offsets,
    one_group,
    option,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, say, unwritten_file

if TYPE_CHECKING:
    from quorate.offsetplan import OffsetChange, Partition
    from quorate.resetting import Goal, Reset


def reset_offsets(
    argument: Group = None,
    named: GroupNamed = None,
    topic: Annotated[
        list[str] | None, option("--topic", "TOPIC[:PARTITIONS]", "Partitions to reset; may be repeated.")
    ] = None,
    all_topics: Annotated[bool, flag("--all-topics", "Every partition that has a committed offset.")] = False,
    to_offset: Annotated[int | None, option("--to-offset", "N", "To N.", min=0)] = None,
    to_earliest: Annotated[
        bool,
        flag(
            "--to-earliest", "To the beginning: 0, or the first offset in the cluster of --end-offsets-from."
        ),
    ] = False,
    to_latest: Annotated[bool, flag("--to-latest", "To the end; needs --end-offsets-from.")] = False,
    to_current: Annotated[
        bool, flag("--to-current", "To the current offsets, to export or renew them.")
    ] = False,
    to_datetime: Annotated[
        str,
        option(
            "--to-datetime", "TIME", "To the first record at or after this time; needs --end-offsets-from."
        ),
    ] = "",
    shift_by: Annotated[int | None, option("--shift-by", "N", "By N; a negative N moves backwards.")] = None,
    from_file: Annotated[
        Path | None, option("--from-file", "CSV", "To the offsets in a file of lines topic,partition,offset.")
    ] = None,
    export: Annotated[
        Path | None, option("--export", "CSV", "Write the plan to a file; - prints it.")
    ] = None,
    execute: Annotated[bool, flag("--execute", "Apply the plan; without it the plan is only shown.")] = False,
    end_offsets_from: EndOffsetsFrom = "",
    bootstrap: Bootstrap = None,
    url: Url = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Move the committed offsets of a group without members; shows the plan, --execute carries it out.

    Example: quorate groups reset-offsets billing --topic orders:0,1 --to-offset 100 --execute
    """
    group = one_group(argument, named)
    goals = {
        "--to-offset": to_offset,
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-datetime": to_datetime or None,
        "--shift-by": shift_by,
        "--from-file": from_file,
    }
    chosen = _one_of(goals, "no new offset is given")
    which = {"--topic": topic or None, "--all-topics": all_topics or None, "--from-file": from_file}
    _one_of(which, "no partitions are given")
    goal = _goal(chosen, goals[chosen], bool(end_offsets_from))
    partitions = by_topic(topic) if topic else None
    from quorate.resetting import work_out

    source = kafka_offsets(end_offsets_from, timeout_s)
    with connect(place_of_cluster(bootstrap, url), timeout_s) as client:
        reset = work_out(client, source, group, goal, partitions)
        if execute and reset.changes:
            client.commit(group, reset.offsets())
    if export is None or not _export(export, reset.steps):
        _show(reset, execute, json)


def _one_of(options: Mapping[str, object], missing: str) -> str:
    """The one option that is given; raises `CommandError` (usage) for none or several."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) == 1:
        return given[0]
    said = missing if not given else f"{' and '.join(given)} exclude each other"
    raise CommandError(said, hint=f"give one of {', '.join(options)}", code=ExitCode.USAGE)


def _goal(chosen: str, value: str | int | Path | None, has_source: bool) -> Goal:
    """The goal that an option and its value express; raises `CommandError` (usage)."""
    from quorate.resetting import NEED_KAFKA, Goal

    number = _moment(value) if isinstance(value, str) else value if isinstance(value, int) else 0
    if chosen in NEED_KAFKA and not has_source:
        raise CommandError(
            f"{chosen} needs --end-offsets-from HOST:PORT",
            hint="Quorate keeps no records: only the Kafka cluster that holds the topic knows its offsets",
            code=ExitCode.USAGE,
        )
    return Goal(chosen, number, _read(value) if isinstance(value, Path) else {})


def _moment(text: str) -> int:
    from history.render import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise CommandError(f"--to-datetime: {error}", code=ExitCode.USAGE) from error


def _read(path: Path) -> dict[Partition, int]:
    from quorate.offsetplan import FILE_BYTES_MAX, from_csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read(FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CommandError(f"cannot read {path}: {reason}", code=ExitCode.USAGE) from error
    return from_csv(text, str(path))


def _export(path: Path, steps: Sequence[OffsetChange]) -> bool:
    """Write the plan; returns whether it went to standard output, which must then hold nothing else."""
    from quorate.offsetplan import to_csv

    text = to_csv(steps)
    if str(path) == "-":
        sys.stdout.write(text)
        return True
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritten_file(path, error) from error
    return False


def _show(reset: Reset, is_done: bool, json: bool) -> None:
    num_changes = len(reset.changes)
    if json:
        print_json(
            {
                "group": reset.group_id,
                "exists": not reset.is_new,
                "plan": [dataclasses.asdict(step) for step in reset.steps],
                "changes": num_changes,
                "executed": is_done and num_changes > 0,
            }
        )
        return
    if reset.is_new:
        say(f"group {reset.group_id} does not exist yet: the reset {'made' if is_done else 'would make'} it")
    rows = [(s.topic, s.partition, s.now, s.new, s.note) for s in reset.steps]
    print_table(("TOPIC", "PARTITION", "NOW", "NEW", ""), rows, empty="no partitions")
    number = f"{num_changes} offset{'s' * (num_changes != 1)}"
    if not num_changes:
        say("nothing was changed: all offsets are already as wanted")
    elif is_done:
        say(f"{number} of group {reset.group_id} changed")
    else:
        say(f"nothing was changed; add --execute (it changes {number})")

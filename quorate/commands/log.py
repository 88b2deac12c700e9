"""`quorate log …`: the offline readers of `history` on a node's directory, which they never write to.

The directory comes first, then what is asked. It may belong to a running node, be a copy, or be damaged; the
folder that holds a cluster's nodes (node-1, node-2, …) stands for whichever of them is furthest.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from quorate.commands.options import Directory, Json, new_app
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, say

T = TypeVar("T")

INDEX_DIGITS_MAX = 11  # a longer number is a time in epoch milliseconds: 12 digits begin in 1973
WIDTH_WITHOUT_TERMINAL = 120
METADATA_NAME = "metadata"
STATE_HASH = "state_hash"  # 64 bits: as a number in JSON, jq and JavaScript would round it

app = new_app("Read a node's log: what happened, and why.")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)]
Shard = Annotated[
    str | None, typer.Option("--shard", metavar="SHARD", help="A shard's number, or `metadata`.")
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="INDEX|TIME", help="A log index, epoch milliseconds, or 2026-03-01T12:03:08[+01:00]."
    ),
]
Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of the local zone.")]


@app.command("dump")
def dump(
    directory: Directory,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only records of this group.")] = None,
    record_type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only records of this type.")
    ] = None,
    shard: Annotated[
        list[str] | None, typer.Option("--shard", metavar="SHARD", help="Only this shard, or `metadata`.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="INDEX|TIME", help="From this index or time on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="INDEX|TIME", help="Up to this index or time, inclusive.")
    ] = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print entries one by one, with causes and records; --json prints one object per line, lossless.

    Example: quorate log dump quorate-data --group billing --type offset_commit --from 2026-03-01T12:00
    """
    from history.dump import Filter, dump_json, dump_text, type_number
    from history.dump import dump as read

    from_index, from_ms = _index_or_time(start, utc)
    to_index, to_ms = _index_or_time(end, utc)
    wanted = Filter(
        groups=frozenset(group or ()),
        types=frozenset(_usage(type_number, text) for text in record_type or ()),
        shards=frozenset(_shard_number(text) for text in shard or ()),
        from_index=from_index,
        to_index=to_index,
        from_ms=from_ms,
        to_ms=to_ms,
    )
    entries = read(str(directory), wanted)
    if json:
        _print_lines(directory, dump_json(entries), show=print)
    else:
        _print_lines(directory, dump_text(entries, _style(utc)))


@app.command("verify")
def verify(directory: Directory, json: Json = False) -> None:
    """Check every byte and every invariant; exit code 1 and the exact place if something is broken.

    Of a folder that holds a cluster's nodes each is checked; `quorate log compare` holds them to each other.

    Example: quorate log verify quorate-data
    """
    from history.members import node_directories
    from history.verify import report_text
    from history.verify import verify as check

    reports = _read(directory, lambda: [check(path) for path in node_directories(str(directory))])
    if json:
        shown = [{"ok": one.ok, "findings": one.findings} | plain(one) for one in reports]
        print_json(shown[0] if len(shown) == 1 else {"ok": all(r.ok for r in reports), "nodes": shown})
    else:
        for report in reports:
            if len(reports) > 1:
                print(report.path)
            _print_lines(directory, report_text(report))
    if not all(report.ok for report in reports):
        raise typer.Exit(ExitCode.FAILED)


@app.command("compare")
def compare(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR DIR [DIR…]",
            help="The nodes' data directories, or the one folder that holds them as node-1, node-2, …",
            show_default=False,
        ),
    ],
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Compare the nodes of a cluster: the same entries, hash chain and state on all; exit code 1 if not.

    What was never decided, and being behind, is told and is no difference.

    Example: quorate log compare node-1 node-2 node-3
    """
    from history.compare import compare as check
    from history.compare import comparison_text

    comparison = _read(directories[0], lambda: check([str(one) for one in directories], _style(utc)))
    if json:
        print_json({"ok": comparison.ok, "num_findings": comparison.num_findings} | plain(comparison))
    else:
        _print_lines(directories[0], comparison_text(comparison, _style(utc)))
    if not comparison.ok:
        raise typer.Exit(ExitCode.FAILED)


@app.command("replay")
def replay(
    directory: Directory,
    at: At = None,
    group: Annotated[str | None, typer.Option("--group", help="Only this group.")] = None,
    shard: Shard = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Rebuild the state at an index or a moment; without --at, at the end of the log.

    An index belongs to one shard, so it needs --group or --shard; a time does not.

    Example: quorate log replay quorate-data --group billing --at 2026-03-01T03:12
    """
    from history.replay import replay as read
    from history.replay import replay_all, state_text

    index, time_ms = _index_or_time(at, utc)
    number = None if shard is None else _shard_number(shard)
    if index is not None and group is None and number is None:
        raise CommandError(
            f"--at {at} is an index, and every shard counts its own",
            hint="name one with --shard or --group, or give a time",
            code=ExitCode.USAGE,
        )
    if group is None and number is None:
        states = _read(directory, lambda: replay_all(str(directory), at_ms=time_ms))
    else:
        states = (
            _read(
                directory,
                lambda: read(str(directory), shard=number, group=group, at_index=index, at_ms=time_ms),
            ),
        )
    if json:
        print_json({"shards": [plain(state) for state in states]})
        return
    for position, state in enumerate(states):
        if position:
            print()
        _print_lines(directory, state_text(state, _style(utc)))


@app.command("explain")
def explain(
    directory: Directory,
    group: Group,
    shard: Shard = None,
    at: At = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Why each epoch of a group: who did what, what moved, how long it took. --at ends the story there.

    Example: quorate log explain quorate-data billing
    """
    from history.explain import explanation_text

    explanation = _explanation(directory, group, shard, at, utc)
    if json:
        print_json(plain(explanation))
    else:
        _print_lines(directory, explanation_text(explanation, _style(utc)))


@app.command("timeline")
def timeline(
    directory: Directory,
    group: Group,
    shard: Shard = None,
    at: At = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """One row per epoch of a group: when, why, who owned what. --at ends it there.

    Example: quorate log timeline quorate-data billing
    """
    from history.timeline import timeline as rows_of
    from history.timeline import timeline_text

    explanation = _explanation(directory, group, shard, at, utc)
    rows = rows_of(explanation)
    if json:
        print_json({"group_id": group, "members": explanation.members, "rows": [plain(row) for row in rows]})
        return
    width = shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns
    _print_lines(directory, timeline_text(rows, width=width, style=_style(utc)))
    for name, described in explanation.members.items():
        say(f"{name} is {described}")


@app.command("terms")
def terms(directory: Directory, shard: Shard = None, utc: Utc = False, json: Json = False) -> None:
    """One row per term: who led, why it began, how long nobody led; failovers and hand-overs at a glance.

    Example: quorate log terms quorate-data
    """
    from history.terms import terms as read
    from history.terms import terms_text

    found = _read(directory, lambda: read(str(directory), None if shard is None else _shard_number(shard)))
    if json:
        print_json({"terms": [plain(one) for one in found]})
        return
    width = shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns
    _print_lines(directory, terms_text(found, width=width, style=_style(utc)))


def plain(value: Any) -> Any:
    """A dataclass of `history` as JSON-ready values; bytes and hashes become hexadecimal text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if isinstance(members.get(STATE_HASH), int):
            members[STATE_HASH] = f"{members[STATE_HASH]:016x}"
        return members
    if isinstance(value, dict):
        return {str(key): plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(content) for content in value]
    return value.hex() if isinstance(value, bytes) else value


def _explanation(directory: Path, group: str, shard: str | None, at: str | None, utc: bool) -> Any:
    from history.explain import explain as read

    index, time_ms = _index_or_time(at, utc)
    number = None if shard is None else _shard_number(shard)
    return _read(
        directory,
        lambda: read(str(directory), group, shard=number, to_index=index, to_ms=time_ms, style=_style(utc)),
    )


def _style(utc: bool) -> Any:
    from history.render import LOCAL, UTC_STYLE

    return UTC_STYLE if utc else LOCAL


def _index_or_time(text: str | None, utc: bool) -> tuple[int | None, int | None]:
    """An index or a time in epoch ms, whichever the text is; the other one is None."""
    if text is None:
        return None, None
    if text.isdecimal() and len(text) <= INDEX_DIGITS_MAX:
        return int(text), None
    from history.render import parse_time

    return None, _usage(lambda given: parse_time(given, _style(utc)), text)


def _shard_number(text: str) -> int:
    from records.ids import METADATA_SHARD

    if text == METADATA_NAME:
        return METADATA_SHARD
    number = text.removeprefix("shard-")
    if not number.isdecimal():
        raise CommandError(
            f"{text!r} is not a shard", hint="give its number, or `metadata`", code=ExitCode.USAGE
        )
    return int(number)


def _usage(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from error


def _read(directory: Path, question: Callable[[], T]) -> T:
    """Ask, and turn what the files cannot answer into one line."""
    try:
        return question()
    except Exception as error:
        _explain_failure(directory, error)


def _print_lines(directory: Path, lines: Iterable[str], show: Callable[[str], None] = say) -> None:
    """Print as it is read: a log may be larger than memory."""
    try:
        for line in lines:
            show(line)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception as error:
        _explain_failure(directory, error)


def _explain_failure(directory: Path, error: Exception) -> NoReturn:
    from history.source import NothingToRead
    from raftlog.reader import Damaged
    from records import RecordsError

    if isinstance(error, NothingToRead):
        raise CommandError(str(error), code=ExitCode.UNREADABLE) from error
    if isinstance(error, Damaged | RecordsError):
        raise CommandError(
            f"{directory} is too damaged to answer: {error}",
            hint=f"`quorate log verify {directory}` lists what is broken",
            code=ExitCode.UNREADABLE,
        ) from error
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        raise CommandError(
            f"cannot read {error.filename or directory}: {what}", code=ExitCode.UNREADABLE
        ) from error
    raise error

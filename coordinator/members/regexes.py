"""Subscriptions by regular expression (KIP-848): validated at the heartbeat, resolved later.

A member joins at once. The topics that its expression matches are stored in a record 16, which a *round* of
resolution writes. One round resolves all expressions of a group that need it, each once, however many members
share it. Small rounds are due work in a turn of their own; larger ones run in a child process. A round that
finds other topics than before bumps the group's epoch. An expression that was resolved once is later only
matched against topics created or changed since, because whether a name matches never changes; once per
interval, everything is matched again.

Invariants: only the leader resolves, and only against the committed catalog. A record 16 is correct as of its
catalog version. An expression without subscribers has no record 16.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.api import Context, DecisionBuilder, Failure, Job, JobKind, RequestRefused, Steps
from coordinator.group_context import GroupContext
from coordinator.limits import Limits
from coordinator.regex import expressions
from coordinator.regex.expressions import Budget, InvalidExpression
from coordinator.regex.regexrounds import Answer, RegexRound, Taking
from coordinator.state import writes
from coordinator.state.model import Group
from coordinator.targets.epochs import REASONS_KEPT, Before, Step, epoch_step, target_step
from coordinator.targets.target import subscribed_ids, topic_ids_by_name
from coordinator.targets.targeting import specs_under_way
from records import METADATA_SHARD, RawRecord, ReasonKind, Trigger
from wire.errors import ErrorCode

NAMES_SHOWN = 5
"""Maximum topics named in a reason, and catalog entries referenced in a cause, for each expression."""

EXPRESSION_SHOWN = 100
"""Characters of an expression shown in messages and reasons."""

CHILD_DEADLINE_MS = 30_000
"""Deadline of the child process in ms. It is far longer than the child's own budget."""


# Validation at the heartbeat.


def check_expression(group: Group | None, regex: str | None, limits: Limits) -> None:
    """Raise `RequestRefused` (INVALID_REGULAR_EXPRESSION) unless RE2 accepts the expression.

    Expressions that the group already has are valid."""
    if not regex or (group is not None and regex in group.regex_subscribers):
        return
    try:
        expressions.check_expression(regex, limits)
    except InvalidExpression as error:
        raise RequestRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {shown(regex)!r} is not valid: {error}. Use RE2 syntax "
            "(no lookaround, no backreferences).",
        ) from error


def is_resolved(group: Group | None, regex: str | None) -> bool:
    """Whether the expression's topics are known.

    An empty expression matches nothing and needs no resolution."""
    return not regex or (group is not None and regex in group.regexes)


def want_resolution(groups: GroupContext, group_id: str, regex: str | None, ctx: Context) -> None:
    """Schedule a round for a member's expression, unless it is resolved already."""
    if not is_resolved(groups.projection.groups.get(group_id), regex):
        groups.resolutions.want(group_id, ctx)


def drop_unsubscribed(groups: GroupContext, group_id: str) -> Step:
    """Write tombstones of record 16 for expressions without subscribers."""
    group = groups.projection.groups.get(group_id)
    if group is None or not group.regexes:
        return
    gone = sorted(group.regexes.keys() - group.regex_subscribers.keys())
    if gone:
        yield [writes.regex_tombstone(group_id, regex) for regex in gone]


# Rounds of resolution.


def resolve(groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder) -> Steps:
    """Run the group's due round here if it is small; otherwise start it in a child process."""
    group = groups.projection.groups.get(group_id)
    if group is None or not group.regex_subscribers:
        groups.resolutions.forget(group_id)
        groups.jobs.pop((JobKind.RESOLVE, group_id), None)  # new subscribers get a round of their own
        return None
    if groups.is_working(JobKind.RESOLVE, group_id):
        return None  # its end schedules the next round
    progress = groups.resolutions.of(group_id)
    if groups.catalog_is_behind(group, ctx):
        groups.resolutions.want(group_id, ctx, groups.limits.target_retry_ms)
    elif progress.taking is not None:
        yield from _take(groups, group, progress.taking, ctx, builder)
    else:
        started_ms = ctx.stopwatch_ms()
        asked = _plan(groups, group, ctx)
        answers = _answers_here(groups, asked, ctx)
        if answers is None:
            progress.not_before_ms = ctx.monotonic_ms  # the start time, until it ends
            groups.start_job(_job(group_id, asked, groups.limits), builder)
            return None
        taking = Taking.of(asked, answers, ctx.stopwatch_ms() - started_ms)
        yield from _take(groups, group, taking, ctx, builder)
    return None


def resolution_ended(
    groups: GroupContext, job: Job, result: object, error: str | None, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Handle a child process's answer to a round, or its failure."""
    group, asked = groups.projection.groups.get(job.group_id), job.context
    assert isinstance(asked, RegexRound)
    if group is None:
        groups.resolutions.forget(job.group_id)
        return None
    cost_ms = ctx.monotonic_ms - groups.resolutions.of(job.group_id).not_before_ms
    if error is None:
        try:
            taking = Taking.of(asked, result, cost_ms)
        except (TypeError, ValueError) as failure:
            error = _nonsense(failure)
    if error is not None:
        yield from _failed(groups, group, asked, error, ctx, builder)
    else:
        yield from _take(groups, group, taking, ctx, builder)
    return None


def _plan(groups: GroupContext, group: Group, ctx: Context) -> RegexRound:
    """Choose the expressions to match and the topics to match them against."""
    progress = groups.resolutions.of(group.group_id)
    catalog = ctx.catalog
    fresh = tuple(sorted(group.regex_subscribers))
    if _is_due_in_full(groups, group, ctx):
        return RegexRound(catalog.version, True, fresh, catalog.names(), (), ())
    stale = tuple([regex for regex in fresh if regex in group.regexes and regex not in progress.errors])
    oldest = min((group.regexes[regex].version for regex in stale), default=0)
    changed = tuple(catalog.changed_since(max(progress.seen_version, oldest))) if stale else ()
    known = frozenset(stale)
    fresh = tuple([regex for regex in fresh if regex not in known])
    return RegexRound(catalog.version, False, fresh, catalog.names() if fresh else (), stale, changed)


def _is_due_in_full(groups: GroupContext, group: Group, ctx: Context) -> bool:
    """Whether the interval since the last match of all expressions against all topics is over."""
    progress = groups.resolutions.of(group.group_id)
    if progress.full_at_ms is None:
        oldest_ms = min((value.timestamp_ms for value in group.regexes.values()), default=ctx.wall_ms)
        progress.full_at_ms = ctx.monotonic_ms - max(0, ctx.wall_ms - oldest_ms)
    interval_ms = ctx.settings.for_group(group.group_id).regex_refresh_interval_ms
    return ctx.monotonic_ms - progress.full_at_ms >= interval_ms


def _answers_here(groups: GroupContext, asked: RegexRound, ctx: Context) -> list[Answer] | None:
    """The round's answers if they can be computed here in very little time; otherwise None."""
    limits = groups.limits
    if asked.cost > limits.resolve_inline_cost_max:
        return None
    milliseconds = limits.resolve_inline_ms_max
    answers = asked.answers(limits, Budget(milliseconds, milliseconds), ctx.stopwatch_ms)
    is_too_long = {expressions.TOO_COSTLY, expressions.OUT_OF_TIME}.intersection(
        answer for answer in answers if isinstance(answer, str)
    )
    return None if is_too_long else answers


def _job(group_id: str, asked: RegexRound, limits: Limits) -> Job:
    return Job(
        kind=JobKind.RESOLVE,
        group_id=group_id,
        request=asked.question(limits),
        deadline_ms=CHILD_DEADLINE_MS,
        context=asked,
    )


# Writing the results of a round.


def _take(groups: GroupContext, group: Group, taking: Taking, ctx: Context, builder: DecisionBuilder) -> Step:
    """Process a part of an answer: first compare all of it with the group, then write the differences.

    The rest is left for another turn."""
    progress = groups.resolutions.of(group.group_id)
    progress.taking = taking
    try:
        is_all = taking.look(group, progress.errors, ctx.catalog, groups.limits.resolved_names_look_max)
    except (TypeError, ValueError, LookupError) as failure:
        yield from _failed(groups, group, taking.asked, _nonsense(failure), ctx, builder)
        return
    if is_all:
        progress.failure = None
        yield from _install(groups, group, taking, ctx, builder)
    if not is_all or taking.new_results:
        progress.not_before_ms = ctx.monotonic_ms + groups.limits.resolved_pause_ms
        groups.resolutions.want(group.group_id, ctx)
        return
    progress.taking = None
    groups.resolutions.ended(group.group_id, ctx, taking.cost_ms)
    progress.errors = {r: said for r, said in progress.errors.items() if r in group.regex_subscribers}
    progress.seen_version = max(progress.seen_version, taking.asked.version)
    if taking.asked.is_full:
        progress.full_at_ms = ctx.monotonic_ms
    _want_next(groups, group, ctx)


def _nonsense(failure: Exception) -> str:
    return f"the child process returned an invalid result: {failure!r}"


def _failed(
    groups: GroupContext, group: Group, asked: RegexRound, error: str, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Handle the failure of a round: it is retried after a pause."""
    progress = groups.resolutions.of(group.group_id)
    said = f"Expressions of group {group.group_id} were not resolved: {error}"
    if said != progress.failure:
        builder.failure = Failure(group.group_id, said, JobKind.RESOLVE)
    progress.failure = said
    progress.taking = None
    progress.not_before_ms = ctx.monotonic_ms + groups.limits.regex_retry_ms
    groups.resolutions.want(group.group_id, ctx)
    yield from _free_what_is_held(groups, group, asked.fresh, ctx, builder)


def _install(
    groups: GroupContext, group: Group, taking: Taking, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Write records 16 for changed results, and bump the epoch and target if needed.

    Very large results are written in parts."""
    if not taking.new_results:
        return
    group_id, asked = group.group_id, taking.asked
    progress = groups.resolutions.of(group_id)
    builder.trigger = Trigger.REGEX_RESOLVED
    before = Before.of(group, ctx, group_id)
    records: list[RawRecord] = []
    match_nothing: set[str] = set()
    num_names = 0
    num_kept = sum([len(value.topics) for value in group.regexes.values()])
    fresh = frozenset(asked.fresh)
    for regex in list(taking.new_results):
        if num_names > groups.limits.resolved_names_at_once_max:
            break
        names = taking.new_results.pop(regex)
        old = group.regexes.get(regex)
        if regex not in group.regex_subscribers or (old is None and regex not in fresh):
            continue  # its last subscriber left meanwhile
        old_names = old.topics if old is not None else ()
        if not isinstance(names, str):
            names = expressions.within_bounds(names, num_kept - len(old_names), groups.limits)
        if isinstance(names, str):
            progress.errors[regex] = names
            match_nothing.add(regex)
            continue
        progress.errors.pop(regex, None)
        num_kept += len(names) - len(old_names)
        if old is not None and names == old_names:
            continue
        num_names += len(names)
        records.append(writes.resolved_regex(group_id, regex, names, asked.version, ctx.wall_ms))
        if old is None and not names:
            match_nothing.add(regex)
        _say_what_changed(group, regex, old_names, names, old is not None, ctx, builder)
    if records:
        yield records
    if match_nothing and not builder.reasons:
        _say_who_holds_too_much(groups, group, match_nothing, builder)
    if records or builder.reasons:
        yield from epoch_step(groups, group_id, before, ctx, builder)
        yield from target_step(groups, group_id, ctx, builder)


def _free_what_is_held(
    groups: GroupContext, group: Group, regexes: Iterable[str], ctx: Context, builder: DecisionBuilder
) -> Step:
    """Release partitions assigned because of expressions whose topics are not known.

    Until they are resolved, their members subscribe to no topics by them, so other members get what the
    target still assigns to these members."""
    builder.trigger = Trigger.REGEX_RESOLVED
    before = Before.of(group, ctx, group.group_id)
    _say_who_holds_too_much(groups, group, set(regexes), builder)
    if builder.reasons:
        yield from epoch_step(groups, group.group_id, before, ctx, builder)
        yield from target_step(groups, group.group_id, ctx, builder)


def _want_next(groups: GroupContext, group: Group, ctx: Context) -> None:
    """Schedule the next round: at once if there is work by now, otherwise at the end of the interval."""
    progress = groups.resolutions.of(group.group_id)
    is_missing = bool(group.regex_subscribers.keys() - group.regexes.keys() - progress.errors.keys())
    if is_missing or ctx.catalog.version > progress.seen_version:
        groups.resolutions.want(group.group_id, ctx)
        return
    interval_ms = ctx.settings.for_group(group.group_id).regex_refresh_interval_ms
    assert progress.full_at_ms is not None
    groups.resolutions.want(group.group_id, ctx, progress.full_at_ms + interval_ms - ctx.monotonic_ms)


def _say_what_changed(
    group: Group,
    regex: str,
    old: tuple[str, ...],
    new: tuple[str, ...],
    was_resolved: bool,
    ctx: Context,
    builder: DecisionBuilder,
) -> None:
    """Add a reason if the group is affected.

    Topics unknown to both the catalog and the group do not affect it."""
    noticed = {topic.topic_name for topic in group.topics}
    came, went = (
        sorted(name for name in names if name in noticed or ctx.catalog.topic(name) is not None)
        for names in (set(new) - set(old), set(old) - set(new))
    )
    if (not came and not went) or len(builder.reasons) >= REASONS_KEPT:
        return
    said = [f"now matches {_some(came)}"] if came else []
    said += [f"no longer matches {_some(went)}"] if went else []
    builder.because(ReasonKind.REGEX_RESOLUTION_CHANGED, detail=f"{shown(regex)} {' and '.join(said)}")
    if was_resolved:
        for name in (*came[:NAMES_SHOWN], *went[:NAMES_SHOWN]):
            builder.refer(METADATA_SHARD, ctx.catalog.changed_at(name))


def _say_who_holds_too_much(
    groups: GroupContext, group: Group, regexes: set[str], builder: DecisionBuilder
) -> None:
    """Add a reason if a member of one of these expressions holds more than its subscription allows.

    This happens if an expression matches nothing or cannot be resolved. Targets that are being computed count
    too. The excess partitions then go to other members."""
    ids = topic_ids_by_name(group)
    specs = specs_under_way(groups, group.group_id)
    for member in group.joined():
        metadata = member.metadata
        assert metadata is not None
        regex = metadata.subscribed_topic_regex
        if regex is None or regex not in regexes:
            continue
        granted = set(group.target_of(member.member_id))
        for spec in specs:
            if member.member_id in spec.members:
                granted |= spec.members[member.member_id].subscribed_topics
        if granted - subscribed_ids(group, metadata, ids):
            what = "matches nothing" if regex in group.regexes else "is not resolved"
            builder.because(ReasonKind.REGEX_RESOLUTION_CHANGED, detail=f"{shown(regex)} {what}")
            return


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return " ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def shown(regex: str) -> str:
    """An expression as shown in messages, truncated if it is long."""
    return regex if len(regex) <= EXPRESSION_SHOWN else regex[:EXPRESSION_SHOWN] + "…"

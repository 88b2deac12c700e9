"""Every rule: what it means, what it reads, its thresholds, and what to do about its findings.

`quorate log findings --rules` prints these texts. docs/history.md has the meanings; a test compares the two.
"""

from __future__ import annotations

from history.facts.rows import Severity

from . import leaders, members, rebalances, requests, revoking, storms, targets
from .case import FAR, LOOK_BACK_MS, RETURN_MS, RUN_MS, SETTLE_MS
from .rule import Rule

_TABLE = (
    Rule(
        name="SLOW_REVOKER",
        severity=Severity.WARNING,
        title="a member gave up partitions slowly",
        find=revoking.slow_revoker,
        means=(
            "A member was told to give up partitions and took long to acknowledge it, while others waited "
            "for them. It met its rebalance timeout, so it was not removed."
        ),
        reads=(
            "Record 8 of the member: when partitions moved from `assigned_partitions` to "
            "`partitions_pending_revocation`, and when they were removed from there; record 5 "
            "(`rebalance_timeout_ms`); record 7 of the waiting members."
        ),
        thresholds=(revoking.SLOW_REVOCATION_MS, revoking.STUCK_MS, LOOK_BACK_MS),
        do=(
            "Check what its callback for revoked partitions does: commits, closing files, finishing batches. "
            "Java clients send `max.poll.interval.ms` as their rebalance timeout."
        ),
    ),
    Rule(
        name="REVOCATION_TIMED_OUT",
        severity=Severity.ERROR,
        title="a member did not give up partitions and was removed",
        find=revoking.revocation_timed_out,
        means=(
            "A member did not give up the requested partitions within its rebalance timeout and was removed "
            "with all its partitions. Its process is alive, because its heartbeats arrived, but its "
            "processing is stuck or takes longer than the timeout."
        ),
        reads=(
            "The cause of the entry that removed it (`REBALANCE_EXPIRED`; `timeout_ms` and `deadline_ms` of "
            "its expiry); its earlier records 8."
        ),
        do=(
            "Find what blocks between two polls. If it is work that must be finished, use a longer rebalance "
            "timeout (`max.poll.interval.ms`) or smaller batches."
        ),
        covers=("SLOW_REVOKER",),
    ),
    Rule(
        name="STUCK_RECONCILIATION",
        severity=Severity.ERROR,
        title="partitions wait for one member",
        find=revoking.stuck_reconciliation,
        means=(
            "Partitions wait for one member, longer than any timeout would allow: it does not give up the "
            "requested partitions, or does not take over those that are now its own."
        ),
        reads=(
            "Records 8 of all members, 7 and 6 (the target), and the newest entry or note as proof that the "
            "node kept running."
        ),
        thresholds=(revoking.STUCK_MS, LOOK_BACK_MS),
        do=(
            "Check the member named first: take a thread dump, then restart it. `quorate groups "
            "remove-member` removes it at once; shorter session and rebalance timeouts bound such a wait."
        ),
        covers=("SLOW_REVOKER",),
    ),
    Rule(
        name="SESSION_EXPIRED",
        severity=Severity.WARNING,
        title="a member died or was cut off",
        find=members.session_expired,
        means=(
            "A member sent no heartbeat for its session timeout and did not return: its process or host "
            "died, or was cut off permanently. Several members at about the same time are one finding."
        ),
        reads=(
            "The cause of the entry that removed the member (`SESSION_EXPIRED`; `timeout_ms`, "
            "`last_heartbeat_ms` and `deadline_ms` of each expiry); record 8 for its partitions. From the "
            "evidence file: `heartbeat_gap`, the longest gaps between its earlier heartbeats."
        ),
        thresholds=(members.EXPIRED_TOGETHER_MS, RETURN_MS, RUN_MS),
        do=(
            "Check the process and its host at the time of the last heartbeat. A process that ends on "
            "purpose should close its consumer: its partitions then move at once."
        ),
    ),
    Rule(
        name="MEMBER_PAUSED",
        severity=Severity.WARNING,
        title="a member paused for longer than its session",
        find=members.member_paused,
        means=(
            "A member's session expired, and it returned with the same member id: its process was alive all "
            "the time, but paused (garbage collection, a suspended machine, a starved CPU) or unable to "
            "reach the node."
        ),
        reads=(
            "The cause of the entry that removed the member (`SESSION_EXPIRED`; `timeout_ms`, "
            "`last_heartbeat_ms` and `deadline_ms` of each expiry), and a later record 5 with the same "
            "member id. From the evidence file: `heartbeat_gap`."
        ),
        thresholds=(RETURN_MS,),
        do=(
            "Compare the silence with pauses of that process and its machine; gaps that grew beforehand "
            "point to load. With a longer session timeout it keeps its partitions during such a pause."
        ),
        covers=("SESSION_EXPIRED",),
    ),
    Rule(
        name="EXPIRED_AFTER_FAILOVER",
        severity=Severity.ERROR,
        title="a session expired after a leader change",
        find=members.expired_after_failover,
        means=(
            "A member's session expired under a leader that never received a heartbeat from it: it died with "
            "the former leader or about that time, or was alive and did not find the new leader. Every new "
            "leader gives each member a full session, so such an expiry follows one session timeout after "
            "the change."
        ),
        reads=(
            "TERM_START before it (`node_id`, `why`); the cause of the entry that removed the member "
            "(`SESSION_EXPIRED`; `timeout_ms`, `last_heartbeat_ms` and `deadline_ms` of each expiry): "
            "`last_heartbeat_ms` is −1."
        ),
        thresholds=(members.UNHEARD_PAUSE_MS, RETURN_MS, RUN_MS),
        do=(
            "If it returned with the same id, find out why it did not find the coordinator (bootstrap "
            "servers, advertised addresses, a half-open connection). Otherwise check whether it ran on the "
            "machine of the failed node."
        ),
        covers=("SESSION_EXPIRED", "MEMBER_PAUSED", "FAILOVER"),
    ),
    Rule(
        name="STATIC_MEMBER_GONE",
        severity=Severity.WARNING,
        title="a static member did not return within its session",
        find=members.static_member_gone,
        means=(
            "A static member left temporarily and did not return within its session timeout. Its partitions "
            "were reserved for it and not processed during that time."
        ),
        reads=(
            "Record 8 with epoch −2 (cause `MEMBER_AWAY`), then the entry that removed it "
            "(`SESSION_EXPIRED`)."
        ),
        do=(
            "If it was meant to end, let it leave permanently, or remove it with `quorate groups "
            "remove-member`. If it only restarts, its session timeout must be longer than its restart."
        ),
        covers=("SESSION_EXPIRED",),
    ),
    Rule(
        name="FLAPPING_MEMBER",
        severity=Severity.ERROR,
        title="a member leaves and joins again and again",
        find=members.flapping_member,
        means=("One process joins and leaves again and again, and each time the group rebalances twice."),
        reads=(
            "Records 5: `instance_id`, the member id in the key, or `client_id` with `client_host` if no two "
            "members have the same at the same time; the causes `MEMBER_JOINED`, `MEMBER_REJOINED`, "
            "`MEMBER_REPLACED` and of what removed it."
        ),
        thresholds=(members.FLAPS_MIN, members.FLAP_PAUSE_MS, RETURN_MS, RUN_MS),
        do=(
            "Its own log shows why it ends: an error for one message that it reads again after each start, "
            "too little memory, a liveness probe. Stop it until that is fixed, so that the others continue "
            "undisturbed."
        ),
        covers=(
            "REBALANCE_STORM",
            "SESSION_EXPIRED",
            "MEMBER_PAUSED",
            "STATIC_MEMBER_GONE",
            "REVOCATION_TIMED_OUT",
            "REBALANCE_TIMED_OUT",
            "LATE_MEMBER",
        ),
    ),
    Rule(
        name="REBALANCE_TIMED_OUT",
        severity=Severity.ERROR,
        horizon=FAR,
        title="a member did not take part in a rebalance and was removed",
        find=rebalances.rebalance_timed_out,
        means=(
            "A member of the classic protocol did not join again, or did not send SyncGroup, in time, and "
            "was removed. In a classic group, where the longest rebalance timeout of all members counts, "
            "all others waited for it until then."
        ),
        reads=(
            "The cause of record 2, or of record 3 in a consumer group: its reasons `JOIN_TIMED_OUT` and "
            "`SYNC_TIMED_OUT`, with `timeout_ms` of each expiry; what the member had, from records 2 and 8."
        ),
        do=(
            "Find what blocks between two polls: Java clients join again when the application polls, and "
            "send `max.poll.interval.ms` as their rebalance timeout. A shorter one bounds how long all "
            "others wait."
        ),
    ),
    Rule(
        name="LATE_MEMBER",
        severity=Severity.WARNING,
        horizon=FAR,
        title="a group waits for the same member again and again",
        find=rebalances.late_member,
        means=(
            "In several rebalances of a classic group all others waited for the same member: it joined late, "
            "or as the leader sent the assignments late, or was removed because it did neither in time."
        ),
        reads=(
            "The cause of record 2: `phases` (when the join phase began and ended, and who joined last), its "
            "leader (`member_id`), and the reasons `JOIN_TIMED_OUT` and `SYNC_TIMED_OUT`; the entry's time."
        ),
        thresholds=(rebalances.LATE_MS, rebalances.LATE_MIN, rebalances.LATE_PAUSE_MS),
        do=(
            "Check how long that member works between two polls, and what its callback for revoked "
            "partitions does; if it is the leader, how long its assignor takes. The others cannot go on "
            "without it: smaller batches help, as does the consumer protocol, in which members wait only for "
            "partitions."
        ),
        covers=("REBALANCE_TIMED_OUT",),
    ),
    Rule(
        name="REBALANCE_STORM",
        severity=Severity.WARNING,
        title="members left and joined faster than the group settles",
        find=storms.rebalance_storm,
        means=(
            "Many members left and joined within a minute, so most epochs were overtaken before they were "
            "stable: everything was restarted at once."
        ),
        reads=("Every record 3 with its cause and reasons; records 6 and 8 show whether the epoch settled."),
        thresholds=(
            *(storms.STORM_WINDOW_MS, storms.STORM_EPOCHS_MIN, storms.STORM_MEMBERS_MIN),
            *(SETTLE_MS, RUN_MS),
        ),
        do=(
            "Restart members one after another, each when the group is stable again; or give them "
            "instance ids, so that a restart moves nothing at all."
        ),
    ),
    Rule(
        name="ASSIGNOR_FAILED",
        severity=Severity.ERROR,
        title="an assignor failed",
        find=targets.assignor_failed,
        means=(
            "The group's assignor raised an error, returned an invalid result or took too long. Members keep "
            "their partitions; new members and new partitions wait."
        ),
        reads=(
            "Record 3 without a record 6 of its epoch; from the evidence file `trouble` (`work` is `assign`)."
        ),
        do=(
            "The finding's text ends with the error and its location. `quorate groups describe` shows the "
            "error while it lasts; putting another assignor first in `group.consumer.assignors` helps at "
            "once."
        ),
        covers=("NO_TARGET",),
        needs_evidence=True,
    ),
    Rule(
        name="CLIENT_ASSIGNOR_LATE",
        severity=Severity.WARNING,
        title="a member did not compute the target in time",
        find=targets.client_assignor_late,
        means=(
            "The member that was chosen to compute the target did not install one within its rebalance "
            "timeout, or installed an invalid one; another member or the node had to compute it."
        ),
        reads=(
            "Record 3 without a record 6 of its epoch, and the cause of the record 6 that followed later "
            "(`ASSIGNMENT_INSTALLED`, or not); from the evidence file `trouble` with a `member`."
        ),
        do=(
            "Check the member's assignor: it runs in the client, whose log has its error. With a shorter "
            "rebalance timeout the next member is chosen sooner."
        ),
        covers=("NO_TARGET",),
        needs_evidence=True,
    ),
    Rule(
        name="NO_TARGET",
        severity=Severity.WARNING,
        title="an epoch waited long for its target",
        find=targets.no_target,
        means=(
            "An epoch had no target for longer than any assignor of the node may take. Without an evidence "
            "file the reason is unknown."
        ),
        reads="Record 3 without a record 6 of its epoch.",
        thresholds=(targets.NO_TARGET_MS, targets.TARGET_PAUSE_MS, RUN_MS),
        do=("Check the node's own log of that time, and the evidence files of the other nodes."),
    ),
    Rule(
        name="EXPRESSIONS_NOT_RESOLVED",
        severity=Severity.WARNING,
        title="subscriptions by regular expression were not resolved",
        find=targets.expressions_not_resolved,
        means=(
            "The topics that the group's regular expressions match could not be resolved; members keep the "
            "topics that they had."
        ),
        reads="From the evidence file `trouble` (`work` is `resolve`).",
        thresholds=(targets.TROUBLE_PAUSE_MS, RUN_MS),
        do=("The finding's text has the error. Replace an expression that is too expensive by topic names."),
        needs_evidence=True,
    ),
    Rule(
        name="FAILOVER",
        severity=Severity.NOTE,
        title="the leader of the shard failed",
        find=leaders.failover,
        means=(
            "The leader of the group's shard failed and another node took over, or it lost the leadership "
            "and won it again. It explains an interruption of about a second; no member is removed because "
            "of it. A planned leadership transfer is not a failover."
        ),
        reads="TERM_START: `node_id`, `previous_leader`, `why` is `EXPIRY` or `RESET`.",
        do="`quorate log terms` shows the leaders of all shards; check the node that failed.",
    ),
    Rule(
        name="LEADER_FLAPPING",
        severity=Severity.ERROR,
        title="the leader of the shard changes again and again",
        find=leaders.leader_flapping,
        means=(
            "The leader changed again and again within minutes, unplanned. Each time all sessions start "
            "again, so a dead member is detected late."
        ),
        reads="TERM_START: `why` is `EXPIRY`, `RESET` or `START`, and its time.",
        thresholds=(leaders.LEADS_MIN, leaders.LEADS_PAUSE_MS),
        do=(
            "Check the links between the nodes and their disks: `quorate cluster status` shows delays and "
            "round trips."
        ),
        covers=("FAILOVER",),
    ),
    Rule(
        name="INSTANCE_ID_CONTESTED",
        severity=Severity.ERROR,
        title="two processes want one instance id",
        find=requests.instance_id_contested,
        means=(
            "A process was refused because another one uses its `group.instance.id`: two processes have the "
            "same one, or the former died without leaving and its instance id is still reserved."
        ),
        reads=(
            "From the evidence file `refused` with FENCED_INSTANCE_ID or UNRELEASED_INSTANCE_ID; records 5 "
            "(`instance_id`) and 8 of the member that owns it."
        ),
        thresholds=(requests.CONTEST_PAUSE_MS, SETTLE_MS, RUN_MS),
        do=(
            "Give every process its own instance id; the client and host of both are in the log. If the "
            "former is dead, `quorate groups remove-member` frees its instance id before its session expires."
        ),
        needs_evidence=True,
    ),
    Rule(
        name="REQUESTS_REFUSED",
        severity=Severity.WARNING,
        title="a client is refused again and again",
        find=requests.requests_refused,
        means=(
            "One client was refused for the same reason again and again: it is no longer a member of the "
            "group and does not notice, or it keeps using an old epoch."
        ),
        reads="From the evidence file `refused`: API, error, reason, member and client.",
        thresholds=(requests.REFUSED_MIN, requests.REFUSED_PAUSE_MS, RUN_MS),
        do=(
            "Another member also reads what such a client reads: stop it. A client that keeps committing "
            "after it was fenced ignores the errors of its commits."
        ),
        needs_evidence=True,
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _TABLE}
LEADER_RULES = ("FAILOVER", "LEADER_FLAPPING")
"""Rules about the terms of a shard, whatever its groups do."""
GROUP_RULES: tuple[Rule, ...] = tuple(rule for rule in _TABLE if rule.name not in LEADER_RULES)
"""Rules about a group. Tables list findings of these by group, and those of `LEADER_RULES` by shard."""
RUNS_FAR = ("LATE_MEMBER",)
"""Rules whose runs are longer than those of the rules that cover them."""

"""Every rule: what it means, what it reads, its thresholds, and what to do about its findings.

`quorate log findings --rules` prints these texts. docs/history.md has the meanings; a test compares the two.
"""

from __future__ import annotations

from history.facts.rows import Severity

from . import leaders, members, requests, revoking, storms, targets
from .rule import Rule

_TABLE = (
    Rule(
        name="SLOW_REVOKER",
        severity=Severity.WARNING,
        title="a member gave up partitions slowly",
        find=revoking.slow_revoker,
        means=(
            "A member was told to give up partitions, took long to say that it had, and others waited for "
            "them meanwhile. It was in time: nobody was removed."
        ),
        reads=(
            "Record 8 of the member: when partitions went from `assigned_partitions` to "
            "`partitions_pending_revocation`, and when they were gone from there; record 5 "
            "(`rebalance_timeout_ms`); record 7 of those who waited."
        ),
        thresholds=(revoking.SLOW_REVOCATION_MS,),
        do=(
            "Look at what its callback for revoked partitions does: commits, closed files, batches that "
            "are finished first. `max.poll.interval.ms` is what a Java client sends as its rebalance "
            "timeout."
        ),
    ),
    Rule(
        name="REVOCATION_TIMED_OUT",
        severity=Severity.ERROR,
        title="a member did not give up partitions and was removed",
        find=revoking.revocation_timed_out,
        means=(
            "A member did not give up within its rebalance timeout what it was told to, and was removed "
            "with all that it had. It lives, as its heartbeats came, but its processing is stuck, or "
            "takes longer than that."
        ),
        reads=(
            "The cause of the entry that removed it (`REBALANCE_EXPIRED`; of the expiry `timeout_ms` and "
            "`deadline_ms`); its records 8 before."
        ),
        do=(
            "Find what blocks between two polls. Where it is work that must be finished, give it a longer "
            "rebalance timeout (`max.poll.interval.ms`) or smaller batches."
        ),
        covers=("SLOW_REVOKER",),
    ),
    Rule(
        name="STUCK_RECONCILIATION",
        severity=Severity.ERROR,
        title="partitions wait for one member",
        find=revoking.stuck_reconciliation,
        means=(
            "Partitions wait for one member, longer than anything that ends by itself: it does not give "
            "up what it was told to, or does not come for what is its own by now."
        ),
        reads=(
            "Records 8 of all members, 7 and 6 (the target), and the newest entry or note as the sign "
            "that the node went on."
        ),
        thresholds=(revoking.STUCK_MS,),
        do=(
            "The member named first is the one to look at: a thread dump, then a restart. "
            "`quorate groups remove-member` takes its place from it at once; shorter session and "
            "rebalance timeouts bound such a wait."
        ),
        covers=("SLOW_REVOKER",),
    ),
    Rule(
        name="SESSION_EXPIRED",
        severity=Severity.WARNING,
        title="a member went without a word",
        find=members.session_expired,
        means=(
            "A member was not heard for its session timeout and did not come back: its process or its "
            "host died, or was cut off for good. Several at about one time are one finding."
        ),
        reads=(
            "The cause of the entry that removed the member (`SESSION_EXPIRED`; of each expiry "
            "`timeout_ms`, `last_heartbeat_ms`, `deadline_ms`); record 8 for what it had. From the "
            "evidence file: `heartbeat_gap`, how regular it was before."
        ),
        thresholds=(members.EXPIRED_TOGETHER_MS,),
        do=(
            "Look at the process and its host at the moment of the last heartbeat. A process that ends on "
            "purpose should close its consumer: its partitions then move at once."
        ),
    ),
    Rule(
        name="MEMBER_PAUSED",
        severity=Severity.WARNING,
        title="a member stood still for longer than its session",
        find=members.member_paused,
        means=(
            "A member's session ended, and it came back under the same member id: it had lived all the "
            "time, and stood still (garbage collection, a suspended machine, a starved CPU) or did not "
            "reach the node."
        ),
        reads=(
            "The cause of the entry that removed the member (`SESSION_EXPIRED`; of each expiry "
            "`timeout_ms`, `last_heartbeat_ms`, `deadline_ms`), and a later record 5 with the same member "
            "id. From the evidence file: `heartbeat_gap`."
        ),
        do=(
            "Compare the silence with the pauses of that process and its machine; gaps that grew before "
            "it point to load. A longer session timeout lets it keep its place through such a pause."
        ),
        covers=("SESSION_EXPIRED",),
    ),
    Rule(
        name="EXPIRED_AFTER_FAILOVER",
        severity=Severity.ERROR,
        title="a session ended with a change of the lead",
        find=members.expired_after_failover,
        means=(
            "A member's session ended under a leader that never heard of it: it went down with the leader "
            "before or about that time, or lived and did not find the new one. Every new leader gives "
            "each member a full session, so such an expiry comes one session timeout after the change."
        ),
        reads=(
            "TERM_START before it (`node_id`, `why`); the cause of the entry that removed the member "
            "(`SESSION_EXPIRED`; of each expiry `timeout_ms`, `last_heartbeat_ms`, `deadline_ms`): "
            "`last_heartbeat_ms` is −1."
        ),
        do=(
            "If it came back under the same id, look at why it did not find the coordinator (bootstrap "
            "servers, advertised addresses, a half-open connection). Otherwise: did it run on the machine "
            "of the node that was lost?"
        ),
        covers=("SESSION_EXPIRED", "MEMBER_PAUSED", "FAILOVER"),
    ),
    Rule(
        name="STATIC_MEMBER_GONE",
        severity=Severity.WARNING,
        title="a static member was away for longer than its session",
        find=members.static_member_gone,
        means=(
            "A static member said that it comes back and did not within its session timeout. Its "
            "partitions stood still all that time, as they were kept for it."
        ),
        reads=(
            "Record 8 with epoch −2 (cause `MEMBER_AWAY`), then the entry that removed it "
            "(`SESSION_EXPIRED`)."
        ),
        do=(
            "Was it meant to end? Then let it leave for good, or remove it: `quorate groups remove-member`. "
            "If it only restarts, its session timeout must be longer than its restart."
        ),
        covers=("SESSION_EXPIRED",),
    ),
    Rule(
        name="FLAPPING_MEMBER",
        severity=Severity.ERROR,
        title="a member comes and goes",
        find=members.flapping_member,
        means=(
            "One process joins, goes and joins again, time after time, and every time the group "
            "rebalances twice."
        ),
        reads=(
            "Records 5: `instance_id`, the member id in the key, or `client_id` with `client_host` where "
            "no two members have the same at a time; the causes `MEMBER_JOINED`, `MEMBER_REJOINED`, "
            "`MEMBER_REPLACED` and of what removed it."
        ),
        thresholds=(members.FLAPS_MIN, members.FLAP_PAUSE_MS),
        do=(
            "Its own log says why it ends: an error for one message that it reads again after each start, "
            "too little memory, a liveness probe. Until then stop it: the others go on in peace."
        ),
        covers=(
            "REBALANCE_STORM",
            "SESSION_EXPIRED",
            "MEMBER_PAUSED",
            "STATIC_MEMBER_GONE",
            "REVOCATION_TIMED_OUT",
        ),
    ),
    Rule(
        name="REBALANCE_STORM",
        severity=Severity.WARNING,
        title="members went and came faster than the group settles",
        find=storms.rebalance_storm,
        means=(
            "Many members went and came within a minute, so most epochs were overtaken before they were "
            "stable: a restart of everything at once."
        ),
        reads=(
            "Every record 3 with its cause and reasons, records 6 and 8 for whether the epoch was settled."
        ),
        thresholds=(storms.STORM_WINDOW_MS, storms.STORM_EPOCHS_MIN, storms.STORM_MEMBERS_MIN),
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
            "The group's assignor raised an error, answered nonsense or took too long. Members keep what "
            "they have; who joined, and what is new, waits."
        ),
        reads=(
            "Record 3 without a record 6 of its epoch; from the evidence file `trouble` (`work` is `assign`)."
        ),
        do=(
            "The words end with the error and its place. `quorate groups describe` shows it as long as it "
            "lasts; another assignor first in `group.consumer.assignors` helps at once."
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
            "A member that was asked to compute the target did not install one within its rebalance "
            "timeout, or one that is not valid; another one, or the node, had to."
        ),
        reads=(
            "Record 3 without a record 6 of its epoch, and the cause of the one that came at last "
            "(`ASSIGNMENT_INSTALLED`, or not); from the evidence file `trouble` with a `member`."
        ),
        do=(
            "Look at the member's assignor: it runs in the client, and the client's log has its error. A "
            "shorter rebalance timeout makes the next one be asked sooner."
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
            "An epoch had no target for longer than any assignor of the node may take. Without an "
            "evidence file that is all that can be known."
        ),
        reads="Record 3 without a record 6 of its epoch.",
        thresholds=(targets.NO_TARGET_MS,),
        do=("Look into the node's own log of that time, and for the evidence files of the other nodes."),
    ),
    Rule(
        name="EXPRESSIONS_NOT_RESOLVED",
        severity=Severity.WARNING,
        title="subscriptions by expression were not worked out",
        find=targets.expressions_not_resolved,
        means=(
            "What the group's regular expressions match could not be worked out; members keep the topics "
            "that they had."
        ),
        reads="From the evidence file `trouble` (`work` is `resolve`).",
        thresholds=(targets.TROUBLE_PAUSE_MS,),
        do=("The words have the error. An expression that is too expensive is best replaced by names."),
        needs_evidence=True,
    ),
    Rule(
        name="FAILOVER",
        severity=Severity.NOTE,
        title="the leader of the shard was lost",
        find=leaders.failover,
        means=(
            "The node that led the group's shard was lost and another one took over. It explains a "
            "silence of about a second; no member loses its place by it. A planned hand-over is none."
        ),
        reads="TERM_START: `node_id`, `previous_leader`, `why` is `EXPIRY` or `RESET`.",
        do="`quorate log terms` shows the lead of all shards; look at the node that was lost.",
    ),
    Rule(
        name="LEADER_FLAPPING",
        severity=Severity.ERROR,
        title="the lead of the shard does not last",
        find=leaders.leader_flapping,
        means=(
            "The lead began anew again and again within minutes, unplanned. Every time all sessions begin "
            "anew, so a member that died is found late."
        ),
        reads="TERM_START: `why` is `EXPIRY`, `RESET` or `START`, and its time.",
        thresholds=(leaders.LEADS_MIN, leaders.LEADS_PAUSE_MS),
        do=(
            "Look at the links between the nodes and at their disks: `quorate cluster status` shows "
            "delays and round trips."
        ),
        covers=("FAILOVER",),
    ),
    Rule(
        name="INSTANCE_ID_CONTESTED",
        severity=Severity.ERROR,
        title="two processes want one instance id",
        find=requests.instance_id_contested,
        means=(
            "A process was refused because another one has its `group.instance.id`: two have the same "
            "one, or the former died without a word and its place is still kept for it."
        ),
        reads=(
            "From the evidence file `refused` with FENCED_INSTANCE_ID or UNRELEASED_INSTANCE_ID; record 5 "
            "(`instance_id`) and 8 of the member that has it."
        ),
        thresholds=(requests.CONTEST_PAUSE_MS,),
        do=(
            "Give every process an instance id of its own; the client and host of both are in the log. If "
            "the former is dead, `quorate groups remove-member` frees its place before its session does."
        ),
        needs_evidence=True,
    ),
    Rule(
        name="REQUESTS_REFUSED",
        severity=Severity.WARNING,
        title="a client is refused again and again",
        find=requests.requests_refused,
        means=(
            "One client was refused for the same reason time after time: it is none of the group any more "
            "and does not know it, or it holds on to an epoch that is over."
        ),
        reads="From the evidence file `refused`: API, error, reason, member and client.",
        thresholds=(requests.REFUSED_MIN, requests.REFUSED_PAUSE_MS),
        do=(
            "What such a client has read is read by somebody else as well: stop it. A client that keeps "
            "committing after it was fenced ignores the error of its commits."
        ),
        needs_evidence=True,
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _TABLE}

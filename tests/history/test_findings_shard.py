"""A change of leader is a finding of its shard, listed once whatever groups there are."""

from __future__ import annotations

import random

import pytest

from history.answers.findings import findings
from history.answers.findingstext import findings_text
from history.diagnoses.shards import ShardFindings, shard_findings
from history.facts.rows import TermRow
from history.reading.node import NodeLog
from history.telling.explain import explain
from history.telling.prose import explanation_text
from records import Cause, TermWhy, Trigger
from tests.history.repeating_log import opened
from tests.support.memory_log import NOON_MS, Writer, current, group_epoch, group_topics, member, target_epoch


def random_terms(seed: int, count: int = 300) -> list[TermRow]:
    rng, ms, found = random.Random(seed), NOON_MS, []
    pause = 1_000
    for number in range(1, count + 1):
        if rng.random() < 0.1:
            pause = rng.choice((1_000, 60_000, 500_000, 590_000, 40_000_000))
        ms += rng.randint(1, pause)
        why = rng.choice(("EXPIRY", "RESET", "EXPIRY", "TRANSFER", "START"))
        found.append(
            TermRow(
                shard=3,
                term=number,
                index=number * 10,
                timestamp_ms=ms,
                node_id=rng.randint(1, 3),
                previous_leader=rng.choice((-1, 1, 2)),
                why=why,
                is_takeover=why != "START",
                gap_ms=rng.choice((None, 300)),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(20))
def test_findings_of_leaders_concluded_and_open_are_those_of_all_terms(seed: int) -> None:
    terms, rng = random_terms(seed), random.Random(seed)
    run, found, at = ShardFindings(), [], 0
    while at < len(terms):
        some = terms[at : at + rng.choice((1, 5, 40))]
        at += len(some)
        found += run.take(some, some[-1].timestamp_ms)
        run = ShardFindings(run.terms, run.has_first, run.known_ms)
        assert len(run.terms) < 300
    assert sorted([*found, *run.open()], key=repr) == sorted(shard_findings(terms), key=repr)
    assert {one.group_id for one in found} == {None}
    assert len(found) > len(run.open())


def groups_log() -> NodeLog:
    log = Writer()
    log.term(1)
    joined = Cause(trigger=Trigger.MEMBER_JOINED, member_id="ann")
    for group in ("ads", "billing"):
        log.append(
            joined,
            group_topics(1, 1, group=group),
            member("ann", "app", group=group),
            group_epoch(1, group=group),
            target_epoch(1, group=group),
            current("ann", 1, (0,), group=group),
        )
    log.after(1_000).term(2, TermWhy.EXPIRY, previous=2)
    return opened(log.log)


def test_a_failover_is_listed_once_for_all_groups_and_also_for_one() -> None:
    log = groups_log()
    all_of = findings(log)
    assert all_of.groups == ()
    ((shard, (found,)),) = [(one.shard, one.findings) for one in all_of.shards]
    assert (shard, found.kind, found.group_id, found.epochs) == (0, "FAILOVER", None, ())
    assert "took over shard-0 from node 2" in found.words
    text = list(findings_text(all_of))
    assert sum("FAILOVER" in line for line in text) == 2, "once in the summary, once in full"
    assert text[1] == "1 note in 1 shard"
    of_one = findings(log, "billing")
    assert of_one.shards == ()
    ((of_group,),) = [one.findings for one in of_one.groups]
    assert (of_group.kind, of_group.group_id, of_group.rests_on) == ("FAILOVER", "billing", found.rests_on)


def test_a_node_that_leads_again_took_over_from_no_other() -> None:
    log = Writer()
    log.term(1)
    log.after(400).term(1, TermWhy.RESET, previous=1)
    (of_shard,) = findings(opened(log.log)).shards
    (found,) = of_shard.findings
    assert found.words == (
        "node 1 lost the leadership of shard-0 and leads it again, at most 400 ms without a leader: "
        "every session started again"
    )


def test_explain_tells_a_finding_of_the_shard_where_its_term_began() -> None:
    told = list(explanation_text(explain(groups_log(), "billing")))
    (epoch,) = (at for at, line in enumerate(told) if "epoch 0 -> 1" in line)
    (finding,) = (at for at, line in enumerate(told) if line.startswith("  finding   FAILOVER"))
    assert finding > epoch
    assert told[finding + 1].startswith("  term 2: node 1 took over from node 2")

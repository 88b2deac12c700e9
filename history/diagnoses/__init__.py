"""Diagnoses: named rules over facts that detect what a healthy group does not show.

A rule is a pure function of the facts of one group (`history.facts.rows`) and of the node's notes outside the
log. `RULES` lists them all, with what they read and what to do about their findings. A rule must find nothing
in a group in normal use: members that join, leave and restart one after another, topics that grow, planned
restarts and hand-overs of nodes.

rule         what a rule is
table        every rule: meaning, sources, thresholds, advice
findings     applies the rules to one group
case         the facts of one group, indexed for the rules
incremental  the findings of one group, concluded as its facts come
keeping      the findings in all groups of a walk
shards       the findings of a shard about its leaders
members      members that expired, pause, come and go
revoking     partitions that change owner slowly or not at all
rebalances   members of classic groups for whom the others wait
storms       members that come and go faster than the group settles
targets      groups that wait for a target
leaders      leaders that were lost or do not last
requests     requests that were refused repeatedly
"""

from .findings import called, findings_of, words_of, worst_first
from .rule import Rule
from .table import RULES

__all__ = ["RULES", "Rule", "called", "findings_of", "words_of", "worst_first"]

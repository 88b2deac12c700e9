"""Diagnoses: named rules over facts that detect what a healthy group does not show.

A rule is a pure function of the facts of one group (`history.facts.rows`) and of the node's notes outside the
log. `RULES` lists them all, with what they read and what to do about their findings. A rule must find nothing
in a group in normal use: members that join, leave and restart one after another, topics that grow, planned
restarts and hand-overs of nodes.
"""

from .findings import findings_of, words_of
from .rule import Rule
from .table import RULES

__all__ = ["RULES", "Rule", "findings_of", "words_of"]

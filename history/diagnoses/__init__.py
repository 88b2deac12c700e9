"""What a healthy group does not show: rules over facts, each with a name.

A rule is a pure function of the facts of one group (`history.facts.rows`) and of what the node noted beside
its log; `RULES` has them all, with what they read and what to do about what they find. A rule may not find
anything in a group that is merely used: members that come, go and restart one after another, topics that
grow, planned restarts and hand-overs of nodes.
"""

from .findings import findings_of, words_of
from .rule import Rule
from .table import RULES

__all__ = ["RULES", "Rule", "findings_of", "words_of"]

"""The protocols that play, oldest first.

on_cluster  what all players have in common: a cluster of three nodes in virtual time, and members
older       what the players of the older protocols have in common: their ports
push        the push protocol, seed 004
rewrite     the protocol of the coordinator's rewrite, seed 000: as designed, or as its thread has it
classic     the classic protocol: eager, or cooperative
classic_offsets  the offsets of its members
consumer    the consumer group protocol, KIP-848
beginnings  where work begins, for members whose protocol does not say it with the assignment
"""

from __future__ import annotations

from lineage.push.decisions import Failover
from quorate.generations.contest import Player
from quorate.generations.players.classic import ClassicPlayer
from quorate.generations.players.consumer import ConsumerPlayer
from quorate.generations.players.push import Commits, PushPlayer
from quorate.generations.players.rewrite import RewritePlayer


def players(*, has_variants: bool = False) -> list[Player]:
    """Return new players, oldest protocol first, each variant after its protocol."""
    found: list[Player] = [
        PushPlayer(),
        PushPlayer(failover=Failover.LOG),
        PushPlayer(commits=Commits.OFFSET_COMMIT),
        PushPlayer(commits=Commits.NONE),
        RewritePlayer(),
        RewritePlayer("thread"),
        ClassicPlayer(),
        ClassicPlayer(is_cooperative=True),
        ConsumerPlayer(),
    ]
    return [player for player in found if has_variants or not player.is_variant]

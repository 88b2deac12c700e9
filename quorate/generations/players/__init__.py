"""The protocols that play, oldest first.

push        the push protocol, seed 004
rewrite     the protocol of the coordinator's rewrite, seed 000
on_cluster  what players have in common whose coordinator is a cluster of three nodes
classic     the classic protocol: eager, or cooperative
consumer    the consumer group protocol, KIP-848
"""

from __future__ import annotations

from quorate.generations.contest import Player
from quorate.generations.players.classic import ClassicPlayer
from quorate.generations.players.consumer import ConsumerPlayer
from quorate.generations.players.push import PushPlayer
from quorate.generations.players.rewrite import RewritePlayer


def players(*, has_cooperative: bool = False) -> list[Player]:
    """Return new players, oldest protocol first."""
    cooperative: list[Player] = [ClassicPlayer(is_cooperative=True)] if has_cooperative else []
    return [PushPlayer(), RewritePlayer(), ClassicPlayer(), *cooperative, ConsumerPlayer()]

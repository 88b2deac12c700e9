"""`quorate generations`: the generations of the group protocol, compared on one seeded schedule."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quorate.commands.log.pagefile import Force, claim, write_page
from quorate.commands.options import flag, option
from quorate.output import say

if TYPE_CHECKING:
    from quorate.generations.contest import PlayerResult


def generations(
    members: Annotated[
        int,
        option(
            "--members", "N", "Members to begin with; there are three partitions for each.", min=2, max=500
        ),
    ] = 50,
    churn: Annotated[
        int,
        option("--churn", "SEED", "The seed of the schedule: who joins, leaves and is slow, and when."),
    ] = 1,
    minutes: Annotated[
        float,
        option("--minutes", "N", "Length of the schedule, in minutes of virtual time.", min=1.0, max=60.0),
    ] = 5.0,
    variants: Annotated[
        bool,
        flag("--variants", "Also play variants: push's failover and commits, the thread, cooperative."),
    ] = False,
    out: Annotated[Path, option("--out", "FILE", "The page, one self-contained HTML file.")] = Path(
        "generations.html"
    ),
    force: Force = False,
) -> None:
    """Play one schedule of joins, leaves, slow members and kills to each generation of the group protocol.

    Nothing is started and no port is opened: coordinators and members run in virtual time. The same options
    give the same page.

    Example: quorate generations --members 50 --churn 4 --out generations.html
    """
    from quorate.generations.contest import play_all
    from quorate.generations.page import generations_page
    from quorate.generations.players import players
    from quorate.generations.schedule import draw

    claim(out, force=force)
    logging.getLogger("quorate").addHandler(logging.NullHandler())  # the simulated nodes log, too
    schedule = draw(churn, members, minutes)
    results = play_all(players(has_variants=variants), schedule, _tell)
    text = generations_page(schedule, results, has_variants=variants)
    say(write_page(out, text, force=force))


def _tell(result: PlayerResult) -> None:
    say(f"{result.name}: {result.sentence}")

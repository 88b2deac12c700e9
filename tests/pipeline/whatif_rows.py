"""The answers of plain history to a what-if, in the columns of the pipeline."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from history.reading.node import NodeLog
from history.whatif.answer import whatif_of
from history.whatif.measures import Measures
from history.whatif.settings import WhatIf

if TYPE_CHECKING:
    pass


Row = dict[str, Any]


def _whatif(log: NodeLog, change: WhatIf, cluster_id: str) -> list[Row]:
    return [
        {
            "cluster_id": cluster_id,
            "group_id": one.group_id,
            "shard": one.shard,
            "asked": list(one.asked),
            "left_out": one.left_out or None,
            "assignor": one.assignor or None,
            "is_faithful": None if one.really is None else one.is_faithful,
            "difference": None if one.really is None else one.difference,
            **{
                f"{course}_{field.name}": None if measures is None else getattr(measures, field.name)
                for course, measures in (("really", one.really), ("whatif", one.whatif))
                for field in fields(Measures)
            },
            "has_evidence": one.has_evidence,
            "interval_ms": one.interval_ms,
            "notes": list(one.notes),
        }
        for one in whatif_of(log, change).results
    ]

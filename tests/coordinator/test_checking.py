"""The check that authors of assignors run: it passes ours, and finds each fault that an assignor may have."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.assignors import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignorError,
    RangeAssignor,
    UniformAssignor,
)
from coordinator.assignors.checking import CHECKS, PropertyViolated, check_assignor

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "assignor" / "quorate_rendezvous.py"


@pytest.mark.parametrize("seed", range(2))
def test_ours_keep_what_they_promise(seed: int) -> None:
    check_assignor(UniformAssignor(), ("P1", "P2", "P3", "P4", "P5", "P7"), rounds=80, seed=seed)
    check_assignor(RangeAssignor(), ("P1", "P4", "P6", "P7"), rounds=80, seed=seed)


def test_the_example_is_a_correct_assignor() -> None:
    check_assignor(runpy.run_path(str(EXAMPLE))["Rendezvous"]())


def test_the_examples_own_test_runs_in_its_directory() -> None:
    """The example's test runs as its text says, without the settings of a surrounding project."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=EXAMPLE.parent, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


class Faulty:
    """The uniform assignor with a fault."""

    name = "faulty"

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        first = next(iter(spec.members))
        try:
            parts: dict[str, Any] = dict(UniformAssignor().assign(spec).members)
        except PartitionAssignorError:
            if self.fault == "P7":
                return GroupAssignment({})
            raise
        if self.fault == "P1":
            parts[first] = MemberAssignment({})
        elif self.fault == "P4":  # as KAFKA-18688: the order of the members counts
            parts = dict(zip(spec.members, [parts[member_id] for member_id in sorted(parts)], strict=True))
        elif self.fault in ("P2", "P3", "P5"):  # all to one, whoever had it
            parts = {member_id: MemberAssignment({}) for member_id in spec.members}
            whole = {topic_id: tuple(range(topic.num_partitions)) for topic_id, topic in spec.topics.items()}
            parts[max(spec.members)] = MemberAssignment(whole)
        elif self.fault == "P6":
            pass  # uniform gives no ranges
        return GroupAssignment(parts)


@pytest.mark.parametrize("fault", sorted(CHECKS))
def test_each_fault_is_found_and_named(fault: str) -> None:
    with pytest.raises(PropertyViolated, match=f"^faulty, {fault}: "):
        check_assignor(Faulty(fault), [fault])


def test_the_same_seed_asks_the_same() -> None:
    def first_complaint() -> str:
        with pytest.raises(PropertyViolated) as caught:
            check_assignor(RangeAssignor(), ["P5"], seed=7)
        return str(caught.value)

    assert first_complaint() == first_complaint()
